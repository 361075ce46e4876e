//! The thread of the server: accepts, and takes each connection through its requests.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::{poll_fn, Future};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::pin::{pin, Pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{HeaderMap, HeaderValue, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HOST, TRANSFER_ENCODING};
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode, Uri, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{watch, Notify, Semaphore};
use tokio::time::{sleep, timeout, Instant, Sleep};

use crate::answer::{error_body, Answer, Content};
use crate::exchange::{Exchanges, Guard};
use crate::pace::Pace;
use crate::stream::{Shared, Socket, Stream};
use crate::{Fault, Handler};

pub struct Limits {
    pub header_bytes: usize,
    pub headers: usize,
    pub body_bytes: usize,
    pub bodies_bytes: usize,
    pub connections: usize,
    pub spare: usize,
    pub header: Duration,
    pub idle: Duration,
    pub body: Duration,
    pub write: Duration,
    pub write_rate: u64,
}

pub struct RequestHead {
    pub method: Method,
    pub uri: Uri,
    pub version: Version,
    pub headers: HeaderMap,
    pub peer: String,
    pub connection: u64,
    /// As many connections are at work as may, the spare ones aside.
    pub full: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Open,
    Stopping,
    Ended,
}

#[derive(Default)]
struct Count {
    connections: Mutex<usize>,
    changed: Condvar,
}

struct Counted(Arc<Count>);

impl Counted {
    fn new(count: &Arc<Count>) -> Self {
        *count.connections.lock().unwrap() += 1;
        Counted(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        *self.0.connections.lock().unwrap() -= 1;
        self.0.changed.notify_all();
    }
}

/// What connections share.
struct Common {
    handler: Handler,
    limits: Limits,
    exchanges: Arc<Exchanges>,
    phase: watch::Receiver<Phase>,
    count: Arc<Count>,
    connections: AtomicU64, // so far
    /// Those that there are, by number, and what ends each.
    open: Mutex<BTreeMap<u64, (Arc<Notify>, Arc<Shared>)>>,
    /// For connections at work.
    rooms: Arc<Semaphore>,
}

impl Common {
    /// Drops the oldest connection that has no request: whoever only connects keeps nobody out.
    fn drop_idle(&self) {
        let mut open = self.open.lock().unwrap();
        let idle = open.iter().find(|(_, (_, shared))| !shared.at_work()).map(|(number, _)| *number);
        if let Some((kill, _)) = idle.and_then(|number| open.remove(&number)) {
            kill.notify_one();
        }
    }

    /// Whether there is room for a connection's request, until it is not at work.
    fn has_room(&self, shared: &Shared) -> bool {
        let mut room = shared.room.lock().unwrap();
        if room.is_none() {
            *room = self.rooms.clone().try_acquire_owned().ok();
        }
        room.is_some()
    }
}

pub struct Server {
    pub exchanges: Arc<Exchanges>,
    phase: watch::Sender<Phase>,
    count: Arc<Count>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Safety: the descriptor is an open socket that nobody else owns.
    unsafe fn of(descriptor: i32) -> io::Result<Self> {
        let owned = OwnedFd::from_raw_fd(descriptor);
        let tcp = std::net::TcpListener::from(owned);
        tcp.set_nonblocking(true)?;
        if tcp.local_addr().is_ok() {
            return Ok(Listener::Tcp(TcpListener::from_std(tcp)?));
        }
        let unix = std::os::unix::net::UnixListener::from(OwnedFd::from(tcp));
        Ok(Listener::Unix(UnixListener::from_std(unix)?))
    }

