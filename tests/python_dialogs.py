"""Calls of tools and reasoning from Python: results, streams, messages of a history. tests/python_test.py runs them."""
import json

import situ

import forced_models
from python_case import PythonTest
from serve_tools_test import CHAT_TOOLS, PLAIN, THINKING, THOUGHT, hermes

SCHEMA = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"], "additionalProperties": False}
WEATHER = {"city": "Oslo", "days": 3}
ANSWERS = {
    "1": [f"<think>\n{THOUGHT}\n</think>\n\n", "The Nile it is."],
    "2": ["<think>\nJSON?\n</think>\n\n", '{"yes": true}'],
    "3": ["<think>\nLet me ask.\n</think>\n\n", "Wait.", hermes("weather", **WEATHER)],
    "4": ["<think>\nAt once.\n</think>\n\n", hermes("now").strip()],
}


def asked(last):
    return [{"role": "user", "content": f"question {last}"}]


class DialogsTest(PythonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder, _ = forced_models.write(cls.folder / "thinking", THINKING, ANSWERS)
        cls.thinking = situ.load(folder)
        folder, _ = forced_models.write(cls.folder / "plain", PLAIN, {"1": [hermes("now").strip()]})
        cls.plain = situ.load(folder)

    def both(self, model, prompt, **options):
        """The answer, which is what its stream says."""
        answer = model.generate(prompt, **options)
        stream = model.stream(prompt, **options)
        text, reasoning, calls = "", "", []
        for token in stream:
            text, reasoning = text + token.text, reasoning + token.reasoning
            for piece in token.calls:
                if piece.name:
                    self.assertEqual(piece.call, len(calls))
                    self.assertTrue(piece.id.startswith("call_"), piece.id)
                    calls.append([piece.name, "", False])
                calls[piece.call][1] += piece.arguments
                calls[piece.call][2] = piece.ended
        self.assertEqual((text, reasoning), (answer.text, answer.reasoning))
        self.assertEqual([(name, arguments) for name, arguments, ended in calls if ended], [c[1:] for c in answer.tool_calls])
        self.assertEqual([c.name for c in stream.generation.tool_calls], [c.name for c in answer.tool_calls])
        return answer

    def test_reasoning(self):
        answer = self.both(self.thinking, asked(1))
        self.assertEqual((answer.reasoning, answer.text, answer.tool_calls), (THOUGHT, "The Nile it is.", ()))
        self.assertEqual(answer.message, {"role": "assistant", "content": "The Nile it is.", "reasoning_content": THOUGHT})
        for most in range(1, len(answer.output_ids)):
            cut = self.both(self.thinking, asked(1), max_new_tokens=most)
            self.assertTrue(THOUGHT.startswith(cut.reasoning) and answer.text.startswith(cut.text), cut)
        history = [*asked(1), answer.message, *asked(2)]
        self.assertIn(f"<think>\n{THOUGHT}\n</think>\n\nThe Nile it is.", self.thinking.render(history))
        other = {"role": "assistant", "content": "The Nile it is.", "reasoning": THOUGHT}
        self.assertEqual(self.thinking.render([*asked(1), other, *asked(2)]), self.thinking.render(history))
        several = self.thinking.generate(asked(1), choices=2, sample=True, top_k=1)
        self.assertEqual([(a.text, a.reasoning) for a in several.answers], [(answer.text, THOUGHT)] * 2)

    def test_calls(self):
        answer = self.both(self.thinking, asked(3), tools=CHAT_TOOLS)
        self.assertEqual((answer.reasoning, answer.text), ("Let me ask.", "Wait."))
        call, = answer.tool_calls
        self.assertEqual((call.name, json.loads(call.arguments), answer.finish_reason, answer.notes), ("weather", WEATHER, "stop", []))
        result = {"role": "tool", "tool_call_id": call.id, "content": "4 degrees"}
        rendered = self.thinking.render([*asked(3), answer.message, result], tools=CHAT_TOOLS)
        self.assertIn(hermes("weather", **WEATHER), rendered)
        self.assertIn("<tool_response>\n4 degrees\n</tool_response>", rendered)
        given = {"role": "assistant", "content": answer.text, "reasoning_content": answer.reasoning, "tool_calls": answer.tool_calls}
        self.assertEqual(self.thinking.render([*asked(3), given, result], tools=CHAT_TOOLS), rendered)
        self.assertEqual(self.thinking.generate(asked(3), tools=[t["function"] for t in CHAT_TOOLS]).tool_calls[0][1:], call[1:])
        self.assertEqual(self.thinking.generate(asked(3)).tool_calls, ())
        none = self.thinking.generate(asked(3), tools=CHAT_TOOLS, tool_choice="none")
        self.assertEqual((none.tool_calls, none.text), ((), "Wait." + hermes("weather", **WEATHER)))
        named = self.thinking.generate(asked(4), tools=CHAT_TOOLS, tool_choice={"type": "function", "function": {"name": "now"}}, parallel_tool_calls=False)
        self.assertEqual([(c.name, c.arguments) for c in named.tool_calls], [("now", "{}")])

    def test_what_an_answer_must_be_or_a_call(self):
        for options in ({}, {"tools": CHAT_TOOLS}):
            answer = self.both(self.thinking, asked(2), json_schema=SCHEMA, **options)
            self.assertEqual((answer.reasoning, answer.text, answer.tool_calls), ("JSON?", '{"yes": true}', ()))

    def test_the_documented_form(self):
        answer = self.both(self.plain, asked(1), tools=CHAT_TOOLS)
        self.assertEqual([(c.name, c.arguments) for c in answer.tool_calls], [("now", "{}")])
        self.assertIn("the chat template shows no tools", answer.notes[0])
        self.assertEqual(self.plain.generate(asked(1)).notes, [])

    def test_errors(self):
        for options, words in (({"tools": [{"type": "function", "function": {"name": 1}}]}, r"tools: \[0\].function.name should be a string"),
                               ({"tools": CHAT_TOOLS, "tool_choice": "rain"}, "tool_choice should be auto, none, required or the name of a tool, is 'rain'"),
                               ({"tool_choice": "required"}, "there are no tools"), ({"tools": CHAT_TOOLS, "beams": 2}, "beams 2 and tools")):
            with self.assertRaisesRegex(situ.SituError, words):
                self.thinking.generate(asked(1), **options)
        with self.assertRaises(TypeError):
            self.thinking.generate(asked(1), tools="weather")
        with self.assertRaises(TypeError):
            self.thinking.generate(asked(1), tools=CHAT_TOOLS, tool_choice=1)
