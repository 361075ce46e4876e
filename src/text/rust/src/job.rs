//! Work on a file or a text that nobody has vouched for, on a thread of its own.
//!
//! A regular expression of a `tokenizer.json` can run for years inside one call of the regex engine, which cannot be
//! interrupted, and an allocation that fails ends the process where Rust code asks for it. So the caller waits here and
//! looks at three things: whether it is interrupted, the CPU time of the thread, and whether the thread is out of memory.
//! In each case the caller goes on with an error and leaves the thread behind:
//!   too slow, interrupted   the thread ends at the next check between two steps (`is_cancelled`), or when the regex
//!                           engine reaches MAX_SEARCH_RETRIES;
//!   out of memory           the thread stops for good inside the allocator, with what it holds: an allocator may neither
//!                           unwind nor return null to code that would then abort.

use crate::{ffi, limits};
use std::cell::Cell;
use std::ffi::c_void;
use std::os::unix::thread::JoinHandleExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// How late an interrupt or the end of the time may be noticed.
const TICK: Duration = Duration::from_millis(20);
/// Threads left behind that have not ended yet. More work is refused then.
const MAX_LEFT_BEHIND: usize = 16;
/// Of one search of the regex engine, up to the next match: about 5 seconds. Patterns in use match every few characters.
const MAX_SEARCH_RETRIES: std::ffi::c_ulong = 300_000_000;
/// Of 32 bytes. The engine's stack has one for every character of a match such as that of `\p{L}+`.
const MAX_STACK_ENTRIES: std::ffi::c_uint = 1 << 22;

/// What one piece of work may use. `stack` is address space: pages that are not touched cost nothing.
#[derive(Clone, Copy)]
pub struct Bounds {
    pub what: &'static str,
    pub time: Duration,
    pub memory: usize,
    pub stack: usize,
}

/// Asked by the thread that waits, while it waits. Null or without a function: never interrupted.
#[repr(C)]
pub struct Stop {
    asked: Option<unsafe extern "C" fn(*const c_void) -> bool>,
    context: *const c_void,
}

/// Safety: `stop` is null or valid for the call.
unsafe fn is_asked(stop: *const Stop) -> bool {
    stop.as_ref().is_some_and(|stop| stop.asked.is_some_and(|asked| asked(stop.context)))
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Running,
    Done,
    OutOfMemory,
    LeftBehind,
}

struct Control {
    state: Mutex<State>,
    changed: Condvar,
}

impl Control {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

static LEFT_BEHIND: Mutex<usize> = Mutex::new(0);

fn left_behind() -> MutexGuard<'static, usize> {
    LEFT_BEHIND.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

thread_local! {
    /// Of the work that this thread does; null on all other threads.
    static CONTROL: Cell<*const Control> = const { Cell::new(std::ptr::null()) };
}

/// For the allocator, which has no memory for this thread. Returns on threads that do no work of this kind.
pub fn out_of_memory() {
    let Ok(control) = CONTROL.try_with(|control| control.replace(std::ptr::null())) else { return };
    // Safety: it lives as long as the work, and the work never ends.
    let Some(control) = (unsafe { control.as_ref() }) else { return };
    {
        let mut state = control.lock();
        if *state == State::Running {
            *state = State::OutOfMemory;
            control.changed.notify_all();
        }
    }
    loop {
        std::thread::park();
    }
}

/// Whether nobody waits for this thread's work any more.
pub fn is_cancelled() -> bool {
    // Safety: as above.
    unsafe { CONTROL.get().as_ref() }.is_some_and(|control| *control.lock() == State::LeftBehind)
}

/// The clock of a thread's CPU time.
#[derive(Clone, Copy)]
pub struct CpuClock(Option<libc::clockid_t>);

impl CpuClock {
    /// Safety: the thread was neither joined nor detached, be it at its end.
    unsafe fn of(thread: libc::pthread_t) -> Self {
        let mut clock: libc::clockid_t = 0;
        Self((unsafe { libc::pthread_getcpuclockid(thread, &mut clock) } == 0).then_some(clock))
    }

    pub fn of_this_thread() -> Self {
        // Safety: it runs.
        unsafe { Self::of(libc::pthread_self()) }
    }

