"""Models, and streams of tokens."""

import asyncio
import atexit
import contextlib
import os
import warnings
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Unpack, cast, overload

import numpy as np
from numpy.typing import NDArray

from situ import _situ, names
from situ._situ import SituError
from situ.lists import as_list, is_sequence, naming, shown, text_of, token_ids
from situ.options import LoadOptions, RequestOptions
from situ.prompts import ChatIds, Conversation, Ids, Prompt, described, settled_prompt, split
from situ.results import Answer, CallPiece, Facts, Generation, Ledger, Logprobs, Perplexity, PromptLogprob, Stage, Token, TokenLogprob, ToolCall
from situ.speech import Audio, SpeechOptions, Transcription, features, transcribed


def load(path: str | os.PathLike[str], **options: Unpack[LoadOptions]) -> "Model":
    """Loads a model: a folder that Optimum or onnxruntime-genai wrote, one .onnx file, or a name as of pull(), whose files are
    fetched where they are not in the cache. options: see LoadOptions.

    Raises SituError: the message names file, node and values; unsupported operators are listed all at once.
    """
    if "\0" in os.fsdecode(path):
        raise SituError(f"{os.fsdecode(path)!r} is no path: it has a null character")
    given = names.load_options(options)
    given["draft"] = os.fsencode(given.get("draft") or "")
    return Model(_situ.load(os.fsencode(path), given))


def pull(name: str, *, variants: Sequence[str] = (), offline: bool = False) -> str:
    """The folder of a model of a hub, which is fetched where it is not in the cache: ORG/REPO[@REV][:VARIANT], or a short name.

    variants: as of LoadOptions. offline: without a request. The cache is that of huggingface_hub.
    Raises SituError: network, disk, a name that the hub does not have.
    """
    return _situ.pull(name, list(variants), offline)


