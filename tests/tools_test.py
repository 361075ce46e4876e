"""`situ run --tools`, and `situ serve` where an answer has a response format beside tools; what the log says of a template.

    python tests/tools_test.py --situ build/situ [unittest options]

Needs numpy and onnx (`make python`).
"""
import json

import forced_models
from cli_case import CliTest, Run, main
from serve_test import Server
from serve_tools_test import BARE, CHAT_TOOLS, LAST, MESSAGE_TOOLS, PLAIN, THINKING, THOUGHT, hermes

WEATHER = {"city": "Oslo", "days": 3}
ANSWERS = {
    "1": [f"<think>\n{THOUGHT}\n</think>\n\n", "The Nile it is."],
    "2": ["<think>\nJSON?\n</think>\n\n", '{"yes": true}'],
    "3": ["<think>\nLet me ask.\n</think>\n\n", "Wait.", hermes("weather", **WEATHER)],
    "4": ["<think>\nAt once.\n</think>\n\n", hermes("now").strip()],
}
SCHEMA = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"], "additionalProperties": False}
FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}


class RunTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.thinking, cls.pieces = forced_models.write(cls.folder / "thinking", THINKING, ANSWERS)
        cls.plain, _ = forced_models.write(cls.folder / "plain", PLAIN, {"1": [hermes("now").strip()]})
        cls.tools = cls.folder / "tools.json"
        cls.tools.write_text(json.dumps(CHAT_TOOLS))

    def run_json(self, *arguments):
        run = Run("run", *arguments, "--greedy", "--json")
        self.assertEqual(run.code, 0, run)
        return json.loads(run.out)

    def test_text_reasoning_and_calls(self):
        got = self.run_json(self.thinking, "? 3", "--tools", self.tools)
        self.assertEqual((got["text"], got["reasoning"], got["finish_reason"]), ("Wait.", "Let me ask.", "stop"))
        call, = got["tool_calls"]
        self.assertEqual((call["type"], call["function"]["name"], json.loads(call["function"]["arguments"])), ("function", "weather", WEATHER))
        self.assertTrue(call["id"].startswith("call_"), call)
        got = self.run_json(self.thinking, "? 1", "--tools", self.tools)
        self.assertEqual((got["text"], got["reasoning"], got["tool_calls"]), ("The Nile it is.", THOUGHT, []))
        got = self.run_json(self.thinking, "? 1")
        self.assertEqual((got["text"], got["reasoning"], "tool_calls" in got), ("The Nile it is.", THOUGHT, False))
        cut = self.run_json(self.thinking, "? 3", "--tools", self.tools, "-n", len(self.pieces["3"]) - 8)
        self.assertEqual((cut["text"], cut["tool_calls"], cut["finish_reason"]), ("Wait.", [], "length"))
        run = Run("run", self.thinking, "? 3", "--tools", self.tools, "--greedy")
        self.assertEqual((run.code, run.out), (0, 'Wait.\nweather({"city":"Oslo","days":3})\n'), run)
        self.assertTrue(run.err.startswith("Let me ask.\n\n"), run)
        run = Run("run", self.thinking, "? 4", "--tools", self.tools, "--greedy")
        self.assertEqual((run.code, run.out), (0, "now({})\n"), run)
        run = Run("run", self.thinking, "? 1", "--greedy")
        self.assertEqual((run.code, run.out), (0, "The Nile it is.\n"), run)

    def test_the_documented_form(self):
        run = Run("run", self.plain, "? 1", "--tools", self.tools, "--greedy")
        self.assertEqual((run.code, run.out), (0, "now({})\n"), run)
        self.assertIn("situ: note: the chat template shows no tools", run.err)

    def test_refused(self):
        bad = self.folder / "bad.json"
        for text, words in (("", "should be a JSON list of tools"), ("{", "bad.json: "), ("{}", "bad.json: should be a JSON list of tools"), ("[1]", "bad.json: [0] should be an object"),
                            ('[{"type": "function", "function": {"name": 1}}]', "bad.json: [0].function.name should be a string"),
                            ('[{"name": "f"}, {"name": "g", "parameters": 1}]', "bad.json: [1].parameters should be a JSON schema of an object"),
                            ('[{"type": "web_search", "name": "f"}]', "bad.json: [0].type should be function")):
            bad.write_text(text)
            self.refuse(Run("run", self.thinking, "? 1", "--tools", bad), words)
        self.refuse(Run("run", self.thinking, "? 1", "--tools", self.folder / "none.json"), "none.json")
        for arguments in (("--prompt", "? 1"), ("--prompt-ids", "1,2"), ("--raw", "? 1")):
            self.refuse(Run("run", self.thinking, *arguments, "--tools", self.tools), "--tools are those of a conversation")

    def refuse(self, run, words):
        self.assertEqual((run.code, run.out, run.err.count("\n")), (2, "", 1), run)
        self.assertIn(words, run.err)


class ServeTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folders = [forced_models.write(cls.folder / "thinking", THINKING, ANSWERS)[0],
                   forced_models.write(cls.folder / "bare", BARE + LAST, {"1": ['{"yes": true}'], "2": [json.dumps({"name": "weather", "parameters": WEATHER})]})[0]]
        cls.server = Server(*folders, "--port", 0)

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        super().tearDownClass()
        assert code == 0, code

    def ask(self, model, last, **body):
        answer, got = self.server.ask("POST", "/v1/chat/completions", {"model": model, "messages": [{"role": "user", "content": f"? {last}"}], "temperature": 0, **body})
        self.assertEqual(answer.status, 200, got)
        choice = got["choices"][0]
        calls = [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in choice["message"].get("tool_calls", ())]
        return choice["message"]["content"], choice["message"].get("reasoning_content"), calls, choice["finish_reason"]

    def test_a_response_format_beside_tools(self):
        grammar = 'start: "{" TEXT "}"\nTEXT: /[^}]+/'
        for constraint in ({"response_format": FORMAT}, {"response_format": {"type": "json_object"}}, {"regex": r"\{[^}]*\}"}, {"grammar": grammar}):
            for tools in ({}, {"tools": CHAT_TOOLS}, {"tools": CHAT_TOOLS, "parallel_tool_calls": False}):
                with self.subTest(constraint=constraint, tools=bool(tools)):
                    self.assertEqual(self.ask("thinking", 2, **constraint, **tools), ('{"yes": true}', "JSON?", [], "stop"))
                    if tools:
                        self.assertEqual(self.ask("thinking", 4, **constraint, **tools), (None, "At once.", [("now", {})], "tool_calls"))
        # Calls without marks.
        self.assertEqual(self.ask("bare", 1, response_format=FORMAT, tools=CHAT_TOOLS), ('{"yes": true}', None, [], "stop"))
        self.assertEqual(self.ask("bare", 2, response_format=FORMAT, tools=CHAT_TOOLS), (None, None, [("weather", WEATHER)], "tool_calls"))

    def test_messages(self):
        asked = {"model": "thinking", "max_tokens": 100, "tools": MESSAGE_TOOLS, "temperature": 0, "thinking": {"type": "enabled", "budget_tokens": 1024}, "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}
        for last, kind in ((2, "text"), (4, "tool_use")):
            answer, got = self.server.ask("POST", "/v1/messages", {**asked, "messages": [{"role": "user", "content": f"? {last}"}]})
            self.assertEqual(answer.status, 200, got)
            self.assertEqual([b["type"] for b in got["content"]], ["thinking", kind])
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
        turns = [{"role": "user", "content": "? 1"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "now", "input": {}}]},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [image]}]}]
        answer, got = self.server.ask("POST", "/v1/messages", {**asked, "messages": turns})
        self.assertEqual((answer.status, got["error"]["message"]), (400, "the model takes neither images nor sounds"))

    def test_refused(self):
        for body, field in (({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "nothing"}}}}, "response_format"), ({"grammar": "start: none"}, "grammar"),
                            ({"grammar": "start: <[1]>"}, "grammar"), ({"response_format": FORMAT, "num_beams": 2}, "response_format")):
            with self.subTest(body=body):
                answer, got = self.server.ask("POST", "/v1/chat/completions", {"model": "thinking", "messages": [{"role": "user", "content": "? 2"}], "tools": CHAT_TOOLS, **body})
                self.assertEqual((answer.status, got["error"]["param"]), (400, field), got)

    def test_what_a_template_leaves_out_of_a_history(self):
        said = self.server.said()
        self.assertEqual(said.count("model=bare note: of an answer in a conversation the chat template leaves out the text beside a call\n"), 1, said)
        self.assertEqual(said.count("model=bare note"), 1, said)  # it shows one call an answer: several become several answers
        self.assertNotIn("model=thinking note", said)


if __name__ == "__main__":
    main()
