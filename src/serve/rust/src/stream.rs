//! A connection as hyper reads and writes it, with what hyper does not watch.

use std::future::Future;
use std::io;
use std::mem::ManuallyDrop;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, FromRawFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{ready, Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{sleep, sleep_until, Instant, Sleep};

use crate::answer::error_body;
use crate::head_watch::HeadWatch;
use crate::pace::Pace;
use crate::Handler;

pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// The same call of either kind.
macro_rules! either {
    ($socket:expr, $s:ident => $call:expr) => {
        match $socket {
            Socket::Tcp($s) => $call,
            Socket::Unix($s) => $call,
        }
    };
}

fn would_block<T>(result: &io::Result<T>) -> bool {
    result.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
}

impl Socket {
    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(either!(self, s => s.poll_read_ready(cx)))?;
            let space = buf.initialize_unfilled();
            let read = either!(self, s => s.try_read(space));
            if !would_block(&read) {
                return Poll::Ready(read.map(|bytes| buf.advance(bytes)));
            }
        }
    }

    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(either!(self, s => s.poll_write_ready(cx)))?;
            let written = either!(self, s => s.try_write(bytes));
            if !would_block(&written) {
                return Poll::Ready(written);
            }
        }
    }

    /// Sends no more.
    fn shutdown(&self) -> io::Result<()> {
        let descriptor = either!(self, s => s.as_raw_fd());
        // Safety: it is open, and stays so: what borrows it here does not close it. Sockets of all kinds are shut down
        // by one call of the system.
        let socket = ManuallyDrop::new(unsafe { std::net::TcpStream::from_raw_fd(descriptor) });
        match socket.shutdown(Shutdown::Write) {
            Err(e) if e.kind() != io::ErrorKind::NotConnected => Err(e),
            _ => Ok(()),
        }
    }

    /// Bytes that the system has taken and the client has not. 0 where the system does not say.
    fn queued(&self) -> i64 {
        let descriptor = either!(self, s => s.as_raw_fd());
        let mut bytes: libc::c_int = 0;
        // Safety: the descriptor is open; the call writes one int.
        let said = unsafe { libc::ioctl(descriptor, libc::TIOCOUTQ, &mut bytes) };
        if said == 0 {
            bytes.into()
        } else {
            0
        }
    }

    /// Until the connection was reset: the client does not read either.
    pub async fn reset(&self) {
        let _ = either!(self, s => s.ready(Interest::ERROR).await);
    }

    /// Until the client sends nothing any more, whatever is still to be read of what it sent.
    pub async fn gone(&self) {
        // Nothing is ever of priority here; what else ends this wait is the end of what can be read.
        let _ = either!(self, s => s.ready(Interest::PRIORITY).await);
    }
}

/// What the service and the stream of a connection tell each other.
#[derive(Default)]
pub struct Shared {
    pub heads: Mutex<HeadWatch>,
    /// The last exchange that began; 0: none did.
    pub exchange: AtomicU64,
    /// It is closed between requests: nothing is on its way.
    pub idle: AtomicBool,
    /// There is an exchange that is not over.
    pub busy: AtomicBool,
    /// Bytes wait to be written.
    writing: AtomicBool,
    /// Nothing is written any more; what comes is forgotten.
    pub lingers: AtomicBool,
    /// Its request's, while it is at work.
    pub room: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Shared {
    /// It has a request, or an answer that is not written to its end.
    pub fn at_work(&self) -> bool {
        self.busy.load(Ordering::Relaxed) || self.writing.load(Ordering::Relaxed)
    }
}

/// Closing while bytes of the client are unread, or on their way, resets the connection, and with it the answer that
/// is on its way. So what comes is read and forgotten until the client closes too, is silent for so long, or has sent
/// for so long.
const LINGER: Duration = Duration::from_millis(1000);
const LONGEST_LINGER: Duration = Duration::from_secs(10);

/// hyper ends a connection that begins like this without an answer.
const HTTP_2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub struct Stream {
    socket: Arc<Socket>,
    shared: Arc<Shared>,
    handler: Handler,
    pace: Pace,
    written: i64, // bytes that the system has taken
    stalled: Option<Pin<Box<Sleep>>>,
    linger: Option<(Pin<Box<Sleep>>, Instant)>, // until then at the latest
    own: Vec<u8>,                               // an answer in place of hyper's, as far as it is not written
    http_2: Option<usize>,                      // so many bytes of HTTP_2 came, and nothing else
}

impl Stream {
    pub fn new(socket: Arc<Socket>, shared: Arc<Shared>, handler: Handler, pace: Pace) -> Self {
        let (own, http_2) = (Vec::new(), Some(0));
        Stream { socket, shared, handler, pace, written: 0, stalled: None, linger: None, own, http_2 }
    }

