#!/usr/bin/env python3
"""Trains small tokenizers, one for each design that the package supports, and asks the reference
implementation (the Python package `tokenizers`, which wraps the Rust library) for ids and texts.

    pip install tokenizers==0.23.2
    python make_goldens.py

Everything follows from the seeds below. Written: DESIGN.json (the tokenizer), strings.json.gz (texts common to all),
DESIGN.golden.json.gz (what the reference gave).
"""

import gzip
import hashlib
import json
import pathlib
import platform
import random
import struct

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).parent
SEED = 20260

A = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
B = A.replace(r"\p{N}{1,3}", r"\p{N}")
C = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
E1 = r"\p{N}{1,3}"
E2 = "[一-龥぀-ゟ゠-ヿ]+"
E3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

TRICKY = [
    "", " ", "  ", "\n", "\r\n", "\t", " \n ", "a", " a", "a ", "  a", "a  b", "a   b  ", "Hello, world!",
    "I'm you're HE'LL it's WE'VE 'twas '' ' 'S 'ſ 'T 'rE 'lL 'dd 'mm", "don't can't won't 'til O'Neil",
    "1234567890", "12 345 6789", "3.14159 1,000,000", "x1y22z333", "٠١٢٣٤٥٦", "Ⅷ ½ ² ①", "1\u00a02\u00a03",
    "naïve café Ünïcödé", "e\u0301 a\u0308 o\u0302\u0323 \u1e69 s\u0323\u0307 s\u0307\u0323", "\u212b \u2126 \u00c5",
    "한국어 텍스트", "\u1112\u1161\u11ab\u1100\u116e\u11a8", "日本語テキスト、漢字とかな。", "中文文本，没有空格。", "ＦＵＬＬ　ｗｉｄｔｈ",
    "हिन्दी में लिखा", "नमस्ते दुनिया", "العربية نص", "עברית", "ไทยไม่มีช่องว่าง", "Ελληνικά", "Русский текст", "ქართული",
    "👍 👍🏽 👨‍👩‍👧‍👦 🇩🇪🇫🇷 ❤️ ☺️", "a\u200db\u200cc\u200bd", "\ufeffbom", "\u00ad\u2060", "tab\tsep\tval", "\u2028\u2029\x85\x0b\x0c",
    "\u3000\u3000x", "a\u00a0b", " \u00a0 \u00a0", "trailing   ", "trailing\t\t", "trailing \n", "\n\nleading", "a\n\n\nb", "a\r\n\r\nb", "a \n b",
    "   \n   x", "\n   x", "  \r\n  \r\n y", "!!!\n\n", "...\r\n", " ...", "  ...", "?!\n x", "a-b_c.d/e\\f", "$x = @y['z'];",
    "func main() {\n\tfmt.Println(\"hi\")\n}\n", "def f(x):\n    return x ** 2  # comment\n\n\n", "for (int i = 0; i < 10; ++i) { a[i] += 1; }",
    "https://example.com/a?b=c&d=%20", "user@example.com", "C:\\path\\to", "{\"k\": [1, 2.5e-3, null]}", "<html><body>x</body></html>",
    "-" * 100, "=" * 33, "a" * 200, "ab" * 150, " " * 130, "\n" * 70, "9" * 100, "é" * 60, "漢" * 60,
    "aGVsbG8gd29ybGQgdGhpcyBpcyBiYXNlNjQ" * 8, "\x00\x01\x02\x7f", "\u0378\ufdd0\uffff\U0001ffff\U0010ffff", "\ue000\uf8ff",
    "a" + "\u0301" * 40, "\u0323\u0301" * 33, "e" + "\u0301\u0323" * 17 + " x", "\u0301start", "1\u0301 !\u0301 \u0301", "क\u094d\u0937",
    "İıſßŉǆ", "ﬁ ﬂ ﬆ", "\U0001d400\U0001d7ce\U0001f100", "<|im_start|>user\nhi<|im_end|>\n", "<|im_end|><|im_end|>", "<|im_end", "<|im_start|",
    "a<|im_end|>b", " <|im_end|> ", "<tool> x", "[MASK]", "a [MASK] b", "  [MASK]  ", "\u00a0[MASK]\u3000x", "[LEFT]  [RIGHT]  [LEFT]",
    "word words sword word. (word)", "été e\u0301te\u0301", "<|im_start|><tool>x</tool>", "<tool><tool2>", "<tooL>",
]

