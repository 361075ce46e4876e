"""What `situ transcribe` should give for a model of tiny_speech.py, in NumPy: written after WhisperFeatureExtractor of transformers
and decoding.py, transcribe.py and timing.py of openai/whisper, not after Situ.

The oracle runs the whole of both sequences for each token. What it draws above temperature 0 it takes greedily: exact where the
temperature is so low that the draw is certain, or where the ids of the windows are handed to it.
Shapes in comments: F frames, M mels, K bins, V vocabulary.
"""
import zlib
from dataclasses import dataclass

import numpy as np

import tiny_seq2seq as tiny
from tiny_seq2seq import CONTEXT, FRAMES, FRAMES_A_ROW, SPEECH
from tiny_speech import (EN, END, LANGUAGES, MAX_INITIAL, NO_SPEECH, NO_TIMESTAMPS, PREVIOUS, RATE, START, SUPPRESSED, SUPPRESSED_FIRST, TEXT, TIMES, TRANSCRIBE,
                         TRANSLATE)

FFT, HOP, MELS, SECONDS = 400, 160, tiny.FEATURES, 1
WINDOW, STEP = SECONDS * RATE, 0.02
ROW = SECONDS * FRAMES_A_ROW / FRAMES  # seconds of a row of the source
LONGEST_MIDDLE, FAR, SHORTEST, LEAST_MOVE = 0.7, 0.5, 0.02, SECONDS / 30


# -- features

def hertz_to_mel(hz):
    return np.where(hz < 1000, 3 * hz / 200, 15 + np.log(np.maximum(hz, 1e-9) / 1000) * 27 / np.log(6.4))


def mel_to_hertz(mel):
    return np.where(mel < 15, 200 * mel / 3, 1000 * np.exp((mel - 15) * np.log(6.4) / 27))


