// What the npm client of OpenAI's API makes of calls and of reasoning: node tools.mjs SERVER_URL
// tests/serve_tools_test.py runs it against its models "hermes" and "thinking".
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: "none", maxRetries: 0, timeout: 600000 });
const parameters = { type: "object", properties: { city: { type: "string" }, days: { type: "integer" } }, required: ["city", "days"], additionalProperties: false };
const messages = [{ role: "user", content: "? 3" }];
const asked = { model: "hermes", messages, temperature: 0, tools: [{ type: "function", function: { name: "weather", parameters, strict: true } }] };
const wanted = [["weather", { city: "Oslo", days: 3 }], ["weather", { city: "Rome \u6c34", days: 12 }]];

const whole = await client.chat.completions.create(asked);
const helper = client.chat.completions.stream(asked); // puts pieces together
const done = [];
helper.on("tool_calls.function.arguments.done", (event) => done.push(event.name));
const streamed = await helper.finalChatCompletion();
for (const answer of [whole, streamed]) {
  const { message, finish_reason } = answer.choices[0];
  assert.deepEqual(message.tool_calls.map((c) => [c.function.name, JSON.parse(c.function.arguments)]), wanted);
  assert.deepEqual([message.content, finish_reason, new Set(message.tool_calls.map((c) => c.id)).size], [null, "tool_calls", 2]);
}
assert.deepEqual(done, ["weather", "weather"]);

// An agent: the functions are called, and their results sent, until there is an answer.
const called = [];
const weather = (argument) => (called.push(argument), "4 degrees 1");
const agent = { model: "hermes", messages, temperature: 0, tools: [{ type: "function", function: { name: "weather", parameters, function: weather, parse: JSON.parse } }] };
for (const options of [agent, { ...agent, stream: true }]) {
  assert.equal(await client.chat.completions.runTools(options).finalContent(), "It is cold there today.");
  assert.deepEqual(called.splice(0), wanted.map((call) => call[1]));
}

const thought = "A river, then.\nThe Nile.";
const thinks = { model: "thinking", messages: [{ role: "user", content: "? 1" }], temperature: 0 };
const { message } = (await client.chat.completions.create(thinks)).choices[0];
assert.deepEqual([message.reasoning_content, message.content], [thought, "The Nile it is."]);
const pieces = { reasoning_content: "", content: "" };
let usage = null;
for await (const chunk of await client.chat.completions.create({ ...thinks, stream: true, stream_options: { include_usage: true } })) {
  for (const key in pieces) pieces[key] += chunk.choices[0]?.delta?.[key] ?? "";
  usage = chunk.usage ?? usage;
}
assert.deepEqual(pieces, { reasoning_content: thought, content: "The Nile it is." });
assert(usage.completion_tokens_details.reasoning_tokens > 0);
const form = { ...thinks, messages: [{ role: "user", content: "? 2" }], response_format: zodResponseFormat(z.object({ yes: z.boolean() }), "answer") };
assert.deepEqual((await client.chat.completions.parse(form)).choices[0].message.parsed, { yes: true });
console.log("ok");
