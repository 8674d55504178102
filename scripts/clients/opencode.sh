# OpenCode, a coding agent, twice. With an agent of its own settings that has one tool: it must read the file that it is
# asked for, and end. With its default agent, ten tools and a prompt of some ten thousand tokens: a turn must go through
# without an error; what the toy does with all that is its own affair, so commands and the network are denied to it.
set -eu
home=$PLACE/opencode
rm -rf "$home"
mkdir -p "$home/work" "$home/home"
export HOME="$home/home" XDG_DATA_HOME="$home/data" XDG_CONFIG_HOME="$home/config" XDG_CACHE_HOME="$home/cache" \
    XDG_STATE_HOME="$home/state" OPENCODE_DISABLE_AUTOUPDATE=1 OPENCODE_DISABLE_MODELS_FETCH=1 \
    OPENCODE_DISABLE_LSP_DOWNLOAD=1
opencode=$PLACE/node_modules/.bin/opencode
cd "$home/work"
printf 'buy milk\nfeed the bird\n' > notes.txt
cat > opencode.json <<JSON
{ "model": "fieldfare/demo", "small_model": "fieldfare/demo", "share": "disabled", "autoupdate": false,
  "permission": { "bash": "deny", "webfetch": "deny" },
  "provider": { "fieldfare": { "npm": "@ai-sdk/openai-compatible", "name": "Fieldfare",
    "options": { "baseURL": "$FIELDFARE_BASE", "apiKey": "none" },
    "models": { "demo": { "name": "demo", "tool_call": true, "temperature": true,
      "limit": { "context": 32768, "output": 256 } } } } },
  "agent": {
    "reader": { "mode": "primary", "description": "Reads files.", "prompt": "You are a helpful assistant.",
      "temperature": 0, "tools": { "*": false, "read": true } },
    "build": { "temperature": 0 } } }
JSON
turn() {
    "$opencode" run --agent "$1" --title notes --format json 'please show me notes.txt' > "$home/$1.jsonl" 2> "$home/$1.log"
    python3 - "$home/$1.jsonl" "$1" <<'PY'
import json
import sys
events = [json.loads(line) for line in open(sys.argv[1]) if line.startswith("{")]
assert not [event for event in events if event["type"] == "error"], events
ends = [event["part"]["reason"] for event in events if event["type"] == "step_finish"]
# The toy may go on until it is cut: whether it does depends on the day and on the folder, which its prompts name.
calls = [(event["part"]["tool"], event["part"]["state"]) for event in events if event["type"] == "tool_use"]
if sys.argv[2] == "reader":
    (tool, state), = calls
    assert (tool, state["status"]) == ("read", "completed"), calls
    assert state["input"]["filePath"].endswith("notes.txt") and "feed the bird" in state["output"], state
    assert ends in (["tool-calls", "stop"], ["tool-calls", "length"]), ends
else:
    assert ends and ends[-1] in ("stop", "length"), ends
    print("opencode, ten tools:", len(ends), "steps, calls:", [tool for tool, _ in calls])
PY
}
turn reader
turn build
echo "opencode $("$opencode" --version) ok"
