"""What comes back: plain values that can be compared, printed and pickled."""

from dataclasses import dataclass
from typing import Any, NamedTuple


class ToolCall(NamedTuple):
    """A call of a tool, which is whole. It may stand in the tool_calls of a message as it is."""

    id: str  # made up here, for the message with the result (tool_call_id)
    name: str
    arguments: str  # the JSON text of an object that the tool's schema allows


class CallPiece(NamedTuple):
    """A part of a call, as it comes. An answer that is cut inside a call has no last part of it."""

    call: int  # 0, 1, ... within the answer
    id: str  # in its first part alone, as the name
    name: str
    arguments: str  # joined: the JSON text of one object
    ended: bool  # in its last part alone


class Token(NamedTuple):
    """A token of a stream."""

    id: int  # -1: text alone, before the first token or after the last
    text: str  # whole characters only; empty while one, or a stop string, is incomplete, or without a tokenizer
    logprob: float | None = None  # natural logarithm, when `logprobs` is given
    top: tuple["TokenLogprob", ...] = ()  # the most probable ones, first first, when `logprobs` asks for some
    choice: int = 0  # of `choices`
    # Of a conversation: what the model thinks, before any text, and calls, behind it. They are no part of `text`.
    reasoning: str = ""
    calls: tuple[CallPiece, ...] = ()


class TokenLogprob(NamedTuple):
    """A token and the natural logarithm of the probability that the model gives it, before any option changes it."""

    id: int
    logprob: float


class Logprobs(NamedTuple):
    """Log-probabilities where one token was chosen."""

    logprob: float  # of the token that was chosen
    top: list[TokenLogprob]  # the most probable ones, first first


class PromptLogprob(NamedTuple):
    """How the model foretells a token of the prompt."""

    id: int
    logprob: float
    rank: int  # 1: the most probable one
    top: list[TokenLogprob]


@dataclass(frozen=True)
class Answer:
    """One of several choices, or of the answers of a beam search."""

    output_ids: list[int]
    text: str
    finish_reason: str  # as in Generation
    score: float  # log-probability / tokens**length_penalty of a beam search
    logprobs: list[Logprobs]
    error: str
    reasoning: str = ""  # as in Generation
    tool_calls: tuple[ToolCall, ...] = ()


class Stage(NamedTuple):
    """A part of a generation."""

    name: str  # an encoder's, "embed", "prefill", "decode"
    ms: float
    bytes_copied: int
    bytes_written: int  # copied ones too


@dataclass(frozen=True)
class Generation:
    """An answer."""

    output_ids: list[int]
    text: str  # empty without a tokenizer
    finish_reason: str  # "stop": an end-of-sequence token, a stop id or string; "length": no more room; "cancelled": close(); "error"
    error: str | None  # of "error": why the next token could not be computed or chosen
    seed: int | None  # when tokens were drawn at random
    logprobs: list[Logprobs]  # one for each of output_ids when asked for, else empty
    prompt_logprobs: list[PromptLogprob]  # of the prompt's tokens but the first, when asked for
    perplexity: float | None  # of output_ids, when asked for
    notes: list[str]  # what the folder's files ask for and was left out, though it may change tokens; that the chat template shows no tools
    answers: list[Answer]  # of several choices, in their order; of a beam search, best first; the first is what stands above
    guessed_tokens: int  # of prompt_lookup or draft_tokens
    accepted_tokens: int  # guesses that were right
    cached_tokens: int  # of the prompt, whose state an earlier answer had kept
    decoder_prompt_ids: list[int]  # of an encoder-decoder: what output_ids follow
    stages: list[Stage]  # of a prompt that encoders ran for
    encode_ms: float
    prefill_ms: float
    decode_ms_per_token: float  # mean over the tokens after the first; 0 when there are none
    # By the model's ledger: what others do with the model meanwhile counts too.
    bytes_copied_per_token: float  # all bytes copied, prompt included, per generated token
    bytes_written_per_token: float  # mean over decode steps (over the prompt when there are none)
    # Of a conversation: what the model thought, and the calls that are whole. They are no part of `text`.
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()

    @property
    def message(self) -> dict[str, Any]:
        """The answer as a message, to be appended to the conversation."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [{"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in self.tool_calls]
        return message


@dataclass(frozen=True)
class Perplexity:
    """How well a model foretells a text."""

    perplexity: float  # exp(mean_nll)
    mean_nll: float  # mean negative log-likelihood of the tokens, natural logarithm
    tokens: int  # that were scored: all but the first
    ms: float
    bytes_copied: int


class Ledger(NamedTuple):
    """Bytes written since the model was loaded or the ledger was reset, by kind."""

    computed: int  # new values
    copied: int  # bytes that already existed elsewhere
    packed: int  # weights laid out anew at load


@dataclass(frozen=True)
class Facts:
    """What a model is and how it was placed."""

    file: str
    isa: str  # kernels in use
    mode: str  # "in-place" or "naive"
    threads: int
    vocabulary: int
    context_length: int
    weight_bytes: int  # the model's own
    computed_bytes: int  # that they take more, since some are computed from others at load
    arena_bytes: int
    state_bytes_per_token: int
    slots: int  # tokens that the state has room for
    kernel_calls_per_token: int
    one_sequence: str  # why prompts are computed one after the other; "": together
    load_ms: float
    packed_bytes: int  # weights laid out anew by this load
    mapped_packed_bytes: int  # weights as a file has them that an earlier load saved
