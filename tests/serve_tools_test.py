"""Calls of tools and reasoning, from `situ serve` on tiny models whose answers are forced by their weights, one for each way of writing them.

    python tests/serve_tools_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`).
"""
import json
import os
import re
import unittest

import forced_models
from cli_case import CliTest, Run, main
from serve_clients_test import CLIENTS, installed, run, run_node
from serve_test import Server

LAST = "{% if add_generation_prompt %}{{ messages[-1].content[-1:] }}{% endif %}"  # says which answer is forced


def template(calls, before="", prompt="", results="<|im_start|>user\n<tool_response>\n{{ m.content }}\n</tool_response><|im_end|>\n", last=LAST):
    """A chat template that shows tools, and calls behind the content of an answer."""
    return ("{%- if tools %}{{ '<|im_start|>system\n# Tools\n' }}{% for t in tools %}{{ t | tojson }}{% endfor %}{{ '<|im_end|>\n' }}{% endif -%}"
            "{%- for m in messages -%}{%- if m.role == 'tool' -%}" + results + "{%- elif m.role == 'assistant' -%}{{ '<|im_start|>assistant\n' }}" + before +
            "{{ m.content }}{%- if m.tool_calls -%}" + calls + "{%- endif -%}{{ '<|im_end|>\n' }}"
            "{%- else -%}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endif -%}{%- endfor -%}"
            "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}" + prompt + "{% endif -%}" + last)


PLAIN = ("{%- for m in messages -%}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endfor -%}"
         "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif -%}" + LAST)
HERMES = ("{%- for c in m.tool_calls %}{{ '\n<tool_call>\n{\"name\": \"' + c.function.name + '\", \"arguments\": ' }}{{ c.function.arguments | tojson }}"
          "{{ '}\n</tool_call>' }}{% endfor -%}")
MISTRAL = ("{{ '[TOOL_CALLS] [' }}{% for c in m.tool_calls %}{{ '{\"name\": \"' + c.function.name + '\", \"arguments\": ' }}{{ c.function.arguments | tojson }}"
           "{{ ', \"id\": \"' + c.id + '\"}' }}{% if not loop.last %}{{ ', ' }}{% endif %}{% endfor %}{{ ']' }}")
DEVSTRAL = "{% for c in m.tool_calls %}{{ '[TOOL_CALLS]' + c.function.name + '[ARGS]' }}{{ c.function.arguments | tojson }}{% endfor %}"
CODER = ("{% for c in m.tool_calls %}{{ '\n<tool_call>\n<function=' + c.function.name + '>\n' }}{% for k, v in c.function.arguments | items %}"
         "{{ '<parameter=' + k + '>\n' }}{{ v if v is string else v | tojson }}{{ '\n</parameter>\n' }}{% endfor %}{{ '</function>\n</tool_call>' }}{% endfor %}")
PYTHON = ("{{ '<|calls|>[' }}{% for c in m.tool_calls %}{{ c.function.name + '(' }}{% for k, v in c.function.arguments | items %}{{ k + '=' }}"
          "{% if v is boolean %}{{ 'True' if v else 'False' }}{% else %}{{ v | tojson }}{% endif %}{% if not loop.last %}{{ ', ' }}{% endif %}{% endfor %}{{ ')' }}"
          "{% if not loop.last %}{{ ', ' }}{% endif %}{% endfor %}{{ ']<|/calls|>' }}")
LITERALS = ("\n{%- macro literal(v) -%}{%- if v is string %}{{ '<escape>' + v + '<escape>' }}{% elif v is boolean %}{{ 'true' if v else 'false' }}{% elif v is mapping %}"
            "{{ '{' }}{% for k, x in v | items %}{{ k + ':' + literal(x) }}{% if not loop.last %},{% endif %}{% endfor %}{{ '}' }}{% elif v is sequence %}{{ '[' }}"
            "{% for x in v %}{{ literal(x) }}{% if not loop.last %},{% endif %}{% endfor %}{{ ']' }}{% else %}{{ v }}{% endif -%}{%- endmacro -%}"
            "{% for c in m.tool_calls %}{{ '<start_function_call>call:' + c.function.name + literal(c.function.arguments) + '<end_function_call>' }}{% endfor %}")


def hermes(name, **arguments):
    return "\n<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False) + "\n</tool_call>"


def coder(name, **arguments):
    values = {k: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for k, v in arguments.items()}
    return f"\n<tool_call>\n<function={name}>\n" + "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in values.items()) + "</function>\n</tool_call>"