    async fn accept(&self) -> io::Result<(Socket, String)> {
        match self {
            Listener::Tcp(listener) => {
                let (socket, address) = listener.accept().await?;
                let _ = socket.set_nodelay(true);
                Ok((Socket::Tcp(socket), address.ip().to_canonical().to_string()))
            }
            Listener::Unix(listener) => Ok((Socket::Unix(listener.accept().await?.0), String::new())),
        }
    }
}

impl Server {
    /// Safety: as `Listener::of`.
    pub unsafe fn start(handler: Handler, limits: Limits, sockets: &[i32]) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let listeners = {
            let _inside = runtime.enter();
            sockets.iter().map(|&s| Listener::of(s)).collect::<io::Result<Vec<_>>>()?
        };
        let (phase, watched) = watch::channel(Phase::Open);
        let count = Arc::new(Count::default());
        let exchanges = Exchanges::new(handler, limits.bodies_bytes);
        let rooms = Arc::new(Semaphore::new(limits.connections.saturating_sub(limits.spare)));
        let common = Arc::new(Common {
            handler,
            limits,
            exchanges: exchanges.clone(),
            phase: watched,
            count: count.clone(),
            connections: AtomicU64::new(0),
            open: Mutex::default(),
            rooms,
        });
        let thread = std::thread::Builder::new().name("situ-http".into()).spawn(move || {
            runtime.block_on(async {
                let slots = Arc::new(Semaphore::new(common.limits.connections));
                for listener in listeners {
                    tokio::spawn(accept(listener, common.clone(), slots.clone()));
                }
                let mut phase = common.phase.clone();
                let _ = phase.wait_for(|p| *p == Phase::Ended).await;
            });
            // Connections are dropped with the runtime, and what waits for them is told.
            drop(runtime);
        })?;
        Ok(Server { exchanges, phase, count, thread: Mutex::new(Some(thread)) })
    }

    pub fn stop(&self) {
        self.phase.send_if_modified(|p| std::mem::replace(p, Phase::Stopping) == Phase::Open);
    }

    /// Drops what there is, and waits for the thread.
    pub fn finish(&self) {
        let _ = self.phase.send(Phase::Ended);
        if let Some(thread) = self.thread.lock().unwrap().take() {
            let _ = thread.join();
        }
    }

