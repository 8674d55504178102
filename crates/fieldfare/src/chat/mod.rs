//! Messages to token ids, and model output back to content, reasoning and tool calls.
