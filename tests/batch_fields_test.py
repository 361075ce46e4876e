"""Fields of bodies in `situ batch`: names that nothing knows, values without effect, and the spellings of one wish.

    python tests/batch_fields_test.py --situ build/situ [unittest options]
"""
import json

from batch_test import CHAT, BatchTest, chat, completion, lines_of
from cli_case import main

class FieldsTest(BatchTest):
    def test_names_that_nothing_knows(self):
        """They change nothing, and the answer tells them; --strict refuses them."""
        message = {"role": "user", "content": "Hi"}
        plain, text = self.good(chat("Hi", max_tokens=5), completion("Hi", max_tokens=5))
        cases = [
            (chat("Hi", max_tokens=5, colour=1, shape={"a": [[]]}), ["colour", "shape"]), (chat("Hi", max_tokens=5, prompt="b"), ["prompt"]), (chat("Hi", max_tokens=5, reasoning_effort="low"), ["reasoning_effort"]),
            (chat([{**message, "id": "1", "tool_calls": []}], max_tokens=5), ["messages[0].id", "messages[0].tool_calls"]),
            (chat([{"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]}], max_tokens=5), ["messages[0].content[0].cache_control"]),
            (chat("Hi", max_tokens=5, response_format={"type": "text", "more": 1}, stream_options={"more": 1}), ["response_format.more", "stream_options.more"]),
            (chat("Hi", max_tokens=5, **{"k" * 63 + "\u00e9": 1, "two\nlines": 1}), ["k" * 63, "two?lines"]),
            (chat("Hi", max_tokens=5, **{f"k{i}": {"deep": [i]} for i in range(2000)}), [f"k{i}" for i in range(32)]),
            (completion("Hi", max_tokens=5, messages=[message], max_completion_tokens=3), ["messages", "max_completion_tokens"]),
        ]
        for ((url, body), names), answer in zip(cases, self.good(*(request for request, _ in cases))):
            with self.subTest(names=names[:3]):
                self.assertEqual(answer["choices"], (plain if url == CHAT else text)["choices"])
                self.assertEqual(sorted(answer["situ"]["ignored"]), sorted(names))
        strict = self.batch(lines_of({str(i): request for i, (request, _) in enumerate(cases)}), "--strict")
        errors = {o["custom_id"]: (o["response"]["status_code"], o["response"]["body"].get("error")) for o in strict}
        for i, ((_, body), names) in enumerate(cases):
            with self.subTest(names=names[:3], strict=True):
                if "reasoning_effort" in body or "tool_calls" in names[0]:  # which are known
                    self.assertEqual(errors[str(i)], (200, None))
                else:
                    self.assertEqual((errors[str(i)][0], errors[str(i)][1]["code"]), (400, "unknown_parameter"))

    def test_values_without_effect(self):
        """What clients of OpenAI, vLLM, llama.cpp and Ollama send at the values that ask for nothing."""
        neutral = {"top_k": -1, "max_completion_tokens": -1, "n_predict": -1, "parallel_tool_calls": True, "tools": [], "tool_choice": "auto", "functions": [], "function_call": "auto", "modalities": ["text"], "logprobs": False, "top_logprobs": 0,
                   "safety_identifier": "s", "prediction": None, "n": 1, "length_penalty": 1, "repetition_penalty": 1, "min_p": 0, "use_beam_search": False, "skip_special_tokens": True, "spaces_between_special_tokens": True,
                   "include_stop_str_in_output": False, "add_generation_prompt": True, "add_special_tokens": False, "continue_final_message": False, "echo": False, "documents": [], "bad_words": [], "logit_bias": {}, "stop": [], "seed": -1,
                   "guided_choice": [], "guided_json": None, "guided_regex": "", "grammar": "", "json_schema": "", "structured_outputs": {"choice": [], "regex": ""}, "response_format": {}, "truncate_prompt_tokens": -1, "chat_template_kwargs": {}, "request_id": "r", "cache_prompt": True, "id_slot": -1, "n_keep": 0, "mirostat": 0, "mirostat_tau": 5.0, "dry_multiplier": 0.0, "dynatemp_range": 0,
                   "xtc_probability": 0, "typical_p": 1, "repeat_penalty": 1, "repeat_last_n": 64, "samplers": ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"], "n_probs": 0, "lora": [],
                   "timings_per_token": False, "keep_alive": "5m", "format": "", "service_tier": "auto", "store": False}
        plain, same, text, other = self.good(chat("Hi", max_tokens=5), chat("Hi", max_tokens=5, **{k: v for k, v in neutral.items() if k not in ("max_completion_tokens", "n_predict")}),
                                             completion("Hi"), completion("Hi", max_tokens=-1, best_of=1, suffix="", logprobs=False, echo=False, top_k=-1, add_special_tokens=True))
        self.assertEqual(plain["choices"], same["choices"])
        self.assertEqual(text["choices"], other["choices"])
        self.assertNotIn("ignored", {**same["situ"], **other["situ"]})
        self.good(chat("Hi", **{k: v for k, v in neutral.items() if k != "top_logprobs"}))

    def test_json_in_every_spelling(self):
        schema = {"type": "object", "properties": {"c": {"enum": ["t"]}}, "required": ["c"], "additionalProperties": False}
        spellings = [{"guided_json": schema}, {"guided_json": json.dumps(schema)}, {"json_schema": schema}, {"structured_outputs": {"json": schema}}, {"structured_outputs": {"json": json.dumps(schema), "regex": None}}, {"format": schema},
                     {"response_format": {"type": "json_object", "schema": schema}}, {"response_format": {"type": "json_schema", "schema": schema}}, {"response_format": {"type": "json_object"}, "guided_json": schema},
                     {"guided_json": schema, "response_format": {"type": "json_object"}}, {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {**schema, "additionalProperties": True}, "strict": False}}, "max_tokens": 1},
                     {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": {k: v for k, v in schema.items() if k != "additionalProperties"}}}}]
        for fields, answer in zip(spellings, self.good(*(chat("a", **{"max_tokens": 40, **fields}) for fields in spellings))):
            with self.subTest(fields=fields):
                if fields.get("max_tokens") != 1:  # the model likes spaces
                    self.assertTrue('{"c":"t"}'.startswith("".join(answer["choices"][0]["message"]["content"].split())), answer)
        choice, regex, same = self.good(chat("a", guided_choice=["a.b", "(c"], max_tokens=9), chat("a", guided_regex="[xy]", max_tokens=9), chat("a", structured_outputs={"choice": ["a.b", "(c"]}, max_tokens=9))
        self.assertIn(choice["choices"][0]["message"]["content"], ("a.b", "(c"))
        self.assertEqual(same["choices"], choice["choices"])
        self.assertIn(regex["choices"][0]["message"]["content"], ("x", "y"))

    def test_the_last_message_goes_on(self):
        turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]
        begun, = self.good(chat(turns, max_tokens=4, continue_final_message=True))
        same, = self.good(chat(turns, max_tokens=4, continue_final_message=True, add_generation_prompt=False))
        open_, = self.good(chat(turns, max_tokens=4, add_generation_prompt=False))
        self.assertEqual(begun["choices"], same["choices"])
        self.assertLess(begun["usage"]["prompt_tokens"], open_["usage"]["prompt_tokens"])
        self.assertFalse(begun["choices"][0]["message"]["content"].startswith("Yo"))

if __name__ == "__main__":
    main()
