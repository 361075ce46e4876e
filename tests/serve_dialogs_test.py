"""Generated conversations through `situ serve`: answers forced by weights, in six ways of writing calls, cut at every token.

    python tests/serve_dialogs_test.py --situ build/situ [unittest options]

Each conversation has tools, a history and an answer of its own: reasoning, text, calls, arguments of every type, texts that look like
marks. Of each cut the joined stream is the whole answer, and what ended is what was forced. Needs numpy and onnx (`make python`).
"""
import json
import random
import unittest

import forced_models
import serve_tools_test as spellings
from cli_case import CliTest, main
from serve_test import Server
from serve_tools_test import joined_chat, joined_message
from sweep import SWEEPING

LETTERS = "abcdefghijklmnopqrst"  # the last character of a prompt says which answer is forced
BATCHES = 10 if SWEEPING else 1   # of as many conversations a grammar
THINKS = spellings.THINKS
# What a text may hold beside letters: of marks the beginnings, and marks of other models.
ODD = ["\n", "\t", "\"", "\\", "{", "}", "[", "]", "(", ")", "<", "</", ">", "'", ":", ",", "=", "|", "`", " ", "  ", "12", "true", "\u00e9", "\u6c34", "\U0001f642", "\u0001", "<tool_ca", "[TOOL_C",
       "<|", "<function", "</paramete", "<esc", "<|calls|", "to=functions.", "<|mess", "]<|/calls|", "}\n</tool_call", "<|start_header_id|>", "[INST]"]
SPELLS_JSON = [{}, {"separators": (",", ":")}, {"indent": 1}]


def hermes(call, style):
    return f'\n<tool_call>\n{{"name": "{call[0]}", "arguments": ' + json.dumps(call[1], ensure_ascii=False, **style) + "}\n</tool_call>"


def devstral(call, style):
    return f"[TOOL_CALLS]{call[0]}[ARGS]" + json.dumps(call[1], ensure_ascii=False, **style)


def coder(call, style):
    return spellings.coder(call[0], **call[1])


def literals(call, style):
    return spellings.literals(call[0], **call[1])


def python_calls(calls, style):
    return "<|calls|>[" + ", ".join(spellings.python_call(name, **arguments) for name, arguments in calls) + "]<|/calls|>"


class Marked:
    """Reasoning, text, calls, between marks. `never`: what no text of an argument may hold."""
    most_calls = 3

    def __init__(self, calls_of_template, spell, keys, never=()):
        self.template, self.spell, self.keys, self.never = spellings.template(calls_of_template, **THINKS), spell, keys, never

    def answer(self, thought, text, calls, style):
        behind = self.spell(calls, style) if calls else ""
        return (f"<think>\n{thought}\n</think>\n\n" if thought else "") + text + (behind if text else behind.lstrip())


class Channels:
    most_calls, never, keys, template = 1, (), "any", spellings.CHANNELS + spellings.LAST

    def answer(self, thought, text, calls, style):
        parts = [f"<|channel|>analysis<|message|>{thought}<|end|><|start|>assistant"] if thought else []
        if calls and text:
            parts.append(f"<|channel|>commentary<|message|>{text}<|end|><|start|>assistant")
        if calls:
            parts.append(f" to=functions.{calls[0][0]}<|channel|>commentary json<|message|>" + json.dumps(calls[0][1], ensure_ascii=False, **style))
        else:
            parts.append(f"<|channel|>final<|message|>{text}")
        return "".join(parts)


def each(spell):
    return lambda calls, style: "".join(spell(call, style) for call in calls)


GRAMMARS = {
    "object": Marked(spellings.HERMES, each(hermes), "any"),
    "named": Marked(spellings.DEVSTRAL, each(devstral), "any"),
    "tagged": Marked(spellings.CODER, each(coder), "words", ["</parameter>"]),
    "python": Marked(spellings.PYTHON, python_calls, "words"),
    "literals": Marked(spellings.LITERALS, each(literals), "words", ["<escape>"]),
    "channels": Channels(),
}


