"""Models, and streams of tokens."""

import asyncio
import atexit
import contextlib
import json
import operator
import os
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from numbers import Integral
from types import NoneType, TracebackType
from typing import Any, TypeAlias, TypedDict, Unpack, cast, overload

import numpy as np
from numpy.typing import NDArray

from situ import _situ
from situ._situ import SituError
from situ.images import Image, sources_of
from situ.options import Options
from situ.results import Answer, Facts, Generation, Ledger, Logprobs, Perplexity, PromptLogprob, Token, TokenLogprob
from situ.speech import Audio, SpeechOptions, Transcription, samples_of

Ids: TypeAlias = Sequence[int] | NDArray[np.integer[Any]]
Prompt: TypeAlias = str | Ids
"""Text, for models with a tokenizer, or token ids."""


class Message(TypedDict):
    """A turn of a conversation."""

    role: str  # "system", "user" or "assistant"
    content: str


class ChatIds(list[int]):
    """Token ids of a conversation: Model.encode_chat makes them, and their answers end where a turn does."""


def load(
    path: str | os.PathLike[str],
    *,
    threads: int = 0,
    naive: bool = False,
    context_length: int = 0,
    memory: int = 0,
    slots: int = 0,
    chunk: int = 512,
    window: int = 0,
    sink: int = 0,
    kv_type: str = "auto",
    draft: str | os.PathLike[str] | None = None,
    variants: Sequence[str] = (),
    pack_cache: bool = True,
) -> "Model":
    """Loads a model: a folder that Optimum or onnxruntime-genai wrote, or one .onnx file.

    threads: 0 is one for each CPU that the process may use.
    naive: run the graph literally, copies included: the baseline.
    context_length: most tokens of a session; 0 is what the model declares, if it holds as many.
    memory: bytes for weights, activations and state; what the first two leave is state, which all requests and sessions
        share; 0: the state may grow to half of what machine and control group have free.
    slots: tokens of that state, exactly so many; 0: what `memory` leaves.
    chunk: most prompt tokens in one step; fewer where `memory` asks for it.
    window: tokens attend to the last `window` tokens and the first `sink` ones only, and sequences have no end; 0: to all.
    kv_type: element type of attention states: "f32", "f16", "bf16", "q8", or "auto".
    draft: a smaller model with the same tokens, which guesses what this one will say (see Options.draft_tokens).
    variants: which precision of the graphs to run, where a folder has several: ["q4"], or ["encoder_model=fp16", ...].
    pack_cache: save weights that are laid out anew, and map what an earlier load saved.

    Raises SituError: the message names file, node and values; unsupported operators are listed all at once.
    """
    if "\0" in os.fsdecode(path):
        raise SituError(f"{os.fsdecode(path)!r} is no path: it has a null character")
    return Model(_situ.load(os.fsencode(path), threads, naive, context_length, memory, slots, chunk, window, sink, kv_type, os.fsencode(draft or ""), list(variants), pack_cache))


