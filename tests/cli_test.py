"""The command line from outside: tiny models of several exporters against their oracle, layouts that mean the same, and
the arguments.

    python tests/cli_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`).
"""
import dataclasses
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

import cli_case
import tiny_exports
import tiny_models
from cli_case import COUNT, IDS, CliTest, Run, main
from sweep import SWEEPING, some

# -- models that must run

def cpu_has(isa):
    flags = set(re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text() + "\nflags:", re.M).group(1).split())
    avx2 = {"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe"}
    needs = {"portable": set(), "avx2": avx2, "avx512": avx2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}}
    needs["avxvnni"] = avx2 | {"avx_vnni"}
    needs["avx512vnni"] = needs["avx512"] | {"avx512_vnni"}
    needs["amx"] = needs["avx512vnni"] | {"amx_tile", "amx_int8"}
    return needs[isa] <= flags

def built_isas(model):
    """The instruction sets that this build has kernels for: sanitizer builds have the portable ones only."""
    known = re.search(r"known: ([^)]*)\)", Run("run", model, "--prompt-ids", "1", SITU_ISA="none").err)
    return known.group(1).split(", ") if known else ["portable", "avx2", "avxvnni", "avx512", "avx512vnni", "amx"]

def for_models(choose):
    def decorate(check):
        def test(self):
            for spec in choose(list(self.models)):
                with self.subTest(spec.name):
                    check(self, spec, *self.models[spec])
        return test
    return decorate

def for_each_model(check):
    return for_models(lambda specs: specs)(check)

def kinds_of(spec):
    """What a model has, and has not: of numbers, only whether there is one."""
    return {(name, value if isinstance(value, str) else bool(value)) for name, value in dataclasses.asdict(spec).items() if name not in ("name", "kv_heads")}

def one_of_each_kind(specs, first):
    """Those from number `first` on, and around, that have something that none before them has."""
    chosen, seen = [], set()
    for spec in specs[first:] + specs[:first]:
        if not kinds_of(spec) <= seen:
            chosen.append(spec)
            seen |= kinds_of(spec)
    return chosen

def for_some_models(first):
    return for_models(lambda specs: specs if SWEEPING else one_of_each_kind(specs, first))

class ModelsTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.models = {s: (cls.folder / s.name, *tiny_exports.write_model(s, cls.folder / s.name)) for s in tiny_models.SPECS}

    @property
    def first(self):
        return next(iter(self.models.values()))

    @for_each_model
    def test_in_place_equals_the_oracle_and_copies_nothing(self, spec, path, prompt, ids):
        answer = self.generate(path, prompt)
        self.assertEqual(answer["output_ids"], ids)
        self.assertEqual(answer["bytes_copied_per_token"], 0)
        self.assertEqual(answer["mode"], "in-place")

    @for_each_model
    def test_naive_equals_the_oracle_and_copies(self, spec, path, prompt, ids):
        answer = self.generate(path, prompt, "--naive")
        self.assertEqual(answer["output_ids"], ids)
        self.assertGreater(answer["bytes_copied_per_token"], 0)
        self.assertEqual(answer["mode"], "naive")

    @for_some_models(0)
    def test_without_optional_passes(self, spec, path, prompt, ids):
        for passes in ("all", "recognise_attention", "recognise_rotary,recognise_functions,push_selections,last_token"):
            answer = self.generate(path, prompt, SITU_DISABLE_PASSES=passes)
            self.assertEqual(answer["output_ids"], ids, passes)
            # Unrecognised attention runs in place too: only ALiBi as these exports write it copies (its small slopes).
            if passes == "recognise_attention" and not spec.alibi and spec.past == "heads":
                self.assertEqual(answer["bytes_copied_per_token"], 0)

    @for_some_models(11)
    def test_every_instruction_set(self, spec, path, prompt, ids):
        isas = built_isas(path)
        self.assertIn("portable", isas)
        for isa in filter(cpu_has, isas):
            answer = self.generate(path, prompt, SITU_ISA=isa)
            self.assertEqual((answer["isa"], answer["output_ids"]), (isa, ids))

    @for_some_models(10)
    def test_threads_and_chunks(self, spec, path, prompt, ids):
        for options in some((["--threads", "2"], ["--threads", "3"], ["--chunk", "1"], ["--chunk", "5"], ["--chunk", "3", "--threads", "3"], ["--threads", "1"]), 2):
            answer = self.generate(path, prompt, *options)
            self.assertEqual((answer["output_ids"], answer["bytes_copied_per_token"]), (ids, 0), options)

    @for_some_models(18)
    def test_chunks_change_no_bit(self, spec, path, prompt, ids):
        answers = [self.generate(path, prompt * 3, "--logprobs", 3, "--chunk", chunk)["logprobs"] for chunk in some((1, 2, 5, 12, 512), 2)]
        self.assertEqual(answers, answers[:1] * len(answers))

    @for_some_models(11)
    def test_threads_change_no_bit_of_a_token(self, spec, path, prompt, ids):
        """Where products do not depend on them: the attention of single tokens is summed in blocks of keys, whoever takes them."""
        answers = [self.generate(path, prompt * 3, "--logprobs", 3, "--threads", threads)["logprobs"] for threads in some((1, 2, 3, 4, 7), 2)]
        self.assertEqual(answers, answers[:1] * len(answers))

    @for_some_models(10)
    def test_json_holds_the_promised_fields(self, spec, path, prompt, ids):
        number = (int, float)
        fields = {"prompt_ids": list, "output_ids": list, "text": str, "finish_reason": str, "load_ms": number, "prefill_ms": number, "decode_ms_per_token": number,
                  "bytes_copied_per_token": number, "bytes_written_per_token": number, "peak_rss_mib": number, "isa": str, "mode": str}
        answer = self.generate(path, prompt)
        self.assertEqual({k for k, t in fields.items() if not isinstance(answer.get(k), t)}, set())
        self.assertEqual((answer["prompt_ids"], answer["finish_reason"]), (prompt, "length"))
        self.assertTrue(all(answer[k] > 0 for k in ("load_ms", "prefill_ms", "decode_ms_per_token", "bytes_written_per_token", "peak_rss_mib")), answer)

    def test_text_output_is_the_ids_where_there_is_no_tokenizer(self):
        path, prompt, ids = self.first
        run = Run("run", path, "--prompt-ids", ",".join(map(str, prompt)), "-n", COUNT)
        self.assertEqual((run.code, run.out), (0, ",".join(map(str, ids)) + "\n"), run)
        self.assertIn("copied 0 B/token", run.err)

    def test_end_of_sequence_stops(self):
        path, prompt, ids = self.first
        copy = self.folder / "stops"
        shutil.copytree(path, copy)
        eos = next(t for t in ids if ids.index(t) > 0)
        (copy / "generation_config.json").write_text(json.dumps({"eos_token_id": [eos]}))
        run = Run("run", copy, "--prompt-ids", ",".join(map(str, prompt)), "-n", COUNT, "--json")
        answer = json.loads(run.out)
        self.assertEqual((answer["output_ids"], answer["finish_reason"]), (ids[:ids.index(eos)], "stop"))

    def test_stops_where_the_context_is_full(self):
        path, prompt, ids = self.first
        answer = self.generate(path, prompt, "--context", "10")
        self.assertEqual((answer["output_ids"], answer["finish_reason"]), (ids[:4], "length"))

    @for_each_model
    def test_inspect(self, spec, path, prompt, ids):
        run = Run("inspect", path, "--json", "--memory", "64MiB")
        self.assertEqual((run.code, run.err), (0, ""), run)
        facts = json.loads(run.out)
        ids = {i["name"]: i for i in facts["inputs"]}["words" if spec.style == "genai" else "input_ids"]
        self.assertRegex(ids["type"] + ids["shape"], r"int64\[batch\w*, seq\w*\]")
        self.assertEqual(len(facts["states"]), tiny_models.LAYERS * (1 if spec.past == "combined" else 2))
        for s in facts["states"]:
            self.assertEqual(s["rule"], "append")
            width = 2 if spec.past == "combined" else spec.kv_heads
            self.assertEqual((s["bytes_per_token"], s["type"]), (width * tiny_models.HEAD_SIZE * (2 if spec.half else 4), "float16" if spec.half else "float32"))
            self.assertIn("P", s["shape"])
        self.assertEqual(facts["copies"], {"prefill": [], "decode": []})
        for phase in ("prefill", "decode"):
            places = {place for how in facts["placement"][phase].values() for place in how}
            self.assertLessEqual(places, {"view", "in place", "computed", "computed into state", "host"})
            self.assertEqual(facts["placement"][phase]["situ.Attention"], {"computed": tiny_models.LAYERS})
        memory = facts["memory"]
        self.assertTrue(all(memory[k] > 0 for k in ("weights", "arena", "state_bytes_per_token", "slots", "slots_in_budget")), memory)
        self.assertEqual(memory["slots"], tiny_models.CONTEXT)
        self.check_recognised(spec, facts["recognised"])

    def check_recognised(self, spec, found):
        """Fused operators say themselves what they are; plain ones have to be recognised."""
        kinds = [f["kind"] for f in found]
        self.assertNotIn("attention not recognised", kinds)
        self.assertEqual(kinds.count("activation"), tiny_models.LAYERS)
        if spec.style != "optimum":
            return
        self.assertEqual(kinds.count("norm"), 2 * tiny_models.LAYERS + 1)
        self.assertEqual(kinds.count("rotary"), 0 if spec.rotary == "none" else 2 * tiny_models.LAYERS)
        attention = {f["what"] for f in found if f["kind"] == "attention"}
        self.assertEqual((kinds.count("attention"), len(attention)), (tiny_models.LAYERS, 1))
        words = {"causal": True, "ALiBi": spec.alibi, "bias by distance": spec.buckets > 0, "mask computed": False, f"window {spec.window}": spec.window > 0, f"softcap {spec.softcap}": spec.softcap > 0, "KV heads": spec.kv_heads < 4}
        self.assertEqual({w: w in next(iter(attention)) for w in words}, words)

    @for_some_models(11)
    def test_inspect_as_text(self, spec, path, prompt, ids):
        run = Run("inspect", path)
        self.assertEqual((run.code, run.err), (0, ""), run)
        for word in ("Inputs", "Outputs", "States", "append along axis", "Recognised", "Placement", "situ.Attention", "Copied: nothing", "weights", "slots", "Unsupported"):
            self.assertIn(word, run.out)

    @for_some_models(5)
    def test_inspect_passes(self, spec, path, prompt, ids):
        """No pass leaves what the table of legal graphs rules out (an error otherwise), and digests are those of the graph."""
        first, again = (json.loads(self.passed(Run("inspect", path, "--passes", "--json")).out) for _ in range(2))
        self.assertIn("states", first)
        passes = first["passes"]
        fields = {"name": str, "ms": float, "visits": int, "edits": int, "nodes": int, "digest": str, "graph": str, "for": str, "compilation": int}
        for p in passes:
            self.assertEqual({name: type(p[name]) for name in p}, fields)
        self.assertEqual([(p["name"], p["digest"]) for p in passes], [(p["name"], p["digest"]) for p in again["passes"]])
        by_name = {p["name"]: p for p in passes if p["compilation"] == 0}
        self.assertLess(list(by_name).index("bind_inputs"), list(by_name).index("find_states"))
        for before, after in zip(passes, passes[1:]):
            if before["compilation"] == after["compilation"] and before["digest"] != after["digest"]:
                break
        else:
            self.fail("all digests are equal")
        self.assertEqual(passes[-1]["nodes"] >= first["nodes"]["after passes"], True)
        self.assertGreater(by_name["recognise_attention"]["visits"], 0)
        literal = json.loads(self.passed(Run("inspect", path, "--passes", "--json", "--naive")).out)["passes"]
        self.assertEqual({p["for"] for p in literal}, {"naive mode"})
        self.assertLess({p["name"] for p in literal}, {p["name"] for p in passes})

    @for_some_models(11)
    def test_inspect_passes_as_text(self, spec, path, prompt, ids):
        run = self.passed(Run("inspect", path, "--passes"))
        self.assertRegex(run.out, r"Passes of the decoder \(any step\)\n  pass +ms +visits +edits +nodes  digest\n")
        self.assertRegex(run.out, r"\n  fuse_matmuls +\d+\.\d\d +\d+ +\d+ +\d+  [0-9a-f]{16}\n")

    def passed(self, run):
        self.assertEqual((run.code, run.err), (0, ""), run)
        return run

    def test_inspect_passes_of_a_refused_model(self):
        path = next(path for spec, (path, _, _) in self.models.items() if spec.rotary == "none" and not spec.alibi and not spec.buckets)
        run = Run("inspect", path, "--passes", "--json", "--window", 16)
        self.assertNotEqual(run.code, 0)
        facts = json.loads(run.out)
        self.assertTrue(any(words in run.err for words in facts["unsupported"]), run)
        self.assertIn("recognise_attention", [p["name"] for p in facts["passes"]])
        self.refused(Run("inspect", path, "--passes", "--html", self.folder / "page.html"), "--html", "--passes")

    def test_compare_graphs(self):
        """A build is like itself; one without a pass has another graph, and the first pass with another one is named."""
        path, _, _ = self.first
        without = self.folder / "without_a_pass"
        without.write_text(f'#!/bin/sh\nSITU_DISABLE_PASSES=recognise_functions exec {shlex.quote(cli_case.SITU)} "$@"\n')
        without.chmod(0o755)
        script = Path(__file__).resolve().parent.parent / "scripts" / "compare_graphs.py"
        compare = lambda *words: subprocess.run([sys.executable, "-B", script, *map(str, words), "--pairs", "0"], capture_output=True, text=True)
        same, other, none = compare(cli_case.SITU, cli_case.SITU, path), compare(cli_case.SITU, without, path), compare(cli_case.SITU, cli_case.SITU, self.folder / "nothing")
        self.assertEqual((same.returncode, same.stdout), (0, "1 models: 0 differ; graphs compared\n"), same)
        self.assertEqual(other.returncode, 1, other)
        self.assertIn("another graph behind recognise_rotary", other.stdout)
        self.assertIn("1 differ; graphs compared, passes of one list alone: recognise_functions", other.stdout)
        self.assertEqual(none.returncode, 2, none)

