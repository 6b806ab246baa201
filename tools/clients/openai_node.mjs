// The openai package for Node against a server: node openai_node.mjs URL
import assert from "node:assert";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2] + "/v1", apiKey: "none", maxRetries: 0 });
const model = (await client.models.list()).data[0].id;

const ask = { model, prompt: "package main\n\nimport", max_tokens: 40, temperature: 0 };
const whole = await client.completions.create(ask);
assert.equal(whole.usage.speculation.emitted, whole.usage.completion_tokens);
let text = "";
let usage;
for await (const chunk of await client.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } })) {
  text += chunk.choices[0]?.text ?? "";
  usage = chunk.usage ?? usage;
}
assert.equal(text, whole.choices[0].text);
assert.equal(usage.completion_tokens, whole.usage.completion_tokens);

const messages = [{ role: "user", content: "Reverse a string." }];
const chat = await client.chat.completions.create({ model, messages, max_completion_tokens: 20, temperature: 0 });
const runner = client.chat.completions.stream({ model, messages, max_completion_tokens: 20, temperature: 0 });
assert.equal(await runner.finalContent(), chat.choices[0].message.content);

const tools = [{ type: "function", function: { name: "look_up", parameters: { type: "object", properties: { key: { enum: ["a", "b"] } }, required: ["key"] } } }];
const called = await client.chat.completions.create({ model, messages, tools, tool_choice: "required", max_completion_tokens: 100, seed: 1 });
assert.equal(called.choices[0].finish_reason, "tool_calls");
assert.ok(["a", "b"].includes(JSON.parse(called.choices[0].message.tool_calls[0].function.arguments).key));

await assert.rejects(client.completions.create({ model: "other", prompt: "a" }), OpenAI.NotFoundError);
await assert.rejects(client.completions.create({ model, prompt: "a", temperature: -1 }), OpenAI.BadRequestError);

// A client that goes away in the middle.
const stream = await client.completions.create({ ...ask, max_tokens: 2000, stream: true });
for await (const _ of stream) break;
console.log("openai for Node: ok");
