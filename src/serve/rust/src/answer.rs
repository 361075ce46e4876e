//! The body of an answer: whole, or in pieces as they come.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::{ready, Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::exchange::Guard;

/// The body of an error that the handler knows nothing of.
pub fn error_body(message: &str, kind: &str) -> String {
    format!("{{\"error\":{{\"message\":\"{message}\",\"type\":\"{kind}\",\"param\":null,\"code\":null}}}}")
}

pub enum Content {
    Whole(Bytes),
    Pieces(Pieces),
}

pub struct Pieces {
    pub coming: UnboundedReceiver<Bytes>,
    /// Bytes in `coming`.
    pub waiting: Arc<AtomicUsize>,
}

pub struct Answer {
    pub content: Content,
    pub guard: Guard,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let me = self.get_mut();
        let piece = match &mut me.content {
            Content::Whole(bytes) => Some(std::mem::take(bytes)).filter(|b| !b.is_empty()),
            Content::Pieces(pieces) => {
                let piece = ready!(pieces.coming.poll_recv(cx));
                pieces.waiting.fetch_sub(piece.as_ref().map_or(0, Bytes::len), Ordering::Relaxed);
                piece
            }
        };
        if piece.is_none() || matches!(me.content, Content::Whole(_)) {
            me.guard.whole();
        }
        Poll::Ready(piece.map(|p| Ok(Frame::data(p))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.content, Content::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Pieces(_) => SizeHint::default(),
        }
    }
}
