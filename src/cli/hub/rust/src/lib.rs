//! An HTTP client behind the C ABI of `src/cli/hub/situ_hub.h`: one request, no redirect is followed. Where a token may go
//! and which redirects are good, the C++ side knows.

mod digest;
mod roots;

use std::ffi::{c_char, c_int, CStr};
use std::io::Read;
use std::sync::OnceLock;
use std::time::Duration;

use situ_ffi as ffi;
use ureq::http::{Response, StatusCode};
use ureq::{Agent, Body, BodyReader};

/// Until a connection stands, and until the head of an answer has come.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);
/// Until the next byte of a body comes; how long the whole takes, nobody minds.
const BODY_PATIENCE: Duration = Duration::from_secs(60);

pub struct Answer {
    status: StatusCode,
    head: Response<()>,
    body: BodyReader<'static>,
}

fn failed<T>(text: impl Into<String>) -> Result<T, ffi::Error> {
    Err(ffi::Error { code: ffi::Code::Internal, text: text.into() })
}

/// What another call ends in, too: a certificate that nobody vouches for, another host's, no TLS at all.
fn is_for_good(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::Tls(_) | ureq::Error::Rustls(_) | ureq::Error::Pem(_) => true,
        ureq::Error::Io(io) => io.kind() == std::io::ErrorKind::InvalidData,
        _ => false,
    }
}

fn agent() -> &'static Agent {
    static AGENT: OnceLock<Agent> = OnceLock::new();
    AGENT.get_or_init(|| {
        let tls = ureq::tls::TlsConfig::builder().root_certs(roots::roots()).build();
        Agent::config_builder()
            .tls_config(tls)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .accept_encoding("identity")
            .user_agent(concat!("situ/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(ANSWER_PATIENCE))
            .timeout_recv_response(Some(ANSWER_PATIENCE))
            .timeout_per_read(Some(BODY_PATIENCE))
            .build()
            .new_agent()
    })
}

unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, ffi::Error> {
    CStr::from_ptr(text).to_str().or_else(|_| failed("no UTF-8"))
}

fn send(method: &str, url: &str, token: &str, from: u64, direct: bool) -> Result<Answer, ffi::Error> {
    let mut request = match method {
        "HEAD" => agent().head(url),
        _ => agent().get(url),
    };
    if direct {
        request = request.config().proxy(None).build();
    }
    if !token.is_empty() {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    if from > 0 {
        request = request.header("Range", format!("bytes={from}-"));
    }
    let answer: Response<Body> = request.call().map_err(|e| ffi::Error {
        code: if is_for_good(&e) { ffi::Code::Unsupported } else { ffi::Code::Internal },
        text: e.to_string(),
    })?;
    let (head, body) = answer.into_parts();
    Ok(Answer {
        status: head.status,
        head: Response::from_parts(head, ()),
        body: body.into_reader(),
    })
}

/// Safety: texts end with a NUL; pointers are valid for writes.
#[no_mangle]
pub unsafe extern "C" fn situ_hub_send(
    method: *const c_char,
    url: *const c_char,
    token: *const c_char,
    from: u64,
    direct: c_int,
    answer: *mut *mut Answer,
    error: *mut ffi::Text,
) -> c_int {
    ffi::guarded(error, || {
        let got = send(text(method)?, text(url)?, text(token)?, from, direct != 0)?;
        *answer = Box::into_raw(Box::new(got));
        Ok(())
    })
}

/// Safety: an answer of situ_hub_send.
#[no_mangle]
pub unsafe extern "C" fn situ_hub_status(answer: *const Answer) -> c_int {
    (*answer).status.as_u16().into()
}

/// Safety: an answer of situ_hub_send; `name` ends with a NUL; `to` is valid for `room` writes.
#[no_mangle]
pub unsafe extern "C" fn situ_hub_header(
    answer: *const Answer,
    name: *const c_char,
    to: *mut c_char,
    room: usize,
) -> usize {
    ffi::quietly(|| {
        let value = text(name).ok().and_then(|name| (*answer).head.headers().get(name));
        let Some(value) = value else { return 0 };
        let bytes = value.as_bytes();
        if bytes.len() <= room {
            ffi::slice_mut(to.cast::<u8>(), bytes.len()).copy_from_slice(bytes);
        }
        bytes.len()
    })
    .unwrap_or(0)
}

/// Safety: an answer of situ_hub_send; `to` is valid for `room` writes; `size` for one.
#[no_mangle]
pub unsafe extern "C" fn situ_hub_read(
    answer: *mut Answer,
    to: *mut c_char,
    room: usize,
    size: *mut usize,
    error: *mut ffi::Text,
) -> c_int {
    ffi::guarded(error, || {
        let place = ffi::slice_mut(to.cast::<u8>(), room);
        *size = (*answer).body.read(place).or_else(|e| failed(e.to_string()))?;
        Ok(())
    })
}

/// Safety: null, or an answer of situ_hub_send that is not used any more.
#[no_mangle]
pub unsafe extern "C" fn situ_hub_free(answer: *mut Answer) {
    if !answer.is_null() {
        let _ = ffi::quietly(|| drop(Box::from_raw(answer)));
    }
}