# -- misuse of the command line

class CommandLineTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = cls.folder / "llama"
        tiny_exports.write_model(tiny_models.SPECS[0], cls.model)

    def test_prompt_ids(self):
        for ids, words in [("-1", ["-1", 96]), ("96", [96]), ("1,2,96", ["token 2", 96]), ("x", ["x"]), ("1,x", ["x"]), ("", ["prompt"]), (" ", ["id"]), (",", [","]), ("1,,2", [","]),
                           ("1" + "0" * 30, ["1" + "0" * 30]), ("9223372036854775808", ["9223372036854775808"]), ("1.5", []), ("1 2", []), ("1,2,", []), ("x\ny", ["x"]), ("0x10", [])]:
            with self.subTest(ids=ids):
                self.refused(Run("run", self.model, "--prompt-ids", ids, "-n", 2), *words)

    def test_prompt_longer_than_the_context(self):
        self.refused(Run("run", self.model, "--prompt-ids", ",".join(["1"] * 65)), 65, 64)
        self.refused(Run("run", self.model, "--prompt-ids", IDS, "--context", 4), 7, 4)

    def test_options(self):
        for options, words in [(["--tokens", "0"], ["--tokens"]), (["--tokens", "-1"], ["-1"]), (["-n", "x"], ["x"]), (["-n", "9" * 30], ["9" * 30]), (["--threads", "0"], ["--threads"]),
                               (["--chunk", "0"], ["--chunk"]), (["--context", "0"], ["--context"]), (["--context", "-5"], ["-5"]), (["--frobnicate"], ["--frobnicate"]), (["--prompt", "hello"], ["--prompt"])]:
            with self.subTest(options=options):
                self.refused(Run("run", self.model, "--prompt-ids", IDS, *options), *words)
        self.refused(Run("run", self.model, "--prompt", "hello"), self.model, "tokenizer.json")
        self.refused(Run("run", self.model), "--prompt")
        self.refused(Run("frobnicate", self.model))
        self.refused(Run("run"), "model")
        for command in (("inspect", self.model), ("run", self.model, "--prompt-ids", IDS)):
            for size in ("12 parsecs", "0.3B", "0"):
                self.refused(Run(*command, "--memory", size), "--memory", size)

    def test_memory(self):
        prompt = [int(i) for i in IDS.split(",")]
        memory = json.loads(Run("inspect", self.model, "--json").out)["memory"]
        needed = memory["weights"] + memory["arena"] + (64 << 10)  # and what the host writes and reads
        room = str(needed + tiny_models.CONTEXT * memory["state_bytes_per_token"])
        self.assertEqual(self.generate(self.model, prompt, "--memory", room)["output_ids"], self.generate(self.model, prompt)["output_ids"])
        for size, words in [(memory["weights"], [memory["weights"], "too small"]), ("12 parsecs", ["parsecs"]), ("-1", ["-1"])]:
            with self.subTest(memory=size):
                self.refused(Run("run", self.model, "--prompt-ids", IDS, "--memory", size), *words)
        self.refused(Run("run", self.model, "--prompt-ids", IDS, "--memory", "1GiB", "--naive"), "naive")
        # The figures are those of chunks of 1. A prompt of seven tokens is told so, not the one that was left of it.
        weights, activations, token = (int(n) for n in re.findall(r"\d+", Run("run", self.model, "--prompt-ids", IDS, "--memory", 1).err.split("too small:")[1]))
        four = ("--chunk", 1, "--memory", weights + activations + 4 * token)
        self.refused(Run("run", self.model, "--prompt-ids", IDS, *four), f"a prompt of {len(prompt)} tokens does not fit the state of 4 slots")
        self.assertEqual(self.generate(self.model, prompt[:3], *four, count=2)["output_ids"], self.generate(self.model, prompt[:3], count=2)["output_ids"])

    def test_bench_depths(self):
        for depth in ("x", "-1", "100", "9223372036854775807", str(2**62)):
            with self.subTest(depth=depth):
                self.refused(Run("bench", self.model, "-d", depth))

    def test_instruction_set(self):
        self.refused(Run("run", self.model, "--prompt-ids", IDS, SITU_ISA="mmx"), "mmx", "portable")
        for isa in ("avx2", "avxvnni", "avx512", "avx512vnni", "amx"):
            if not cpu_has(isa):
                self.refused(Run("run", self.model, "--prompt-ids", IDS, SITU_ISA=isa), isa)

    def test_paths(self):
        empty = self.folder / "empty folder"
        (empty / "a folder.onnx").mkdir(parents=True)
        for path, words in [(self.folder / "nowhere", ["nowhere"]), (self.folder / "nowhere.onnx", ["nowhere.onnx"]), (empty / "a folder.onnx", ["a folder.onnx", ".onnx file"]), ("", []), ("/dev/null", ["/dev/null"])]:
            for command in (["run", path, "--prompt-ids", IDS], ["inspect", path], ["bench", path]):
                with self.subTest(command=command):
                    self.refused(Run(*command), *words)
        self.refused(Run("run", self.folder / "two\nlines", "--prompt-ids", IDS), "lines")

