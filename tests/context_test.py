"""The context is the smallest of what the files declare and what tables and caches of the graph hold.

    python tests/context_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`).
"""
import json

import numpy as np
import onnx

import decoder_graphs
import tiny_seq2seq
from cli_case import Run, main
from decoder_graphs import END, LEARNED, ROTARY
from graph_case import GraphCase
from tiny_exports import MASKED, value
from tiny_models import CONTEXT, HEAD_SIZE, HEADS, LAYERS, VOCABULARY

LONG = [int(t) for t in np.random.default_rng(5).integers(0, VOCABULARY, CONTEXT + 1)]
PLACES = 48  # of the caches of a fixed size


class StaticCache(decoder_graphs.Hooked):
    """States [1, G, PLACES, E], into which a step writes its rows: `writes(g, past, x, out)`."""

    def __init__(self, writes, token=False):
        super().__init__(LEARNED)
        self.writes, self.token = writes, token

    def prepare(self):
        super().prepare()
        self.positions = self.op("Reshape", "position_ids", self.constant([-1]))
        self.places = self.constant(np.arange(PLACES))
        seen = self.op("LessOrEqual", self.places, self.unsqueeze(self.positions, 1))
        self.mask = self.op("Where", self.unsqueeze(seen, 0, 1), self.f32(0), self.f32(MASKED))

    def appended(self, x, i, part):
        past, present = self.names(i, part)
        for name, values in ((past, self.inputs), (present, self.outputs)):
            values.append(value(name, [1 if self.token else "batch_size", self.spec.kv_heads, PLACES, HEAD_SIZE]))
        self.writes(self, past, x, present)
        return present

    def repeat(self, x):
        return self.op("Concat", *(self.op("Slice", x, self.constant([h // 2]), self.constant([h // 2 + 1]), self.constant([1])) for h in range(4)), axis=1)


class ExpandedCache(StaticCache):
    """With heads repeated as exporters repeat them."""
    repeat = decoder_graphs.Hooked.repeat


def chosen(g, past, x, out):
    here = g.op("Cast", g.op("Equal", g.places, g.unsqueeze(g.positions, 1)), to=1)  # [S, N]
    rows = g.op("MatMul", g.op("Transpose", here, perm=[1, 0]), x)
    written = g.op("Greater", g.op("ReduceSum", here, g.constant([0]), keepdims=0), g.f32(0))
    g.op("Where", g.unsqueeze(written, 1), rows, past, out=out)


def scattered(g, past, x, out):
    by_place = [g.op("Transpose", t, perm=[2, 0, 1, 3]) for t in (past, x)]
    g.op("Transpose", g.op("ScatterND", by_place[0], g.unsqueeze(g.positions, 1), by_place[1]), perm=[1, 2, 0, 3], out=out)


def by_element(g, past, x, out):
    places = g.op("Expand", g.reshape(g.positions, 1, 1, -1, 1), g.op("Shape", x))
    g.op("ScatterElements", past, places, x, axis=2, out=out)


def joined(g, past, x, out):
    """What stands before and behind the rows stays."""
    first = g.op("Slice", g.positions, g.constant([0]), g.constant([1]), g.constant([0]))
    behind = g.op("Add", first, g.unsqueeze(g.tokens, 0))
    parts = [g.op("Slice", past, *ends, g.constant([2])) for ends in ((g.constant([0]), first), (behind, g.constant([PLACES])))]
    g.op("Concat", parts[0], x, parts[1], axis=2, out=out)


def squeezed(g, past, x, out):
    """Without the batch that the state has."""
    by_place = [g.op("Transpose", g.op("Squeeze", t, g.constant([0])), perm=[1, 0, 2]) for t in (past, x)]
    after = g.op("Transpose", g.op("ScatterND", by_place[0], g.unsqueeze(g.positions, 1), by_place[1]), perm=[1, 0, 2])
    g.op("Unsqueeze", after, g.constant([0]), out=out)


class StackedCache(ExpandedCache):
    """K and V of all layers in one state [layers, 2, 1, G, PLACES, E]."""

    def prepare(self):
        super().prepare()
        self.inputs.append(value("past_key_values", [LAYERS, 2, 1, self.spec.kv_heads, PLACES, HEAD_SIZE]))
        self.grown = []

    def appended(self, x, i, part):
        layer = self.op("Gather", "past_key_values", self.constant(i), axis=0)
        past = self.op("Gather", layer, self.constant(0 if part == "key" else 1), axis=0)
        present = f"grown.{i}.{part}"
        self.writes(self, past, x, present)
        self.grown.append(self.unsqueeze(present, 0))
        if len(self.grown) == 2 * LAYERS:
            layers = [self.unsqueeze(self.op("Concat", *self.grown[k:k + 2], axis=0), 0) for k in range(0, len(self.grown), 2)]
            self.op("Concat", *layers, axis=0, out="present_key_values")
            self.outputs.append(value("present_key_values", [LAYERS, 2, 1, self.spec.kv_heads, PLACES, HEAD_SIZE]))
        return present


def fused_rotary(g, x):
    angle = np.arange(CONTEXT)[:, None] * 10000.0 ** (-np.arange(0, HEAD_SIZE, 2) / HEAD_SIZE)
    return g.op("RotaryEmbedding", x, "position_ids", g.f32(np.cos(angle)), g.f32(np.sin(angle)), domain="com.microsoft")


def cut_tables(g, x):
    """Rows P to P + S of tables, without a Gather."""
    angle = np.arange(CONTEXT)[:, None] * 10000.0 ** (-np.arange(0, HEAD_SIZE, 2) / HEAD_SIZE)
    past = g.unsqueeze(g.op("Sub", g.total, g.tokens), 0)
    cos, sin = (g.op("Slice", g.f32(np.tile(f(angle), 2)), past, g.unsqueeze(g.total, 0), g.constant([0])) for f in (np.cos, np.sin))
    half = HEAD_SIZE // 2
    turned = g.op("Concat", g.op("Neg", g.slice(x, half, END, 3)), g.slice(x, 0, half, 3), axis=-1)
    return g.op("Add", g.op("Mul", x, cos), g.op("Mul", turned, sin))


def cut_mask(g, mask):
    """A part of a table of what each query sees."""
    seen = g.constant(np.tril(np.ones((1, 1, CONTEXT, CONTEXT), bool)), bool)
    past, total = g.unsqueeze(g.op("Sub", g.total, g.tokens), 0), g.unsqueeze(g.total, 0)
    seen = g.op("Slice", g.op("Slice", seen, past, total, g.constant([2])), g.constant([0]), total, g.constant([3]))
    return g.op("Where", seen, g.f32(0), g.f32(MASKED))


class ContextTest(GraphCase):
    def folder_of(self, name, graph, **config):
        folder = self.folder / f"{self.id()} {name}"
        folder.mkdir()
        onnx.save(graph, folder / "model.onnx")
        (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 1000, "eos_token_id": VOCABULARY, **config}))
        return folder

    def check_bound(self, folder, most, ids, *words):
        """The ids behind a prompt that leaves room for three; one note; a prompt beyond is refused, as a longer context is."""
        for options in ((), ("--naive",), ("--chunk", 5)):
            with self.subTest(folder.name, options=options):
                run = Run("run", folder, "--prompt-ids", ",".join(map(str, LONG[:most - 2])), "-n", 10, "--ignore-eos", "--json", *options)
                self.assertEqual(run.code, 0, run)
                self.assertRegex(run.err, rf"\Asitu: note: the context is {most} tokens, not the 1000 that are declared: [^\n]+\n\Z")
                for word in words:
                    self.assertIn(word, run.err)
                answer = json.loads(run.out)
                self.assertEqual((answer["output_ids"], answer["finish_reason"]), (ids, "length"))
        self.refused(Run("run", folder, "--prompt-ids", ",".join(map(str, LONG[:most + 1])), "-n", 1), f"maximum context length is {most} tokens")
        self.refused(Run("run", folder, "--prompt-ids", "1", "-n", 1, "--context", most + 1), f"a context of {most + 1} tokens does not fit")

    def test_tables(self):
        for spec, cases in {
            LEARNED: {"learned positions": ({}, "positions", "table of 64 rows")},
            ROTARY: {"tables of a fused operator": ({"rotary": fused_rotary}, "Rotary", "table of 64 rows"),
                     "cut tables": ({"rotary": cut_tables}, "Slice", "cuts at 64"),
                     "a cut mask": ({"mask": cut_mask}, "Slice", "cuts at 64")},
        }.items():
            plain = self.write("plain", spec, {})
            ids = self.generate(plain, LONG[:CONTEXT - 2], "--naive", "--context", CONTEXT, count=3)["output_ids"]
            for name, (hooks, *words) in cases.items():
                graph = decoder_graphs.Hooked(spec, **hooks).build()
                if name == "learned positions":
                    graph.graph.node[1].name, words[0] = "by_position", "by_position"
                self.check_bound(self.folder_of(name, graph), CONTEXT, ids, *words)

    def test_caches_of_a_fixed_size(self):
        plain = self.write("plain", LEARNED, {})
        ids = self.generate(plain, LONG[:PLACES - 2], "--naive", count=3)["output_ids"]
        beams = self.generate(plain, LONG[:5], "--beams", 3, count=6)["output_ids"]
        for name, writes in {"chosen": chosen, "scattered": scattered, "by element": by_element}.items():
            folder = self.folder_of(name, StaticCache(writes).build())
            self.check_bound(folder, PLACES, ids, "state 'past_key_values.0.key'", f"has places for {PLACES}")
            folder = self.folder_of(f"{name}, beams", ExpandedCache(writes).build(), max_position_embeddings=PLACES)
            run = self.generate(folder, LONG[:5], "--beams", 3, count=6)
            self.assertEqual((run["output_ids"], run["bytes_copied_per_token"]), (beams, 0), name)
        for name, graph in {"joined": ExpandedCache(joined), "squeezed": ExpandedCache(squeezed), "stacked": StackedCache(scattered)}.items():
            run = self.generate(self.folder_of(name, graph.build(), max_position_embeddings=PLACES), LONG[:5], "--beams", 3, count=6)
            self.assertEqual((run["output_ids"], run["bytes_copied_per_token"]), (beams, 0), name)

    def test_the_smallest_of_what_files_declare(self):
        graph = onnx.load(self.write("plain", LEARNED, {}))
        for genai, config, least in ((40, 1000, 40), (64, 30, 30)):
            folder = self.folder_of(f"{genai} {config}", graph, max_position_embeddings=config)
            (folder / "genai_config.json").write_text(json.dumps({"model": {"type": "llama", "context_length": genai, "decoder": {"filename": "model.onnx"}}}))
            self.refused(Run("run", folder, "--prompt-ids", ",".join(map(str, LONG[:least + 1])), "-n", 1), f"maximum context length is {least} tokens")
            self.generate(folder, LONG[:least], count=1)

    def test_what_nobody_declares(self):
        """The tables' rows, however many: no note."""
        path = self.write("plain", LEARNED, {})
        self.assertEqual(len(self.generate(path, LONG[:CONTEXT - 2], count=9)["output_ids"]), 3)
        self.refused(Run("run", path, "--prompt-ids", ",".join(map(str, LONG[:CONTEXT + 1]))), f"maximum context length is {CONTEXT} tokens")

    def test_an_encoder_and_its_decoder(self):
        """Either table of positions bounds what it is read for."""
        for name in ("bart", "bart-pair"):
            spec = next(s for s in tiny_seq2seq.SPECS if s.name == name)
            oracle = tiny_seq2seq.choose_weights(spec)
            folder = self.folder / f"{self.id()} {name}"
            tiny_seq2seq.write_folder(folder, tiny_seq2seq.files_of(spec, oracle.w), {**tiny_seq2seq.config(spec), "max_position_embeddings": 1000})
            source = np.random.default_rng(3).integers(3, tiny_seq2seq.VOCABULARY, tiny_seq2seq.CONTEXT).tolist()
            run = Run("run", folder, "--prompt-ids", ",".join(map(str, source)), "-n", 1000, "--ignore-eos", "--json")
            self.assertEqual(run.code, 0, run)
            self.assertEqual(len(json.loads(run.out)["output_ids"]), tiny_seq2seq.CONTEXT)
            for options in ((), ("--naive",)):
                self.refused(Run("run", folder, "--prompt-ids", ",".join(map(str, [*source, 5])), "-n", 1, *options), f"{tiny_seq2seq.CONTEXT}")

    def test_two_ropes_in_one_table(self):
        """Rows from an offset on hold for longer sequences; genai_config.json alone says so."""
        short = 24
        rows = [np.arange(n)[:, None] * base ** (-np.arange(0, HEAD_SIZE, 2) / HEAD_SIZE) for n, base in ((short, 10000.0), (CONTEXT, 3.0))]
        cos, sin = (f(np.concatenate(rows)) for f in (np.cos, np.sin))
        def gqa(g, q, k, v, i):
            pasts, presents = zip(*(g.state(i, part, ["batch_size", g.spec.kv_heads, None, HEAD_SIZE], 2) for part in ("key", "value")))
            lengths = g.op("Cast", g.op("Sub", g.op("ReduceSum", "attention_mask", g.constant([1]), keepdims=0), g.constant([1])), to=onnx.TensorProto.INT32)
            return g.op("GroupQueryAttention", q, k, v, *pasts, lengths, g.op("Cast", g.total, to=onnx.TensorProto.INT32), g.f32(cos), g.f32(sin),
                        domain="com.microsoft", num_heads=HEADS, kv_num_heads=g.spec.kv_heads, do_rotary=1, out=[f"y{i}", *presents])[0]
        def embedded(offset):
            def rotary(g, x):
                long = g.op("Where", g.op("Greater", g.total, g.constant(short)), g.constant(offset), g.constant(0))
                return g.op("RotaryEmbedding", x, g.op("Add", "position_ids", long), g.f32(cos), g.f32(sin), domain="com.microsoft")
            return {"rotary": rotary}
        def folder(name, hooks, offset, key="multiRotaryCacheConcatOffset"):
            folder = self.folder_of(name, decoder_graphs.Hooked(ROTARY, **hooks).build(), max_position_embeddings=CONTEXT)
            options = {"provider_options": [{"webgpu": {key: offset}}]}
            (folder / "genai_config.json").write_text(json.dumps({"model": {"type": "phi3", "decoder": {"filename": "model.onnx", "session_options": options}}}))
            return folder
        wanted = self.write("both", ROTARY, embedded(short))
        path = folder("both by name", {"fused": gqa}, str(short))
        for prompt, count in ((LONG[:short - 3], 9), (LONG[:5], 3), (LONG[:CONTEXT - 2], 9)):
            ids = self.generate(wanted, prompt, "--naive", "--context", CONTEXT, "--threads", 1, count=count)["output_ids"]
            for options in ((), ("--chunk", 5)):
                self.assertEqual(self.generate(path, prompt, "--threads", 1, *options, count=count)["output_ids"], ids, (len(prompt), options))
        other = folder("another name", {"fused": gqa}, short, "multi_rotary_cache_concat_offset")
        self.assertEqual(self.generate(other, LONG[:CONTEXT - 2], "--threads", 1, count=9)["output_ids"], ids)
        self.refused(Run("run", path, "--prompt-ids", ",".join(map(str, LONG[:CONTEXT + 1])), "-n", 1), f"maximum context length is {CONTEXT} tokens")
        self.refused(Run("run", folder("elsewhere", embedded(0), short), "--prompt-ids", "1,2"), "RotaryEmbedding", f"from row {short} on")
        for offset in ("x", "-1", 2.5, [24]):
            self.refused(Run("run", folder(f"offset {offset}", {"fused": gqa}, offset), "--prompt-ids", "1,2"), "multiRotaryCacheConcatOffset", "should be a number of rows")

    def test_what_the_graph_has_lost(self):
        """A window or a long rope of config.json that the graph does not compute: a note, there and by `inspect`."""
        graph = decoder_graphs.Hooked(ROTARY).build()
        rope = {"rope_type": "longrope", "original_max_position_embeddings": 32, "long_factor": [2.0], "short_factor": [1.0]}
        cases = (({"sliding_window": 8}, "a window of 8 tokens"), ({"sliding_window": 8, "layer_types": ["full_attention", "sliding_attention"]}, "a window of 8 tokens"),
                 ({"text_config": {"sliding_window": 9}}, "a window of 9 tokens"), ({"rope_scaling": rope}, "more than 32 tokens (long rope)"),
                 ({"rope_parameters": {**rope, "type": "su"}}, "more than 32 tokens (long rope)"),
                 ({"sliding_window": 8, "use_sliding_window": False}, ""), ({"sliding_window": 8, "layer_types": ["full_attention"]}, ""), ({"sliding_window": None}, ""),
                 ({"sliding_window": CONTEXT}, ""), ({"rope_scaling": {**rope, "original_max_position_embeddings": CONTEXT}}, ""), ({"rope_scaling": {"type": "linear", "factor": 2.0}}, ""))
        for i, (config, word) in enumerate(cases):
            with self.subTest(config):
                folder = self.folder_of(f"lost {i}", graph, max_position_embeddings=CONTEXT, **config)
                run = Run("run", folder, "--prompt-ids", "1,2", "-n", 1, "--json")
                notes = [line for line in run.err.splitlines() if line.startswith("situ: note: config.json declares")]
                self.assertEqual((run.code, len(notes)), (0, 1 if word else 0), run)
                self.assertIn(word, run.err)
                self.assertIn(word, Run("inspect", folder).out)


if __name__ == "__main__":
    main()
