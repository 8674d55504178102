// openai-node: chat, stream, tools, structured output, errors.
import assert from "node:assert";
import { readFileSync } from "node:fs";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const client = new OpenAI({ baseURL: process.env.FIELDFARE_BASE, apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "What is the capital of France?" }];
const tools = [{ type: "function", function: { name: "timer", description: "Start a timer.", parameters: {
  type: "object", properties: { minutes: { type: "number" } }, required: ["minutes"] } } }];
const base = { model: "demo", messages, temperature: 0 };

const whole = await client.chat.completions.create(base);
assert(whole.choices[0].message.content.includes("Paris"));
let text = "";
for await (const chunk of await client.chat.completions.create({ ...base, stream: true })) {
  text += chunk.choices[0]?.delta?.content ?? "";
}
assert.equal(text, whole.choices[0].message.content);

for (const tool_choice of ["required", { type: "function", function: { name: "timer" } }]) {
  const forced = await client.chat.completions.create({ ...base, tools, tool_choice, parallel_tool_calls: false });
  const call = forced.choices[0].message.tool_calls[0];
  assert.equal(call.function.name, "timer");
  JSON.parse(call.function.arguments);
}
const runner = client.chat.completions.stream({ ...base, tools, tool_choice: "required", parallel_tool_calls: false });
assert.equal((await runner.finalChatCompletion()).choices[0].finish_reason, "tool_calls");

const City = z.object({ city: z.string(), capital: z.boolean() });
const parsed = await client.chat.completions.parse({ ...base, max_tokens: 300,
  response_format: zodResponseFormat(City, "city") });
City.parse(parsed.choices[0].message.parsed);

await assert.rejects(client.chat.completions.create({ ...base, model: "gpt-5" }), (error) =>
  error instanceof OpenAI.NotFoundError && error.code === "model_not_found");
await assert.rejects(client.chat.completions.create({ ...base, top_k: "x" }), (error) =>
  error.status === 400 && error.param === "top_k");
const version = JSON.parse(readFileSync(new URL("./node_modules/openai/package.json", import.meta.url))).version;
console.log("openai-node", version, "ok");
