"""Tiny models whose answers are forced by their weights: the last character of the prompt says which.

A decoder's logits after a token are a row of a table (tiny_exports.write_table_model), so an answer is a chain of tokens, each of
which stands in one answer only: pieces of its text that no other answer has. Prompts are read character by character.
"""
import json

import numpy as np

import tiny_exports

CHARACTERS = ["\n", "\t", *(chr(c) for c in range(32, 127)), "\u00e9", "\u6c34"]
CONTEXT = 8192


def pieces_of(parts, taken, special, longest):
    """The parts of a text as pieces that nothing else has, and that end where the parts do; special tokens stand alone."""
    text, pieces, at = "".join(parts), [], 0
    ends = [sum(map(len, parts[:i + 1])) for i in range(len(parts))]
    while at < len(text):
        mark = next((s for s in special if text.startswith(s, at)), None)
        if mark:
            pieces.append(mark)
            at += len(mark)
            continue
        most = min([*(e for e in ends if e > at), *(m for s in special if (m := text.find(s, at)) >= 0)])
        end = min(most, at + 2 + (at * 7 + len(text)) % (longest - 1))
        while text[at:end] in taken and end < most:
            end += 1
        piece = text[at:end]
        while piece in taken:  # where texts end alike it becomes a part of what stands before it
            assert pieces[-1] not in special, piece
            piece = pieces.pop() + piece
        taken.add(piece)
        pieces.append(piece)
        at = end
    return pieces


def write(folder, template, answers, special=(), longest=5):
    """`answers`: lists of the parts of a text, by the last character of the prompt. Returns the folder, and the pieces of each answer."""
    taken = set(CHARACTERS)
    pieces = {last: pieces_of(text, taken, special, longest) for last, text in answers.items()}
    words = [*CHARACTERS, *dict.fromkeys(p for each in pieces.values() for p in each if p not in special)]
    ids = {word: i for i, word in enumerate([*words, *special, "</s>"])}
    assert len(ids) == len(words) + len(special) + 1
    table = np.zeros((len(ids), len(ids)), np.float32)
    for last, chain in pieces.items():
        for before, piece in zip([last, *chain], [*chain, "</s>"]):
            row = table[ids[before]]
            assert not row.any() or row[ids[piece]], f"{before!r} stands in two answers"
            row[ids[piece]] = 9
    empty = {k: None for k in ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor")}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": ids[word], "content": word, **flags} for word in [*special, "</s>"]]
    model = {"type": "BPE", "vocab": ids, "merges": [], "unk_token": None, "byte_fallback": False}
    tokenizer = {"version": "1.0", "added_tokens": added, **empty, "decoder": {"type": "Fuse"}, "model": model}
    tiny_exports.write_table_model(table, folder, tokenizer=tokenizer, config={"max_position_embeddings": CONTEXT, "eos_token_id": ids["</s>"]},
                                   tokenizer_config={"chat_template": template, "eos_token": "</s>"})
    return folder, pieces