class Model:
    """A loaded model; situ.load() makes it.

    Any number of threads and coroutines may use it: their requests share the model's steps, and each has the answer that it
    has alone. A session is used by one thread at a time.
    A model cannot be pickled, and a fork of its process cannot use it (SituError): load one in each process.
    """

    def __init__(self, model: _situ.Model) -> None:
        self._model = model

    @overload
    def generate(self, prompt: Prompt, **options: Unpack[RequestOptions]) -> Generation: ...
    @overload
    def generate(
        self, prompt: list[str] | tuple[str, ...] | Sequence[Ids] | Sequence[Conversation], **options: Unpack[RequestOptions]
    ) -> list[Generation]: ...
    def generate(self, prompt: Any, **options: Unpack[RequestOptions]) -> Generation | list[Generation]:
        """Continues a prompt: text, token ids, or messages. A list of prompts, or a tuple, gives a list of answers, each the
        one that its prompt would have alone; they share steps.

        options: see RequestOptions. A conversation that says nothing of drawing is drawn as the model's files say; what its
        answer thinks, and calls of `tools`, are in Generation.reasoning and Generation.tool_calls, not in its text.

        Raises SituError: an image or a sound that cannot be read, or another number of them than of placeholders; text without a
        tokenizer, an id out of range, a prompt longer than the context, an option out of its range; what fails before the answer's
        first token. An answer that fails later comes back as far as it had come, with finish_reason "error"; in a list also one
        that fails before its first token, unless all do. Control-C ends it at the next token.
        """
        given, answer = split(options)
        prompt, several = settled_prompt(prompt)
        if several is not None:
            if len(given["images"]) or len(given["sounds"]) or given["arrays"]:
                raise TypeError("images, sounds and arrays are those of one prompt, not of a list of prompts")
            prompts = []
            for number, one in enumerate(several):
                with naming(f"prompt {number}"):
                    prompts.append(self._model.read(described(one, given)))
            return [_generation(raw) for raw in self._model.generate_all(prompts, answer)]
        return _generation(self._model.generate(self._model.read(described(cast(Prompt, prompt), given)), answer))

    def stream(self, prompt: Prompt, **options: Unpack[RequestOptions]) -> "Stream":
        """As generate of one prompt, but gives the tokens as they come. Computing begins at once."""
        return Stream(self._stream(prompt, options))

    def stream_async(self, prompt: Prompt, **options: Unpack[RequestOptions]) -> "AsyncStream":
        """As stream, for a coroutine: `async for token in model.stream_async(...)`. Any number may be read at once, and no
        thread waits for any of them."""
        return AsyncStream(self._stream(prompt, options))

    async def generate_async(self, prompt: Prompt, **options: Unpack[RequestOptions]) -> Generation:
        """As generate of one prompt, for a coroutine. To end it early, cancel its task."""
        loop = asyncio.get_running_loop()
        async with _wakeups_of(loop) as wakeups, wakeups.room:
            stream = self.stream_async(prompt, **options)
            with contextlib.suppress(SituError):  # one that ends the answer after tokens is part of what comes back
                async for _ in stream:
                    pass
            generation = stream.generation
            assert generation is not None
            return generation

    def _stream(self, prompt: Prompt, options: RequestOptions) -> _situ.TokenStream:
        given, answer = split(options)
        return self._model.stream(self._model.read(described(prompt, given)), answer)

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
        tokens = []
        for number, (_, ids) in enumerate(pairs):
            with naming(f"session {number}"):
                tokens.append(token_ids(ids))
        return self._model.step([(session, ids) for (session, _), ids in zip(pairs, tokens)])

    def perplexity(self, text: str | Ids, *, context: int | None = 0, stride: int | None = 0) -> Perplexity:
        """How well the model foretells a text, or token ids. Each token but the first is scored once, in windows of `context`
        tokens (0: the model's context) that begin `stride` tokens apart (0: half a window; less than a window).

        Raises SituError: fewer than 2 tokens, windows that do not fit, and what generate raises for a prompt.
        """
        return Perplexity(**self._model.perplexity(self.encode(text) if isinstance(text, str) else token_ids(text), context or 0, stride or 0))

    def embed(
        self,
        texts: str | Sequence[str] | Sequence[Ids],
        *,
        prompt: str | None = None,
        prompt_name: str | None = None,
        dimensions: int | None = None,
    ) -> NDArray[np.float32]:
        """Embeddings, float32 [texts, numbers], or [numbers] of one text: what sentence-transformers' encode gives, by the
        files of the folder (docs/embeddings.md). Token ids are taken as they are.

        prompt, prompt_name: what stands in front of every text, or which of the folder's prompts; default: the one that
            the folder names.
        dimensions: so many numbers, the first ones, where the folder's files or its normalisation allow it; default: all.

        A text that is too long is cut, with a warning. Raises SituError: no text, a text without tokens, a prompt that is
        not there, a model without hidden states.
        """
        if isinstance(texts, str):
            return self.embed([texts], prompt=prompt, prompt_name=prompt_name, dimensions=dimensions)[0]
        items = as_list(texts, "embed() takes a text, texts or token ids")
        if any(isinstance(text, str) for text in items) or not any(is_sequence(text) for text in items):
            return _rows(self._model.embed([text_of(text, f"text {n}") for n, text in enumerate(items)], prompt, prompt_name, dimensions))
        if prompt is not None or prompt_name is not None:
            raise TypeError("a prompt stands in front of texts, not of token ids")
        all_ids = []
        for number, ids in enumerate(items):
            with naming(f"text {number}"):
                all_ids.append(token_ids(ids))
        return _rows(self._model.embed_ids(all_ids, dimensions))

    def score(self, pairs: Sequence[tuple[str, str] | Mapping[str, str]]) -> NDArray[np.float32]:
        """Scores of pairs of texts by a cross-encoder, float32 [pairs], or [pairs, labels] where it has several: what
        CrossEncoder.predict of sentence-transformers gives. Raises SituError as embed does.

        pairs: a list of them, each two texts, or {"text": ..., "text_pair": ...}.
        """
        rows = _rows(self._model.score([_pair(pair, number) for number, pair in enumerate(as_list(pairs, "score() takes pairs of texts"))]))
        return rows[:, 0] if rows.shape[1] == 1 else rows

    def transcribe(self, audio: Audio, **options: Unpack[SpeechOptions]) -> Transcription:
        """The segments of a recording, for models of Whisper's kind: a lazy iterator of Segment.

            for segment in model.transcribe("talk.mp3", language="en"):
                print(f"[{segment.start:.2f} - {segment.end:.2f}]{segment.text}")

        audio: a file (wav, flac, mp3, ogg), open or by its path, or its bytes; or mono samples at 16 kHz, float [samples], from -1
            to 1: louder ones are noted, and those of integers that became floats are an error.

        Raises SituError: a model without an encoder of spectrograms, a file that cannot be read, an option out of its range.
        """
        return transcribed(self._model, audio, options)

    def features(self, audio: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        """The log-mel spectrogram [mels, frames] of one window of at most 30 seconds, as transformers computes it.

        audio: mono samples at 16 kHz, float [samples]; a shorter window is filled with silence.
        """
        return features(self._model, audio)

    @property
    def has_tokenizer(self) -> bool:
        return self._model.has_tokenizer

    @property
    def has_chat_template(self) -> bool:
        return self._model.has_chat_template

    def encode(self, text: str, *, add_special: bool | None = True, parse_special: bool | None = True) -> list[int]:
        """Token ids of a text. SituError: no tokenizer.

        add_special: BOS, EOS and whatever else the tokenizer puts around a text. parse_special: what is spelled like a special
        token is one.
        """
        return self._model.encode(text_of(text), add_special is not False, parse_special is not False)

    def encode_translation(self, text: str, source: str | None = "", target: str | None = "") -> tuple[list[int], int | None]:
        """Token ids of a text with the tokens of its languages (M2M100, NLLB, mBART, Marian), and what forced_bos_id is to be.

        "": the tokenizer's own choice. SituError: a code without a token, or a tokenizer without such tokens.
        """
        ids, forced_bos_id = self._model.encode_translation(text_of(text), source or "", target or "")
        return ids, forced_bos_id

    def decode(self, ids: Ids, *, skip_special: bool | None = True) -> str:
        """The text of token ids, without special tokens or with them. SituError: no tokenizer."""
        return self._model.decode(token_ids(ids), skip_special is not False)

    def encode_chat(self, messages: Conversation, **options: Unpack[RequestOptions]) -> ChatIds:
        """The prompt that the model's chat template makes of a conversation: a list of token ids. Its answers end at the
        eos_token of tokenizer_config.json too (Options.end_of_turn). SituError: no chat template.

        options: those of a prompt. The text of an answer to ids has reasoning and calls in it as the model spells them.
        """
        return ChatIds(self._model.read(self._conversation(messages, options)).ids)

    def render(self, messages: Conversation, **options: Unpack[RequestOptions]) -> str:
        """The text that the model's chat template makes of a conversation. options: those of a prompt."""
        return self._model.render(self._conversation(messages, options))

    def _conversation(self, messages: Conversation, options: RequestOptions) -> dict[str, Any]:
        given, answer = split(options)
        if answer:
            raise TypeError(f"{next(iter(answer))} is an option of an answer, and there is none")
        found = described(messages, given)
        if not found["messages"]:
            raise TypeError("a conversation is a list of messages")
        return found

    @property
    def end_ids(self) -> list[int]:
        """Tokens that end an answer: those of the model's files, then the eos_token of tokenizer_config.json."""
        return self._model.end_ids

    def id_of(self, token: str) -> int | None:
        """The id of a token, as the vocabulary spells it; None: there is no such token."""
        return self._model.id_of(text_of(token))

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


def _rows(made: tuple[NDArray[np.float32], list[str]]) -> NDArray[np.float32]:
    rows, notes = made
    for note in notes:
        warnings.warn(note, stacklevel=3)
    return rows


def _pair(pair: Any, number: int) -> tuple[str, str]:
    """A pair of texts: two in an order, or as the tokenizers of transformers name them."""
    if isinstance(pair, Mapping):
        both: Any = [pair.get("text"), pair.get("text_pair")] if set(pair) == {"text", "text_pair"} else None
    else:
        both = list(pair) if is_sequence(pair) and not isinstance(pair, (set, frozenset)) else None
    if both is None or len(both) != 2:
        raise TypeError(f"pair {number}: score() takes pairs of texts, such as [(question, text)], not {shown(pair)}")
    return text_of(both[0], f"pair {number}: the first text"), text_of(both[1], f"pair {number}: the second text")


class Stream(Iterator[Token]):
    """The tokens of one answer, as they come; Model.stream() makes it.

    The answer goes on while nobody asks for its tokens, and shares the model's steps with other requests.

    To end the answer early, close the stream, leave its `with` block, or drop the last reference to it.

    Errors of generate are raised by next(), and so is one that ends the answer after some tokens: it comes after them, and
    `generation` has what they make.
    """

    def __init__(self, stream: _situ.TokenStream) -> None:
        self._stream = stream

    def __next__(self) -> Token:
        token = self._stream.next()
        if token is None:
            _result(self._stream)
            raise self._stream.failure() or StopIteration
        return _token(token)

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

    To end the answer early, close the stream, leave its `async with` block, cancel the task that reads it, or drop the last reference to
    it, as `break` in its loop does.
    """

    def __init__(self, stream: _situ.TokenStream) -> None:
        self._closed = True
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()
        self._news = asyncio.Event()
        self._wakeups = _wakeups_of(self._loop)
        self._number = self._wakeups.add(self._news)  # no reference to this stream
        self._closed = False
        stream.notify(self._wakeups.raw, self._number)

    async def __anext__(self) -> Token:
        while True:
            self._news.clear()
            token = self._stream.poll()
            if token is not None:
                return _token(token)
            if self._stream.ended():
                self._let_go()
                _result(self._stream)
                raise self._stream.failure() or StopAsyncIteration
            try:
                if self._stream.waits():  # as many requests wait as may
                    await asyncio.sleep(_ASK_AGAIN)
                else:
                    await self._news.wait()
            except asyncio.CancelledError:
                self.close()
                raise

    @property
    def generation(self) -> Generation | None:
        """The answer so far when the stream has come to its end or was closed; None before."""
        return _result(self._stream)

    def close(self) -> None:
        self._stream.close()
        self._let_go()

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
        if os.getpid() != self._process:
            return  # a fork: the loop's descriptors are its parent's too
        with contextlib.suppress(SituError):
            self._stream.notify(None, 0)
        if not _may_touch(self._loop):
            with contextlib.suppress(RuntimeError):  # it was closed meanwhile
                self._loop.call_soon_threadsafe(self._wakeups.remove, self._number)
                return
        self._wakeups.remove(self._number)

    def __del__(self) -> None:
        self._let_go()


_ASK_AGAIN = 0.005  # seconds
_AT_ONCE = 512  # answers of generate_async that a loop has the model work on: others wait as coroutines, which take less memory


class _Wakeups:
    """How the requests of an event loop wake its coroutines: with one descriptor, whatever their number, as long as there are some."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.raw = _situ.Wakeups()
        self.room = asyncio.Semaphore(_AT_ONCE)
        self._loop = loop
        self._users = 0
        self._count = 0
        self._streams: dict[int, asyncio.Event] = {}
        loop.add_reader(self.raw.descriptor(), self._look)

    def add(self, news: asyncio.Event) -> int:
        self._users += 1
        self._count += 1
        self._streams[self._count] = news
        return self._count

    def remove(self, number: int) -> None:
        del self._streams[number]
        self._leave()

    async def __aenter__(self) -> "_Wakeups":
        self._users += 1
        return self

    async def __aexit__(self, *error: object) -> None:
        self._leave()

    def _look(self) -> None:
        for number in self.raw.take():
            if (news := self._streams.get(number)) is not None:
                news.set()

    def _leave(self) -> None:
        self._users -= 1
        if self._users > 0:
            return
        _all_wakeups.pop(self._loop, None)
        if not self._loop.is_closed():
            self._loop.remove_reader(self.raw.descriptor())


_all_wakeups: dict[asyncio.AbstractEventLoop, _Wakeups] = {}


def _wakeups_of(loop: asyncio.AbstractEventLoop) -> _Wakeups:
    found = _all_wakeups.get(loop)
    if found is None:
        found = _all_wakeups[loop] = _Wakeups(loop)
    return found


def _may_touch(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether its readers may be changed by this thread: a stream may be dropped by any."""
    if loop.is_closed():
        return True  # it has none any more
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return not loop.is_running()


def _result(stream: _situ.TokenStream) -> Generation | None:
    result = stream.result()
    return None if result is None else _generation(result)


# No thread may compute while the process takes its libraries down.
atexit.register(_situ.end_program)


def _token(raw: tuple[int, str, float | None, list[tuple[int, float]], int, str, list[tuple[int, str, str, str, bool]]]) -> Token:
    id, text, logprob, top, choice, reasoning, calls = raw
    return Token(id, text, logprob, tuple(TokenLogprob(*t) for t in top), choice, reasoning, tuple(CallPiece(*c) for c in calls))


def _calls(raw: Sequence[tuple[str, str, str]]) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(*c) for c in raw)


def _logprobs(raw: Sequence[tuple[float, Sequence[tuple[int, float]]]]) -> list[Logprobs]:
    return [Logprobs(logprob, [TokenLogprob(*t) for t in top]) for logprob, top in raw]


def _generation(raw: dict[str, Any]) -> Generation:
    prompt = [PromptLogprob(id, logprob, rank, [TokenLogprob(*t) for t in top]) for id, logprob, rank, top in raw["prompt_logprobs"]]
    answers = [Answer(ids, text, reason, score, _logprobs(logprobs), error, reasoning, _calls(calls))
               for ids, text, reason, score, logprobs, error, reasoning, calls in raw["answers"]]  # fmt: skip
    made = {"logprobs": _logprobs(raw["logprobs"]), "prompt_logprobs": prompt, "answers": answers, "stages": [Stage(*s) for s in raw["stages"]],
            "tool_calls": _calls(raw["tool_calls"])}  # fmt: skip
    return Generation(**{**raw, **made})
