"""How programs end that compute in threads, forks, Control-C and errors that travel. tests/python_test.py runs them."""
import asyncio
import concurrent.futures
import copy
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
import time
import warnings

import situ

from python_case import LONG, PythonTest

# What a thread of the program does: each goes on for hours, or again and again.
WORK = {
    "generate": "model.generate(ids, max_new_tokens=most, ignore_eos=True)",
    "a list": "model.generate([ids, ids[:2]], max_new_tokens=most, ignore_eos=True)",
    "beams": "model.generate(ids, max_new_tokens=most, ignore_eos=True, beams=2)",
    "a stream": "list(model.stream(ids, max_new_tokens=most, ignore_eos=True))",
    "a session": "model.session().step(ids * 50000)",
    "perplexity": "model.perplexity(ids * 50000)",
    "a body": "situ.openai.completions({'prompt': ids, 'max_tokens': most, 'ignore_eos': True}, model)",
    "loads": "exec('while True: situ.load(path, pack_cache=False)')",
    "steps": "exec('while True: model.session().step(ids)')",
    "a loop": "asyncio.run(endless())",
}
PROGRAM = """
import asyncio, sys, threading, time, situ
path, ids, most = {path!r}, {ids!r}, {most}
model = situ.load(path, context_length={long})
async def endless():
    await asyncio.gather(*(model.generate_async(ids, max_new_tokens=most, ignore_eos=True) for _ in range(3)))
def work():
    begun.set()
    {work}
begun = threading.Event()
thread = threading.Thread(target=work, daemon={daemon})
thread.start()
begun.wait()
while {watched} and not model.stats()["running"]:
    time.sleep(0.001)
time.sleep(0.05)
print("go", flush=True)
"""


