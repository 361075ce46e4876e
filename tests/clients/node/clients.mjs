// What the npm client of OpenAI's API makes of a server: node clients.mjs SERVER_URL
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const url = process.argv[2];
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0, timeout: 600000 });
const model = "smollm2-135m-instruct";
const messages = [{ role: "user", content: "Hi" }];
const short = { model, messages, max_tokens: 8, ignore_eos: true };
const long = { ...short, model: "endless", max_tokens: 1e9 };

const metric = async (name) => {
  const lines = (await (await fetch(`${url}/metrics`)).text()).split("\n");
  return lines.filter((l) => l.startsWith(`${name}{`)).reduce((sum, l) => sum + Number(l.split(" ").pop()), 0);
};
const untilFree = async () => {
  for (const end = Date.now() + 600000; (await metric("situ_slots_used")) > 0; ) assert(Date.now() < end);
};

const names = [];
for await (const m of client.models.list()) names.push(m.id);
assert(names.includes(model));

const answer = await client.chat.completions.create(short);
assert.equal(answer.usage.completion_tokens, 8);
let text = "";
let usage = null;
for await (const chunk of await client.chat.completions.create({ ...short, stream: true, stream_options: { include_usage: true } })) {
  text += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}
assert.equal(text, answer.choices[0].message.content);
assert.equal(usage.completion_tokens, 8);

const helper = client.chat.completions.stream(short); // puts pieces together
let deltas = "";
helper.on("content", (delta) => (deltas += delta));
assert.equal(await helper.finalContent(), answer.choices[0].message.content);
assert.equal(deltas, answer.choices[0].message.content);

const several = await client.chat.completions.create({ ...short, n: 2, seed: 1, logprobs: true, top_logprobs: 2 });
assert.deepEqual(several.choices.map((c) => c.logprobs.content.map((t) => t.top_logprobs.length)), [Array(8).fill(2), Array(8).fill(2)]);

const Answer = z.object({ yes: z.boolean(), colour: z.enum(["red", "blue"]) });
const asked = { model, messages, max_tokens: 200, response_format: zodResponseFormat(Answer, "answer") };
const { parsed } = (await client.chat.completions.parse(asked)).choices[0].message;
assert.deepEqual(Answer.parse(parsed), parsed);
assert.deepEqual((await client.chat.completions.stream(asked).finalChatCompletion()).choices[0].message.parsed, parsed);

const embedded = await client.embeddings.create({ model: "encoder", input: ["harbour", "quiet"] }); // as base64
assert.equal(embedded.data.length, 2);
assert(embedded.data[0].embedding.every(Number.isFinite));
const plain = await client.embeddings.create({ model: "encoder", input: ["harbour", "quiet"], encoding_format: "float" });
plain.data.forEach((d, i) => d.embedding.forEach((x, k) => assert(Math.abs(x - embedded.data[i].embedding[k]) < 1e-6)));

// What asks for nothing else changes no answer; what nobody knows is named.
for (const fields of [{ parallel_tool_calls: true }, { tools: [] }, { modalities: ["text"] }, { reasoning_effort: "low", verbosity: "low" }, { store: false, metadata: { run: "1" }, service_tier: "auto", user: "me" }]) {
  assert.equal((await client.chat.completions.create({ ...short, ...fields })).choices[0].message.content, answer.choices[0].message.content);
}
assert.deepEqual((await client.chat.completions.create({ ...short, colour: "red" })).situ.ignored, ["colour"]);

await assert.rejects(client.chat.completions.create({ ...short, model: "other" }), (e) => e instanceof OpenAI.NotFoundError && e.code === "model_not_found" && !!e.requestID);
await assert.rejects(client.chat.completions.create({ ...short, temperature: -1 }), OpenAI.BadRequestError);
await assert.rejects(client.chat.completions.create({ ...short, messages: [{ role: "user", content: "a".repeat(5000) }] }), (e) =>
  e instanceof OpenAI.BadRequestError && e.code === "context_length_exceeded" && /This model's maximum context length is \d+ tokens\. However, your prompt has \d+ tokens\./.test(e.message));

const stream = await client.chat.completions.create({ ...long, stream: true });
for await (const _ of stream) break; // leaves
await untilFree();
const aborter = new AbortController();
const aborted = client.chat.completions.create(long, { signal: aborter.signal });
setTimeout(() => aborter.abort(), 100);
await assert.rejects(aborted, OpenAI.APIUserAbortError);
await untilFree();
console.log("ok");
