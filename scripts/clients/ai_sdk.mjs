// The AI SDK with @ai-sdk/openai-compatible: text, stream, tools, structured output, errors.
import assert from "node:assert";
import { readFileSync } from "node:fs";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, generateText, streamText, tool } from "ai";
import { z } from "zod";

const provider = createOpenAICompatible({ name: "fieldfare", baseURL: process.env.FIELDFARE_BASE,
  supportsStructuredOutputs: true });
const base = { model: provider("demo"), temperature: 0, maxRetries: 0, prompt: "What is the capital of France?" };

const whole = await generateText(base);
assert(whole.text.includes("Paris"));
let text = "";
for await (const piece of streamText(base).textStream) text += piece;
assert.equal(text, whole.text);

const tools = { timer: tool({ description: "Start a timer.", inputSchema: z.object({ minutes: z.number() }) }) };
for (const toolChoice of ["required", { type: "tool", toolName: "timer" }]) {
  const forced = await generateText({ ...base, tools, toolChoice });
  assert.equal(forced.toolCalls[0].toolName, "timer");
}
const streamed = streamText({ ...base, prompt: "i need a timer of 46 minutes", tools });
assert.deepEqual((await streamed.toolCalls)[0].input, { minutes: 46 });

const schema = z.object({ city: z.string(), capital: z.boolean() });
const made = await generateText({ ...base, maxOutputTokens: 300, output: Output.object({ schema }) });
schema.parse(made.output);

await assert.rejects(generateText({ ...base, model: provider("gpt-5") }), (error) => error.statusCode === 404);
const of = (name) => JSON.parse(readFileSync(new URL(`./node_modules/${name}/package.json`, import.meta.url))).version;
console.log("ai", of("ai"), "with @ai-sdk/openai-compatible", of("@ai-sdk/openai-compatible"), "ok");
