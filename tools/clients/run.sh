#!/bin/sh
# Runs real clients against exacta serve with the embedded model: those that are
# installed, and says which are not.
#
#   PYTHON=python3 with the package openai, node with openai (NODE_PATH), go,
#   VLLM=vllm (vLLM's own load tool, vllm bench serve)
#   INSTALL=1 installs the packages for Python and Node in a directory of its own
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
port=${PORT:-8399}
url=http://127.0.0.1:$port
(cd "$root" && go build -o "$work/exacta" ./cmd/exacta)
"$work/exacta" serve --port "$port" --chat-template "$here/chatml.jinja" >"$work/log" 2>&1 &
server=$!
trap 'kill $server 2>/dev/null || true; wait $server 2>/dev/null || true; rm -rf "$work"' EXIT
for _ in $(seq 1 100); do
	curl -fs "$url/ready" >/dev/null 2>&1 && break
	sleep 0.1
done

python=${PYTHON:-python3}
if [ -n "${INSTALL:-}" ]; then
	"$python" -m venv "$work/venv"
	python=$work/venv/bin/python
	"$python" -m pip install --quiet openai
	(cd "$work" && npm install --silent --no-audit --no-fund openai)
fi
if "$python" -c 'import openai' 2>/dev/null; then
	"$python" "$here/openai_python.py" "$url"
else
	echo "openai for Python: not installed"
fi
if command -v node >/dev/null && (cd "$work" && cp "$here/openai_node.mjs" . && { [ -z "${NODE_PATH:-}" ] || ln -s "$NODE_PATH" node_modules; } && node -e 'require.resolve("openai")' 2>/dev/null); then
	(cd "$work" && node openai_node.mjs "$url")
else
	echo "openai for Node: not installed"
fi
(cd "$here/openaigo" && go run . "$url")
vllm=${VLLM:-vllm}
if command -v "$vllm" >/dev/null; then
	"$vllm" bench serve --backend openai --base-url "$url" --endpoint /v1/completions --model embedded --tokenizer "$root/engine/embedded" \
		--dataset-name random --random-input-len 64 --random-output-len 64 --num-prompts 64 --max-concurrency 8 --ignore-eos --temperature 0
	echo "vllm bench serve: ok"
else
	echo "vllm bench serve: not installed"
fi