def devstral(name, **arguments):
    return f"[TOOL_CALLS]{name}[ARGS]" + json.dumps(arguments, ensure_ascii=False)


def literal(value):
    if isinstance(value, str):
        return f"<escape>{value}<escape>"
    if isinstance(value, dict):
        return "{" + ",".join(f"{k}:{literal(v)}" for k, v in value.items()) + "}"
    return "[" + ",".join(map(literal, value)) + "]" if isinstance(value, list) else json.dumps(value)


def literals(name, **arguments):
    return f"<start_function_call>call:{name}{literal(arguments)}<end_function_call>"


def python_call(name, **arguments):
    return f"{name}(" + ", ".join(f"{k}={str(v) if isinstance(v, bool) else json.dumps(v, ensure_ascii=False)}" for k, v in arguments.items()) + ")"


def mistral_call(name, **arguments):
    return json.dumps({"name": name, "arguments": arguments, "id": "abcdef123"}, ensure_ascii=False)


def enclosed(begin, calls, end):
    return [begin + calls[0], *(", " + c for c in calls[1:-1]), *([", " + calls[-1] + end] if len(calls) > 1 else [end])]


# How an answer with these calls is written: the parts of a text.
SPELLINGS = {
    "documented": (PLAIN, lambda calls: [("\n" if i else "") + hermes(n, **a).strip() for i, (n, a) in enumerate(calls)]),
    "hermes": (template(HERMES), lambda calls: [hermes(n, **a) for n, a in calls]),
    "mistral": (template(MISTRAL), lambda calls: enclosed("[TOOL_CALLS] [", [mistral_call(n, **a) for n, a in calls], "]")),
    "devstral": (template(DEVSTRAL), lambda calls: [devstral(n, **a) for n, a in calls]),
    "coder": (template(CODER), lambda calls: [coder(n, **a) for n, a in calls]),
    "python": (template(PYTHON), lambda calls: enclosed("<|calls|>[", [python_call(n, **a) for n, a in calls], "]<|/calls|>")),
    "literals": (template(LITERALS), lambda calls: [literals(n, **a) for n, a in calls]),
}
THINKS = {"before": "{%- if m.reasoning_content %}{{ '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}{% endif -%}",
          "prompt": "{%- if enable_thinking is defined and enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{% endif -%}"}
THINKING = template(HERMES, **THINKS)
THOUGHT = "A river, then.\nThe Nile."
# Answers of a model that thinks: a thought and a text, a document, a call.
THOUGHTS = {"1": [f"<think>\n{THOUGHT}\n</think>\n\n", "The Nile it is."], "2": ["<think>\nJSON?\n</think>\n\n", '{"yes": true}'],
            "3": ["<think>\nLet me ask.\n</think>\n\n", hermes("now").strip()]}
# Marks that are special tokens, each of which can stand in a forced answer once.
SPECIAL = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
CHANNELS = ("{%- if tools %}{{ '<|start|>developer<|message|>' }}{% for t in tools %}{{ t.function.name + ' ' }}{% endfor %}{{ '<|end|>' }}{% endif -%}"
            "{%- for m in messages -%}{%- if m.role == 'tool' %}{{ '<|start|>functions.' + m.name + ' to=assistant<|channel|>commentary<|message|>' }}{{ m.content | tojson }}{{ '<|end|>' }}"
            "{%- elif m.role == 'assistant' -%}{%- if m.thinking %}{{ '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}{% endif -%}"
            "{%- if m.tool_calls %}{{ '<|start|>assistant to=functions.' + m.tool_calls[0].function.name + '<|channel|>commentary json<|message|>' }}"
            "{{ m.tool_calls[0].function.arguments | tojson }}{{ '<|call|>' }}{%- else %}{{ '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|return|>' }}{% endif -%}"
            "{%- else %}{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{% endif -%}{%- endfor -%}{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif -%}")
BARE = ("{%- if tools %}{{ '<|header|>user<|/header|>\n\n' }}{% for t in tools %}{{ t | tojson(indent=4) }}{% endfor %}{{ '<|eot|>' }}{% endif -%}"
        "{%- for m in messages -%}{%- if m.role == 'tool' %}{{ '<|header|>ipython<|/header|>\n\n' }}{{ m.content | tojson }}{{ '<|eot|>' }}"
        "{%- elif m.tool_calls -%}{%- if m.tool_calls | length != 1 %}{{ raise_exception('one call at once') }}{% endif -%}"
        "{{ '<|header|>assistant<|/header|>\n\n{\"name\": \"' + m.tool_calls[0].function.name + '\", \"parameters\": ' }}{{ m.tool_calls[0].function.arguments | tojson }}{{ '}<|eot|>' }}"
        "{%- else %}{{ '<|header|>' + m.role + '<|/header|>\n\n' + m.content + '<|eot|>' }}{% endif -%}{%- endfor -%}"
        "{%- if add_generation_prompt %}{{ '<|header|>assistant<|/header|>\n\n' }}{% endif -%}")