class Made:
    """A conversation at random, and the answer to it."""

    def __init__(self, grammar, letter, seed):
        self.draw, self.grammar = random.Random(seed), grammar
        draw = self.draw
        names = ["look", "look_up", "get-2", "a.b", "Send", "x", "note_9"]
        self.tools = [self.tool(name) for name in draw.sample(names, draw.randint(1, 4))]
        self.thought = self.text(10) if draw.random() < 0.5 else ""
        self.calls = [self.call() for _ in range(draw.randint(0 if draw.random() < 0.3 else 1, grammar.most_calls))]
        self.text_before = self.text(8) if draw.random() < 0.5 or not self.calls else ""
        self.answer = grammar.answer(self.thought, self.text_before, self.calls, draw.choice(SPELLS_JSON))
        self.turns = [("system", self.text(3))] if draw.random() < 0.4 else []
        for _ in range(draw.randint(0, 2)):
            self.turns += [("user", self.text(5)), *self.spoken()]
        # The last character is forced to be one that says which answer comes: of the user's text, or of a result.
        if self.turns and self.turns[-1][0] == "results" and draw.random() < 0.5:
            *first, (id, text) = self.turns[-1][1]
            self.turns[-1] = ("results", [*first, (id, text + letter)])
        else:
            self.turns.append(("user", self.text(4) + letter))
        self.choice = "auto"
        if self.calls and not self.text_before:
            one = {"named": self.calls[0][0]}
            self.choice = draw.choice(["auto", "required", *([one] if len(self.calls) == 1 else [])])
        self.parallel = len(self.calls) > 1 or draw.random() < 0.7

    def text(self, most):
        draw = self.draw
        middle = "".join(draw.choice(ODD) if draw.random() < 0.6 else draw.choice(["river", "Oslo ", "a", "so "]) for _ in range(draw.randint(1, most)))
        return "X" + middle + "y"  # white space at the ends belongs to the template

    def string(self):
        draw = self.draw
        while True:
            value = "".join(draw.choice([*ODD, "Nile", "q "]) for _ in range(draw.randint(0, 5)))
            if all(mark not in value for mark in self.grammar.never):
                return value

    def key(self, i):
        odd = ["with space", "\u00e9t\u00e9", "qu\"ote", "a/b"] if self.grammar.keys == "any" else []
        return self.draw.choice([f"k{i}", f"key_{i}", f"Long_Key{i}", *odd])

    def schema(self, depth):
        draw = self.draw
        kinds = ["string"] * 3 + ["integer", "number", "boolean", "enum"] + (["array", "object", "nullable"] if depth else [])
        kind = draw.choice(kinds)
        if kind == "enum":
            return {"type": "string", "enum": draw.sample(["C", "F", "a b", "long-er", "\u00e9"], 3)}
        if kind == "array":
            return {"type": "array", "items": self.schema(depth - 1)}
        if kind == "object":
            return self.schema_of_object(depth - 1)
        if kind == "nullable":
            return {"anyOf": [{"type": "integer"}, {"type": "null"}]}
        return {"type": kind}

    def schema_of_object(self, depth):
        draw = self.draw
        keys = dict.fromkeys(self.key(i) for i in range(draw.randint(0, 3)))
        schema = {"type": "object", "properties": {key: self.schema(depth) for key in keys}, "required": [key for key in keys if draw.random() < 0.6]}
        return {**schema, "additionalProperties": False} if draw.random() < 0.7 else schema

    def tool(self, name):
        return {"name": name, "description": "About " + name, "parameters": self.schema_of_object(2)}

    def value(self, schema):
        draw = self.draw
        if "enum" in schema:
            return draw.choice(schema["enum"])
        if "anyOf" in schema:
            return draw.choice([None, 7])
        kind = schema["type"]
        if kind == "string":
            return self.string()
        if kind == "integer":
            return draw.choice([0, 7, -12, 123456789])
        if kind == "number":
            return draw.choice([0, 2.5, -0.125, 1e-7, 30])
        if kind == "boolean":
            return draw.random() < 0.5
        if kind == "array":
            return [self.value(schema["items"]) for _ in range(draw.randint(0, 3))]
        return {key: self.value(part) for key, part in schema["properties"].items() if key in schema["required"] or draw.random() < 0.5}

    def call(self):
        tool = self.draw.choice(self.tools)
        return tool["name"], self.value(tool["parameters"])

    def spoken(self):
        """A turn of the history: a text, or calls with their results."""
        thought, calls = self.text(3) if self.draw.random() < 0.3 else "", [self.call() for _ in range(self.draw.randint(0, 2))]
        ids = [f"call_{self.draw.getrandbits(40):x}" for _ in calls]
        turn = ("assistant", thought, self.text(3) if not calls or self.draw.random() < 0.3 else "", list(zip(ids, calls)))
        return [turn, ("results", [(id, self.text(4)) for id in ids])] if calls else [turn]

    def chat_body(self):
        messages = []
        for role, *rest in self.turns:
            if role == "results":
                messages += [{"role": "tool", "tool_call_id": id, "content": text} for id, text in rest[0]]
            elif role != "assistant":
                messages.append({"role": role, "content": rest[0]})
            else:
                thought, text, calls = rest
                messages.append({"role": role, "content": text or None, **({"reasoning_content": thought} if thought else {}),
                                 **({"tool_calls": [{"id": id, "type": "function", "function": {"name": n, "arguments": json.dumps(a)}} for id, (n, a) in calls]} if calls else {})})
        choice = {"type": "function", "function": {"name": self.choice["named"]}} if isinstance(self.choice, dict) else self.choice
        return {"messages": messages, "tools": [{"type": "function", "function": t} for t in self.tools], "tool_choice": choice, "parallel_tool_calls": self.parallel}

    def message_body(self):
        messages, system = [], None
        for role, *rest in self.turns:
            if role == "system":
                system = rest[0]
            elif role == "results":
                messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": text} for id, text in rest[0]]})
            elif role == "user":
                messages.append({"role": role, "content": [{"type": "text", "text": rest[0]}]})
            else:
                thought, text, calls = rest
                blocks = [{"type": "thinking", "thinking": thought, "signature": ""}] if thought else []
                blocks += [{"type": "text", "text": text}] if text else []
                messages.append({"role": role, "content": blocks + [{"type": "tool_use", "id": id, "name": n, "input": a} for id, (n, a) in calls]})
        choice = {"type": "tool", "name": self.choice["named"]} if isinstance(self.choice, dict) else {"type": {"required": "any"}.get(self.choice, self.choice)}
        tools = [{"name": t["name"], "description": t["description"], "input_schema": t["parameters"]} for t in self.tools]
        return {"messages": messages, "tools": tools, "tool_choice": {**choice, "disable_parallel_tool_use": not self.parallel}, **({"system": system} if system else {})}