    pub fn wait(&self, limit: Duration) -> bool {
        let connections = self.count.connections.lock().unwrap();
        let waited = self.count.changed.wait_timeout_while(connections, limit, |c| *c > 0);
        waited.is_ok_and(|(connections, _)| *connections == 0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.finish();
    }
}

/// The first that is ready; `first` is asked first.
async fn either<A: Future, B: Future>(first: A, second: B) -> Result<A::Output, B::Output> {
    let (mut first, mut second) = (pin!(first), pin!(second));
    poll_fn(|cx| {
        if let Poll::Ready(a) = first.as_mut().poll(cx) {
            return Poll::Ready(Ok(a));
        }
        second.as_mut().poll(cx).map(Err)
    })
    .await
}

async fn stopped(mut phase: watch::Receiver<Phase>) {
    let _ = phase.wait_for(|p| *p != Phase::Open).await;
}

async fn accept(listener: Listener, common: Arc<Common>, slots: Arc<Semaphore>) {
    loop {
        let next = async {
            let accepted = listener.accept().await;
            loop {
                match timeout(Duration::from_millis(5), slots.clone().acquire_owned()).await {
                    Ok(slot) => return (slot, accepted),
                    Err(_) => common.drop_idle(),
                }
            }
        };
        let Err((slot, accepted)) = either(stopped(common.phase.clone()), next).await else { return };
        match accepted {
            Ok((socket, peer)) => {
                let served = serve(socket, peer, common.clone(), Counted::new(&common.count));
                tokio::spawn(async move {
                    served.await;
                    drop(slot);
                });
            }
            // No descriptors or no memory left: those who wait stay in the queue of the system.
            Err(e) => {
                const NO_ROOM: [i32; 4] = [12, 23, 24, 105]; // ENOMEM, ENFILE, EMFILE, ENOBUFS
                if e.raw_os_error().is_some_and(|code| NO_ROOM.contains(&code)) {
                    common.drop_idle();
                }
                sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

/// What a connection without a request waits for.
#[derive(Clone, Copy, PartialEq)]
enum Awaited {
    Head, // the first one, or the rest of one
    Next, // another request
}

/// How long a connection has been without a request.
struct Silence {
    header: Duration,
    idle: Duration,
    since: Option<(Awaited, u64)>, // and the exchange before it
    timer: Pin<Box<Sleep>>,
}

impl Silence {
    fn new(limits: &Limits) -> Self {
        let (header, idle, since) = (limits.header, limits.idle, None);
        Silence { header, idle, since, timer: Box::pin(sleep(header)) }
    }

    /// Ready: it has lasted too long.
    fn poll(&mut self, cx: &mut Context<'_>, shared: &Shared) -> Poll<()> {
        let exchange = shared.exchange.load(Ordering::Relaxed);
        let since = if shared.at_work() || shared.lingers.load(Ordering::Relaxed) {
            None
        } else if exchange == 0 || shared.heads.lock().unwrap().begun() {
            Some((Awaited::Head, exchange))
        } else {
            Some((Awaited::Next, exchange))
        };
        if since != self.since {
            self.since = since;
            let limit = if matches!(since, Some((Awaited::Next, _))) { self.idle } else { self.header };
            self.timer.as_mut().reset(Instant::now() + limit);
        }
        if since.is_none() {
            return Poll::Pending;
        }
        self.timer.as_mut().poll(cx)
    }
}

async fn serve(socket: Socket, peer: String, common: Arc<Common>, counted: Counted) {
    let shared = Arc::new(Shared::default());
    let kill = Arc::new(Notify::new());
    let number = common.connections.fetch_add(1, Ordering::Relaxed) + 1;
    common.open.lock().unwrap().insert(number, (kill.clone(), shared.clone()));
    let socket = Arc::new(socket);
    let pace = Pace::new(common.limits.write, common.limits.write_rate);
    let stream = Stream::new(socket.clone(), shared.clone(), common.handler, pace);
    let service = service_fn(|request| {
        let (common, shared, kill, peer) = (common.clone(), shared.clone(), kill.clone(), peer.clone());
        async move {
            let (parts, body) = request.into_parts();
            let (method, uri, version, headers) = (parts.method, parts.uri, parts.version, parts.headers);
            let full = !common.has_room(&shared);
            let head = RequestHead { method, uri, version, headers, peer, connection: number, full };
            Ok::<_, Infallible>(answer(head, body, &common, &shared, &kill).await)
        }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .half_close(true) // what a client asked before it stopped sending is answered, unless the handler knows better
        .header_read_timeout(None) // see Silence
        .max_buf_size(2 * common.limits.header_bytes.max(8192))
        .max_headers(common.limits.headers + 32);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut killed = pin!(kill.notified());
    let (mut gone, mut reset) = (pin!(socket.gone()), pin!(socket.reset()));
    let (mut is_gone, mut told) = (false, 0);
    let mut silence = Silence::new(&common.limits);
    let mut stop: Option<Pin<Box<dyn Future<Output = ()> + Send>>> = Some(Box::pin(stopped(common.phase.clone())));
    poll_fn(|cx| {
        if killed.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if stop.as_mut().is_some_and(|s| s.as_mut().poll(cx).is_ready()) {
            stop = None;
            shared.idle.store(!shared.at_work(), Ordering::Relaxed);
            connection.as_mut().graceful_shutdown();
        }
        if connection.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if !shared.at_work() {
            shared.room.lock().unwrap().take();
        }
        // hyper does not look while bytes of a next request wait.
        is_gone = is_gone || gone.as_mut().poll(cx).is_ready();
        if silence.poll(cx, &shared).is_ready() || (is_gone && reset.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(());
        }
        let exchange = shared.exchange.load(Ordering::Relaxed);
        if is_gone && told != exchange {
            told = exchange;
            common.handler.gone(exchange);
        }
        Poll::Pending
    })
    .await;
    common.open.lock().unwrap().remove(&number);
    drop(counted);
}

/// What is wrong with a head that hyper accepts.
fn fault_of(head: &RequestHead, shared: &Shared, limits: &Limits) -> Fault {
    let fields: usize = head.headers.iter().map(|(n, v)| n.as_str().len() + v.len() + 4).sum();
    let line = head.method.as_str().len() + head.uri.to_string().len() + 12;
    if line + fields > limits.header_bytes || head.headers.len() > limits.headers {
        return Some((StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "the header of the request is too large"));
    }
    if head.headers.contains_key(TRANSFER_ENCODING) && shared.heads.lock().unwrap().both() {
        return Some((StatusCode::BAD_REQUEST, "Content-Length and Transfer-Encoding exclude each other"));
    }
    let count = |name: &str| head.headers.get_all(name).iter().count();
    let chunked = |v: &HeaderValue| v.as_bytes().eq_ignore_ascii_case(b"chunked");
    if count("transfer-encoding") > 1 || !head.headers.get_all(TRANSFER_ENCODING).iter().all(chunked) {
        return Some((StatusCode::BAD_REQUEST, "of Transfer-Encoding, chunked alone is read"));
    }
    // HTTP/1.0 knows no Host.
    if count("host") > 1 || (count("host") == 0 && head.version != Version::HTTP_10) {
        return Some((StatusCode::BAD_REQUEST, "a request needs the header Host, once"));
    }
    // The host of a URL that has one counts, not the header (RFC 9112, 3.2.2).
    let same =
        |a: &Authority| head.headers.get(HOST).is_none_or(|h| h.as_bytes().eq_ignore_ascii_case(a.as_str().as_bytes()));
    if !head.uri.authority().is_none_or(same) {
        return Some((StatusCode::BAD_REQUEST, "the URL has another host than the header Host"));
    }
    if ["origin", "authorization", "x-api-key", "api-key"].into_iter().any(|name| count(name) > 1) {
        return Some((StatusCode::BAD_REQUEST, "Origin, Authorization, X-Api-Key and Api-Key may stand once"));
    }
    let plain = |v: &HeaderValue| v.as_bytes().eq_ignore_ascii_case(b"identity");
    if !head.headers.get_all(CONTENT_ENCODING).iter().all(plain) {
        return Some((
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "bodies are read as they are: no Content-Encoding but identity",
        ));
    }
    None
}

async fn read_body(body: Incoming, limits: &Limits, guard: &mut Guard) -> Result<Vec<u8>, Fault> {
    let too_large = Some((StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"));
    if body.size_hint().lower() > limits.body_bytes as u64 {
        return Err(too_large);
    }
    let mut body = pin!(body);
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| None::<(StatusCode, &str)>)?.into_data() else { continue };
        if bytes.len() + data.len() > limits.body_bytes {
            return Err(too_large);
        }
        if !guard.take(data.len()) {
            return Err(Some((
                StatusCode::TOO_MANY_REQUESTS,
                "the requests that are being read have no memory left (--media-memory)",
            )));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

fn failure() -> Response<Content> {
    let body = error_body("an error of the server, or it has no memory", "server_error");
    let mut failed = Response::new(Content::Whole(body.into()));
    *failed.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    failed.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    failed
}

async fn answer(
    mut head: RequestHead,
    body: Incoming,
    common: &Common,
    shared: &Arc<Shared>,
    kill: &Arc<Notify>,
) -> Response<Answer> {
    let (mut guard, answered) = common.exchanges.begin(kill, shared);
    let fault = fault_of(&head, shared, &common.limits);
    // A URL of HTTP/1.0 may name the host that no header does.
    let named = head.uri.authority().and_then(|a| HeaderValue::from_str(a.as_str()).ok());
    if let (None, Some(host)) = (head.headers.get(HOST), named) {
        head.headers.insert(HOST, host);
    }
    let mut close = head.headers.contains_key(TRANSFER_ENCODING) || fault.is_some();
    let mut taken = common.handler.head(guard.id, &head, fault);
    if let Ok(true) = taken {
        let read = read_body(body, &common.limits, &mut guard);
        taken = match timeout(common.limits.body, read).await {
            Ok(Ok(bytes)) => common.handler.request(guard.id, &bytes, None),
            failed => {
                let late = Some((StatusCode::REQUEST_TIMEOUT, "the body did not come in time"));
                let broken = Some((StatusCode::BAD_REQUEST, "the body is not what its header says"));
                let fault = failed.map_or(late, |read| read.err().flatten().or(broken));
                close = true;
                common.handler.request(guard.id, b"", fault)
            }
        }
        .map(|()| true);
    } else if body.size_hint().lower() > 0 || !body.is_end_stream() {
        close = true;
    }
    if taken.is_err() {
        close = true;
        common.exchanges.respond(guard.id, failure());
    }
    let content = answered.await.unwrap_or_else(|_| failure());
    let mut response = content.map(|content| Answer { content, guard });
    if head.method == Method::HEAD || response.body().is_end_stream() {
        response.body_mut().guard.whole(); // nobody asks for it
    }
    if close {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