class EndsTest(PythonTest):
    def program(self, work, daemon=True, tail=""):
        watched = work in ("generate", "a list", "beams", "a stream", "a body", "a loop")
        text = PROGRAM.format(path=str(self.path), ids=self.prompt, most=LONG - 10, long=LONG, work=WORK[work], daemon=daemon, watched=watched)
        return subprocess.Popen([sys.executable, "-c", text + tail], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def test_a_program_may_end_while_its_threads_compute(self):
        for work in WORK:
            with self.subTest(work), self.program(work) as program:
                out, err = program.communicate(timeout=60)
                self.assertEqual((program.returncode, out, err), (0, "go\n", ""))

    def test_an_exit_code_and_what_runs_at_the_end(self):
        tail = "import atexit\natexit.register(lambda: print(len(model.generate(ids, max_new_tokens=2, ignore_eos=True).output_ids), flush=True))\nsys.exit(3)"
        with self.program("generate", tail=tail) as program:
            out, err = program.communicate(timeout=60)
        self.assertEqual((program.returncode, out, err), (3, "go\n2\n", ""))

    def test_control_c_while_a_thread_computes(self):
        for work in ("generate", "a list"):
            with self.subTest(work), self.program(work, daemon=False, tail="thread.join()") as program:
                self.assertEqual(program.stdout.readline(), "go\n")
                end = time.monotonic() + 60
                while program.poll() is None and time.monotonic() < end:  # the first one may come before the program waits
                    program.send_signal(signal.SIGINT)
                    time.sleep(0.2)
                err = program.stderr.read()
                program.kill()
                self.assertEqual(program.returncode, -signal.SIGINT, err)
                self.assertNotRegex(err, "terminate|leaked|Fatal")

    def test_control_c_ends_the_calls_of_its_own_thread(self):
        model, found = situ.load(self.path, context_length=LONG), []
        wanted = model.generate([self.prompt, self.prompt[:2]], max_new_tokens=3000, ignore_eos=True)
        other = threading.Thread(target=lambda: found.append(model.generate([self.prompt, self.prompt[:2]], max_new_tokens=3000, ignore_eos=True)))
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        other.start()
        timer.start()
        with self.assertRaises(KeyboardInterrupt):
            model.generate([self.prompt, self.prompt[:3]], max_new_tokens=LONG - 10, ignore_eos=True)
        timer.join()
        other.join()
        self.assertEqual([(a.output_ids, a.finish_reason) for a in found[0]], [(a.output_ids, a.finish_reason) for a in wanted])

    def fork(self, work):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks of processes with threads: the case at hand
            child = os.fork()
        if child == 0:
            code = 1
            try:
                code = work()
            finally:
                os._exit(code)
        end = time.monotonic() + 60
        while (done := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < end:
            time.sleep(0.002)
        if done[0] == 0:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            self.fail("the fork does not end")
        return os.waitstatus_to_exitcode(done[1])

    def test_a_fork_while_a_request_computes(self):
        model = situ.load(self.text_path, context_length=LONG)
        stream = model.stream("12", max_new_tokens=LONG - 10, ignore_eos=True)
        pieces = situ.openai.begin("/v1/completions", {"prompt": "12", "max_tokens": 50, "ignore_eos": True, "stream": True}, model)
        next(stream)
        for _ in range(5):
            self.assertEqual(self.fork(lambda: situ.load(self.path).generate(self.prompt, max_new_tokens=2).output_ids != self.ids[:2]), 0)

        def refused():
            count = 0
            for use in (lambda: next(pieces), pieces.close, lambda: next(stream), stream.close, lambda: model.encode("1"), model.session, lambda: model.generate("1"), model.stats,
                        lambda: model.embed("1"), lambda: model.perplexity("12"), lambda: model.render([{"role": "user", "content": "1"}])):
                try:
                    use()
                except situ.SituError as error:
                    count += "fork" in str(error)
            return count

        self.assertEqual(self.fork(refused), 11)
        self.assertGreater(len(list(pieces)), 1)
        stream.close()

    def test_a_fork_ends_as_programs_do(self):
        tail = "import os\nchild = os.fork()\nif child: print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\nelse: sys.exit(5)"
        with self.program("generate", tail=tail) as program:
            out, err = program.communicate(timeout=60)
        self.assertEqual((program.returncode, out.splitlines()[-1]), (0, "5"), err)

    def test_errors_travel(self):
        model = situ.load(self.text_path)
        with self.assertRaises(situ.openai.Refused) as refused:
            situ.openai.chat({"messages": "x"}, model)
        with self.assertRaises(situ.SituError) as failed:
            model.generate([1, 2, 1000])
        for error in (refused.exception, failed.exception):
            for same in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
                self.assertEqual((type(same), str(same), same.__dict__), (type(error), str(error), error.__dict__))
        self.assertEqual(failed.exception.code, "invalid_argument")
        for item in ([1, "x"], [2**70]):
            try:
                model.generate([[1], item])
            except (TypeError, situ.SituError) as error:
                self.assertEqual(str(pickle.loads(pickle.dumps(error))), str(error))

    def test_coroutines_need_one_descriptor(self):
        before, limit = len(os.listdir("/proc/self/fd")), resource.getrlimit(resource.RLIMIT_NOFILE)
        most = []

        async def ask(i):
            answer = await self.model.generate_async(self.prompt, max_new_tokens=1 + i % 2, ignore_eos=True)
            return answer.output_ids

        async def all_of_them():
            tasks = [asyncio.create_task(ask(i)) for i in range(1500)]
            await asyncio.sleep(0)
            most.append(len(os.listdir("/proc/self/fd")))
            streams = [self.model.stream_async(self.prompt, max_new_tokens=1, ignore_eos=True) for _ in range(1500)]
            seen = [[t.id async for t in s] for s in streams]
            return await asyncio.gather(*tasks), seen

        resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit[0], before + 40), limit[1]))
        try:
            answers, seen = asyncio.run(all_of_them())
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
        self.assertEqual((answers, seen), ([self.ids[:1 + i % 2] for i in range(1500)], [self.ids[:1]] * 1500))
        self.assertLess(most[0], before + 10)  # those of the loop, and one
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)

    def test_more_requests_than_may_wait(self):
        """Threads and streams: the model takes what it has no room for later."""
        streams = [self.model.stream(self.prompt, max_new_tokens=1, ignore_eos=True) for _ in range(1500)]
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda _: self.generate_ids(self.model, max_new_tokens=1), range(16)))
        self.assertEqual([[t.id for t in s] for s in streams], [self.ids[:1]] * 1500)
        self.assertEqual(answers, [self.ids[:1]] * 16)
        with self.model.stream(self.prompt, max_new_tokens=1) as left:
            pass
        self.assertIsNotNone(left.generation)
