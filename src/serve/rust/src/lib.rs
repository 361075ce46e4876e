//! An HTTP/1.1 server behind the C ABI of `src/serve/situ_http.h`: hyper reads and writes; limits, clocks and what
//! hyper lets pass are here. What is asked and answered, the C++ side knows.

mod answer;
mod exchange;
mod head_watch;
mod pace;
mod server;
mod stream;

use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

use hyper::body::Bytes;
use hyper::header::{HeaderName, HeaderValue, CONNECTION};
use hyper::{Response, StatusCode};
use situ_ffi as ffi;

use answer::Content;
pub use server::Server;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Text {
    data: *const c_char,
    size: usize,
}

impl Text {
    fn of(bytes: &[u8]) -> Self {
        Text { data: bytes.as_ptr().cast(), size: bytes.len() }
    }

    unsafe fn bytes<'a>(&self) -> &'a [u8] {
        ffi::slice(self.data.cast(), self.size)
    }
}

#[repr(C)]
pub struct Header {
    name: Text,
    value: Text,
}

#[repr(C)]
pub struct Head {
    method: Text,
    path: Text,
    query: Text,
    peer: Text,
    connection: u64,
    full: bool,
    headers: *const Header,
    header_count: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Handler {
    context: *mut c_void,
    head: extern "C" fn(*mut c_void, u64, *const Head, c_int, Text) -> c_int,
    request: extern "C" fn(*mut c_void, u64, Text, c_int, Text) -> bool,
    broken: extern "C" fn(*mut c_void, c_int, Text, Text, *mut c_char, usize) -> usize,
    gone: extern "C" fn(*mut c_void, u64),
    over: extern "C" fn(*mut c_void, u64, bool),
}

// The caller says that its context may be used by the server's thread.
unsafe impl Send for Handler {}
unsafe impl Sync for Handler {}

/// A status other than 200 that has to be answered, and why.
pub type Fault = Option<(StatusCode, &'static str)>;

fn parts_of(fault: Fault) -> (c_int, Text) {
    fault.map_or((0, Text::of(b"")), |(status, why)| (status.as_u16() as c_int, Text::of(why.as_bytes())))
}

/// What took a head or a body could not.
pub struct Failed;

impl Handler {
    /// Whether the body is wanted.
    fn head(&self, id: u64, head: &server::RequestHead, fault: Fault) -> Result<bool, Failed> {
        let headers: Vec<Header> = head
            .headers
            .iter()
            .map(|(name, value)| Header { name: Text::of(name.as_str().as_bytes()), value: Text::of(value.as_bytes()) })
            .collect();
        let head = Head {
            method: Text::of(head.method.as_str().as_bytes()),
            path: Text::of(head.uri.path().as_bytes()),
            query: Text::of(head.uri.query().unwrap_or("").as_bytes()),
            peer: Text::of(head.peer.as_bytes()),
            connection: head.connection,
            full: head.full,
            headers: headers.as_ptr(),
            header_count: headers.len(),
        };
        let (status, why) = parts_of(fault);
        match (self.head)(self.context, id, &head, status, why) {
            -1 => Err(Failed),
            wanted => Ok(wanted != 0),
        }
    }

    fn request(&self, id: u64, body: &[u8], fault: Fault) -> Result<(), Failed> {
        let (status, why) = parts_of(fault);
        (self.request)(self.context, id, Text::of(body), status, why).then_some(()).ok_or(Failed)
    }

    /// What the answer to a head that cannot be read has behind the fields that all answers have; empty: there is no
    /// memory for it.
    fn broken(&self, status: u16, path: &[u8], why: &str) -> String {
        let mut rest = [0u8; 1024];
        let (path, why, room) = (Text::of(path), Text::of(why.as_bytes()), rest.len());
        let size = (self.broken)(self.context, status.into(), path, why, rest.as_mut_ptr().cast(), room);
        String::from_utf8_lossy(&rest[..size.min(room)]).into_owned()
    }

    fn gone(&self, id: u64) {
        (self.gone)(self.context, id)
    }

    fn over(&self, id: u64, whole: bool) {
        (self.over)(self.context, id, whole)
    }
}

#[repr(C)]
pub struct CLimits {
    header_bytes: usize,
    headers: usize,
    body_bytes: usize,
    bodies_bytes: usize,
    connections: usize,
    spare: usize,
    header_ms: u32,
    idle_ms: u32,
    body_ms: u32,
    write_ms: u32,
    write_rate: u64,
}

/// Safety: as situ_http.h says.
#[no_mangle]
pub unsafe extern "C" fn situ_http_start(
    handler: *const Handler,
    limits: *const CLimits,
    sockets: *const c_int,
    count: usize,
    error: *mut ffi::Text,
) -> *mut Server {
    let mut server = std::ptr::null_mut();
    ffi::guarded(error, || {
        let l = &*limits;
        let limits = server::Limits {
            header_bytes: l.header_bytes,
            headers: l.headers,
            body_bytes: l.body_bytes,
            bodies_bytes: l.bodies_bytes,
            connections: l.connections,
            spare: l.spare,
            header: Duration::from_millis(l.header_ms.into()),
            idle: Duration::from_millis(l.idle_ms.into()),
            body: Duration::from_millis(l.body_ms.into()),
            write: Duration::from_millis(l.write_ms.into()),
            write_rate: l.write_rate,
        };
        let started = Server::start(*handler, limits, ffi::slice(sockets, count));
        let failed = |e: std::io::Error| ffi::Error { code: ffi::Code::Internal, text: e.to_string() };
        server = Box::into_raw(Box::new(started.map_err(failed)?));
        Ok(())
    });
    server
}

unsafe fn response<T>(status: c_int, headers: *const Header, count: usize, body: T) -> Option<Response<T>> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status as u16).ok()?;
    for header in ffi::slice(headers, count) {
        let name = HeaderName::from_bytes(header.name.bytes()).ok()?;
        response.headers_mut().append(name, HeaderValue::from_bytes(header.value.bytes()).ok()?);
    }
    Some(response)
}