PROSE = """The quick brown fox jumps over the lazy dog while the engine reads its weights and counts the tokens.
It's what they're saying: we've seen this, I'm sure you'll agree, he'd know. Prices rose by 12.5 % to 1,234,567 in 2026.
Der schnelle braune Fuchs springt über den faulen Hund; die Größe beträgt 300 Kilometer. Où est la bibliothèque, s'il vous plaît ?
El niño comió piñas en la montaña. Быстрая коричневая лиса прыгает через ленивую собаку. Η γρήγορη αλεπού πηδάει.
素早い茶色の狐がのろまな犬を飛び越える。カタカナとひらがな。敏捷的棕色狐狸跳过了懒狗，今天天气很好。빠른 갈색 여우가 게으른 개를 뛰어넘습니다.
तेज भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है। الثعلب البني السريع يقفز فوق الكلب الكسول. השועל החום המהיר.
func (t *Tokenizer) Encode(text string) []int32 {\n\tif len(text) == 0 {\n\t\treturn nil\n\t}\n\tfor i := range text {\n\t\tout = append(out, i)\n\t}\n}
def encode(self, text):\n    for i, c in enumerate(text):\n        yield i, c  # nothing else\n    return None
"""

WORDS = PROSE.split() + "the of and to in a is that for it as was with be by on not he I this are or his from at which".split()
SPACES = [" "] * 12 + ["  ", "   ", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u3000", " \n", "\n ", "\r", "\u2028", "\x85", "\x0b"]
MARKS = "\u0301\u0308\u0323\u0302\u0327\u093f\u094d\u0e31\u05b8\u0651\u20dd\ufe0f"
EMOJI = ["👍", "🏽", "👨\u200d👩\u200d👧", "🇩🇪", "❤\ufe0f", "☺", "\u200d", "🤖"]
PUNCT = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + ["…", "—", "«", "»", "。", "、", "¿", "€", "™", "±"]
CONTRACTIONS = ["'s", "'S", "'t", "'re", "'VE", "'m", "'ll", "'lL", "'d", "'ſ", "'", "’s", "'re'", "'l"]
ADDED = ["<|im_start|>", "<|im_end|>", "<tool>", "</tool>", "[MASK]", "[LEFT]", "[RIGHT]", "word", "e\u0301te\u0301", "<|im_", "été"]
RANGES = [(0x20, 0x7E), (0xA0, 0x17F), (0x300, 0x36F), (0x400, 0x4FF), (0x590, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F),
          (0x1100, 0x11FF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2150, 0x218F), (0x2460, 0x24FF), (0x3040, 0x30FF),
          (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0xFE00, 0xFFFF), (0x1D400, 0x1D7FF), (0x1F300, 0x1FAFF),
          (0x0, 0x1F), (0x10000, 0x10FFFF), (0x0, 0xD7FF)]


def atom(r):
    kind = r.randrange(13)
    if kind < 3:
        return r.choice(WORDS)
    if kind < 5:
        return r.choice(SPACES)
    if kind == 5:
        return "".join(r.choice("0123456789٣Ⅷ½") for _ in range(r.randint(1, 9)))
    if kind == 6:
        return r.choice(PUNCT) * r.randint(1, 4)
    if kind == 7:
        return "".join(r.choice(MARKS) for _ in range(r.randint(1, 3)))
    if kind == 8:
        return r.choice(EMOJI)
    if kind == 9:
        return r.choice(CONTRACTIONS)
    if kind == 10:
        return r.choice(ADDED)
    lo, hi = r.choice(RANGES)
    return "".join(chr(r.randint(lo, hi)) for _ in range(r.randint(1, 4)))


def fuzz(r, n):
    return ["".join(atom(r) for _ in range(r.randint(1, 14))) for _ in range(n)]


def byte_level(regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex)


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False)


def plain(content, special=True):
    return AddedToken(content, special=special, normalized=False)


def chat(extra=()):
    return [plain("<|endoftext|>"), plain("<|im_start|>"), plain("<|im_end|>"), plain("<tool>", False), plain("</tool>", False), *extra]