    /// An error once the client takes too few bytes.
    fn watch(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.shared.writing.store(result.is_pending(), Ordering::Relaxed);
        if let Poll::Ready(done) = result {
            self.stalled = None;
            self.written += done.as_ref().map_or(0, |&bytes| bytes as i64);
            return Poll::Ready(done);
        }
        loop {
            let taken = self.written - self.socket.queued();
            let Some(next) = self.pace.waiting(Instant::now(), taken) else {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            };
            let timer = self.stalled.get_or_insert_with(|| Box::pin(sleep_until(next)));
            timer.as_mut().reset(next);
            ready!(timer.as_mut().poll(cx));
        }
    }

    fn poll_socket(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.pace.is_watched() && self.socket.queued() == 0 {
            self.pace.caught_up();
        }
        let result = self.socket.poll_write(cx, bytes);
        self.watch(cx, result)
    }

    /// Keeps the beginning of HTTP/2 from hyper, which then answers as it does to all that it cannot read.
    fn hide_http_2(&mut self, bytes: &mut [u8]) {
        let Some(before) = self.http_2 else { return };
        let same = bytes.iter().zip(&HTTP_2[before..]).take_while(|(a, b)| a == b).count();
        self.http_2 = Some(before + same).filter(|&all| same == bytes.len() && all < HTTP_2.len());
        if before + same == HTTP_2.len() {
            bytes[same - 1] = b'?';
        }
    }

    fn write_own(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.own.is_empty() {
            let own = std::mem::take(&mut self.own);
            let result = self.poll_socket(cx, &own);
            self.own = own;
            let written = ready!(result)?;
            self.own.drain(..written);
        }
        Poll::Ready(Ok(()))
    }
}

/// hyper's own answer, to a head that it cannot read, with the body that errors have. The service's errors are never
/// empty.
fn with_body(head: &[u8], handler: &Handler, heads: &Mutex<HeadWatch>) -> Option<Vec<u8>> {
    if !head.starts_with(b"HTTP/1.1 4") {
        return None;
    }
    let text = std::str::from_utf8(head).ok()?;
    if !text.ends_with("\r\n\r\n") || !text.contains("\r\ncontent-length: 0\r\n") {
        return None;
    }
    let status: u16 = text.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let (foreign, path) = {
        let heads = heads.lock().unwrap();
        (heads.foreign(), heads.path())
    };
    let status = if status == 400 && foreign { 505 } else { status };
    let message = match status {
        505 => "this server speaks HTTP/1.1; HTTP/2 takes a proxy in front of it",
        431 => "the header of the request is too large",
        414 => "the URL is too long",
        _ => "this is not a request of HTTP/1.1",
    };
    let reason = hyper::StatusCode::from_u16(status).ok()?.canonical_reason().unwrap_or("");
    let mut rest = handler.broken(status, &path, message);
    if rest.is_empty() {
        let body = error_body(message, "invalid_request_error");
        rest = format!("content-length: {}\r\n\r\n{body}", body.len());
    }
    let common = "content-type: application/json\r\nconnection: close";
    Some(format!("HTTP/1.1 {status} {reason}\r\n{common}\r\n{rest}").into_bytes())
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        let before = buf.filled().len();
        let result = me.socket.poll_read(cx, buf);
        me.shared.heads.lock().unwrap().read(&buf.filled()[before..]);
        me.hide_http_2(&mut buf.filled_mut()[before..]);
        result
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        ready!(me.write_own(cx))?;
        if let Some(own) = with_body(bytes, &me.handler, &me.shared.heads) {
            me.own = own;
            return Poll::Ready(Ok(bytes.len()));
        }
        me.poll_socket(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        me.write_own(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        ready!(me.write_own(cx))?;
        if me.linger.is_none() {
            me.socket.shutdown()?;
            if me.shared.idle.load(Ordering::Relaxed) {
                return Poll::Ready(Ok(()));
            }
            me.shared.lingers.store(true, Ordering::Relaxed);
            me.linger = Some((Box::pin(sleep(LINGER)), Instant::now() + LONGEST_LINGER));
        }
        let Some((timer, end)) = me.linger.as_mut() else { return Poll::Ready(Ok(())) };
        let mut space = [0u8; 16384];
        loop {
            if timer.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            let mut buf = ReadBuf::new(&mut space);
            match ready!(me.socket.poll_read(cx, &mut buf)) {
                Ok(()) if !buf.filled().is_empty() => timer.as_mut().reset((Instant::now() + LINGER).min(*end)),
                _ => return Poll::Ready(Ok(())),
            }
        }
    }
}