CALLS = {
    "1": [],
    "2": [("weather", {"city": "Oslo", "days": 3})],
    "3": [("weather", {"city": "Oslo", "days": 3}), ("weather", {"city": "Rome \u6c34", "days": 12})],
    "4": [("now", {})],
    "5": [("note", {"title": "say hi", "body": "a, b", "done": True})],
}
TEXTS = {"1": "It is cold there today.", "2": "Let me look.", "3": "", "4": "", "5": "So be it."}
AFTER_RESULTS = "So it is."  # of the documented form, where results are text of the user, which ends with a mark
TOOLS = [
    {"name": "weather", "description": "The weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city", "days"]}},
    {"name": "note", "description": "Keeps a note", "parameters": {"type": "object", "properties": {"title": {"type": "string"}, "body": {"type": "string"}, "done": {"type": "boolean"}}, "required": ["title"]}},
    {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}},
]
CHAT_TOOLS = [{"type": "function", "function": t} for t in TOOLS]
MESSAGE_TOOLS = [{"name": t["name"], "description": t["description"], "input_schema": t["parameters"]} for t in TOOLS]


def joined_chat(chunks):
    """The answer that a stream's deltas make, as OpenAI's clients put them together."""
    message, reason = {"content": "", "reasoning_content": "", "tool_calls": []}, None
    for chunk in chunks:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            for key in ("content", "reasoning_content"):
                message[key] += delta.get(key) or ""
            for call in delta.get("tool_calls", ()):
                if call["index"] == len(message["tool_calls"]):
                    assert call["id"].startswith("call_") and call["type"] == "function" and call["function"]["name"], call
                    message["tool_calls"].append({"name": call["function"]["name"], "arguments": ""})
                else:
                    assert call["index"] == len(message["tool_calls"]) - 1 and set(call) == {"index", "function"} and set(call["function"]) == {"arguments"}, call
                message["tool_calls"][-1]["arguments"] += call["function"]["arguments"]
            reason = choice["finish_reason"] or reason
    return message, reason


def joined_message(pieces):
    """The same of the events of Messages; blocks that did not end are left out."""
    blocks, open_blocks, reason, usage = [], {}, None, None
    for event in pieces:
        if event["type"] == "content_block_start":
            assert event["index"] == len(blocks) and not open_blocks, event
            blocks.append({**event["content_block"], "json": ""})
            open_blocks[event["index"]] = blocks[-1]
        elif event["type"] == "content_block_delta":
            block, delta = open_blocks[event["index"]], event["delta"]
            for key, value in delta.items():
                if key in ("text", "thinking"):
                    block[key] += value
                elif key == "partial_json":
                    block["json"] += value
        elif event["type"] == "content_block_stop":
            del open_blocks[event["index"]]
        elif event["type"] == "message_delta":
            reason, usage = event["delta"]["stop_reason"], event["usage"]
    return blocks, open_blocks, reason, usage


class ToolsTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pieces, models = {}, []
        for name, (chat_template, spelled) in SPELLINGS.items():
            answers = {last: [t for t in (TEXTS[last], *(spelled(calls) if calls else ())) if t] for last, calls in CALLS.items()}
            if name == "documented":
                answers[">"] = [AFTER_RESULTS]
            folder, cls.pieces[name] = forced_models.write(cls.folder / name, chat_template, answers)
            models.append(folder)
        folder, cls.pieces["thinking"] = forced_models.write(cls.folder / "thinking", THINKING, THOUGHTS)
        models.append(folder)
        call = json.dumps({"name": "weather", "arguments": {"city": "Oslo", "days": 3}})
        arguments = json.dumps({"city": "Oslo", "days": 3})
        for name, chat_template, answers, special in (
                ("special", THINKING, {"1": ["<think>", "\nhm\n", "</think>", "\n\nSo.\n", "<tool_call>", f"\n{call}\n", "</tool_call>"]}, SPECIAL),
                ("channels", CHANNELS + LAST, {"1": ["<|channel|>analysis<|message|>A river.<|end|><|start|>assistant<|channel|>final<|message|>", "The Nile."],
                                               "2": ["<|channel|>analysis<|message|>Ask.<|end|><|start|>assistant to=functions.weather<|channel|>commentary json<|message|>", arguments]}, []),
                ("bare", BARE + LAST, {"1": ["It is cold."], "2": [json.dumps({"name": "weather", "parameters": {"city": "Oslo", "days": 3}})],
                                       "3": ['{"name": "weather"', ', "temp": 5}'], "4": ['{"a"', ': 1}']}, [])):
            folder, cls.pieces[name] = forced_models.write(cls.folder / name, chat_template, answers, special)
            models.append(folder)
        cls.server = Server(*models, "--port", 0)

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        super().tearDownClass()
        assert code == 0, code

    def ask(self, path, **body):
        answer, json_or_text = self.server.ask("POST", path, {"temperature": 0, **body})
        self.assertEqual(answer.status, 200, json_or_text)
        return [json.loads(e) for e in re.findall("^data: (.*)$", json_or_text, re.MULTILINE) if e != "[DONE]"] if body.get("stream") else json_or_text

    def chat(self, model, text="? 2", **body):
        return self.ask("/v1/chat/completions", **{"model": model, "messages": [{"role": "user", "content": text}], "tools": CHAT_TOOLS, **body})

    def calls_of(self, message):
        return [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message.get("tool_calls", ())]

    def test_whole_answers(self):
        for name in SPELLINGS:
            for last, calls in CALLS.items():
                with self.subTest(name=name, last=last):
                    choice = self.chat(name, f"? {last}")["choices"][0]
                    message = choice["message"]
                    self.assertEqual(self.calls_of(message), calls)
                    self.assertEqual(message["content"], TEXTS[last] or None)
                    self.assertEqual(choice["finish_reason"], "tool_calls" if calls else "stop")
                    self.assertEqual(len({c["id"] for c in message.get("tool_calls", ())}), len(calls))

    def test_choices_of_tools(self):
        for name in SPELLINGS:
            with self.subTest(name=name):
                for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
                    got = self.chat(name, "? 3", tool_choice=choice)["choices"][0]
                    wanted = CALLS["3"] if choice == "required" else CALLS["3"][:1]
                    self.assertEqual((self.calls_of(got["message"]), got["message"]["content"], got["finish_reason"]), (wanted, None, "tool_calls"))
                one = self.chat(name, "? 3", parallel_tool_calls=False)["choices"][0]
                self.assertEqual((self.calls_of(one["message"]), one["finish_reason"]), (CALLS["3"][:1], "tool_calls"))
                none = self.chat(name, "? 4", tool_choice="none")["choices"][0]
                self.assertEqual((none["message"]["content"], none["finish_reason"]), ("".join(self.pieces[name]["4"]), "stop"))
                self.assertNotIn("tool_calls", none["message"])

    def test_streams_and_messages_cut_at_every_token(self):
        for name in SPELLINGS:
            for last in CALLS:
                for most in range(1, len(self.pieces[name][last]) + 1):
                    with self.subTest(name=name, last=last, most=most):
                        self.compare(name, [{"role": "user", "content": f"? {last}"}], most, most == len(self.pieces[name][last]))

    def compare(self, name, messages, most, ends):
        """The same answer four times: whole and in pieces, by chat and by Messages."""
        whole = self.chat(name, messages=messages, max_tokens=most)
        chunks = self.chat(name, messages=messages, max_tokens=most, stream=True, stream_options={"include_usage": True})
        message, reason = joined_chat(chunks)
        choice = whole["choices"][0]
        own = choice["message"]
        self.assertEqual((message["content"], reason), (own["content"] or "", choice["finish_reason"]))
        self.assertEqual(chunks[-1]["usage"]["completion_tokens"], whole["usage"]["completion_tokens"])
        calls = self.calls_of(own)
        begun = message["tool_calls"]
        self.assertEqual([(c["name"], json.loads(c["arguments"])) for c in begun[:len(calls)]], calls)
        self.assertLessEqual(len(begun) - len(calls), 0 if choice["finish_reason"] != "length" else 1)
        if not ends:
            self.assertEqual(choice["finish_reason"], "length")
        asked = {"model": name, "messages": messages, "max_tokens": most, "tools": MESSAGE_TOOLS, "thinking": {"type": "enabled", "budget_tokens": 1024}}
        answer = self.ask("/v1/messages", **asked)
        self.assertEqual("".join(b["text"] for b in answer["content"] if b["type"] == "text"), own["content"] or "")
        self.assertEqual("".join(b["thinking"] for b in answer["content"] if b["type"] == "thinking"), own.get("reasoning_content", ""))
        self.assertEqual([(b["name"], b["input"]) for b in answer["content"] if b["type"] == "tool_use"], calls)
        self.assertEqual(answer["stop_reason"], {"tool_calls": "tool_use", "length": "max_tokens", "stop": "end_turn"}[choice["finish_reason"]])
        usage = answer["usage"]
        self.assertEqual(usage["input_tokens"] + usage["cache_read_input_tokens"], whole["usage"]["prompt_tokens"])
        self.assertEqual(usage["output_tokens"], whole["usage"]["completion_tokens"])
        blocks, unended, reason, usage = joined_message(self.ask("/v1/messages", **asked, stream=True))
        ended = [b for b in blocks if b not in unended.values()]
        self.assertEqual([b["type"] for b in ended], [b["type"] for b in answer["content"]])
        self.assertEqual([b.get("text") or b.get("thinking") or json.loads(b["json"] or "{}") for b in ended], [b.get("text") or b.get("thinking") or b["input"] for b in answer["content"]])
        self.assertEqual((reason, usage["output_tokens"]), (answer["stop_reason"], answer["usage"]["output_tokens"]))

    def test_marks_that_are_special_tokens_channels_and_calls_without_marks(self):
        calls = CALLS["2"]
        for name, last, reasoning, content, wanted in (("special", "1", "hm", "So.", calls), ("channels", "1", "A river.", "The Nile.", []), ("channels", "2", "Ask.", None, calls),
                                                       ("bare", "1", None, "It is cold.", []), ("bare", "2", None, None, calls)):
            with self.subTest(name=name, last=last):
                choice = self.chat(name, f"? {last}")["choices"][0]
                message = choice["message"]
                self.assertEqual((message.get("reasoning_content"), message["content"], self.calls_of(message), choice["finish_reason"]), (reasoning, content, wanted, "tool_calls" if wanted else "stop"))
            for most in range(1, len(self.pieces[name][last]) + 1):
                with self.subTest(name=name, last=last, most=most):
                    self.compare(name, [{"role": "user", "content": f"? {last}"}], most, most == len(self.pieces[name][last]))
        for name in ("channels", "bare"):
            self.assertEqual(self.calls_of(self.chat(name, "? 2", tool_choice="required")["choices"][0]["message"]), calls)

    # -- what ends an answer

    def ends(self, model, last, **body):
        """The answer whole and in pieces, which say the same."""
        choice = self.chat(model, f"? {last}", **body)["choices"][0]
        message, reason = joined_chat(self.chat(model, f"? {last}", stream=True, **body))
        own = choice["message"]
        self.assertEqual((message["content"], message["reasoning_content"], reason), (own["content"] or "", own.get("reasoning_content", ""), choice["finish_reason"]))
        calls = self.calls_of(own)
        self.assertEqual([(c["name"], json.loads(c["arguments"])) for c in message["tool_calls"][:len(calls)]], calls)
        return own["content"], calls, reason

    def test_a_stop_string_inside_a_call_cuts_it(self):
        for name in ("hermes", "coder"):
            for stop, calls in (("Oslo", []), ("weather", []), ("Rome", CALLS["2"])):
                with self.subTest(name=name, stop=stop):
                    self.assertEqual(self.ends(name, "3", stop=[stop]), (None, calls, "length"))
                    answer = self.ask("/v1/messages", model=name, max_tokens=500, messages=[{"role": "user", "content": "? 3"}], tools=MESSAGE_TOOLS, stop_sequences=[stop])
                    self.assertEqual([(b["name"], b["input"]) for b in answer["content"]], calls)
            self.assertEqual(self.ends(name, "2", stop=["look"]), ("Let me ", [], "stop"))

    def test_a_stop_string_that_is_a_mark_of_the_model(self):
        for stop, expected in (("</tool_call>", ("So.", CALLS["2"], "tool_calls")), ("<tool_call>", ("So.\n", [], "stop")), ("</think>", (None, [], "stop"))):
            with self.subTest(stop=stop):
                self.assertEqual(self.ends("special", "1", stop=[stop]), expected)
                ids = self.server.ask("POST", "/tokenize", {"model": "special", "content": stop})[1]["tokens"]
                self.assertEqual(self.ends("special", "1", stop_token_ids=ids), expected)

    def test_json_where_calls_have_no_mark(self):
        schema = {"type": "object", "properties": {"name": {"type": "string"}, "temp": {"type": "integer"}}, "required": ["name"], "additionalProperties": False}
        of_schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        for more in ({"response_format": of_schema}, {"response_format": {"type": "json_object"}}):
            self.assertEqual(self.ends("bare", "3", **more), ('{"name": "weather", "temp": 5}', [], "stop"))
        self.assertEqual(self.ends("bare", "2", response_format=of_schema), (None, CALLS["2"], "tool_calls"))
        self.assertEqual(self.ends("bare", "4"), ('{"a": 1}', [], "stop"))

    def test_deep_arguments_of_a_history(self):
        deep = '{"a":' + "[" * 70000 + "]" * 70000 + "}"
        call = {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "now", "arguments": deep}}]}
        for path in ("/v1/chat/completions", "/apply-template"):
            answer, got = self.server.ask("POST", path, {"model": "hermes", "max_tokens": 1, "messages": [{"role": "user", "content": "a"}, call]})
            self.assertEqual((answer.status, "nested 70001 deep" in got["error"]["message"]), (400, True), got)

    def test_a_last_message_with_a_call_has_no_more(self):
        turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "So", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "now", "arguments": "{}"}}]}]
        answer, got = self.server.ask("POST", "/v1/chat/completions", {"model": "hermes", "messages": turns, "continue_final_message": True})
        self.assertEqual(answer.status, 400, got)
        blocks = [turns[0], {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "now", "input": {}}]}]
        answer, got = self.server.ask("POST", "/v1/messages", {"model": "hermes", "max_tokens": 5, "messages": blocks})
        self.assertEqual((answer.status, got["error"]["type"]), (400, "invalid_request_error"), got)

    def test_an_answer_with_several_calls_is_a_history(self):
        """Also where the template takes one call of an answer."""
        made = [{"id": f"call_{i}", "type": "function", "function": {"name": n, "arguments": json.dumps(a)}} for i, (n, a) in enumerate(CALLS["3"])]
        turns = [{"role": "user", "content": "Both?"}, {"role": "assistant", "content": None, "tool_calls": made}, *({"role": "tool", "tool_call_id": c["id"], "content": "It is 4"} for c in made), {"role": "user", "content": "? 1"}]
        text = self.prompt("bare", turns, tools=CHAT_TOOLS)
        self.assertEqual([text.count(part) for part in ("Oslo", "Rome", "It is 4")], [1, 1, 2], text)

    def test_a_batch(self):
        asked = {"messages": [{"role": "user", "content": "? 3"}], "tools": CHAT_TOOLS, "temperature": 0}
        source, out = self.folder / "in.jsonl", self.folder / "out.jsonl"
        lines = [{**asked, "tool_choice": choice} for choice in ("auto", "required")]
        source.write_text("".join(json.dumps({"custom_id": f"{i}", "method": "POST", "url": "/v1/chat/completions", "body": body}) + "\n" for i, body in enumerate(lines)))
        run = Run("batch", self.folder / "hermes", source, "-o", out, "--threads", 1)
        self.assertEqual((run.code, run.out), (0, ""), run)
        answers = {o["custom_id"]: o["response"]["body"]["choices"][0] for o in map(json.loads, out.read_text().splitlines())}
        self.assertEqual(len(answers), len(lines))
        for choice in answers.values():
            self.assertEqual((self.calls_of(choice["message"]), choice["finish_reason"]), (CALLS["3"], "tool_calls"))

    def test_log_probabilities(self):
        """Of all tokens, also those of marks and arguments, in pieces as whole."""
        whole = self.chat("hermes", "? 2", logprobs=True, top_logprobs=1)["choices"][0]["logprobs"]["content"]
        chunks = self.chat("hermes", "? 2", logprobs=True, top_logprobs=1, stream=True)
        joined = [one for chunk in chunks for choice in chunk["choices"] for one in (choice["logprobs"] or {}).get("content", ())]
        self.assertEqual([one["token"] for one in joined], self.pieces["hermes"]["2"])
        self.assertEqual(joined, whole)

    def test_several_answers(self):
        got = self.chat("hermes", "? 2", n=2, seed=1)["choices"]
        self.assertEqual([self.calls_of(c["message"]) for c in got], [CALLS["2"]] * 2)

    # -- histories

    def prompt(self, model, messages, **body):
        answer, got = self.server.ask("POST", "/apply-template", {"model": model, "messages": messages, **body})
        self.assertEqual(answer.status, 200, got)
        return got["prompt"]

    def test_histories(self):
        chat = [{"role": "user", "content": "Oslo and Rome?"},
                {"role": "assistant", "content": None, "tool_calls": [{"id": f"call_{i}", "type": "function", "function": {"name": n, "arguments": json.dumps(a)}} for i, (n, a) in enumerate(CALLS["3"])]},
                {"role": "tool", "tool_call_id": "call_0", "content": "4 degrees"}, {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "20 1"}]}]
        blocks = [{"role": "user", "content": "Oslo and Rome?"},
                  {"role": "assistant", "content": [{"type": "tool_use", "id": f"call_{i}", "name": n, "input": a} for i, (n, a) in enumerate(CALLS["3"])]},
                  {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_0", "content": "4 degrees"}, {"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "20 1"}]}]}]
        for name, (_, spelled) in SPELLINGS.items():
            with self.subTest(name=name):
                text = self.prompt(name, chat, tools=CHAT_TOOLS)
                for part in spelled(CALLS["3"]) if name not in ("documented", "mistral") else ("Rome \u6c34",):
                    self.assertEqual(text.count(part.strip()), 1, (part, text))
                for word in ("4 degrees", "20 1", *(t["description"] for t in TOOLS)):
                    self.assertEqual(text.count(word), 1, (word, text))
                self.assertNotIn(TOOLS[0]["description"], self.prompt(name, chat))
                whole = self.chat(name, messages=chat)
                expected = AFTER_RESULTS if name == "documented" else TEXTS["1"]
                self.assertEqual(whole["choices"][0]["message"]["content"], expected)
                asked = self.ask("/v1/messages", model=name, messages=blocks, max_tokens=50, tools=MESSAGE_TOOLS)
                self.assertEqual(asked["content"], [{"type": "text", "text": expected}])
                counted = self.ask("/v1/messages/count_tokens", model=name, messages=blocks, tools=MESSAGE_TOOLS)
                self.assertEqual({counted["input_tokens"], asked["usage"]["input_tokens"] + asked["usage"]["cache_read_input_tokens"]}, {whole["usage"]["prompt_tokens"]})

    # -- kept prefixes

    def test_what_agents_do_to_a_prompt_keeps_its_beginning(self):
        """An edited last turn, a result behind a call, another conversation between them, a system prompt that is the same: what two
        prompts begin with alike is computed once, to the token. (Prompts are read character by character.)"""
        call = {"role": "assistant", "content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": json.dumps({"city": "Oslo", "days": 3})}}]}
        for name in SPELLINGS:
            system = {"role": "system", "content": f"You are an agent, {name}. " + "Ask before you write. " * 4}
            first = [system, {"role": "user", "content": "Oslo? 2"}]
            result = [*first, call, {"role": "tool", "tool_call_id": "call_1", "content": "4 degrees 1"}]
            edited = [*result[:-1], {"role": "tool", "tool_call_id": "call_1", "content": "5 degrees 1"}]
            later = [*edited, {"role": "assistant", "content": "So."}, {"role": "user", "content": "And Rome? 1"}]
            other = [system, {"role": "user", "content": "Who wrote Hamlet? 1"}]
            corrected = [*later[:-1], {"role": "user", "content": "And Bergen? 1"}]
            asked = []
            for label, messages in (("first", first), ("other", other), ("result", result), ("edited", edited), ("later", later), ("corrected", corrected), ("the same", corrected)):
                with self.subTest(name=name, label=label):
                    text = self.prompt(name, messages, tools=CHAT_TOOLS)
                    usage = self.chat(name, messages=messages)["usage"]
                    self.assertEqual(usage["prompt_tokens"], len(text))
                    alike = max((len(os.path.commonprefix([text, before])) for before in asked), default=0)
                    if asked:  # the last token of a prompt is computed in any case
                        self.assertEqual(usage["prompt_tokens_details"]["cached_tokens"], min(alike, len(text) - 1))
                        self.assertGreater(alike, text.index(system["content"]) + len(system["content"]))
                    asked.append(text)

    # -- reasoning

    def test_reasoning(self):
        pieces = self.pieces["thinking"]["1"]
        whole = self.chat("thinking", "? 1")
        message, usage = whole["choices"][0]["message"], whole["usage"]
        self.assertEqual((message["content"], message["reasoning_content"]), (THOUGHTS["1"][1], THOUGHT))
        thought, length = usage["completion_tokens_details"]["reasoning_tokens"], 0
        while len("".join(pieces[:length])) < len(THOUGHTS["1"][0].rstrip()):
            length += 1
        self.assertEqual((usage["completion_tokens"], thought), (len(pieces), length))
        for most in range(1, len(pieces) + 1):
            with self.subTest(most=most):
                whole = self.chat("thinking", "? 1", max_tokens=most, tools=[])
                chunks = self.chat("thinking", "? 1", max_tokens=most, tools=[], stream=True, stream_options={"include_usage": True})
                joined, reason = joined_chat(chunks)
                choice = whole["choices"][0]
                own = choice["message"]
                self.assertEqual((joined["content"], joined["reasoning_content"], reason), (own["content"] or "", own.get("reasoning_content", ""), choice["finish_reason"]))
                self.assertTrue(THOUGHT.startswith(joined["reasoning_content"]))
                for key in ("completion_tokens", "completion_tokens_details"):
                    self.assertEqual(chunks[-1]["usage"].get(key), whole["usage"].get(key))
                if length > most > 3:
                    self.assertEqual((own["content"], reason, whole["usage"]["completion_tokens_details"]), (None, "length", {"reasoning_tokens": most}))
        asked = {"model": "thinking", "messages": [{"role": "user", "content": "? 1"}], "max_tokens": 50}
        self.assertEqual([b["type"] for b in self.ask("/v1/messages", **asked)["content"]], ["text"])

    def test_a_call_behind_reasoning(self):
        for choice in ("auto", "required"):
            got = self.chat("thinking", "? 3", tool_choice=choice)["choices"][0]
            message = got["message"]
            self.assertEqual((message["reasoning_content"], message["content"], self.calls_of(message), got["finish_reason"]), ("Let me ask.", None, [("now", {})], "tool_calls"))

    def test_structured_output_behind_reasoning(self):
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"], "additionalProperties": False}
        for constraint in ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}, {"regex": r'\{"yes": (true|a/b)\}'}):
            message = self.chat("thinking", "? 2", tools=[], **constraint)["choices"][0]["message"]
            self.assertEqual((message["reasoning_content"], message["content"]), ("JSON?", '{"yes": true}'))

    def test_reasoning_is_turned_off_and_handed_over(self):
        turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "reasoning": "zq thought"}, {"role": "user", "content": "c"}]
        self.assertIn("<think>\nzq thought\n</think>", self.prompt("thinking", turns))
        long = self.chat("thinking", "? 1", tools=[])["usage"]["prompt_tokens"]
        for effort, more in (("none", len("<think>\n\n</think>\n\n")), ("minimal", len("<think>\n\n</think>\n\n")), ("high", 0)):
            got = self.chat("thinking", "? 1", tools=[], reasoning_effort=effort)
            self.assertEqual(got["usage"]["prompt_tokens"] - long, more, effort)
            self.assertEqual(got["situ"].get("ignored"), None if more else ["reasoning_effort"])

    # -- what is refused

    def test_refusals(self):
        def tools(schema):
            return [CHAT_TOOLS[0], {"type": "function", "function": {"name": "odd", "parameters": schema}}]
        turn = [{"role": "user", "content": "? 1"}]
        cases = [
            ({"messages": turn, "tools": tools({"type": "object", "properties": {"a": {"type": "integer", "minimum": 3, "maximum": 2}}, "required": ["a"]})}, "tools[1].function.parameters"),
            ({"messages": turn, "tools": tools({"type": "object", "properties": {"a": {"not": {"type": "string"}}}})}, "tools[1].function.parameters"),
            ({"messages": turn, "tools": tools({"type": "string"})}, "tools[1].function.parameters"),
            ({"messages": turn, "reasoning_effort": 5}, "reasoning_effort"),
            ({"messages": turn, "tools": CHAT_TOOLS, "tool_choice": {"type": "function", "function": {"name": "none"}}}, "tool_choice"),
            ({"messages": turn, "tool_choice": "required"}, "tool_choice"),
            ({"prompt_token_ids": [1, 2], "tools": CHAT_TOOLS}, "tools"),
        ]
        for body, field in cases:
            answer, got = self.server.ask("POST", "/v1/chat/completions", {"model": "hermes", **body})
            self.assertEqual((answer.status, got["error"]["param"]), (400, field), got)

    def test_capabilities(self):
        models = {m["id"]: m["capabilities"] for m in self.server.ask("GET", "/v1/models")[1]["data"]}
        self.assertEqual(models["documented"], ["tools", "structured_output"])
        self.assertEqual(models["thinking"], ["tools", "reasoning", "structured_output"])

    def test_clients(self):
        clients = installed("requirements.txt", "node")
        url = f"http://127.0.0.1:{self.server.port}"
        run(clients / "bin" / "python", CLIENTS / "tools.py", url)
        self.assertIn("ok", run_node(clients, "node/tools.mjs", url))


if __name__ == "__main__":
    main()
