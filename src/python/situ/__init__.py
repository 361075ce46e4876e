"""Situ runs generative ONNX models in place.

    import situ

    model = situ.load("path/to/folder")
    print(model.generate("When does summer start?", chat=True, max_new_tokens=64).text)
    for token in model.stream("Once upon a time", temperature=0.8, seed=1):
        print(token.text, end="", flush=True)

Token by token, with the logits as NumPy views of the memory that the model computes them in:

    session = model.session()
    logits = session.step(model.encode("The capital of France is"))  # float32 [vocabulary]
    next_id = int(logits.argmax())

A model may be used from several threads and coroutines, whose requests share its steps. The GIL is free while it computes. Errors are
SituError.
"""

from situ import openai
from situ._situ import Session, SituError, __version__, peak_rss_mib
from situ.model import AsyncStream, Model, Stream, load, pull
from situ.options import LoadOptions, Options, RequestOptions
from situ.prompts import Conversation, Image, Message, Part, Prompt, Sound
from situ.results import Answer, CallPiece, Facts, Generation, Ledger, Logprobs, Perplexity, PromptLogprob, Stage, Token, TokenLogprob, ToolCall
from situ.speech import Audio, Segment, SpeechOptions, Transcript, Transcription, Word

SituError.__module__ = __name__  # as it is to be imported

__all__ = [
    "Answer",
    "AsyncStream",
    "Audio",
    "CallPiece",
    "Conversation",
    "Facts",
    "Generation",
    "Image",
    "Ledger",
    "LoadOptions",
    "Logprobs",
    "Message",
    "Model",
    "Options",
    "Part",
    "Perplexity",
    "Prompt",
    "PromptLogprob",
    "RequestOptions",
    "Segment",
    "Session",
    "SituError",
    "Sound",
    "SpeechOptions",
    "Stage",
    "Stream",
    "Token",
    "TokenLogprob",
    "ToolCall",
    "Transcript",
    "Transcription",
    "Word",
    "__version__",
    "load",
    "openai",
    "peak_rss_mib",
    "pull",
]