def mel_filters(mels=MELS, fft=FFT, rate=RATE):
    """[M, K]: triangles on slaney's scale, each of area 1."""
    bins = np.linspace(0, rate / 2, fft // 2 + 1)
    edges = mel_to_hertz(np.linspace(hertz_to_mel(0.0), hertz_to_mel(rate / 2), mels + 2))
    rising, falling = ((bins - edges[:-2, None]) / np.diff(edges)[:-1, None], (edges[2:, None] - bins) / np.diff(edges)[1:, None])
    return np.maximum(0, np.minimum(rising, falling)) * (2 / (edges[2:] - edges[:-2]))[:, None]


class LogMel:
    """Windows of one recording. The peak is that of all windows so far."""

    def __init__(self, samples):
        self.samples, self.peak = np.asarray(samples, np.float64), -np.inf
        self.filters = mel_filters()
        self.hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FFT) / FFT)

    def window(self, start):
        """[M, F] of the second from sample `start` on; beyond the end there is silence."""
        half, x = FFT // 2, np.zeros(WINDOW)
        part = self.samples[start:start + WINDOW]
        x[:len(part)] = part
        padded = np.pad(x, half, mode="reflect")
        if start >= half:
            padded[:half] = self.samples[start - half:start]
        if start + WINDOW + half <= len(self.samples):
            padded[-half:] = self.samples[start + WINDOW:start + WINDOW + half]
        frames = np.stack([padded[t * HOP:t * HOP + FFT] * self.hann for t in range(WINDOW // HOP)])
        power = np.abs(np.fft.rfft(frames)) ** 2  # [F, K]
        levels = np.log10(np.maximum(1e-10, self.filters @ power.T))
        self.peak = max(self.peak, levels.max())
        return ((np.maximum(levels, self.peak - 8) + 4) / 4).astype(np.float32)


# -- decoding

@dataclass
class Options:
    language: str = "auto"
    task: str = "transcribe"
    timestamps: bool = True
    beams: int = 1
    patience: float = 1
    length_penalty: float = 1
    temperatures: tuple = (0,)
    ratio: float | None = 2.4
    logprob: float | None = -1
    no_speech: float | None = 0.6
    condition: bool = True
    prompt: str = ""
    hotwords: str = ""
    multilingual: bool = True
    words: bool = False


def log_softmax(x):
    x = x - x.max()
    return x - np.log(np.exp(x).sum())


def decoded(ids):
    return "".join(TEXT[i] for i in ids if i < END)


def encoded(text):
    return [TEXT.index(c) for c in text]


SPACE = TEXT.index(" ")


def above(a, b):
    """a > b. Times are multiples of rows and steps: what is as large is not larger by rounding."""
    return a - b > 1e-9


def ids_of(segments):
    return [i for s in segments for i in s["tokens"] if i < END]


def share(said, segments, start):
    """Each word goes to the segment that its first token is of; spaces alone begin the word behind them."""
    words = []
    for w in said:
        if words and not words[-1]["word"].strip():
            w = {**w, "word": words[-1]["word"] + w["word"], "tokens": words.pop()["tokens"] + w["tokens"]}
        words.append(w)
    at, ends = 0, np.cumsum([len(ids_of([s])) for s in segments])
    for s in segments:
        s["words"] = []
    for w in words:
        owner = segments[min(int(np.searchsorted(ends, at, side="right")), len(segments) - 1)]
        owner["words"].append({"start": start + w["start"], "end": start + w["end"], "word": w["word"], "probability": w["probability"]})
        at += w["tokens"]


def smoothed(weights, width=7):
    """The median of so many frames around each; reflected at the ends."""
    half = width // 2
    if weights.shape[-1] <= half:
        return weights
    padded = np.pad(weights, ((0, 0), (0, 0), (half, half)), mode="reflect")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, width, axis=-1), axis=-1)


class Oracle:
    """`margin`: the smallest distance of any decision to its opposite."""

    def __init__(self, w):
        self.w = w

    def logits(self, memory, ids):
        """[V] after each of ids."""
        return tiny.forward(SPEECH, self.w, "decoder", ids, memory) @ self.w["head"]

    def near(self, *distances):
        self.margin = min([self.margin, *map(abs, distances)])

    def rules(self, logits, generated, timestamps):
        """The logits under the filters of decoding.py, in their order."""
        x = logits.copy()
        if not generated:
            x[SUPPRESSED_FIRST] = -np.inf
        x[SUPPRESSED] = -np.inf
        if not timestamps:
            return x
        x[NO_TIMESTAMPS] = -np.inf
        is_time = [i >= TIMES for i in generated]
        last = bool(is_time) and is_time[-1]
        before = len(is_time) < 2 or is_time[-2]
        if last and before:
            x[TIMES:] = -np.inf
        elif last:
            x[:END] = -np.inf
        times = [i for i in generated if i >= TIMES]
        if times:
            x[TIMES:times[-1] + (0 if last and not before else 1)] = -np.inf
        if not generated:
            x[:TIMES] = -np.inf
            x[TIMES + MAX_INITIAL + 1:] = -np.inf
        logprobs = log_softmax(x)
        if np.isfinite(x[TIMES:]).any() and np.isfinite(x[:TIMES]).any():
            together, text = np.logaddexp.reduce(logprobs[TIMES:]), logprobs[:TIMES].max()
            self.near(together - text)
            if together > text:
                x[:TIMES] = -np.inf
        return x

    def greedy(self, memory, prompt, most, timestamps, given=None):
        """(ids, sum of log-probabilities). given: ids that are taken instead."""
        ids, total = [], 0.0
        while len(ids) < most:
            x = self.rules(self.logits(memory, prompt + ids)[-1], ids, timestamps)
            if given is None:
                second, best = np.sort(x)[-2:]
                self.near(best - second)
            chosen = int(x.argmax()) if given is None else given[len(ids)] if len(ids) < len(given) else END
            total += log_softmax(x)[chosen]
            if chosen == END:
                break
            ids.append(chosen)
        return ids, total

    def beams(self, memory, prompt, most, o):
        """The same by beam search as transformers does it, ended by beams x patience answers."""
        running, answers, wanted = [(0.0, [])], [], max(1, round(o.beams * o.patience))
        for step in range(1, most + 1):
            found = []
            for score, ids in running:
                x = log_softmax(self.rules(self.logits(memory, prompt + ids)[-1], ids, o.timestamps))
                found += [(score + x[i], ids + [int(i)]) for i in range(len(x)) if np.isfinite(x[i])]
            found = sorted(found, key=lambda f: -f[0])[:2 * o.beams + 1]
            self.near(*(a[0] - b[0] for a, b in zip(found, found[1:])))
            for score, ids in found[:o.beams]:
                if ids[-1] == END or step == most:
                    answers.append((score / step ** o.length_penalty, score, [i for i in ids if i != END]))
            running = [f for f in found if f[1][-1] != END][:o.beams]
            if len(answers) >= wanted:
                break
        answers.sort(key=lambda a: -a[0])
        self.near(*(a[0] - b[0] for a, b in zip(answers[:1], answers[1:])))
        return answers[0][2], answers[0][1]

    def transcribe(self, samples, o=Options(), given=None):
        """The command's JSON, as far as it does not measure. given: [(ids, temperature)] of the windows, instead of choosing them."""
        self.margin, self.windows = np.inf, []
        mel, seek, language = LogMel(samples), 0, o.language if o.multilingual else "en"
        result = {"language_probability": 1, "segments": [], "output_ids": []}
        hot, text = ([] if not t.strip() else encoded(" " + t.strip()) for t in (o.hotwords, o.prompt))
        reset, self.spoken = 0, 0.0
        while seek < len(samples) and (seek == 0 or len(samples) - seek >= HOP):
            count = min(WINDOW, len(samples) - seek)
            if not np.any(samples[seek:seek + count]):  # nothing can be said of it
                seek += count
                continue
            memory = tiny.forward(SPEECH, self.w, "encoder", mel.window(seek))
            if language == "auto":  # so far nobody spoke
                first = self.logits(memory, [START])[0]
                if o.no_speech is not None:
                    silent = np.exp(log_softmax(first))[NO_SPEECH]
                    self.near(np.log(silent / o.no_speech))
                    if silent >= o.no_speech:
                        seek += count
                        continue
                x = first[EN:EN + len(LANGUAGES)]
                self.near(np.diff(np.sort(x)[-2:])[0])
                language, result["language_probability"] = LANGUAGES[int(x.argmax())], np.exp(log_softmax(x)).max()
            room = CONTEXT // 2 - 1
            hotwords = hot[:room // 2]
            before = text[reset:][-(room - len(hotwords)):]
            prompt = [PREVIOUS, *hotwords, *before] if hotwords or before else []
            at = len(prompt)
            prompt += [START, *([EN + LANGUAGES.index(language), TRANSLATE if o.task == "translate" else TRANSCRIBE] if o.multilingual else []),
                       *([] if o.timestamps else [NO_TIMESTAMPS])]
            no_speech = np.exp(log_softmax(self.logits(memory, prompt)[at]))[NO_SPEECH]
            most = min(CONTEXT // 2, CONTEXT - len(prompt))
            for t in o.temperatures:
                if given is not None:
                    chosen, t = given[len(self.windows)]
                    ids, total = self.greedy(memory, prompt, most, o.timestamps, chosen)
                elif o.beams > 1 and t == 0:
                    ids, total = self.beams(memory, prompt, most, o)
                else:
                    ids, total = self.greedy(memory, prompt, most, o.timestamps)
                average, words = total / (len(ids) + 1), decoded(ids).strip()
                ratio = len(words) / len(zlib.compress(words.encode())) if words else 0
                repeats, improbable, silent = o.ratio is not None and ratio > o.ratio, o.logprob is not None and average < o.logprob, False
                if o.no_speech is not None:
                    silent = no_speech > o.no_speech and improbable
                    self.near(np.log(no_speech / o.no_speech))
                self.near(*([10 * (ratio - o.ratio)] if o.ratio is not None else []), *([average - o.logprob] if o.logprob is not None else []))
                if given is not None or silent or not (repeats or improbable):
                    break
            self.windows.append({"seek": seek, "ids": ids, "prompt": prompt, "most": most, "temperature": t, "average": average, "no_speech": no_speech, "ratio": ratio})
            if o.no_speech is not None and no_speech > o.no_speech and not (o.logprob is not None and average > o.logprob):
                seek += count
                continue
            segments, moved = self.cut(ids, count / RATE, o.timestamps)
            start, found = seek / RATE, []
            for begin, end, tokens in segments:
                result["output_ids"] += tokens
                found.append({"start": start + begin, "end": start + end, "text": decoded(tokens), "tokens": tokens, "avg_logprob": average,
                              "compression_ratio": ratio, "no_speech_prob": no_speech, "temperature": t})
            if o.words:
                said = self.words(memory, prompt[at:], ids_of(found), count / RATE)
                share(said, found, start)
                self.fit(found, said)
                ends = [s["words"][-1]["end"] - start for s in found if s["words"]]
                if [i >= TIMES for i in ids[-2:]] != [False, True] and ends and ends[-1] >= LEAST_MOVE:
                    moved = ends[-1]
            seek += count if moved is None or moved >= count / RATE else round(moved * RATE)
            found = [s for s in found if decoded(s["tokens"]).strip() and (s.get("words") or s["end"] > s["start"])]
            if o.words:
                self.order(found)
            text += [i for s in found for i in s["tokens"]]
            result["segments"] += found
            if not o.condition or t > 0.5:
                reset = len(text)
        result["text"] = "".join(s["text"] for s in result["segments"])
        if language == "auto":
            language, result["language_probability"] = "", 0
        return {"language": language, **result}

    # -- words

    def words(self, memory, start, ids, duration):
        """The words of ids, with times from the window's start. Each token of the prompt, the text and the end is a row."""
        if not ids:
            return []
        fed, seen = [*start, *([] if NO_TIMESTAMPS in start else [NO_TIMESTAMPS]), *ids, END], []
        rows = tiny.forward(SPEECH, self.w, "decoder", fed, memory, seen)
        at = len(fed) - len(ids) - 1  # the first token of the text; the row before it tells how probable it is
        likely = [np.exp(log_softmax(row @ self.w["head"]))[i] for row, i in zip(rows[at - 1:], ids)]
        frames = int(np.clip(int(duration / ROW), 1, memory.shape[0]))
        weights = np.concatenate(seen[SPEECH.layers // 2:])[:, :, :frames]  # nobody says which heads follow the words
        weights = weights / weights.sum(-1, keepdims=True)
        spread = weights.std(1, keepdims=True)
        weights = np.where(spread > 0, (weights - weights.mean(1, keepdims=True)) / np.where(spread > 0, spread, 1), 0)
        begins = self.warp(smoothed(weights).mean(0)[at - 1:-1])
        cuts = [i for i, token in enumerate(ids) if i == 0 or token == SPACE] + [len(ids)]
        return [{"start": begins[a] * ROW, "end": begins[b] * ROW, "word": decoded(ids[a:b]), "probability": np.mean(likely[a:b]), "tokens": b - a}
                for a, b in zip(cuts, cuts[1:])]

    def warp(self, gain):
        """The frame at which each row of [rows, frames] begins on the path of the largest gain, from the first of both to the last."""
        rows, frames = gain.shape
        best, came = np.full((rows, frames), -np.inf), {}
        for r, f in np.ndindex(rows, frames):
            before = [(best[a, b] if min(a, b) >= 0 else -np.inf, -k, (a, b)) for k, (a, b) in enumerate(((r, f - 1), (r - 1, f), (r - 1, f - 1)))]
            (top, _, came[r, f]), second = max(before), sorted(b[0] for b in before)[-2]
            best[r, f] = gain[r, f] + (0 if r == f == 0 else top)
            came[r, f] = came[r, f], top - second
        at, begins = (rows - 1, frames - 1), [0] * rows
        while min(at) >= 0:
            begins[at[0]] = at[1]
            at, distance = came[at]
            if np.isfinite(distance):
                self.near(distance)
        return begins

    def fit(self, segments, said):
        """Long words at the edges of segments and sentences are cut; a segment begins and ends with its words."""
        lasting = [w["end"] - w["start"] for w in said if w["end"] != w["start"]]
        middle = min(LONGEST_MIDDLE, float(np.median(lasting))) if lasting else 0.0
        spoken = self.spoken
        for s in segments:
            if not s["words"]:
                continue
            first, last, second = s["words"][0], s["words"][-1], (s["words"][1:] or [None])[0]
            after, length = first["end"] - spoken, first["end"] - first["start"]
            both = second["end"] - first["start"] if second else 0.0
            if above(after, 4 * middle) and (above(length, 2 * middle) or above(both, 4 * middle)):
                if second and above(second["end"] - second["start"], 2 * middle):
                    first["end"] = second["start"] = max(second["end"] / 2, second["end"] - 2 * middle)
                first["start"] = max(0, first["end"] - 2 * middle)
            if above(first["end"], s["start"]) and above(s["start"] - FAR, first["start"]):
                first["start"] = max(0, min(first["end"] - middle, s["start"]))
            else:
                s["start"] = first["start"]
            if above(s["end"], last["start"]) and above(last["end"], s["end"] + FAR):
                last["end"] = max(last["start"] + middle, s["end"])
            else:
                s["end"] = last["end"]
            spoken = s["end"]

    def order(self, segments):
        """Nothing begins before what is in front of it ends, segments hold their words, and each has a length."""
        for s in segments:
            end = self.spoken
            for w in s["words"]:
                w["start"] = max(w["start"], end)
                w["end"] = end = max(w["start"], w["end"])
            s["start"] = max(self.spoken, min([s["start"], *(w["start"] for w in s["words"])]))
            s["end"] = max(s["end"], end, s["start"])
            s["end"] += SHORTEST if s["end"] == s["start"] else 0
            self.spoken = s["end"]

    def cut(self, ids, duration, timestamps):
        """([(start, end, ids)], seconds to the next window or None: behind this one)."""
        time = lambda i: min(duration, STEP * (i - TIMES))
        is_time = [i >= TIMES for i in ids]
        cuts = [i for i in range(1, len(ids)) if is_time[i - 1] and is_time[i]]
        if not timestamps:
            return [(0, duration, ids)], None
        if not cuts:
            last = [i for i in ids if i >= TIMES][-1:]
            return [(0, time(last[0]) if last and last[0] != TIMES else duration, ids)], None
        alone = is_time[-2:] == [False, True]
        cuts += [len(ids)] if alone else []
        parts = [ids[a:b] for a, b in zip([0, *cuts], cuts)]
        segments = [(time(p[0]), time(p[-1]), p) for p in parts]
        moved = time(parts[-1][-1])
        return segments, None if alone or moved >= duration else moved
