"""The cases of expected.json files: what a model folder must answer, and the command line that asks for it.

An expected.json lists cases. A case holds
    input_ids or prompt_ids     the prompt; of an encoder-decoder, the encoder's
    decoder_input_ids           the decoder's prompt, where it is not the start token alone
    input_features, or encoder_inputs {name: {file}}    arrays of the encoder, .npy files beside expected.json
    greedy_ids, beam3_ids       the answers; where the prompt is the encoder's, and no decoder_input_ids are given, they begin with the start token
    compare_first, top1_margins how far the greedy answer may be compared: after that the two best logits are too near
"""
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

SHARED = Path(os.environ.get("SITU_SHARED", Path(__file__).parent.parent.parent / "shared")) / "models"
MARGIN = 0.25  # of SmolLM2's logits: activations of 8 bits leave open which of two nearer ones is the best


@dataclass
class Case:
    folder: Path
    number: int
    encoder: bool = False                           # the model has an encoder
    ids: list = field(default_factory=list)         # --prompt-ids
    decoder_ids: list = field(default_factory=list)  # --decoder-prompt-ids
    arrays: dict = field(default_factory=dict)      # --encoder-input
    greedy: list = field(default_factory=list)
    beams: list = field(default_factory=list)       # of three beams; empty where the file has none
    compared: int = 0                               # of the greedy ids

    def arguments(self, beams=1):
        """What `situ run` takes to answer this case with greedy search, or with so many beams."""
        want = self.greedy if beams == 1 else self.beams
        options = ["-n", str(len(want)), "--ignore-eos", "--json"]
        if self.ids:
            options += ["--prompt-ids", ",".join(map(str, self.ids))]
        if self.decoder_ids:
            options += ["--decoder-prompt-ids", ",".join(map(str, self.decoder_ids))]
        for name, file in self.arrays.items():
            options += ["--encoder-input", f"{name}={self.folder / file}"]
        if beams > 1 or self.encoder:  # the file of an encoder-decoder may ask for beams
            options += ["--beams", str(beams)]
        return [str(self.folder), *options]

    def holds(self, ids, beams=1):
        """Whether an answer is the expected one, as far as answers may be compared."""
        return ids[:self.compared] == self.greedy[:self.compared] if beams == 1 else ids == self.beams


def has_encoder(folder):
    return any(folder.glob("encoder_model*.onnx")) or any(folder.glob("onnx/encoder_model*.onnx"))


def read_cases(folder):
    """The cases of a folder whose answers can be compared; none where it has no expected.json."""
    folder = Path(folder)
    if not (folder / "expected.json").exists():
        return []
    cases = [read_case(folder, i, c) for i, c in enumerate(json.loads((folder / "expected.json").read_text()).get("cases", []))]
    return [c for c in cases if c.greedy and c.compared]


def read_case(folder, number, case):
    arrays = {name: value["file"] for name, value in (case.get("encoder_inputs") or {}).items()}
    if "input_features" in case:
        arrays["input_features"] = case["input_features"]
    c = Case(folder, number, has_encoder(folder), arrays=arrays, greedy=case.get("greedy_ids", []), beams=case.get("beam3_ids", []))
    prompt, decoder = case.get("input_ids") or case.get("prompt_ids") or [], case.get("decoder_input_ids") or []
    if c.encoder and arrays:  # the only ids are the decoder's
        c.ids = decoder or prompt
    else:
        c.ids, c.decoder_ids = prompt, decoder
        if c.encoder and not decoder:  # the recorded ids begin with the start token
            c.greedy, c.beams = c.greedy[1:], c.beams[1:]
    near = next((i for i, m in enumerate(case.get("top1_margins", [])) if m < MARGIN), len(c.greedy))
    c.compared = min(len(c.greedy), case.get("compare_first", near))
    return c


def folders(*sets):
    """The folders with an expected.json in these directories of ../shared/models, and those named themselves."""
    found = []
    for name in sets:
        root = SHARED / name
        inside = sorted(root.iterdir()) if root.is_dir() else []
        found += [root] if (root / "expected.json").exists() else [f for f in inside if (f / "expected.json").exists()]
    return found
