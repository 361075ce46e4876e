"""From an image to the first token: Situ, its naive mode, and ONNX Runtime as transformers.js drives it; writes bench/results/MACHINE/vision.json.

usage: vision.py PEERS [--models FOLDER] [--only CASE ...] [--engines a,b,..] [--reps R] [--threads T] [--most-others SHARE] [--tries N] [--check] [--results FOLDER] [--json]

PEERS is the folder of environments that `bench/run.sh vision` makes; ONNX Runtime's is PEERS/ort. FOLDER gets the models of vision_models.py.
Images have the encoder's own size, so that no engine resizes them; what an engine makes of a file before its encoder runs is not counted, nor
is loading. Engines take turns, each measurement in a process of its own, as the first picture of that process; ONNX Runtime is measured a second
time in its process too, where its memory is there already. Every engine must choose the same first token, and Situ the same by an image file as by
the arrays that ONNX Runtime is given. The naive mode, which takes long, is measured once. A measurement waits until other processes take less
than --most-others of the processors, and is repeated if they took more meanwhile, up to --tries times: that in
which others took least counts. --check: once, and nothing is written. --json prints the report. Run it while the machine has nothing else to do.
"""
import argparse
import json
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np

import machine
import tables
import vision_models
from vision_models import SHAPES

ROOT = Path(__file__).resolve().parent.parent
ENGINES = ("situ", "naive", "ort")
CASES = {"smolvlm-256m, 1 image": ("smolvlm-256m", 1), "smolvlm-256m, 4 images": ("smolvlm-256m", 4), "qwen2-vl-2b, 1 image": ("qwen2-vl-2b", 1)}
TEXT, TIMEOUT_S = 24, 600  # tokens behind the images; seconds of a process


def write_png(file, pixels):
    """pixels [height, width, 3] of uint8"""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))


def smolvlm_arrays(images):
    pixels = np.stack([(i.transpose(2, 0, 1) / np.float32(255) - np.float32(0.5)) / np.float32(0.5) for i in images])[None]
    return {"pixel_values": pixels.astype(np.float32), "pixel_attention_mask": np.ones((1, len(images), *images[0].shape[:2]), bool)}


def qwen2_vl_arrays(images, patch, merge):
    """Patches in the order in which they are merged; an image is its own second frame."""
    parts, grids = [], []
    for image in images:
        frames = np.repeat(((image.transpose(2, 0, 1) / np.float32(255) - np.float32(0.5)) / np.float32(0.5))[None], 2, axis=0)
        high, wide = (n // patch for n in image.shape[:2])
        frames = frames.reshape(1, 2, 3, high // merge, merge, patch, wide // merge, merge, patch).transpose(0, 3, 6, 4, 7, 2, 1, 5, 8)
        parts.append(frames.reshape(high * wide, -1))
        grids.append([1, high, wide])
    return {"pixel_values": np.concatenate(parts).astype(np.float32), "grid_thw": np.array(grids, np.int64)}


def three_positions(ids, token, rows, side):
    """[3, 1, S]: rows and columns of images, counted on from the text before."""
    places, at, i = [], 0, 0
    while i < len(ids):
        if ids[i] == token:
            places += [(at, at + y, at + x) for y in range(side) for x in range(side)]
            at, i = at + side, i + rows
        else:
            places.append((at, at, at))
            at, i = at + 1, i + 1
    return np.array(places, np.int64).T[:, None]


def make_case(folder, case):
    """(files, ids, npz for the peer, {input: npy} of the encoder), made in `folder`."""
    model, count = CASES[case]
    _, _, _, _, patch, merge, side = SHAPES[model]["vision"]
    random, token = np.random.default_rng(5), SHAPES[model]["image_token"]
    images = [random.integers(0, 256, (side, side, 3), np.uint8) for _ in range(count)]
    text = random.integers(100, 40000, TEXT).tolist()
    rows = (side // patch // merge) ** 2
    before, behind = ([151652], [151653]) if "qwen" in model else ([49189, 49152], [49189])
    ids = [1, *(t for _ in images for t in [*before, *[token] * rows, *behind]), *text]
    arrays = qwen2_vl_arrays(images, patch, merge) if "qwen" in model else smolvlm_arrays(images)
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{i}.png" for i in range(count)]
    for file, image in zip(files, images):
        write_png(file, image)
    positions = three_positions(ids, token, rows, side // patch // merge) if "qwen" in model else np.arange(len(ids))[None]
    np.savez(folder / "arrays.npz", input_ids=np.array([ids]), position_ids=positions, **arrays)
    inputs = {name: folder / f"{name}.npy" for name in arrays}
    for name, file in inputs.items():
        np.save(file, arrays[name])
    return files, ids, folder / "arrays.npz", inputs


def situ(a, model, ids, given):
    command = [ROOT / "build" / "situ", "run", a.models / model, "--prompt-ids", ",".join(map(str, ids)), "-n", "1", "--ignore-eos", "--json", "--logprobs", "2", "--threads", str(a.threads), *given]
    r = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S).stdout)
    top = r["logprobs"][0]["top"]
    return {"ms": r["time_to_first_token_ms"], "load_ms": r["load_ms"], "peak_rss_mib": r["peak_rss_mib"], "stages": [s for s in r["stages"] if s["name"] != "decode"],
            "id": r["output_ids"][0], "logprob": r["logprobs"][0]["logprob"], "margin": top[0]["logprob"] - top[1]["logprob"]}


def peer(a, model, arrays):
    command = [a.peers / "ort" / "bin" / "python", "-B", Path(__file__).parent / "vision_peer.py", a.models / model, arrays, "--threads", str(a.threads)]
    r = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S).stdout)
    first, *_, again = r["runs"]
    total = lambda run: sum(s["ms"] for s in run["stages"])
    return {**first, "ms": total(first), "again_ms": total(again), "load_ms": r["load_ms"], "peak_rss_mib": r["peak_rss_mib"]}, r["version"]


