# The command llm: an answer, a stream, a schema, a tool, an error.
set -eu
mkdir -p "$LLM_USER_PATH"
cat > "$LLM_USER_PATH/extra-openai-models.yaml" <<MODELS
- model_id: fieldfare
  model_name: demo
  api_base: $FIELDFARE_BASE
  supports_schema: true
  supports_tools: true
- model_id: fieldfare-missing
  model_name: gpt-5
  api_base: $FIELDFARE_BASE
MODELS
ask='What is the capital of France?'
llm --no-stream -m fieldfare -o temperature 0 "$ask" | grep -q Paris
llm -m fieldfare -o temperature 0 "$ask" | grep -q Paris
llm -m fieldfare -o temperature 0 -o max_tokens 300 --schema 'city, capital bool' "$ask" |
    python -c 'import json, sys; assert set(json.load(sys.stdin)) == {"city", "capital"}'
llm -m fieldfare -o temperature 0 -o max_tokens 100 --chain-limit 3 --functions 'def timer(minutes: float) -> str:
    "Start a timer."
    return "started"' --td 'i need a timer of 46 minutes' 2>&1 | grep -q 'timer'
if llm -m fieldfare-missing "$ask" > "$LLM_USER_PATH/missing" 2>&1; then exit 1; fi
grep -q 'not served here' "$LLM_USER_PATH/missing"
echo "llm $(llm --version | sed 's/.* //') ok"
