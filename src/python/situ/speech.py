"""Transcriptions: segments of a recording, as they are decided."""

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict

import numpy as np
from numpy.typing import NDArray

from situ import _situ, names
from situ.media import Bytes, BinaryFile, content_of, loudness_note, samples_of

Audio: TypeAlias = str | os.PathLike[str] | Bytes | BinaryFile | NDArray[np.floating[Any]]
"""A file (wav, flac, mp3, ogg), open or by its path, or its bytes; or mono samples at 16 kHz, from -1 to 1."""


class SpeechOptions(TypedDict, total=False):
    """Options of Model.transcribe(). The rules are those of the Whisper paper and its reference implementation.

    None means: not set, but a threshold of None is not looked at. Names of faster-whisper, openai-whisper and transformers that mean the
    same are taken too: beam_size, vad_filter, initial_prompt, word_timestamps, temperature and others (situ/names.py).
    """

    # A code such as "en", a name such as "English", or "auto": the most probable one of the first window with speech. Without it: what
    # generation_config.json says, else "auto".
    language: str
    task: Literal["transcribe", "translate"]  # without it: what generation_config.json says, else "transcribe"
    timestamps: Literal["none", "segment", "word"]  # segment
    temperatures: Sequence[float]  # (0, 0.2, 0.4, 0.6, 0.8, 1), tried in turn where an answer is doubtful
    beams: int  # 1: greedy, at temperature 0
    best_of: int  # 5 answers that are drawn above it
    patience: float  # 1
    length_penalty: float  # 1
    compression_ratio_threshold: float | None  # 2.4
    logprob_threshold: float | None  # -1
    no_speech_threshold: float | None  # 0.6
    condition_on_previous_text: bool  # True
    prompt: str  # text before the first window
    hotwords: str  # words before every window's text
    vad: bool  # leave out what is no speech
    batched: int  # windows of speech by themselves, so many in the same steps; 0: one after the other
    seed: int  # of what is drawn


class Word(NamedTuple):
    """A word, with the space before it and the punctuation around it. Times in seconds from the file's start."""

    start: float
    end: float
    word: str
    probability: float


@dataclass(frozen=True)
class Segment:
    """A segment, with the field names of faster-whisper. Times in seconds from the file's start."""

    id: int  # from 1 on
    start: float
    end: float
    text: str
    tokens: list[int]  # with timestamp tokens
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float
    words: list[Word]  # with timestamps="word"
    temperature: float


@dataclass(frozen=True)
class Transcript:
    """What is known of a recording so far; all of it when its segments have come."""

    duration: float  # seconds
    samples: int  # at 16 kHz
    language: str  # its code; "": nobody spoke, and it was not given
    language_probability: float  # 1 where it was given, 0 where it is not known
    text: str
    output_ids: list[int]  # of all windows in order, without prompts and end tokens
    features_ms: float
    encode_ms: float
    decode_ms_per_token: float
    bytes_copied_per_token: float
    notes: list[str]
    cut: str  # why the audio ended before it should have, or ""
    cancelled: bool


class Transcription(Iterator[Segment]):
    """The segments of a recording: a lazy iterator. The model computes when the next one is asked for."""

    def __init__(self, transcription: _situ.Transcription, notes: Sequence[str] = ()) -> None:
        self._transcription = transcription
        self._notes = list(notes)
        self._count = 0

    def __next__(self) -> Segment:
        raw = self._transcription.next()
        if raw is None:
            raise StopIteration
        self._count += 1
        return Segment(id=self._count, **{**raw, "words": [Word(*w) for w in raw["words"]]})

    @property
    def transcript(self) -> Transcript:
        made = Transcript(**self._transcription.transcript())
        return replace(made, notes=[*self._notes, *made.notes])

    @property
    def language(self) -> str:
        """Known once the first segment has come, or where it was given; "" where nobody spoke."""
        return self.transcript.language

    @property
    def duration(self) -> float:
        return self.transcript.duration


def transcribed(model: _situ.Model, audio: Audio, options: Mapping[str, Any]) -> Transcription:
    given = names.speech_options(options, SpeechOptions.__annotations__)
    if isinstance(audio, (str, os.PathLike)):
        return Transcription(_situ.transcribe_path(model, os.fsencode(audio), given))
    if isinstance(audio, (bytes, bytearray, memoryview)):
        return Transcription(_situ.transcribe_bytes(model, bytes(audio), given))
    if hasattr(audio, "read"):
        return Transcription(_situ.transcribe_bytes(model, content_of(audio, "the audio"), given))
    samples, note = _samples(audio)
    return Transcription(_situ.transcribe_samples(model, samples, given), [note] if note else ())


def features(model: _situ.Model, audio: Any) -> NDArray[np.float32]:
    return _situ.features(model, _samples(audio)[0])


def _samples(audio: Any) -> tuple[NDArray[np.float32], str]:
    samples = samples_of(audio)
    if note := loudness_note(samples):
        warnings.warn(note, stacklevel=4)
    return samples, note