FLAGS = [
    AddedToken("[MASK]", lstrip=True, special=True, normalized=False),
    AddedToken("[LEFT]", lstrip=True, rstrip=True, special=False, normalized=False),
    AddedToken("[RIGHT]", rstrip=True, special=False, normalized=True),
    AddedToken("word", single_word=True, special=False, normalized=True),
    AddedToken("été", single_word=False, special=False, normalized=True),
    AddedToken("<tool>", single_word=True, special=True, normalized=False),
]


def template(before, after=()):
    pieces = [*before, "$A", *after]
    return lambda tok: processors.TemplateProcessing(
        single=" ".join(pieces), pair=" ".join(pieces) + " $B:1", special_tokens=[(t, tok.token_to_id(t)) for t in {*before, *after}]
    )


META = "\u2581"
BYTES = [f"<0x{b:02X}>" for b in range(256)]

# name: normaliser, pre-tokenizer, post-processor, added tokens, changes to the written file
DESIGNS = {
    "a_llama3": (None, [split(A), byte_level(False)], template(["<|im_start|>"]), chat(), {"ignore_merges": True}),
    "b_qwen3": (normalizers.NFC(), [split(B), byte_level(False)], None, chat(), {"string_merges": True}),
    "c_qwen35": (normalizers.NFC(), [split(C), byte_level(False)], None, chat(), {}),
    "d_smollm2": (None, [pre_tokenizers.Digits(individual_digits=True), byte_level(True)], None, chat(), {"string_merges": True}),
    "e_deepseek": (None, [split(E1), split(E2), split(E3), byte_level(False)], template(["<|endoftext|>"]), chat(), {}),
    "f_flags": (
        normalizers.Sequence([normalizers.NFC()]),
        [pre_tokenizers.Digits(individual_digits=False), byte_level(True)],
        template(["<|im_start|>"], ["<|im_end|>"]),
        [plain("<|im_start|>"), plain("<|im_end|>"), *FLAGS],
        {},
    ),
    "g_glm": (None, [split(A), byte_level(False)], template(["[gMASK]", "<sop>"]), [plain("[gMASK]"), plain("<sop>"), *chat()], {}),
    "h_gpt2": (None, [pre_tokenizers.ByteLevel(add_prefix_space=True)], None, [plain("<|endoftext|>")], {}),
    "i_llama2": (
        normalizers.Sequence([normalizers.Prepend(META), normalizers.Replace(" ", META)]),
        [],
        template(["<s>"]),
        [plain("<s>"), plain("</s>"), AddedToken("word", normalized=True), AddedToken("[MASK]", lstrip=True, normalized=False)],
        {"bytes": True, "unk": True, "decoder": [decoders.Replace(META, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]},
    ),
    "j_gemma": (
        normalizers.Replace(" ", META),
        [pre_tokenizers.Split(" ", "merged_with_previous")],
        template(["<s>"]),
        [plain("<s>"), plain("<|im_start|>", False)],
        {"bytes": True, "unk": True, "decoder": [decoders.Replace(META, " "), decoders.ByteFallback(), decoders.Fuse()]},
    ),
    "k_metaspace": (
        None,
        [pre_tokenizers.Metaspace(META, prepend_scheme="first", split=True)],
        None,
        [plain("<s>"), plain("<|im_end|>")],
        {"unk": True, "decoder": [decoders.Metaspace(META, prepend_scheme="first")]},
    ),
    "l_folded": (
        normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip(), normalizers.Replace("l", "w")]),
        [split(B), byte_level(False)],
        None,
        [plain("<|im_end|>"), AddedToken("[Left]", normalized=True)],
        {},
    ),
}