    /// Zero where it is not known, as of a thread that is gone.
    pub fn now(self) -> Duration {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // Safety: it writes the time alone.
        let known = self.0.is_some_and(|clock| unsafe { libc::clock_gettime(clock, &mut time) } == 0);
        if known { Duration::new(time.tv_sec as u64, time.tv_nsec as u32) } else { Duration::ZERO }
    }
}

fn cpu_time<T>(thread: &JoinHandle<T>) -> Duration {
    // Safety: nobody has joined it.
    unsafe { CpuClock::of(thread.as_pthread_t()) }.now()
}

fn bound_regexes() {
    static ONCE: Once = Once::new();
    // Safety: they set one number each, before the first search.
    ONCE.call_once(|| unsafe {
        onig_sys::onig_set_retry_limit_in_search(MAX_SEARCH_RETRIES);
        onig_sys::onig_set_match_stack_limit_size(MAX_STACK_ENTRIES);
    });
}

/// Returns what `work` returns. Error: that of `work`, or "interrupted", or a bound that `work` would exceed; `work` may
/// then go on for a while, so it owns all that it uses.
///
/// Safety: `stop` is null or valid for the call.
pub unsafe fn run<T: Send + 'static>(
    bounds: Bounds,
    stop: *const Stop,
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    bound_regexes();
    if is_asked(stop) {
        return Err("interrupted".into());
    }
    if *left_behind() >= MAX_LEFT_BEHIND {
        return Err(format!("{MAX_LEFT_BEHIND} texts or files that took too long are still being worked on"));
    }
    let control = Arc::new(Control { state: Mutex::new(State::Running), changed: Condvar::new() });
    let own = control.clone();
    let job = move || {
        limits::begin_memory(bounds.memory);
        CONTROL.set(Arc::as_ptr(&own));
        let result = ffi::caught(work);
        CONTROL.set(std::ptr::null());
        let mut state = own.lock();
        if *state == State::LeftBehind {
            *left_behind() -= 1;
        }
        *state = State::Done;
        own.changed.notify_all();
        result
    };
    let builder = Builder::new().name("situ-text".into()).stack_size(bounds.stack);
    let thread = builder.spawn(job).map_err(|e| format!("{}: no thread: {e}", bounds.what))?;
    let mut state = control.lock();
    loop {
        match *state {
            State::Done => {
                drop(state);
                return thread.join().unwrap_or_else(|_| Err(format!("{}: the thread failed", bounds.what)));
            }
            State::OutOfMemory => {
                return Err(format!("{} takes more memory than it may, or than there is", bounds.what));
            }
            _ => {}
        }
        state = control.changed.wait_timeout(state, TICK).map_or_else(|e| e.into_inner().0, |(state, _)| state);
        if *state != State::Running {
            continue;
        }
        let interrupted = is_asked(stop);
        if interrupted || cpu_time(&thread) > bounds.time {
            *state = State::LeftBehind;
            *left_behind() += 1;
            return Err(if interrupted {
                "interrupted".into()
            } else {
                format!("{} takes more than {} seconds", bounds.what, bounds.time.as_secs())
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const BOUNDS: Bounds =
        Bounds { what: "the test", time: Duration::from_millis(300), memory: 32 << 20, stack: 1 << 20 };

    fn run_test<T: Send + 'static>(work: impl FnOnce() -> Result<T, String> + Send + 'static) -> Result<T, String> {
        unsafe { run(BOUNDS, std::ptr::null(), work) }
    }

    #[test]
    fn results_errors_and_panics_come_back() {
        assert_eq!(run_test(|| Ok(5)), Ok(5));
        assert_eq!(run_test(|| Err::<(), _>("no".into())), Err("no".into()));
        assert_eq!(run_test(|| -> Result<(), String> { panic!("oh") }), Err("internal failure: oh".into()));
    }

    #[test]
    fn slow_work_is_left_behind_and_told_so() {
        let start = Instant::now();
        let error = run_test(|| {
            while !is_cancelled() {}
            Ok(())
        });
        assert!(error.unwrap_err().contains("takes more than"));
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn memory_is_an_error() {
        let error = run_test(|| {
            let mut all = Vec::new();
            while all.len() < 1 << 20 {
                all.push(vec![1u8; 1 << 16]);
            }
            Ok(all.len())
        });
        assert!(error.unwrap_err().contains("the test takes more memory than it may"));
        assert!(run_test(|| Ok(vec![0u8; 64 << 20].len())).is_err());
        assert_eq!(run_test(|| Ok((0..100).map(|_| vec![0u8; 1 << 20].len()).sum::<usize>())), Ok(100 << 20));
    }

    #[test]
    fn an_interrupt_ends_the_wait() {
        unsafe extern "C" fn asked(start: *const c_void) -> bool {
            (*start.cast::<Instant>()).elapsed() > Duration::from_millis(50)
        }
        let start = Instant::now();
        let stop = Stop { asked: Some(asked), context: std::ptr::from_ref(&start).cast() };
        let bounds = Bounds { time: Duration::from_secs(60), ..BOUNDS };
        let work = || {
            while !is_cancelled() {}
            Ok(())
        };
        assert_eq!(unsafe { run(bounds, &stop, work) }, Err("interrupted".into()));
        assert!(start.elapsed() < Duration::from_secs(20));
    }
}
