"""Calls of tools and reasoning, from `situ serve` on tiny models whose answers are forced by their weights, one for each way of writing them.

    python tests/serve_tools_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`).
"""
import json
import unittest

import forced_models
from cli_case import CliTest, main
from serve_test import Server, events

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
    return "\n<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"


def coder(name, **arguments):
    values = {k: v if isinstance(v, str) else json.dumps(v) for k, v in arguments.items()}
    return f"\n<tool_call>\n<function={name}>\n" + "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in values.items()) + "</function>\n</tool_call>"


def devstral(name, **arguments):
    return f"[TOOL_CALLS]{name}[ARGS]" + json.dumps(arguments)


def literal(value):
    if isinstance(value, str):
        return f"<escape>{value}<escape>"
    if isinstance(value, dict):
        return "{" + ",".join(f"{k}:{literal(v)}" for k, v in value.items()) + "}"
    return "[" + ",".join(map(literal, value)) + "]" if isinstance(value, list) else json.dumps(value)


def literals(name, **arguments):
    return f"<start_function_call>call:{name}{literal(arguments)}<end_function_call>"


def python_call(name, **arguments):
    return f"{name}(" + ", ".join(f"{k}={str(v) if isinstance(v, bool) else json.dumps(v)}" for k, v in arguments.items()) + ")"


def mistral_call(name, **arguments):
    return json.dumps({"name": name, "arguments": arguments, "id": "abcdef123"})


# How an answer with these calls is written.
SPELLINGS = {
    "documented": (PLAIN, lambda calls: "\n".join(hermes(n, **a).strip() for n, a in calls)),
    "hermes": (template(HERMES), lambda calls: "".join(hermes(n, **a) for n, a in calls)),
    "mistral": (template(MISTRAL), lambda calls: "[TOOL_CALLS] [" + ", ".join(mistral_call(n, **a) for n, a in calls) + "]"),
    "devstral": (template(DEVSTRAL), lambda calls: "".join(devstral(n, **a) for n, a in calls)),
    "coder": (template(CODER), lambda calls: "".join(coder(n, **a) for n, a in calls)),
    "python": (template(PYTHON), lambda calls: "<|calls|>[" + ", ".join(python_call(n, **a) for n, a in calls) + "]<|/calls|>"),
    "literals": (template(LITERALS), lambda calls: "".join(literals(n, **a) for n, a in calls)),
}
CALLS = {
    "1": [],
    "2": [("weather", {"city": "Oslo", "days": 3})],
    "3": [("weather", {"city": "Oslo", "days": 3}), ("weather", {"city": "Rome \u6c34", "days": 12})],
    "4": [("now", {})],
    "5": [("note", {"title": "say hi", "body": "a, b", "done": True})],
}
TEXTS = {"1": "It is cold there today.", "2": "Let me look.", "3": "", "4": "", "5": "So be it."}
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
            answers = {last: TEXTS[last] + spelled(calls) if calls else TEXTS[last] for last, calls in CALLS.items()}
            folder, cls.pieces[name] = forced_models.write(cls.folder / name, chat_template, answers)
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
        return [json.loads(e) for e in events(json_or_text.replace("\nevent:", "\n\nevent:")) if e != "[DONE]"] if body.get("stream") else json_or_text

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
        asked = {"model": name, "messages": messages, "max_tokens": most, "tools": MESSAGE_TOOLS}
        answer = self.ask("/v1/messages", **asked)
        self.assertEqual("".join(b["text"] for b in answer["content"] if b["type"] == "text"), own["content"] or "")
        self.assertEqual([(b["name"], b["input"]) for b in answer["content"] if b["type"] == "tool_use"], calls)
        self.assertEqual(answer["stop_reason"], {"tool_calls": "tool_use", "length": "max_tokens", "stop": "end_turn"}[choice["finish_reason"]])
        usage = answer["usage"]
        self.assertEqual(usage["input_tokens"] + usage["cache_read_input_tokens"], whole["usage"]["prompt_tokens"])
        self.assertEqual(usage["output_tokens"], whole["usage"]["completion_tokens"])
        blocks, unended, reason, usage = joined_message(self.ask("/v1/messages", **asked, stream=True))
        ended = [b for b in blocks if b not in unended.values()]
        self.assertEqual([b["type"] for b in ended], [b["type"] for b in answer["content"]])
        self.assertEqual([b.get("text") or json.loads(b["json"] or "{}") for b in ended], [b.get("text") or b["input"] for b in answer["content"]])
        self.assertEqual((reason, usage["output_tokens"]), (answer["stop_reason"], answer["usage"]["output_tokens"]))


if __name__ == "__main__":
    main()