def train(name):
    norm, pre, post, added, change = DESIGNS[name]
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True) if change.get("unk") else models.BPE())
    if norm is not None:
        tok.normalizer = norm
    spelled = not change.get("decoder")
    if spelled or pre:
        tok.pre_tokenizer = pre_tokenizers.Sequence(pre)
    tok.decoder = decoders.ByteLevel() if spelled else decoders.Sequence(change["decoder"]) if len(change["decoder"]) > 1 else change["decoder"][0]
    corpus = [PROSE] * 3 + [" ".join(WORDS)] * 2 + fuzz(random.Random(SEED), 2000)
    if change.get("bytes"):
        # Words for training; the finished tokenizer sees the whole text as one.
        corpus = [word for text in corpus for word in text.replace(" ", " \0").split("\0")]
    tok.train_from_iterator(
        corpus,
        trainers.BpeTrainer(
            vocab_size=1400,
            min_frequency=2,
            special_tokens=(["<unk>"] if change.get("unk") else []) + (BYTES if change.get("bytes") else []),
            limit_alphabet=300,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if spelled else [],
            show_progress=False,
        ),
    )
    tok.add_tokens(added)
    if post is not None:
        tok.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), post(tok)]) if spelled else post(tok)
    elif spelled:
        tok.post_processor = processors.ByteLevel(trim_offsets=False)
    out = json.loads(tok.to_str())
    if change.get("bytes"):
        out["model"]["byte_fallback"] = True
        out["added_tokens"] = [a for a in out["added_tokens"] if a["content"] not in BYTES]
    if change.get("ignore_merges"):
        out["model"]["ignore_merges"] = True
        # A whole word that no sequence of merges reaches: with ignore_merges it still is one token.
        vocab = out["model"]["vocab"]
        for token in out["added_tokens"]:
            token["id"] += 2
        for s in out["post_processor"]["processors"][1]["special_tokens"].values():
            s["ids"] = [i + 2 for i in s["ids"]]
        top = max(vocab.values())
        vocab["Ġbiblioth"], vocab["zzyzx"] = top + 1, top + 2
    if change.get("string_merges"):
        out["model"]["merges"] = [" ".join(m) for m in out["model"]["merges"]]
    return json.dumps(out, ensure_ascii=False, indent=None, separators=(",", ":"))


SWEEP = "a{0}b 1{0}2 {0} {0}{0}\n'{0}s.{0}\u0301\u0323a\u0345{0}\u0301 {0}\u0307\r{0}\n"
BLOCK = 4096
# The designs to ask about every code point (half a minute each); the others have the same steps.
SWEPT = {"a_llama3", "b_qwen3", "c_qwen35", "d_smollm2", "e_deepseek", "f_flags", "l_folded"}


def sweep(tok):
    """Two hashes for each block of 4,096 code points, over SWEEP filled with each of them: of its ids, and of the lengths
    in bytes of the pieces that the pre-tokenizer makes of it."""
    ids, pieces = [], []
    for start in range(0, 0x110000, BLOCK):
        texts = [SWEEP.format(chr(c)) for c in range(start, start + BLOCK) if not 0xD800 <= c <= 0xDFFF]
        h, p = hashlib.sha256(), hashlib.sha256()
        for e in tok.encode_batch_fast(texts, add_special_tokens=False):
            h.update(struct.pack(f"<{len(e.ids)}ii", *e.ids, -1))
        for text in texts:
            sizes = [len(piece) for piece, _ in tok.pre_tokenizer.pre_tokenize_str(text)]
            p.update(struct.pack(f"<{len(sizes)}ii", *sizes, -1))
        ids.append(h.hexdigest()[:16])
        pieces.append(p.hexdigest()[:16])
    return ids, pieces


def decodes(tok, r):
    n = tok.get_vocab_size()
    out = []
    for _ in range(500):
        ids = [r.randrange(n) if r.random() < 0.5 else r.randrange(256) for _ in range(r.randint(0, 12))]
        if r.random() < 0.05:
            ids.append(n + 7)
        skip = r.random() < 0.5
        out.append({"ids": ids, "skip": skip, "text": tok.decode(ids, skip_special_tokens=skip)})
    return out


def write_gz(path, value):
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode()
    path.write_bytes(gzip.compress(text, mtime=0))


def main():
    strings = TRICKY + fuzz(random.Random(SEED + 1), 2500)
    write_gz(HERE / "strings.json.gz", strings)
    for name in DESIGNS:
        text = train(name)
        (HERE / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        tok = Tokenizer.from_str(text)
        golden = {
            "made_by": {"tokenizers": tokenizers.__version__, "python": platform.python_version(), "seed": SEED},
            "ids": [tok.encode(s, add_special_tokens=True).ids for s in strings],
            "decode": decodes(tok, random.Random(SEED + 2)),
        }
        if name in SWEPT:
            golden["sweep_text"] = SWEEP
            golden["sweep_ids"], golden["sweep_pieces"] = sweep(tok)
        write_gz(HERE / f"{name}.golden.json.gz", golden)
        print(name, tok.get_vocab_size(), "tokens", sum(map(len, golden["ids"])), "ids")


if __name__ == "__main__":
    main()