class Model:
    """A loaded model; situ.load() makes it.

    Any number of threads and coroutines may use it: their requests share the model's steps, and each has the answer that it
    has alone. A session is used by one thread at a time.
    A model cannot be pickled, and a fork of its process cannot use it (SituError): load one in each process.
    """

    def __init__(self, model: _situ.Model) -> None:
        self._model = model

    @overload
    def generate(
        self, prompt: Prompt, *, chat: bool = False, images: Sequence[Image] = (), **options: Unpack[Options]
    ) -> Generation: ...
    @overload
    def generate(
        self, prompt: list[str] | tuple[str, ...] | Sequence[Ids], *, chat: bool = False, **options: Unpack[Options]
    ) -> list[Generation]: ...
    def generate(
        self,
        prompt: Prompt | Sequence[Prompt],
        *,
        chat: bool = False,
        images: Sequence[Image] = (),
        **options: Unpack[Options],
    ) -> Generation | list[Generation]:
        """Continues a prompt, text or token ids. A list of prompts, or a tuple, gives a list of answers, each the one that
        its prompt would have alone; they share steps.

        chat: the text is what a user says, and the model's chat template makes the prompt of it. For a conversation, use
        encode_chat.
        images: of one prompt, for models with a vision encoder: files, PIL images, or pixels uint8 [height, width, 3]. Each
        takes the place of a placeholder ("<image>") in the text, in order; they stand before a text without. In token
        ids the tokens of images are there already.
        options: see Options.

        Raises SituError: an image that cannot be read, or another number of images than of placeholders; text without a tokenizer, an id out of range, a prompt longer than the context, an option out
        of its range; what fails before the answer's first token. An answer that fails later comes back as far as it had
        come, with finish_reason "error"; in a list also one that fails before its first token, unless all do. Control-C ends
        it at the next token.
        """
        if _is_list_of_prompts(prompt):
            if len(images) > 0:
                raise TypeError("images are those of one prompt, not of a list of prompts")
            prompts = [self._ids(cast(Prompt, p), chat) for p in prompt]
            turns = chat or all(isinstance(p, ChatIds) for p in prompt)
            return [_generation(raw) for raw in self._model.generate_all(prompts, _options(options, turns))]
        ids, read = self._with_images(cast(Prompt, prompt), chat, images)
        return _generation(self._model.generate(ids, _options(options, chat or isinstance(prompt, ChatIds)), read))

    def stream(
        self, prompt: Prompt, *, chat: bool = False, images: Sequence[Image] = (), **options: Unpack[Options]
    ) -> "Stream":
        """As generate of one prompt, but gives the tokens as they come. Computing begins at once."""
        ids, read = self._with_images(prompt, chat, images)
        return Stream(self._model.stream(ids, _options(options, chat or isinstance(prompt, ChatIds)), read))

    def stream_async(
        self, prompt: Prompt, *, chat: bool = False, images: Sequence[Image] = (), **options: Unpack[Options]
    ) -> "AsyncStream":
        """As stream, for a coroutine: `async for token in model.stream_async(...)`. Any number may be read at once, and no
        thread waits for any of them."""
        ids, read = self._with_images(prompt, chat, images)
        return AsyncStream(self._model.stream(ids, _options(options, chat or isinstance(prompt, ChatIds)), read))

    async def generate_async(
        self, prompt: Prompt, *, chat: bool = False, images: Sequence[Image] = (), **options: Unpack[Options]
    ) -> Generation:
        """As generate of one prompt, for a coroutine. To end it early, cancel its task."""
        stream = self.stream_async(prompt, chat=chat, images=images, **options)
        with contextlib.suppress(SituError):  # one that ends the answer after tokens is part of what comes back
            async for _ in stream:
                pass
        generation = stream.generation
        assert generation is not None
        return generation

    def stats(self) -> dict[str, int]:
        """What the model has done and does: requests running and waiting, steps, rows (tokens fed), prompt, cached and
        answer tokens of requests that are over, preemptions, slots of the state (all, free, kept prefixes), bytes copied."""
        return self._model.stats()

    def session(self) -> _situ.Session:
        """A new, empty sequence, to be fed token by token.

        Raises SituError: a second one of a model with a recurrent state.
        """
        return self._model.session()

    def step(self, feeds: Sequence[tuple[_situ.Session, Ids]]) -> list[NDArray[np.float32] | SituError]:
        """Session.step for each of several sessions, computed together: their logits in the same order.

        The arrays are views, as those of Session.step: each holds until its session is in a step again. In the place of a
        session that is refused (what Session.step raises; a session that is there twice) is its SituError, which is not
        raised: the session is as it was, and the others have what a step without it gives them.
        Raises SituError: the step as a whole failed, for want of memory for one. All sessions are then as they were.
        """
        try:
            pairs = [(session, ids) for session, ids in feeds]
        except (TypeError, ValueError):
            raise TypeError("step() wants pairs of a session and its tokens") from None
        return self._model.step([(session, _token_ids(ids)) for session, ids in pairs])

    def perplexity(self, text: Prompt, *, context: int = 0, stride: int = 0) -> Perplexity:
        """How well the model foretells a text, or token ids. Each token but the first is scored once, in windows of `context`
        tokens (0: the model's context) that begin `stride` tokens apart (0: half a window; less than a window).

        Raises SituError: fewer than 2 tokens, windows that do not fit, and what generate raises for a prompt.
        """
        return Perplexity(**self._model.perplexity(self._ids(text, chat=False), context, stride))

    def transcribe(self, audio: Audio, **options: Unpack[SpeechOptions]) -> Transcription:
        """The segments of a recording, for models of Whisper's kind: a lazy iterator of Segment.

            for segment in model.transcribe("talk.mp3", language="en"):
                print(f"[{segment.start:.2f} - {segment.end:.2f}]{segment.text}")

        audio: a file (wav, flac, mp3, ogg), or mono samples at 16 kHz, float [samples].

        Raises SituError: a model without an encoder of spectrograms, a file that cannot be read, an option out of its range.
        """
        if isinstance(audio, (str, os.PathLike)):
            return Transcription(_situ.transcribe_path(self._model, os.fsencode(audio), dict(options)))
        return Transcription(_situ.transcribe_samples(self._model, samples_of(audio), dict(options)))

    def features(self, audio: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        """The log-mel spectrogram [mels, frames] of one window of at most 30 seconds, as transformers computes it.

        audio: mono samples at 16 kHz, float [samples]; a shorter window is filled with silence.
        """
        return _situ.features(self._model, samples_of(audio))

    @property
    def has_tokenizer(self) -> bool:
        return self._model.has_tokenizer

    @property
    def has_chat_template(self) -> bool:
        return self._model.has_chat_template

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, with the special tokens that the tokenizer puts around it. SituError: no tokenizer."""
        return self._model.encode(_text(text))

    def encode_translation(self, text: str, source: str = "", target: str = "") -> tuple[list[int], int | None]:
        """Token ids of a text with the tokens of its languages (M2M100, NLLB, mBART, Marian), and what forced_bos_id is to be.

        "": the tokenizer's own choice. SituError: a code without a token, or a tokenizer without such tokens.
        """
        ids, forced_bos_id = self._model.encode_translation(_text(text), source, target)
        return ids, forced_bos_id

    def decode(self, ids: Ids) -> str:
        """The text of token ids, without special tokens. SituError: no tokenizer."""
        return self._model.decode(_token_ids(ids))

    def encode_chat(self, messages: Sequence[Message]) -> ChatIds:
        """The prompt that the model's chat template makes of a conversation: a list of token ids. Its answers end at the
        eos_token of tokenizer_config.json too (Options.end_of_turn). SituError: no chat template.
        """
        return ChatIds(self._model.encode_chat([_turn(m) for m in messages]))

    @property
    def ledger(self) -> Ledger:
        """Bytes written so far, by kind."""
        return Ledger(*self._model.ledger())

    def reset_ledger(self) -> None:
        self._model.reset_ledger()

    @property
    def facts(self) -> Facts:
        return Facts(**self._model.facts())

    def __repr__(self) -> str:
        facts = self.facts
        return f"<situ.Model {facts.file!r}, {facts.mode}, {facts.isa}, {facts.threads} threads>"

    def _with_images(
        self, prompt: Prompt, chat: bool, images: Sequence[Image]
    ) -> tuple[Sequence[int], _situ.Images | None]:
        sources = sources_of(images)
        if not sources:
            return self._ids(prompt, chat), None
        read = self._model.read_images(list(sources))
        if isinstance(prompt, str):
            return self._model.encode_with_images(_text(prompt), chat, read), read
        return self._ids(prompt, chat), read

    def _ids(self, prompt: Prompt, chat: bool) -> Sequence[int]:
        if isinstance(prompt, str):
            return self.encode_chat([{"role": "user", "content": prompt}]) if chat else self.encode(prompt)
        if isinstance(prompt, (bytes, bytearray)):
            raise TypeError("a prompt is text or token ids, not bytes")
        if chat:
            raise TypeError("chat=True takes text; token ids are a prompt already")
        return _token_ids(prompt)


def _token_ids(ids: Ids) -> list[int]:
    if isinstance(ids, (str, bytes, bytearray, Mapping)):
        raise TypeError(f"token ids are a list or an array of integers, not {type(ids).__name__}")
    try:
        found = [operator.index(i) for i in ids]
    except TypeError:
        raise TypeError(f"token ids are a list or an array of integers, not {str(ids)[:40]!r}") from None
    for number, i in enumerate(found):
        if not -(2**63) <= i < 2**63:
            raise SituError(f"token {number} has id {i}, outside every vocabulary")
    return found


def _text(text: str) -> str:
    if not isinstance(text, str):
        raise TypeError(f"a text is a str, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise SituError(f"the text is not valid Unicode: {e.reason} at character {e.start}") from None
    return text


def _turn(message: Message) -> tuple[str, str]:
    if not isinstance(message, Mapping) or not {"role", "content"} <= set(message):
        raise TypeError("a message of a conversation has a 'role' and a 'content'")
    return _text(message["role"]), _text(message["content"])


def _options(options: Options, turns: bool) -> dict[str, object]:
    given = {"end_of_turn": turns, **options}
    if not isinstance(given.get("json_schema"), (str, NoneType)):
        given["json_schema"] = json.dumps(given["json_schema"])
    return given


def _is_list_of_prompts(prompt: Prompt | Sequence[Prompt]) -> bool:
    return not isinstance(prompt, (str, bytes, bytearray, Mapping)) and len(prompt) > 0 and not isinstance(prompt[0], Integral)


class Stream(Iterator[Token]):
    """The tokens of one answer, as they come; Model.stream() makes it.

    The answer goes on while nobody asks for its tokens, and shares the model's steps with other requests.

    To end the answer early, close the stream, leave its `with` block, or drop the last reference to it.

    Errors of generate are raised by next(), and so is one that ends the answer after some tokens: it comes after them, and
    `generation` has what they make.
    """

    def __init__(self, stream: _situ.TokenStream) -> None:
        self._stream = stream
        _open_streams.add(self)

    def __next__(self) -> Token:
        token = self._stream.next()
        if token is None:
            _result(self._stream)
            raise self._stream.failure() or StopIteration
        return Token(*token)

    @property
    def generation(self) -> Generation | None:
        """The answer so far when the stream has come to its end or was closed; None before."""
        return _result(self._stream)

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class AsyncStream(AsyncIterator[Token]):
    """The tokens of one answer for a coroutine; Model.stream_async() makes it. No thread waits for them.

    To end the answer early, close the stream, leave its `async with` block, or cancel the task that reads it.
    """

    def __init__(self, stream: _situ.TokenStream) -> None:
        self._stream = stream
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._event, self._wake)
        self._closed = False
        stream.notify(self._event)
        _open_streams.add(self)

    def _wake(self) -> None:
        os.eventfd_read(self._event)
        self._news.set()

    async def __anext__(self) -> Token:
        while True:
            self._news.clear()
            token = self._stream.poll()
            if token is not None:
                return Token(*token)
            if self._stream.ended():
                self._let_go()
                _result(self._stream)
                raise self._stream.failure() or StopAsyncIteration
            try:
                await self._news.wait()
            except asyncio.CancelledError:
                self.close()
                raise

    @property
    def generation(self) -> Generation | None:
        """The answer so far when the stream has come to its end or was closed; None before."""
        return _result(self._stream)

    def close(self) -> None:
        self._let_go()
        self._stream.close()

    async def __aenter__(self) -> "AsyncStream":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _let_go(self) -> None:
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(SituError):
            self._stream.notify(-1)
        if not self._loop.is_closed():
            self._loop.remove_reader(self._event)
        os.close(self._event)

    def __del__(self) -> None:
        self._let_go()


def _result(stream: _situ.TokenStream) -> Generation | None:
    result = stream.result()
    return None if result is None else _generation(result)


# No thread may compute while the process takes its libraries down.
_open_streams: "weakref.WeakSet[Stream | AsyncStream]" = weakref.WeakSet()


@atexit.register
def _close_streams() -> None:
    for stream in list(_open_streams):
        with contextlib.suppress(SituError):  # of a fork, where no stream computes
            stream.close()


def _generation(raw: dict[str, Any]) -> Generation:
    logprobs = [Logprobs(logprob, [TokenLogprob(*t) for t in top]) for logprob, top in raw["logprobs"]]
    prompt = [PromptLogprob(id, logprob, rank, [TokenLogprob(*t) for t in top]) for id, logprob, rank, top in raw["prompt_logprobs"]]
    return Generation(**{**raw, "logprobs": logprobs, "prompt_logprobs": prompt, "answers": [Answer(*a) for a in raw["answers"]]})
