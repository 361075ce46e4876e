//! Requests that are not over, by their number.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use hyper::body::Bytes;
use hyper::Response;
use tokio::sync::mpsc::{unbounded_channel, UnboundedSender};
use tokio::sync::{oneshot, Notify};

use crate::answer::{Content, Pieces};
use crate::stream::Shared;
use crate::Handler;

struct Exchange {
    respond: Option<oneshot::Sender<Response<Content>>>,
    pieces: Option<(UnboundedSender<Bytes>, Arc<AtomicUsize>)>,
    kill: Arc<Notify>, // ends the connection
    taken: usize,      // bytes of `memory` beside its body
}

pub struct Exchanges {
    handler: Handler,
    open: Mutex<HashMap<u64, Exchange>>,
    last: AtomicU64,
    /// Bytes of the bodies of all requests, and of what was made of them.
    memory: AtomicUsize,
    most: usize,
}

/// Ends an exchange when it is dropped, wherever the request is by then.
pub struct Guard {
    exchanges: Arc<Exchanges>,
    shared: Arc<Shared>, // of its connection
    pub id: u64,
    body: usize, // bytes of it
    whole: bool,
}

impl Guard {
    pub fn whole(&mut self) {
        self.whole = true;
    }

    /// Memory for so many bytes more of the body. False: there is none.
    pub fn take(&mut self, bytes: usize) -> bool {
        let fits = self.exchanges.take_bytes(bytes);
        self.body += if fits { bytes } else { 0 };
        fits
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let exchange = self.exchanges.open.lock().unwrap().remove(&self.id);
        self.exchanges.give_back(self.body + exchange.map_or(0, |e| e.taken));
        self.shared.busy.store(false, Ordering::Relaxed);
        self.exchanges.handler.over(self.id, self.whole);
    }
}

impl Exchanges {
    pub fn new(handler: Handler, most: usize) -> Arc<Self> {
        let (last, memory) = (AtomicU64::new(0), AtomicUsize::new(0));
        Arc::new(Exchanges { handler, open: Mutex::default(), last, memory, most })
    }

    /// False: there is no memory for so many bytes more.
    fn take_bytes(&self, bytes: usize) -> bool {
        let before = self.memory.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.checked_add(bytes).is_some_and(|all| all <= self.most);
        if !fits {
            self.give_back(bytes);
        }
        fits
    }

    fn give_back(&self, bytes: usize) {
        self.memory.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes of memory for what is made of a body, until the exchange is over. False: there are not so many, or it is.
    pub fn take(&self, id: u64, bytes: usize) -> bool {
        let mut open = self.open.lock().unwrap();
        let Some(exchange) = open.get_mut(&id) else { return false };
        let fits = self.take_bytes(bytes);
        exchange.taken += if fits { bytes } else { 0 };
        fits
    }

    pub fn begin(
        self: &Arc<Self>,
        kill: &Arc<Notify>,
        shared: &Arc<Shared>,
    ) -> (Guard, oneshot::Receiver<Response<Content>>) {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        shared.exchange.store(id, Ordering::Relaxed);
        shared.busy.store(true, Ordering::Relaxed);
        let (respond, answer) = oneshot::channel();
        let exchange = Exchange { respond: Some(respond), pieces: None, kill: kill.clone(), taken: 0 };
        self.open.lock().unwrap().insert(id, exchange);
        (Guard { exchanges: self.clone(), shared: shared.clone(), id, body: 0, whole: false }, answer)
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