/// Safety: as situ_http.h says.
#[no_mangle]
pub unsafe extern "C" fn situ_http_respond(
    server: *mut Server,
    id: u64,
    status: c_int,
    headers: *const Header,
    count: usize,
    body: Text,
    close: bool,
) -> bool {
    let quiet = ffi::quietly(|| {
        let content = Content::Whole(Bytes::copy_from_slice(body.bytes()));
        let Some(mut response) = response(status, headers, count, content) else { return false };
        if close {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        (*server).exchanges.respond(id, response)
    });
    quiet.unwrap_or(false)
}

/// Safety: as situ_http.h says.
#[no_mangle]
pub unsafe extern "C" fn situ_http_begin(
    server: *mut Server,
    id: u64,
    status: c_int,
    headers: *const Header,
    count: usize,
) -> bool {
    let quiet =
        ffi::quietly(|| response(status, headers, count, ()).is_some_and(|r| (*server).exchanges.begin_answer(id, r)));
    quiet.unwrap_or(false)
}

/// Safety: as situ_http.h says.
#[no_mangle]
pub unsafe extern "C" fn situ_http_write(server: *mut Server, id: u64, bytes: Text) -> i64 {
    let waiting = ffi::quietly(|| (*server).exchanges.write(id, bytes.bytes()));
    waiting.ok().flatten().map_or(-1, |w| w as i64)
}

/// Safety: as situ_http.h says.
#[no_mangle]
pub unsafe extern "C" fn situ_http_take(server: *mut Server, id: u64, bytes: usize) -> bool {
    ffi::quietly(|| (*server).exchanges.take(id, bytes)).unwrap_or(false)
}

/// Safety: as situ_http.h says.
#[no_mangle]
pub unsafe extern "C" fn situ_http_end(server: *mut Server, id: u64) {
    let _ = ffi::quietly(|| (*server).exchanges.end(id));
}

/// Safety: as situ_http.h says.
#[no_mangle]
pub unsafe extern "C" fn situ_http_abort(server: *mut Server, id: u64) {
    let _ = ffi::quietly(|| (*server).exchanges.abort(id));
}

/// Safety: as situ_http.h says.
#[no_mangle]
pub unsafe extern "C" fn situ_http_stop(server: *mut Server) {
    let _ = ffi::quietly(|| (*server).stop());
}

/// Safety: as situ_http.h says.
#[no_mangle]
pub unsafe extern "C" fn situ_http_wait(server: *mut Server, ms: u32) -> bool {
    ffi::quietly(|| (*server).wait(Duration::from_millis(ms.into()))).unwrap_or(true)
}

/// Safety: as situ_http.h says.
#[no_mangle]
pub unsafe extern "C" fn situ_http_finish(server: *mut Server) {
    let _ = ffi::quietly(|| (*server).finish());
}

/// Safety: as situ_http.h says.
#[no_mangle]
pub unsafe extern "C" fn situ_http_free(server: *mut Server) {
    if !server.is_null() {
        let _ = ffi::quietly(|| drop(Box::from_raw(server)));
    }
}
