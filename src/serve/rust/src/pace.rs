//! How fast a client takes what is written to it.
//!
//! Bytes that the system takes are not bytes that a client takes: they may wait in the buffer of the socket, which the
//! system fills again in large pieces. So what is still in there is taken off.

use std::time::Duration;

use tokio::time::Instant;

pub struct Pace {
    window: Duration,
    least: i64, // bytes in a window
    begun: Option<(Instant, i64)>,
}

impl Pace {
    /// `rate`: bytes in a second. A byte in a window is wanted in any case.
    pub fn new(window: Duration, rate: u64) -> Self {
        let least = (rate as u128 * window.as_millis() / 1000).clamp(1, i64::MAX as u128) as i64;
        Pace { window, least, begun: None }
    }

    /// Bytes wait, of which the client has taken so many, those before them included. When to look again; none: it
    /// takes too few.
    pub fn waiting(&mut self, now: Instant, taken: i64) -> Option<Instant> {
        let (begun, before) = *self.begun.get_or_insert((now, taken));
        if now < begun + self.window {
            return Some(begun + self.window);
        }
        if taken - before < self.least {
            return None;
        }
        self.begun = Some((now, taken));
        Some(now + self.window)
    }

    /// Bytes waited, and nobody has seen since that none do.
    pub fn is_watched(&self) -> bool {
        self.begun.is_some()
    }

    /// No byte waits.
    pub fn caught_up(&mut self) {
        self.begun = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(30);

    /// Seconds until a client is too slow that takes `bytes` each `every` seconds; none: in an hour it is not.
    fn end(rate: u64, bytes: i64, every: u64) -> Option<u64> {
        let (mut pace, begun) = (Pace::new(WINDOW, rate), Instant::now());
        for second in 0..3600 {
            let taken = second as i64 / every as i64 * bytes;
            if pace.waiting(begun + Duration::from_secs(second), taken).is_none() {
                return Some(second);
            }
        }
        None
    }

    #[test]
    fn drips_are_not_enough() {
        assert_eq!(end(1024, 0, 1), Some(30));
        assert_eq!(end(1024, 1, 1), Some(30));
        assert_eq!(end(1024, 1023, 1), Some(30));
        assert_eq!(end(1024, 1024, 1), None);
        assert_eq!(end(1024, 30 * 1024, 30), None);
        assert_eq!(end(0, 1, 29), None);
        assert_eq!(end(0, 0, 1), Some(30));
        assert_eq!(end(u64::MAX, 1 << 40, 1), Some(30));
    }

    #[test]
    fn who_caught_up_begins_anew() {
        let (mut pace, begun) = (Pace::new(WINDOW, 1024), Instant::now());
        assert!(!pace.is_watched());
        assert_eq!(pace.waiting(begun, 0), Some(begun + WINDOW));
        assert!(pace.is_watched());
        pace.caught_up();
        let later = begun + 2 * WINDOW;
        assert_eq!(pace.waiting(later, 10), Some(later + WINDOW));
        assert_eq!(pace.waiting(later + WINDOW, 20), None);
    }
}