class LayoutsTest(CliTest):
    """Interfaces that differ from the usual one and mean the same: the same ids, in place and naively."""

    def same(self, spec_name, change, *options):
        spec = next(s for s in tiny_models.SPECS if s.name == spec_name)
        path = self.folder / f"{spec_name}-{self.id()}"
        prompt, ids = tiny_exports.write_model(spec, path)
        model = onnx.load(path / "model.onnx")
        change(model)
        onnx.save(model, path / "model.onnx")
        for mode in ((), ("--naive",)):
            answer = self.generate(path, prompt, *options, *mode)
            self.assertEqual(answer["output_ids"], ids, mode)
            self.assertEqual(answer["bytes_copied_per_token"] == 0, not mode)
        return path, prompt, ids

    def test_caches_in_another_layout(self):
        for perm in ([0, 2, 1, 3], [2, 0, 1, 3], [0, 1, 3, 2], [3, 2, 0, 1]):
            def change(m):
                for i, value in [(i, v) for i, v in enumerate(m.graph.input) if v.name.startswith("past")]:
                    inner = value.name + "/inner"
                    for n in m.graph.node:
                        n.input[:] = [inner if x == value.name else x for x in n.input]
                    m.graph.node.insert(0, helper.make_node("Transpose", [value.name], [inner], perm=[perm.index(a) for a in range(4)]))
                for value in [v for v in m.graph.output if v.name.startswith("present")]:
                    inner = value.name + "/inner"
                    for n in m.graph.node:
                        n.input[:] = [inner if x == value.name else x for x in n.input]
                        n.output[:] = [inner if x == value.name else x for x in n.output]
                    m.graph.node.append(helper.make_node("Transpose", [inner], [value.name], perm=perm))
                for value in [*m.graph.input, *m.graph.output]:
                    dims = value.type.tensor_type.shape.dim
                    if value.name.startswith(("past", "present")):
                        old = [onnx.TensorShapeProto.Dimension.FromString(d.SerializeToString()) for d in dims]
                        for a in range(4):
                            dims[a].CopyFrom(old[perm[a]])
            with self.subTest(perm=perm):
                self.same("llama", change)

    def test_an_input_that_nothing_reads(self):
        self.same("llama", lambda m: m.graph.input.append(helper.make_tensor_value_info("token_type_ids", 7, ["batch_size", "sequence_length"])))

    def test_a_short_context(self):
        path, prompt, ids = self.same("llama", lambda m: None)
        for context in (9, 12, 20):
            answer = self.generate(path, prompt, "--context", context)
            count = min(len(ids), context - len(prompt) + 1)
            self.assertEqual((answer["output_ids"], answer["bytes_copied_per_token"]), (ids[:count], 0))

    def test_a_context_that_only_the_position_table_tells(self):
        path, prompt, ids = self.same("gpt", lambda m: None)
        (path / "config.json").unlink()
        for model in (path, path / "model.onnx"):
            self.assertEqual(self.generate(model, prompt)["output_ids"], ids)
            self.assertEqual(json.loads(Run("inspect", model, "--json").out)["memory"]["slots"], tiny_models.CONTEXT)
        self.refused(Run("run", path, "--prompt-ids", IDS, "--context", tiny_models.CONTEXT + 1), "model.onnx", "Gather", tiny_models.CONTEXT)

    def test_element_types_of_states(self):
        path, prompt, ids = self.same("llama", lambda m: None)
        for kind, size in (("f32", 4), ("f16", 2), ("bf16", 2), ("auto", 4), ("q8", 1)):
            answer = self.generate(path, prompt, "--kv-type", kind)
            self.assertEqual(answer["bytes_copied_per_token"], 0)
            if kind not in ("bf16", "q8"):  # 8 bits of a number are too few for these margins
                self.assertEqual(answer["output_ids"], ids, kind)
            facts = json.loads(Run("inspect", path, "--json", "--kv-type", kind).out)
            self.assertEqual(facts["memory"]["state_bytes_per_token"], tiny_models.LAYERS * 2 * 2 * (tiny_models.HEAD_SIZE * size + (4 if kind == "q8" else 0)), kind)

    def test_trace(self):
        path, prompt, ids = self.same("llama", lambda m: None)
        file = self.folder / "trace.json"
        self.generate(path, prompt, "--trace", file, "--threads", 2)
        events = json.loads(file.read_text())["traceEvents"]
        # What is there and is no file is written to, not replaced.
        link = self.folder / "link.json"
        link.symlink_to(file)
        file.write_text("")
        self.generate(path, prompt, "--trace", link, "--threads", 2)
        self.assertTrue(link.is_symlink())
        self.assertTrue(json.loads(file.read_text())["traceEvents"])
        pipe, read = self.folder / "pipe", []
        os.mkfifo(pipe)
        reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
        reader.start()
        self.generate(path, prompt, "--trace", pipe, "--threads", 2)
        self.assertTrue(pipe.is_fifo())
        reader.join(10)
        self.assertTrue(json.loads(read[0])["traceEvents"])
        self.assertEqual({e["tid"] for e in events}, {0, 1})
        self.assertEqual(sum(e["name"] == "token" for e in events), COUNT)
        self.assertTrue(all(e["dur"] >= 0 and e["ts"] >= 0 for e in events))
        self.assertIn("Attention", {e["name"] for e in events})
        self.refused(Run("run", path, "--prompt-ids", IDS, "--trace", self.folder / "none" / "trace.json"), "trace.json", code=1)
        self.refused(Run("run", path, "--prompt-ids", IDS, "--naive", "--trace", file), "--trace")

    def test_bench(self):
        path, prompt, ids = self.same("llama", lambda m: None)
        run = Run("bench", path, "-p", 5, "-n", 4, "-d", "0,7", "--vs", "naive", "--json", "--no-pack-cache")
        self.assertEqual((run.code, run.err), (0, ""), run)
        report = json.loads(run.out)
        self.assertEqual([row["past"] for row in report["rows"]], [0, 7])
        for row in report["rows"]:
            self.assertEqual(row["in-place"]["bytes_copied_per_token"], 0)
            self.assertGreater(row["naive"]["bytes_copied_per_token"], 0)
            self.assertGreater(row["kernels"]["roofline_share"], 0)
            self.assertIn("MatMul", {k["kernel"] for k in row["kernels"]["kernels"]})
            for mode in ("in-place", "naive"):
                figures = row[mode]
                self.assertGreater(figures["prefill_ms_mean"], 0)
                self.assertAlmostEqual(figures["decode_tokens_per_s_mean"] * figures["decode_ms_per_token_mean"], 1000, 3)

    def test_bench_streams(self):
        path, prompt, ids = self.same("llama", lambda m: None)
        run = Run("bench", path, "-p", 5, "-n", 4, "--streams", "1,3", "--json", "--no-pack-cache")
        self.assertEqual((run.code, run.err), (0, ""), run)
        rows = json.loads(run.out)["rows"]
        self.assertEqual([(row["streams"], row["bytes_copied_per_token"]) for row in rows], [(1, 0), (3, 0)])
        for row in rows:
            self.assertAlmostEqual(row["answer_tokens_per_s_mean"] * row["ms_mean"], 1000 * row["streams"] * 4, 3)
        for streams, words in (("1,x", "'x' is not a number of streams"), ("0", "'0' is not"), ("", "names no number"), ("5000", "more than 4096")):
            self.refused(Run("bench", path, "--streams", streams), words)
        self.refused(Run("bench", path, "--streams", "1", "-d", "3"), "-d")