def validates(value, schema):
    """Whether a value is what a schema of Made allows."""
    if "enum" in schema:
        return value in schema["enum"]
    if "anyOf" in schema:
        return any(validates(value, part) for part in schema["anyOf"])
    kind = schema["type"]
    if kind == "object":
        known = schema["properties"]
        return isinstance(value, dict) and all(key in value for key in schema["required"]) and all(key in known and validates(v, known[key]) for key, v in value.items())
    if kind == "array":
        return isinstance(value, list) and all(validates(v, schema["items"]) for v in value)
    if isinstance(value, bool) or kind == "boolean":
        return isinstance(value, bool) and kind == "boolean"
    return value is None if kind == "null" else isinstance(value, {"string": str, "integer": int, "number": (int, float)}[kind])


class DialogsTest(CliTest):
    def batch(self, batch):
        """A server with a model for each grammar, the conversations, and how long their answers are in tokens."""
        made, pieces, folders = {}, {}, []
        for name, grammar in GRAMMARS.items():
            made[name] = {letter: Made(grammar, letter, f"{name} {batch} {letter}") for letter in LETTERS}
            folder, pieces[name] = forced_models.write(self.folder / str(batch) / name, grammar.template, {letter: [m.answer] for letter, m in made[name].items()}, longest=32)
            folders.append(folder)
        return Server(*folders, "--port", 0), made, pieces

    def ask(self, path, **body):
        answer, got = self.server.ask("POST", path, {"temperature": 0, **body})
        self.assertEqual(answer.status, 200, got)
        if not body.get("stream"):
            return got
        return [json.loads(line.removeprefix("data: ")) for line in got.split("\n") if line.startswith("data: ") and line != "data: [DONE]"]

    def test_conversations(self):
        for batch in range(BATCHES):
            self.server, made, pieces = self.batch(batch)
            try:
                for name in GRAMMARS:
                    for letter in LETTERS:
                        with self.subTest(batch=batch, name=name, letter=letter, answer=made[name][letter].answer):
                            self.check(name, made[name][letter], len(pieces[name][letter]))
            finally:
                code = self.server.stop()
            self.assertEqual(code, 0)

    def check(self, name, made, tokens):
        body = {"model": name, **made.chat_body()}
        whole = self.chat(body, made, tokens + 1)
        message, reason = whole["choices"][0]["message"], whole["choices"][0]["finish_reason"]
        self.assertEqual((message.get("reasoning_content", ""), message["content"], self.calls_of(message), reason),
                         (made.thought, made.text_before or None, made.calls, "tool_calls" if made.calls else "stop"))
        schemas = {t["name"]: t["parameters"] for t in made.tools}
        for called, arguments in self.calls_of(message):
            self.assertTrue(validates(arguments, schemas[called]), (arguments, schemas[called]))
        for most in range(1, tokens + 1):
            with self.subTest(most=most):
                self.chat(body, made, most)
        for most in (tokens + 1, made.draw.randint(1, tokens)):
            with self.subTest(messages=most):
                self.same_as_messages({"model": name, **made.message_body()}, self.ask("/v1/chat/completions", **body, max_tokens=most), most)

    def calls_of(self, message):
        return [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message.get("tool_calls", ())]

    def chat(self, body, made, most):
        """An answer of so many tokens, whole and in pieces; both have the beginning of what is forced."""
        whole = self.ask("/v1/chat/completions", **body, max_tokens=most)
        chunks = self.ask("/v1/chat/completions", **body, max_tokens=most, stream=True, stream_options={"include_usage": True})
        joined, reason = joined_chat(chunks)
        choice, usage = whole["choices"][0], whole["usage"]
        message, calls = choice["message"], self.calls_of(choice["message"])
        self.assertEqual((joined["content"], joined["reasoning_content"], reason), (message["content"] or "", message.get("reasoning_content", ""), choice["finish_reason"]))
        self.assertEqual((chunks[-1]["usage"]["completion_tokens"], chunks[-1]["usage"].get("completion_tokens_details")), (usage["completion_tokens"], usage.get("completion_tokens_details")))
        self.assertNotEqual(message["content"], "")
        self.assertTrue(made.text_before.startswith(joined["content"].rstrip()), joined)
        self.assertTrue(made.thought.startswith(joined["reasoning_content"]), joined)
        begun = joined["tool_calls"]
        self.assertEqual([(c["name"], json.loads(c["arguments"])) for c in begun[:len(calls)]], made.calls[:len(calls)])
        self.assertEqual(calls, made.calls[:len(calls)])
        self.assertEqual([c["name"] for c in begun], [called for called, _ in made.calls[:len(begun)]])
        self.assertLessEqual(len(begun) - len(calls), 0 if reason != "length" else 1)
        if usage["completion_tokens"] < most:
            self.assertEqual(reason, "tool_calls" if calls else "stop")
        elif reason != "length":  # where nothing may follow the last token
            self.assertEqual((reason, calls), ("tool_calls", made.calls))
        return whole

    def same_as_messages(self, body, whole, most):
        """The conversation of a chat, asked by Messages: the same answer and counts, whole and in pieces."""
        choice, own, usage = whole["choices"][0], whole["choices"][0]["message"], whole["usage"]
        wanted = [("thinking", own.get("reasoning_content")), ("text", own["content"]), *(("tool_use", call) for call in self.calls_of(own))]
        wanted = [(kind, value) for kind, value in wanted if value]
        reason = {"tool_calls": "tool_use", "length": "max_tokens", "stop": "end_turn"}[choice["finish_reason"]]
        body = {**body, "max_tokens": most, "thinking": {"type": "enabled", "budget_tokens": 1024}}
        answer = self.ask("/v1/messages", **body)
        got = [(b["type"], b.get("text") or b.get("thinking") or (b["name"], b["input"])) for b in answer["content"]]
        self.assertEqual((got, answer["stop_reason"]), (wanted, reason))
        self.assertEqual((self.read_tokens(answer["usage"]), answer["usage"]["output_tokens"]), (usage["prompt_tokens"], usage["completion_tokens"]))
        events = self.ask("/v1/messages", **body, stream=True)
        blocks, unended, reason, counted = joined_message(events)
        ended = [(b["type"], b.get("text") or b.get("thinking") or (b["name"], json.loads(b["json"] or "{}"))) for b in blocks if b not in unended.values()]
        self.assertEqual((ended, reason, counted["output_tokens"]), (got, answer["stop_reason"], usage["completion_tokens"]))
        self.assertEqual(self.read_tokens(events[0]["message"]["usage"]), usage["prompt_tokens"])
        counted = self.ask("/v1/messages/count_tokens", **{key: value for key, value in body.items() if key != "max_tokens"})
        self.assertEqual(counted["input_tokens"], usage["prompt_tokens"])

    def read_tokens(self, usage):
        return usage["input_tokens"] + usage["cache_read_input_tokens"]


if __name__ == "__main__":
    main()
