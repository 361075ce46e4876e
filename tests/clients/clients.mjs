// What the npm client of OpenAI's API makes of a server: node clients.mjs SERVER_URL
import assert from "node:assert/strict";
import OpenAI from "openai";

const url = process.argv[2];
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0, timeout: 60000 });
const model = "smollm2-135m-instruct";
const messages = [{ role: "user", content: "Hi" }];
const short = { model, messages, max_tokens: 8, ignore_eos: true };
const long = { ...short, model: "endless", max_tokens: 1e9 };

const metric = async (name) => {
  const lines = (await (await fetch(`${url}/metrics`)).text()).split("\n");
  return lines.filter((l) => l.startsWith(`${name}{`)).reduce((sum, l) => sum + Number(l.split(" ").pop()), 0);
};
const untilFree = async () => {
  for (const end = Date.now() + 60000; (await metric("situ_slots_used")) > 0; ) assert(Date.now() < end);
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

const embedded = await client.embeddings.create({ model: "encoder", input: ["harbour", "quiet"] });
assert.equal(embedded.data.length, 2);
assert(embedded.data[0].embedding.every(Number.isFinite));

await assert.rejects(client.chat.completions.create({ ...short, model: "other" }), (e) => e instanceof OpenAI.NotFoundError && e.code === "model_not_found" && !!e.requestID);
await assert.rejects(client.chat.completions.create({ ...short, temperature: -1 }), OpenAI.BadRequestError);

const stream = await client.chat.completions.create({ ...long, stream: true });
for await (const _ of stream) break; // leaves
await untilFree();
const aborter = new AbortController();
const aborted = client.chat.completions.create(long, { signal: aborter.signal });
setTimeout(() => aborter.abort(), 100);
await assert.rejects(aborted, OpenAI.APIUserAbortError);
await untilFree();
console.log("ok");
