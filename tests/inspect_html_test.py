#!/usr/bin/env python3
"""`situ inspect --html`: the page against the facts of --json, for each class of models; names that try to be markup; and
the page in a browser, where Debian's Chromium is installed.

python tests/inspect_html_test.py --situ build/situ [unittest options]
"""
import html
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

import tiny_exports
import tiny_models
import tiny_seq2seq
import tiny_speech
from cli_case import CliTest, Run, main

MOST_BYTES = 5_000_000
LAYERS, MORE_LAYERS = 30, 100  # of the plain operators of tiny_exports: 5,000 nodes; three times as many
SHARED = Path(os.environ.get("SITU_SHARED", Path(__file__).resolve().parent.parent.parent / "shared")) / "models"
RECORDED = ["smollm2-135m-instruct-int4", "whisper-base-int8", "tiny/llama", "tiny/t5", "genai/llama-int4", "vlm/moonshine", "styles/fixedw4m-qwen2"]
VOID = {"meta", "br", "img", "link", "input", "hr", "base", "embed", "source", "area", "col", "track", "wbr", "path", "use"}
HOSTILE = "</style></title><script>window.hacked=1</script><img src=x onerror=\"window.hacked=1\">&amp;'\u202e\x07]]>"


class Page(HTMLParser):
    """Tags, ids, links and text of a page; the sum of data-bytes below each element that has an id."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.ids, self.links, self.sums, self.entries = [], [], [], [], [], {}, {}
        self.policy, self.text, self.nested = None, [], 0
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.tags.append(tag)
        self.attributes += attributes
        if "id" in given:
            self.ids.append(given["id"])
        if tag == "a":
            self.links.append(given["href"])
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"]
        if "data-bytes" in given:
            self.nested += any(counted for _, _, counted in self.open)
            for _, name, _ in self.open:
                if name:
                    self.sums[name] = self.sums.get(name, 0) + int(given["data-bytes"])
                    self.entries[name] = self.entries.get(name, 0) + 1
        if tag not in VOID:
            self.open.append((tag, given.get("id"), "data-bytes" in given))

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        last, _, _ = self.open.pop()
        assert last == tag, (last, tag)

    def handle_data(self, data):
        self.text.append(data)


def recurrent(path):
    """A decoder with a state [1, 1, C] that each step replaces, past * 0.5 + the sum of the new tokens' rows, and that is
    read beside that. C width."""
    g, rng = tiny_exports.Builder(), np.random.default_rng(3)
    table = g.weight("table", rng.standard_normal((64, 16)).astype(np.float32))
    x = g.op("Gather", table, "input_ids")
    g.op("Add", g.op("Mul", "past_state.0", g.f32(0.5)), g.op("ReduceSum", x, g.constant([1]), keepdims=1), out="present_state.0")
    g.op("MatMul", g.op("Tanh", g.op("Add", x, "past_state.0")), g.weight("head", rng.standard_normal((16, 64)).astype(np.float32)), out="logits")
    value = tiny_exports.value
    graph = helper.make_graph(g.nodes, "recurrent", [value("input_ids", ["batch", "sequence"], TensorProto.INT64), value("past_state.0", ["batch", 1, 16])],
                              [value("logits", ["batch", "sequence", 64]), value("present_state.0", ["batch", 1, 16])], g.initializers)
    path.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path / "model.onnx")
    return path


def decoder(path, spec=tiny_models.SPECS[0], layers=2, change=None):
    kept = tiny_models.LAYERS
    try:
        tiny_models.LAYERS = tiny_exports.LAYERS = layers
        tiny_exports.write_weights(spec, tiny_models.make_weights(spec, 1), path)
    finally:
        tiny_models.LAYERS = tiny_exports.LAYERS = kept
    if change:
        model = onnx.load(path / "model.onnx")
        change(model)
        onnx.save(model, path / "model.onnx")
    return path


def encoder_decoder(path, **kind):
    spec = tiny_seq2seq.Spec("tiny", **kind)
    return tiny_seq2seq.write_folder(path, tiny_seq2seq.files_of(spec, tiny_seq2seq.make_weights(spec, 1)), tiny_seq2seq.config(spec))


CLASSES = {
    "decoder": decoder,
    "grouped": lambda path: decoder(path, next(s for s in tiny_models.SPECS if s.style == "genai")),
    "combined": lambda path: decoder(path, next(s for s in tiny_models.SPECS if s.past == "combined")),
    "encoder-decoder": encoder_decoder,
    "pair": lambda path: encoder_decoder(path, layout="pair", positions="relative", norm="rms"),
    "compiled later": lambda path: encoder_decoder(path, source="features"),
    "recurrent": recurrent,
    "speech": lambda path: tiny_speech.write_folder(path, tiny_speech.make_weights(1)),
}


class PageCase(CliTest):
    def page(self, model, *options, **environment):
        """(text, page, facts) of a model, by one run."""
        out = self.folder / "page.html"
        run = Run("inspect", model, "--html", out, "--json", "--no-pack-cache", *options, **environment)
        self.assertEqual((run.code, run.err, run.stopped), (0, "", ""), run)
        text = out.read_text(encoding="utf-8")
        return text, Page(text), json.loads(run.out)

    def check(self, text, page, facts):
        self.check_sums(page, facts)
        self.check_facts(facts)
        self.check_alone(text, page)

    def check_sums(self, page, facts):
        """Which figure each sum is: docs/placement.md has the same list."""
        module, memory = facts["module"], facts["memory"]
        expected = {"regions": memory["bytes"],
                    "lifetimes": sum(p["block_bytes"] for p in module["programs"]),
                    "programs": memory["arena_bytes_unshared"],
                    "ports": sum(p["bytes"] for p in module["ports"])}
        self.assertEqual({k: page.sums.get(k, 0) for k in expected}, expected)
        self.assertTrue(all(page.entries.get(k) for k in expected), page.entries)
        self.assertEqual(page.nested, 0)  # no entry counts what another one counts

    def check_facts(self, facts):
        module, memory = facts["module"], facts["memory"]
        of_steps, of_encoders = [], [0]
        for p in module["programs"]:
            (of_steps if p["name"] in ("prompt", "token", "lookup", "behind") else of_encoders).append(p["arena_bytes"])
        shared, unshared = max(of_steps) + max(of_encoders), sum(of_steps + of_encoders)
        self.assertEqual((memory["arena_bytes"], memory["arena_bytes_unshared"]), (shared, unshared))
        spaces = sum(s["bytes"] for s in module["spaces"])
        self.assertEqual(memory["bytes"], memory["weights"] + memory["computed"] + memory["arena_bytes"] + memory["io"] + spaces)
        self.assertLessEqual(sum(c["bytes"] for c in memory["constants"]), memory["weights"] + memory["computed"])
        for p in module["programs"]:
            blocks = p["blocks"]
            self.assertEqual(p["block_bytes"], sum(b["bytes"] for b in blocks))
            self.assertEqual(p["arena_bytes"], max((b["offset"] + b["bytes"] for b in blocks), default=0))
            if p["calls"]:
                self.assertEqual(p["kernel_calls"], len(p["calls"]))
            for i, a in enumerate(blocks if len(blocks) < 1000 else []):
                for b in blocks[:i]:
                    apart = a["last"] < b["first"] or b["last"] < a["first"] or a["offset"] + a["bytes"] <= b["offset"] or b["offset"] + b["bytes"] <= a["offset"]
                    self.assertTrue(apart, (p["name"], a, b))

    def check_alone(self, text, page):
        """Nothing is fetched, nothing runs, every link leads somewhere."""
        self.assertEqual(page.policy.split("; ")[:2], ["default-src 'none'", "style-src 'unsafe-inline'"])
        self.assertFalse({"script", "img", "link", "iframe", "object", "embed", "base", "form", "input"} & set(page.tags))
        names = {name for name, _ in page.attributes}
        self.assertFalse({n for n in names if n.startswith("on") or n in ("src", "srcset", "srcdoc", "xlink:href", "action", "background", "data")})
        self.assertTrue(all(link.startswith("#") and link[1:] in page.ids for link in page.links))
        self.assertEqual(len(page.ids), len(set(page.ids)))
        styles = " ".join([*re.findall(r"<style>(.*?)</style>", text, re.S), *(v for n, v in page.attributes if n == "style")])
        self.assertNotRegex(styles, r"url\(|@import|http|expression|image-set")
        self.assertIn("prefers-color-scheme:dark", styles)
        self.assertIn(":focus-visible", styles)
        self.assertLess(len(text.encode()), MOST_BYTES)


class ClassesTest(PageCase):
    def test_every_class(self):
        for name, write in CLASSES.items():
            with self.subTest(name):
                text, page, facts = self.page(write(self.folder / name))
                self.check(text, page, facts)
                later = name == "compiled later"
                self.assertEqual(facts["compiled later"], ["encode"] if later else [])
                self.assertEqual("Compiled when its arrays come" in text, later)
                self.assertIn({"recurrent": "recurrent", "encoder-decoder": "cross", "speech": "cross"}.get(name, "self"), [s["name"] for s in facts["module"]["spaces"]])
                copies = sum(len(c) for c in facts["copies"].values())
                self.assertEqual((("0 bytes are copied by the decoder" if later else "0 bytes are copied.") in text, "What is copied" in text), (copies == 0, copies > 0))
                self.assertTrue(copies == 0 or name == "recurrent", facts["copies"])

    def test_programs_tell_who_writes_and_reads_a_space(self):
        _, _, facts = self.page(encoder_decoder(self.folder / "spaces"))
        spaces = {s["name"]: (s["writers"], s["readers"]) for s in facts["module"]["spaces"]}
        self.assertEqual(spaces, {"self": (["prompt", "token"], ["prompt", "token"]), "cross": (["encode"], ["prompt", "token"])})

    def test_what_is_copied_is_named(self):
        """A window of raw tokens that something else reads too is shifted (docs/placement.md)."""
        def shift(model):
            g = model.graph
            g.input.append(tiny_exports.value("past_window.0", ["batch", 4, 3]))
            g.output.append(tiny_exports.value("present_window.0", ["batch", 4, 3]))
            g.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "one"))
            g.initializer.append(onnx.numpy_helper.from_array(np.array([2**31]), "end"))
            g.initializer.append(onnx.numpy_helper.from_array(np.array([2]), "axis"))
            g.initializer.append(onnx.numpy_helper.from_array(np.ones((1, 4, 1), np.float32), "ones"))
            g.node.append(helper.make_node("Concat", ["past_window.0", "ones"], ["window"], name="join the window", axis=2))
            g.node.append(helper.make_node("Slice", ["window", "one", "end", "axis"], ["present_window.0"], name="shift the window"))
        text, page, facts = self.page(decoder(self.folder / "shifted", change=shift))
        self.assertGreater(sum(len(c) for c in facts["copies"].values()), 0)
        for c in facts["copies"]["decode"]:
            self.assertIn(html.escape(c["reason"]), text)
            self.assertIn(html.escape(c["node"]), text)
        self.check(text, page, facts)

    def test_a_large_graph(self):
        folder = decoder(self.folder / "large", layers=LAYERS)
        self.assertGreater(len(onnx.load(folder / "model.onnx").graph.node), 4900)
        text, page, facts = self.page(folder)
        self.check(text, page, facts)
        alike = [int(n) for n in re.findall(r"One of (\d+) stretches of the same operators", text)]
        self.assertEqual(len(alike), 2)
        self.assertTrue(all(LAYERS - 2 <= n <= LAYERS for n in alike), alike)

    def test_more_blocks_and_calls_than_are_shown(self):
        text, page, facts = self.page(decoder(self.folder / "larger", layers=MORE_LAYERS), SITU_DISABLE_PASSES="all")
        self.check(text, page, facts)
        self.assertGreater(max(len(p["blocks"]) for p in facts["module"]["programs"]), 1500)
        self.assertRegex(text, r"and [\d,]+ more, [\d.]+ \w+, none of them larger than")
        self.assertRegex(text, r"and [\d,]+ more calls")

    def test_recorded_models(self):
        found = [SHARED / name for name in RECORDED if (SHARED / name).exists()]
        if not found:
            self.skipTest(f"no models in {SHARED}")
        for folder in found:
            with self.subTest(folder.name):
                self.check(*self.page(folder))


class MemoryTest(PageCase):
    def test_slots_that_sharing_makes_room_for(self):
        for name, write in CLASSES.items():
            with self.subTest(name):
                folder = write(self.folder / f"memory {name}")
                plain = json.loads(Run("inspect", folder, "--json").out)["memory"]
                per_token, saved = plain["state_bytes_per_token"], plain["arena_bytes_unshared"] - plain["arena_bytes"]
                self.assertGreater(saved, 0)
                self.assertEqual(plain["slots_gained"], saved // per_token if per_token else 0)
                fixed = plain["weights"] + plain["computed"] + plain["io"] + plain["state_fixed_bytes"]
                for budget in (fixed + plain["arena_bytes"] + per_token * 5, fixed + plain["arena_bytes_unshared"] + per_token * 100 + 1, 1 << 30, 1):
                    memory = json.loads(Run("inspect", folder, "--json", "--memory", budget).out)["memory"]
                    slots = [max(0, (budget - fixed - memory[a]) // per_token) if per_token else 0 for a in ("arena_bytes", "arena_bytes_unshared")]
                    self.assertEqual((memory["slots_in_budget"], memory["slots_gained"]), (slots[0], slots[0] - slots[1]), budget)

    def test_run_has_the_slots_of_the_budget(self):
        folder = decoder(self.folder / "budget")
        facts = json.loads(Run("inspect", folder, "--json").out)["memory"]
        budget = facts["weights"] + facts["computed"] + facts["io"] + facts["arena_bytes"] + 9 * facts["state_bytes_per_token"]
        self.assertEqual(json.loads(Run("inspect", folder, "--json", "--memory", budget).out)["memory"]["slots_in_budget"], 9)
        prompt = ",".join(["5"] * 10)
        self.refused(Run("run", folder, "--prompt-ids", prompt, "-n", 1, "--memory", budget), "the state of 9 slots")

    def test_as_text(self):
        folder = encoder_decoder(self.folder / "text")
        memory = json.loads(Run("inspect", folder, "--json").out)["memory"]
        run = Run("inspect", folder)
        self.assertIn(f"that of {memory['slots_gained']} slots more", run.out)


class HostileTest(PageCase):
    def rename(self, model):
        names = {}
        for node in model.graph.node:
            node.name = node.name + HOSTILE
            for i, out in enumerate(node.output):
                if out not in [o.name for o in model.graph.output]:
                    names[out] = out + HOSTILE
                    node.output[i] = names[out]
        for node in model.graph.node:
            node.input[:] = [names.get(i, i) for i in node.input]
        model.producer_name = HOSTILE

    def test_names_are_text(self):
        folder = decoder(self.folder / "\"><svg onload=alert(1)> 'and' &lt;", change=self.rename)
        text, page, facts = self.page(folder)
        self.check(text, page, facts)
        self.assertNotIn("\x07", text)
        self.assertIn("window.hacked", "".join(page.text))  # as text
        self.assertEqual(page.tags.count("style"), 1)
        self.assertEqual(page.tags.count("svg"), 2 * len(facts["module"]["programs"]))  # two pictures of each

    def test_long_names(self):
        def lengthen(model):
            for i, node in enumerate(model.graph.node):
                node.name = f"{i}/" + "é<" * 100_000
        text, page, facts = self.page(decoder(self.folder / "long", change=lengthen))
        self.check_alone(text, page)
        self.check_sums(page, facts)


class FileTest(PageCase):
    def test_a_file_that_cannot_be_written(self):
        folder = decoder(self.folder / "model")
        for path in (self.folder / "none" / "page.html", self.folder, "/dev/full", self.folder / "model" / "model.onnx" / "page.html", ""):
            with self.subTest(path=path):
                self.refused(Run("inspect", folder, "--html", path), path, "" if path == "" else "cannot be written", code=1)

    def test_the_page_takes_the_place_of_the_text(self):
        folder, out = decoder(self.folder / "quiet"), self.folder / "quiet.html"
        run = Run("inspect", folder, "--html", out)
        self.assertEqual((run.code, run.out, run.err), (0, "", ""), run)
        self.assertTrue(out.read_text().startswith("<!doctype html>"))

    def test_a_model_that_is_refused_has_no_page(self):
        out = self.folder / "refused.html"
        self.refused(Run("inspect", self.folder / "nothing", "--html", out), "nothing")
        self.assertFalse(out.exists())


# Loads the page into a frame of its own and writes down what a person would meet there.
HARNESS = """<!doctype html><meta charset=utf-8><body><script>
const frame = document.createElement('iframe'), found = {};
frame.style = 'width:%WIDTH%px;height:800px;border:0';
frame.onload = () => {
  const page = frame.contentDocument, view = frame.contentWindow;
  found.width = page.documentElement.scrollWidth;
  found.background = view.getComputedStyle(page.body).backgroundColor;
  found.color = view.getComputedStyle(page.body).color;
  found.hacked = 'hacked' in view;
  found.fetched = view.performance.getEntriesByType('resource').length;
  found.sections = ['regions', 'lifetimes', 'programs', 'ports'].map(i => page.getElementById(i).getBoundingClientRect().height > 50);
  found.sheets = page.styleSheets.length;
  for (const d of page.querySelectorAll('details')) d.open = true;
  found.opened = page.documentElement.scrollWidth;
  const stops = [...page.querySelectorAll('a[href], summary, [tabindex="0"]')];
  found.stops = stops.length;
  found.unfocused = stops.filter(e => { e.focus(); return page.activeElement !== e || view.getComputedStyle(e).outlineStyle === 'none'; }).length;
  found.cut = [...page.querySelectorAll('.zoom > span')].filter(e => {
    e.focus();
    const inner = e.getBoundingClientRect(), outer = e.parentElement.getBoundingClientRect();
    return inner.top < outer.top - 1 || inner.bottom > outer.bottom + 1 || inner.left < outer.left - 1 || inner.right > outer.right + 1;
  }).length;
  const block = page.querySelector('.zoom > span');
  const detail = () => view.getComputedStyle(block.querySelector('em')).display;
  block.blur(); const before = detail(); block.focus();
  found.detail = [before, detail()];
  document.body.replaceChildren(Object.assign(document.createElement('pre'), {id: 'found', textContent: JSON.stringify(found)}));
};
frame.srcdoc = %PAGE%;
document.body.append(frame);
</script>"""


# Without what a browser asks the network for by itself: here it would only wait for answers.
QUIET = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-quic", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
NO_SANDBOX = ["--no-sandbox"] if os.geteuid() == 0 else []  # root has none


class BrowserTest(PageCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.browser = shutil.which("chromium")
        if not cls.browser:
            raise unittest.SkipTest("no chromium (scripts/install_deps.sh checks): what a browser makes of the page is not checked")

    def met(self, text, width=1280, dark=False):
        """What the harness finds in the page."""
        script = json.dumps(text).replace("</", "<\\/")  # no text ends the harness's script
        harness = self.folder / "harness.html"
        harness.write_text(HARNESS.replace("%WIDTH%", str(width)).replace("%PAGE%", script), encoding="utf-8")
        scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
        with tempfile.TemporaryDirectory() as profile:
            command = [self.browser, *QUIET, *NO_SANDBOX, f"--user-data-dir={profile}", "--window-size=1400,900", *scheme,
                       "--virtual-time-budget=20000", "--dump-dom", harness.as_uri()]
            out = subprocess.run(command, capture_output=True, text=True, timeout=200, env={**os.environ, "HOME": profile}).stdout
        match = re.search(r'<pre id="found">(.*?)</pre>', out, re.S)
        self.assertIsNotNone(match, out[-2000:])
        return json.loads(html.unescape(match[1]))

    def test_as_a_person_meets_it(self):
        for name in ("grouped", "speech"):
            text, _, _ = self.page(CLASSES[name](self.folder / f"browser {name}"))
            for width in (320, 1280):
                with self.subTest(name, width=width):
                    found = self.met(text, width)
                    self.assertLessEqual(found["width"], width)
                    self.assertLessEqual(found["opened"], width)
                    self.assertEqual(found["sections"], [True] * 4)
                    self.assertEqual((found["hacked"], found["fetched"], found["sheets"], found["unfocused"], found["cut"]), (False, 0, 1, 0, 0), found)
                    self.assertGreater(found["stops"], 10)
                    self.assertEqual(found["detail"], ["none", "block"])

    def test_light_and_dark(self):
        text, _, _ = self.page(decoder(self.folder / "browser colours"))
        brightness = [[sum(map(int, re.findall(r"\d+", found[key])[:3])) for key in ("background", "color")] for found in (self.met(text), self.met(text, dark=True))]
        (paper, ink), (dark_paper, dark_ink) = brightness
        self.assertGreater(paper - ink, 450)
        self.assertGreater(dark_ink - dark_paper, 450)

    def test_hostile_names(self):
        text, _, _ = self.page(decoder(self.folder / "browser hostile", change=lambda m: HostileTest.rename(self, m)))
        found = self.met(text, 320)
        self.assertEqual((found["hacked"], found["fetched"]), (False, 0))
        self.assertLessEqual(found["opened"], 320)


if __name__ == "__main__":
    main()