def quiet(a):
    """Waits for a second of little other work, half a minute at most."""
    for _ in range(30):
        others = machine.Others()
        time.sleep(1)
        if others.share() <= a.most_others:
            return


def undisturbed(a, work):
    """The result of work() in which other processes took least, and their share."""
    tries = []
    for _ in range(a.tries):
        quiet(a)
        others = machine.Others()
        result = work()
        tries.append((others.share(), len(tries), result))
        if tries[-1][0] <= a.most_others:
            break
    share, _, result = min(tries)
    return result, share


def measured(a, report):
    """Yields after each process. The first turn of Situ is not counted: it packs weights."""
    made = {case: make_case(a.models / "cases" / case.replace(", ", "-").replace(" ", "-"), case) for case in a.only}
    for case in a.only:
        files, ids, _, inputs = made[case]
        by_file, by_array = (situ(a, CASES[case][0], ids, given) for given in (
            [o for f in files for o in ("--image", f)], [o for name, f in inputs.items() for o in ("--encoder-input", f"{name}={f}")]))
        if (by_file["id"], by_file["logprob"]) != (by_array["id"], by_array["logprob"]):
            print(f"vision: {case}: the image file and its arrays give different first tokens: {by_file['id']}, {by_array['id']}", flush=True)
        before = report["cases"].get(case, {}).get("engines", {})  # kept of engines that are not asked for
        engines = {e: {"samples": []} if e in a.engines else before[e] for e in ENGINES if e in a.engines or e in before}
        report["cases"][case] = {"model": CASES[case][0], "images": CASES[case][1], "prompt": len(ids), "engines": engines}
    for rep in range(a.reps):
        for case in a.only:
            files, ids, arrays, _ = made[case]
            for engine, of_engine in report["cases"][case]["engines"].items():
                if engine not in a.engines or "reason" in of_engine or (engine == "naive" and rep > 0):
                    continue
                given = [*(o for f in files for o in ("--image", f)), *(["--naive"] if engine == "naive" else [])]
                try:
                    if engine == "ort":
                        (r, report["ort"]), share = undisturbed(a, lambda: peer(a, CASES[case][0], arrays))
                    else:
                        r, share = undisturbed(a, lambda: situ(a, CASES[case][0], ids, given))
                    words = f"{r['ms']:.0f} ms ({', '.join('%s %.0f' % (s['name'], s['ms']) for s in r['stages'])}), first token {r['id']} by {r['margin']:.3f}, others took {100 * share:.0f}%"
                    of_engine["samples"].append({**r, "others": round(share, 3)})
                except (subprocess.SubprocessError, OSError) as error:
                    words = ((getattr(error, "stderr", "") or "").strip().splitlines() or [str(error)])[-1]
                    of_engine.clear()
                    of_engine["reason"] = words
                print(f"vision: repetition {rep + 1} of {a.reps}, {case}, {engine}: {words}", file=sys.stderr if a.json else sys.stdout, flush=True)
                yield


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", type=Path)
    parser.add_argument("--models", type=Path, default=ROOT / ".models" / "vision")
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="CASE", help="of " + "; ".join(CASES))
    parser.add_argument("--engines", type=lambda text: text.split(","), default=list(ENGINES))
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--most-others", type=float, default=0.05)
    parser.add_argument("--tries", type=int, default=10)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--results", type=Path, default=ROOT / "bench" / "results")
    a = parser.parse_args()
    unknown = [e for e in a.engines if e not in ENGINES]
    if unknown:
        parser.error(f"no engine '{unknown[0]}'; there are {', '.join(ENGINES)}")
    a.reps = 1 if a.check else a.reps
    for model in {CASES[case][0] for case in a.only}:
        vision_models.make(a.models, model)
    before = tables.earlier_results(a.results, "vision") or {"cases": {}}
    report = {"machine": machine.name(), "date": time.strftime("%Y-%m-%d"), "threads": a.threads, "reps": a.reps, "ort": before.get("ort", ""), "cases": before["cases"]}
    for _ in measured(a, report):
        if not a.check:
            tables.write_results(a.results, "vision", report)  # what there is, should this be ended early
    if a.json:
        print(json.dumps(report))
    ids = {case: {s["id"] for of in of_case["engines"].values() for s in of.get("samples", [])} for case, of_case in report["cases"].items()}
    for case, found in ids.items():
        if len(found) > 1:
            print(f"vision: {case}: the engines choose different first tokens: {sorted(found)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
