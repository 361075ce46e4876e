//! Ends a step of a parser that takes too long. An ambiguous Lark grammar can be read in very many ways, and the
//! parser's own limits count items, not the work for each. It can be cancelled, so somebody must look at the clock: at
//! that of the thread's CPU time, since a step of a grammar that is well may stand still while others have the processors.

use crate::job::CpuClock;
use llguidance::CancellationHandle;
use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

/// Of a processor.
const MAX_STEP_TIME: Duration = Duration::from_secs(2);
/// How late a step may be noticed.
const TICK: Duration = Duration::from_millis(50);

struct Running {
    clock: CpuClock,
    end: Duration,
    handle: CancellationHandle,
}

#[derive(Default)]
struct Steps {
    next: u64,
    running: HashMap<u64, Running>,
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
            steps.running.values().filter(|step| step.end < step.clock.now()).for_each(|step| step.handle.cancel());
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

/// A step of this thread that may be cancelled, until it is dropped.
pub struct Step(u64);

impl Step {
    /// Nothing where no thread can be had: then steps are bounded by the parser's limits alone.
    pub fn begin(handle: CancellationHandle) -> Option<Self> {
        let watch = watch()?;
        let mut steps = watch.steps();
        let id = steps.next;
        steps.next += 1;
        let clock = CpuClock::of_this_thread();
        steps.running.insert(id, Running { clock, end: clock.now() + MAX_STEP_TIME, handle });
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
        let clock = CpuClock::of_this_thread();
        let start = clock.now();
        let _step = Step::begin(long.clone()).unwrap();
        while !long.is_cancelled() && clock.now() - start < 10 * MAX_STEP_TIME {}
        assert!(long.is_cancelled() && clock.now() - start >= MAX_STEP_TIME);
        assert!(!short.is_cancelled());
    }

    #[test]
    fn steps_that_stand_still_are_not() {
        let still = CancellationHandle::default();
        let _step = Step::begin(still.clone()).unwrap();
        std::thread::sleep(MAX_STEP_TIME + 4 * TICK);
        assert!(!still.is_cancelled());
    }
}