class PackCacheTest(CliTest):
    """Packed weights saved by one run and mapped by the next: always the ids of a run that packs."""

    ROWS = 9000 * tiny_models.VOCABULARY  # of the head: enough to be worth saving

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        spec = next(s for s in tiny_models.SPECS if s.name == "genai")
        cls.model = cls.folder / "large"
        cls.prompt, cls.ids = tiny_exports.write_model(spec, cls.model)
        cls.file = next(cls.model.glob("*.onnx"))
        model = onnx.load(cls.file)
        cls.enlarge(model)
        cls.save(model, cls.model)

    @staticmethod
    def save(model, folder):
        (folder / "data.bin").unlink()
        onnx.save(model, folder / PackCacheTest.file.name, save_as_external_data=True, location="data.bin", size_threshold=0)

    @classmethod
    def enlarge(cls, model):
        """The vocabulary over and over: logits that tie, of which the first counts."""
        for t in model.graph.initializer:
            if t.name.startswith("head."):
                array = onnx.numpy_helper.to_array(t)
                t.CopyFrom(onnx.numpy_helper.from_array(np.tile(array, (cls.ROWS // len(array),) + (1,) * (array.ndim - 1)), t.name))
        for n in model.graph.node:
            for a in n.attribute:
                if n.op_type == "MatMulNBits" and a.name == "N" and a.i == tiny_models.VOCABULARY and n.input[1].startswith("head"):
                    a.i = cls.ROWS
        next(o for o in model.graph.output if o.name == "scores").type.tensor_type.shape.dim[2].dim_value = cls.ROWS

    def run_model(self, model, cache, *options):
        return self.generate(model, self.prompt, *options, SITU_CACHE_DIR=str(cache))

    def test_the_second_start_maps(self):
        cache = self.folder / "cache" / "of situ"
        first = self.run_model(self.model, cache)
        self.assertEqual(first["output_ids"], self.ids)
        self.assertGreater(first["packed_bytes"], 16 << 20)
        self.assertEqual(first["mapped_packed_bytes"], 0)
        files = list(cache.iterdir())
        self.assertEqual([f.suffix for f in files], [".situpack"])
        for _ in range(2):
            second = self.run_model(self.model, cache)
            self.assertEqual((second["output_ids"], second["packed_bytes"], second["mapped_packed_bytes"]), (self.ids, 0, first["packed_bytes"]))
        facts = json.loads(Run("inspect", self.model, "--json", SITU_CACHE_DIR=str(cache)).out)["packed weights"]
        self.assertEqual(facts, {"packed": 0, "mapped": first["packed_bytes"], "file": str(files[0]), "not saved": ""})
        self.assertIn(str(files[0]), Run("inspect", self.model, SITU_CACHE_DIR=str(cache)).out)

    def test_a_copy_maps_too(self):
        cache, copy = self.folder / "cache-copy", self.folder / "copy"
        self.run_model(self.model, cache)
        shutil.copytree(self.model, copy)
        self.assertEqual(self.run_model(copy, cache)["packed_bytes"], 0)

    def test_it_can_be_switched_off(self):
        cache = self.folder / "cache-off"
        answer = self.run_model(self.model, cache, "--no-pack-cache")
        self.assertEqual((answer["output_ids"], answer["mapped_packed_bytes"]), (self.ids, 0))
        run = Run("inspect", self.model, "--no-pack-cache", SITU_CACHE_DIR=str(cache))
        self.assertEqual(run.code, 0, run)
        self.assertFalse(cache.exists())

    def test_a_model_of_equal_shape_has_its_own_ids(self):
        cache, tuned = self.folder / "cache-tuned", self.folder / "tuned"
        self.run_model(self.model, cache)
        shutil.copytree(self.model, tuned)
        model = onnx.load(tuned / self.file.name)
        for t in model.graph.initializer:
            if t.name.startswith("head."):  # other words in the same rows
                t.CopyFrom(onnx.numpy_helper.from_array(np.roll(onnx.numpy_helper.to_array(t), 7, axis=0), t.name))
        self.save(model, tuned)
        self.assertEqual((tuned / "data.bin").stat().st_size, (self.model / "data.bin").stat().st_size)
        want = self.run_model(tuned, cache, "--no-pack-cache")["output_ids"]
        self.assertNotEqual(want, self.ids)
        for packs in (True, False):
            answer = self.run_model(tuned, cache)
            self.assertEqual((answer["output_ids"], answer["packed_bytes"] > 0), (want, packs))
            self.assertEqual(self.run_model(self.model, cache)["output_ids"], self.ids)
        # One takes the other's place, in the same file and of the same length.
        with open(tuned / "data.bin", "r+b") as file:
            file.write((self.model / "data.bin").read_bytes())
        self.assertEqual(self.run_model(tuned, cache)["output_ids"], self.ids)

    def test_a_folder_that_cannot_be_written(self):
        for cache in ("/dev/null", "/proc/none", self.file / "below a file"):
            answer = self.run_model(self.model, cache)
            self.assertEqual((answer["output_ids"], answer["mapped_packed_bytes"]), (self.ids, 0))
            self.assertNotEqual(json.loads(Run("inspect", self.model, "--json", SITU_CACHE_DIR=str(cache)).out)["packed weights"]["not saved"], "")

    def test_a_damaged_file_is_replaced(self):
        cache = self.folder / "cache-damaged"
        self.run_model(self.model, cache)
        file = next(cache.iterdir())
        for damage in (lambda b: b[:1000], lambda b: b[:-1], lambda b: b[:-4000000] + bytes(4000000), lambda b: b"X" + b[1:]):
            file.write_bytes(damage(file.read_bytes()))
            self.assertEqual(self.run_model(self.model, cache)["output_ids"], self.ids)
            again = self.run_model(self.model, cache)
            self.assertEqual((again["output_ids"], again["packed_bytes"]), (self.ids, 0))

if __name__ == "__main__":
    main()
