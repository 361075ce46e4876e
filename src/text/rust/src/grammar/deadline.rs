//! Ends a step of a parser that takes too long. An ambiguous Lark grammar can be read in very many ways, and the
//! parser's own limits count items, not the work for each. It can be cancelled, so somebody must look at the clock.

use llguidance::CancellationHandle;
use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

const MAX_STEP_TIME: Duration = Duration::from_secs(2);
/// How late a step may be noticed.
const TICK: Duration = Duration::from_millis(50);

#[derive(Default)]
struct Steps {
    next: u64,
    running: HashMap<u64, (Instant, CancellationHandle)>,
}

#[derive(Default)]
struct Watch {
    steps: Mutex<Steps>,
    started: Condvar,
}

impl Watch {
    fn steps(&self) -> MutexGuard<'_, Steps> {
        self.steps.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Sleeps while no step runs.
    fn run(&self) -> ! {
        loop {
            let mut steps = self.steps();
            while steps.running.is_empty() {
                steps = self.started.wait(steps).unwrap_or_else(|poisoned| poisoned.into_inner());
            }
            let now = Instant::now();
            steps.running.values().filter(|(end, _)| *end < now).for_each(|(_, handle)| handle.cancel());
            drop(steps);
            std::thread::sleep(TICK);
        }
    }
}

/// One thread for the whole process, from the first Lark grammar on.
fn watch() -> Option<&'static Watch> {
    static WATCH: OnceLock<Option<&'static Watch>> = OnceLock::new();
    *WATCH.get_or_init(|| {
        let watch: &'static Watch = Box::leak(Box::default());
        let thread = std::thread::Builder::new().name("situ grammars".into());
        thread.spawn(move || watch.run()).ok().map(|_| watch)
    })
}

/// A step that may be cancelled, until it is dropped.
pub struct Step(u64);

impl Step {
    /// Nothing where no thread can be had: then steps are bounded by the parser's limits alone.
    pub fn begin(handle: CancellationHandle) -> Option<Self> {
        let watch = watch()?;
        let mut steps = watch.steps();
        let id = steps.next;
        steps.next += 1;
        steps.running.insert(id, (Instant::now() + MAX_STEP_TIME, handle));
        watch.started.notify_one();
        Some(Step(id))
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if let Some(watch) = watch() {
            watch.steps().running.remove(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_steps_are_cancelled() {
        let (long, short) = (CancellationHandle::default(), CancellationHandle::default());
        drop(Step::begin(short.clone()).unwrap());
        let start = Instant::now();
        let _step = Step::begin(long.clone()).unwrap();
        while !long.is_cancelled() && start.elapsed() < 10 * MAX_STEP_TIME {
            std::thread::sleep(TICK);
        }
        assert!(long.is_cancelled() && start.elapsed() >= MAX_STEP_TIME);
        assert!(!short.is_cancelled());
    }
}
