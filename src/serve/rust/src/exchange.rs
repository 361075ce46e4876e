//! Requests that are not over, by their number.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use hyper::body::Bytes;
use hyper::Response;
use tokio::sync::mpsc::{unbounded_channel, UnboundedSender};
use tokio::sync::{oneshot, Notify};

use crate::answer::{Content, Pieces};
use crate::Handler;

struct Exchange {
    respond: Option<oneshot::Sender<Response<Content>>>,
    pieces: Option<(UnboundedSender<Bytes>, Arc<AtomicUsize>)>,
    kill: Arc<Notify>, // ends the connection
}

pub struct Exchanges {
    handler: Handler,
    open: Mutex<HashMap<u64, Exchange>>,
    last: AtomicU64,
    /// Bytes of the bodies of all requests.
    pub bodies: AtomicUsize,
}

/// Ends an exchange when it is dropped, wherever the request is by then.
pub struct Guard {
    exchanges: Arc<Exchanges>,
    pub id: u64,
    pub body: usize,
    whole: bool,
}

impl Guard {
    pub fn whole(&mut self) {
        self.whole = true;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.exchanges.bodies.fetch_sub(self.body, Ordering::Relaxed);
        self.exchanges.open.lock().unwrap().remove(&self.id);
        self.exchanges.handler.over(self.id, self.whole);
    }
}

impl Exchanges {
    pub fn new(handler: Handler) -> Arc<Self> {
        Arc::new(Exchanges { handler, open: Mutex::default(), last: AtomicU64::new(0), bodies: AtomicUsize::new(0) })
    }

    pub fn begin(self: &Arc<Self>, kill: &Arc<Notify>) -> (Guard, oneshot::Receiver<Response<Content>>) {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (respond, answer) = oneshot::channel();
        let exchange = Exchange { respond: Some(respond), pieces: None, kill: kill.clone() };
        self.open.lock().unwrap().insert(id, exchange);
        (Guard { exchanges: self.clone(), id, body: 0, whole: false }, answer)
    }

    /// Sends an answer. False: the exchange is over, or has one.
    pub fn respond(&self, id: u64, answer: Response<Content>) -> bool {
        let respond = self.open.lock().unwrap().get_mut(&id).and_then(|e| e.respond.take());
        respond.is_some_and(|r| r.send(answer).is_ok())
    }

    /// Sends the head of an answer in pieces.
    pub fn begin_answer(&self, id: u64, head: Response<()>) -> bool {
        let (sender, coming) = unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        if let Some(exchange) = self.open.lock().unwrap().get_mut(&id) {
            exchange.pieces = Some((sender, waiting.clone()));
        }
        self.respond(id, head.map(|()| Content::Pieces(Pieces { coming, waiting })))
    }

    pub fn write(&self, id: u64, bytes: &[u8]) -> Option<usize> {
        let open = self.open.lock().unwrap();
        let (sender, waiting) = open.get(&id)?.pieces.as_ref()?;
        let all = waiting.fetch_add(bytes.len(), Ordering::Relaxed) + bytes.len();
        sender.send(Bytes::copy_from_slice(bytes)).ok().map(|()| all)
    }

    pub fn end(&self, id: u64) {
        let pieces = self.open.lock().unwrap().get_mut(&id).and_then(|e| e.pieces.take());
        drop(pieces);
    }

    pub fn abort(&self, id: u64) {
        if let Some(exchange) = self.open.lock().unwrap().get(&id) {
            exchange.kill.notify_one();
        }
    }
}
