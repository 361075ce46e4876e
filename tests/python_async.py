"""Tests of streams and answers for coroutines, which python_test.py runs."""
import asyncio
import os
import threading
import time

import situ
from cli_case import COUNT
from python_case import LONG, PythonTest


class AsyncTest(PythonTest):
    def test_streams_of_one_loop(self):
        model = self.long_model()
        want = [model.generate([*self.prompt, i], max_new_tokens=250, ignore_eos=True).output_ids for i in range(64)]

        async def read(i):
            return [t.id async for t in model.stream_async([*self.prompt, i], max_new_tokens=250, ignore_eos=True)]

        async def all_of_them():
            return await asyncio.gather(*(read(i) for i in range(64)))

        before, threads = model.stats(), len(os.listdir("/proc/self/task"))
        self.assertEqual(asyncio.run(all_of_them()), want)
        after = model.stats()
        self.assertLess(after["steps"] - before["steps"], 64 * 250 / 8)
        self.assertEqual((len(os.listdir("/proc/self/task")), after["bytes_copied"]), (threads, before["bytes_copied"]))

    def test_generate_async(self):
        async def both():
            return await asyncio.gather(self.model.generate_async(self.prompt, max_new_tokens=COUNT),
                                        self.model.generate_async([1, 2, 1000]), return_exceptions=True)

        answer, error = asyncio.run(both())
        self.assertEqual((answer.output_ids, type(error)), (self.ids, situ.SituError))
        self.assertRegex(str(error), "id 1000")

    def test_a_cancelled_task_frees_its_slots(self):
        model = self.long_model()

        async def cancel_in_the_middle():
            seen = []

            async def read():
                async for token in model.stream_async(self.prompt, max_new_tokens=LONG - 10, ignore_eos=True, prefix_cache="off"):
                    seen.append(token.id)
            task = asyncio.create_task(read())
            while len(seen) < 3:
                await asyncio.sleep(0.001)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        free = model.stats()["slots_free"]
        asyncio.run(cancel_in_the_middle())
        self.assertEqual(model.stats()["slots_free"], free)
        self.assertEqual(self.generate_ids(model), self.ids)

    def test_a_stream_that_nobody_has_any_more(self):
        model = self.long_model()
        endless = {"max_new_tokens": LONG - 10, "ignore_eos": True}

        async def drop():
            descriptors = len(os.listdir("/proc/self/fd"))
            async for _ in model.stream_async(self.prompt, **endless):
                break
            with self.assertRaises(KeyError):
                async for _ in model.stream_async(self.prompt, **endless):
                    raise KeyError
            streams = [model.stream_async(self.prompt, **endless)]
            await streams[0].__anext__()
            other = threading.Thread(target=streams.clear)
            other.start()
            other.join()
            while model.stats()["running"]:
                await asyncio.sleep(0.001)
            self.assertEqual(len(os.listdir("/proc/self/fd")), descriptors)
            return model.stream_async(self.prompt, **endless)

        asyncio.run(drop())
        with self.assertRaises(RuntimeError):  # there is no loop
            model.stream_async(self.prompt, **endless)
        while model.stats()["running"]:
            time.sleep(0.001)
        self.assertEqual(self.generate_ids(model), self.ids)
