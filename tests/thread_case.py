"""What other threads of this process do, told without a guess at the machine's speed."""
import sys
import threading
import time
from pathlib import Path

def wait_until_asleep():
    """Returns when all other threads of this process wait for something, and none has run for a while."""
    def look():
        found = {}
        for task in Path("/proc/self/task").iterdir():
            if int(task.name) == threading.get_native_id():
                continue
            try:
                status = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
            except OSError:  # it has ended
                continue
            found[task.name] = (status["State"].split()[0], status["voluntary_ctxt_switches"], status["nonvoluntary_ctxt_switches"])
        return found

    before, end = None, time.monotonic() + 900
    while (now := look()) != before or any(state != "S" for state, _, _ in now.values()):
        assert time.monotonic() < end, now
        before = now
        time.sleep(0.05)

def call_beside(work, other):
    """Calls work(), and other() in a thread that may run only while work() leaves the GIL free: Python itself takes it from
    nobody. Returns what work() did, and whether other() has run by then."""
    begin, ran = threading.Event(), []

    def run():
        begin.wait()
        ran.append(other())

    thread = threading.Thread(target=run)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(3600)
    try:
        thread.start()
        begin.set()
        result = work()
        return result, bool(ran)
    finally:
        sys.setswitchinterval(interval)
        thread.join()
