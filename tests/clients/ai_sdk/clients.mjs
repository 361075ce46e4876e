// What the AI SDK makes of a server, by its provider for servers that speak as OpenAI's does: node clients.mjs SERVER_URL
import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, Output, embed, embedMany, generateText, isStepCount, streamText, tool } from "ai";
import { z } from "zod";

const provider = createOpenAICompatible({ name: "situ", apiKey: "none", baseURL: `${process.argv[2]}/v1`, includeUsage: true, supportsStructuredOutputs: true });
const model = provider("smollm2-135m-instruct");
const short = { model, prompt: "Hi", maxOutputTokens: 8, temperature: 0, maxRetries: 0 };

const whole = await generateText(short);
assert(whole.text);
assert(whole.usage.outputTokens > 0 && whole.usage.outputTokens <= 8);
assert.equal(whole.usage.totalTokens, whole.usage.inputTokens + whole.usage.outputTokens);

let text = "";
const streamed = streamText(short);
for await (const piece of streamed.textStream) text += piece;
assert.equal(text, whole.text);
assert.deepEqual([(await streamed.usage).outputTokens, await streamed.finishReason], [whole.usage.outputTokens, whole.finishReason]);

// Its settings, a conversation with parts, and options of the provider.
const settings = { temperature: 0.7, topP: 0.9, seed: 1, presencePenalty: 0.1, frequencyPenalty: 0.1, stopSequences: ["\u0001"] };
const messages = [{ role: "user", content: [{ type: "text", text: "Hi" }] }, { role: "assistant", content: "Hello" }, { role: "user", content: "And?" }];
assert((await generateText({ model, messages, maxOutputTokens: 8, maxRetries: 0, ...settings, providerOptions: { situ: { user: "me", reasoningEffort: "low" } } })).text);

const schema = z.object({ yes: z.boolean(), colour: z.enum(["red", "blue"]) });
const asked = { model, prompt: "Hi", maxOutputTokens: 200, maxRetries: 0, output: Output.object({ schema }) };
const { output } = await generateText(asked);
assert.deepEqual(schema.parse(output), output);
assert.deepEqual(schema.parse(await streamText(asked).output), output);

// An agent: it calls a tool, gets the result, answers. And a model that thinks.
const weather = tool({
  description: "The weather of a city",
  inputSchema: z.object({ city: z.string(), days: z.number().int() }),
  execute: async ({ city, days }) => `4 degrees in ${city} for ${days} days 1`,
});
const agent = { model: provider("agent"), prompt: "? 2", tools: { weather }, stopWhen: isStepCount(4), maxOutputTokens: 200, temperature: 0, maxRetries: 0 };
const streamedAgent = streamText(agent);
let said = "";
for await (const piece of streamedAgent.textStream) said += piece;
for (const [text, steps] of [Object.values(await generateText(agent).then(({ text, steps }) => ({ text, steps }))), [said, await streamedAgent.steps]]) {
  assert.equal(text, "It is cold there today.");
  assert.deepEqual(steps.map((s) => s.finishReason), ["tool-calls", "stop"]);
  assert.deepEqual(steps[0].toolCalls.map((c) => [c.toolName, c.input]), [["weather", { city: "Oslo", days: 3 }]]);
  assert.equal(steps[0].toolResults[0].output, "4 degrees in Oslo for 3 days 1");
}
const thinks = { model: provider("agent"), prompt: "? 5", maxOutputTokens: 200, temperature: 0, maxRetries: 0 };
const thought = await generateText(thinks);
assert.deepEqual([thought.reasoningText, thought.text], ["A river, then.", "The Nile."]);
assert.equal(await streamText(thinks).reasoningText, thought.reasoningText);

const encoder = provider.embeddingModel("encoder");
const { embeddings } = await embedMany({ model: encoder, values: ["harbour", "quiet"], maxRetries: 0 });
const { embedding } = await embed({ model: encoder, value: "quiet", maxRetries: 0 });
assert.equal(embeddings.length, 2);
embedding.forEach((x, i) => assert(Math.abs(x - embeddings[1][i]) < 1e-6));

for (const [change, status, words] of [[{ model: provider("other") }, 404, /other/], [{ prompt: "a".repeat(5000) }, 400, /maximum context length is \d+ tokens/], [{ temperature: -1 }, 400, /temperature/]]) {
  await assert.rejects(generateText({ ...short, ...change }), (e) => APICallError.isInstance(e) && e.statusCode === status && words.test(e.message));
}

const aborter = new AbortController();
const endless = streamText({ model: provider("endless"), prompt: "Hi", maxOutputTokens: 1e9, maxRetries: 0, abortSignal: aborter.signal, providerOptions: { situ: { ignore_eos: true } }, onError() {} });
let pieces = 0;
for await (const part of endless.stream ?? endless.fullStream) {
  if (part.type === "text-delta" && ++pieces === 3) aborter.abort();
  if (part.type === "abort") break;
}
assert(pieces >= 3);
console.log("ok");
