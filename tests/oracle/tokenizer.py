"""Compares hone's tokenizer with Hugging Face's, id by id and offset by offset.

    tokenizer.py TOKENIZE ASSETS DATA

TOKENIZE is the program built from tokenize.c, ASSETS the folder of test models and tokenizers, DATA a folder of chats
(*.jsonl). Every message of the chats and a few thousand difficult strings are encoded with every tokenizer, then the
difficult strings with variants of one tokenizer, each with another normalizer, pre-tokenizer or set of added tokens.
Exits with 1 if anything differs.
"""

import glob
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import Tokenizer

NEEDED = ["models/smollm2", "models/tiny-llama"]
MORE = ["tokenizers/" + name for name in ("llama-bpe", "qwen2", "gpt-2", "starcoder", "falcon", "deepseek-llm")]
SHOWN = 5  # differences printed for one tokenizer


def messages(data):
    texts = []
    for path in sorted(glob.glob(os.path.join(data, "*.jsonl"))):
        with open(path, encoding="utf-8") as file:
            for line in file:
                texts += [message["content"] for message in json.loads(line)["messages"]]
    return texts


def difficult(count, unicode, seed=1):
    """Random mixtures of what tokenizers trip over. Random characters are those that a version of Unicode knows: the tables
    of the libraries have different ages. (Hugging Face's normalizers are older than Unicode 11.)"""
    rng = random.Random(seed)
    known = [chr(c) for c in range(0x110000) if unicode.category(chr(c)) not in ("Cn", "Cs")]
    spaces = [" ", "  ", "\t", "\n", "\r\n", "\n\n", "\x0b", "\x0c", "\x85", "\xa0", "\u1680", "\u180e", "\u2003", "\u2028",
              "\u202f", "\u3000", "\u200b", "\ufeff", " \n ", "   \n", "\r"]
    digits = list("0123456789") + ["12", "345", "6789", "٣", "²", "½", "Ⅷ", "๔", "𝟙", "〇", "①", "1.5", "1,000"]
    words = ["hello", "World", "I'm", "it's", "WE'LL", "they'Re", "can't", "'s", "'S", "’s", "'\u017f", "don't", "naïve", "İstanbul",
             "straße", "ΣΊΣΥΦΟΣ", "żółć", "Ärger", "ﬁn", "日本語", "中文字符", "한국어", "각", "ᄀ", "ᆨ", "ᅡ", "ㄱㅏ", "ｶﾞ", "สวัสดี",
             "हिन्दी", "עברית", "العربية", "e\u0301", "a\u0323\u0302", "\u0302\u0323a", "ö", "o\u0308", "Å", "Ω", "㎏", "ﷺ", "ক\u09be",
             "\u0301", "x" * 50, "ab" * 40, "_under_score_", "camelCase", "snake_case", "\u200d", "ы\u0306", "🙂", "👨\u200d👩\u200d👧",
             "🇩🇪🇫🇷", "👍🏽", "𝒳", "\U00020000", "\U000e0041", "\x00", "\x7f", "\x01\x02"]
    marks = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~¡¿«»“”„…—–‰€¥©®°•、。！") + ["...", "!!", "?!", "->", "==", "//", "/*", "*/"]
    tokens = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_start", "|>", "<", "<|", "<<|im_end|>>", "[TOK]", "tok", "token",
              "Tok", "TOK", "é!", "É!", "e\u0301!", "<a>", "<ab>", "<abc>", "<b>"]
    pools = [spaces, spaces, digits, words, words, marks, tokens, known, [chr(c) for c in range(32, 127)], [" "]]
    texts = ["", " ", "\n", "'", "a" * 3000, " " * 3000, "é" * 500, " a" * 500, "\u0301" * 300, "9" * 100, "\r\n" * 200]
    texts += [a + b + c for a in spaces for b in ("x", " x", "1", ".") for c in spaces]
    while len(texts) < count:
        texts.append("".join(rng.choice(rng.choice(pools)) for _ in range(rng.randint(1, rng.choice([4, 12, 60])))))
    return texts


def ours(tool, path, texts):
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    run = subprocess.run([tool, "--offsets", path], input=lines.encode(), capture_output=True)
    if run.returncode:
        raise SystemExit(f"{path}: {tool} ended with {run.returncode}: {run.stderr.decode()}")
    return [json.loads(line) for line in run.stdout.decode().splitlines()]


def in_bytes(text, offsets):
    """Offsets of characters as offsets of bytes."""
    starts = [0]
    for c in text:
        starts.append(starts[-1] + len(c.encode()))
    return [(starts[b], starts[e]) for b, e in offsets]


def whole_characters(text, spans):
    """hone cuts inside characters where tokens do; Hugging Face's offsets are of whole characters."""
    data = text.encode()

    def inside(i):
        return i < len(data) and data[i] & 0xC0 == 0x80

    out = []
    for b, e in spans:
        while inside(b):
            b -= 1
        while inside(e):
            e += 1
        out.append((b, e))
    return out


def compare(tool, path, texts, offsets=True):
    """Returns how many texts differ. Offsets are compared where Hugging Face's are exact: it loses count behind a byte that
    the vocabulary lacks, and counts only one of the characters that a normalizer joined."""
    theirs = Tokenizer.from_file(path)
    theirs.no_truncation()
    theirs.no_padding()
    different = compared = ids = 0
    encodings = theirs.encode_batch(texts, add_special_tokens=False)
    for text, mine, encoding in zip(texts, ours(tool, path, texts), encodings):
        ids += len(encoding.ids)
        got = [item[0] for item in mine] if isinstance(mine, list) else mine
        wrong = got != encoding.ids
        spans = ""
        if not wrong and offsets and theirs.decode(encoding.ids, skip_special_tokens=False) == text:
            compared += 1
            got_spans = whole_characters(text, [(b, e) for _, b, e in mine])
            want_spans = in_bytes(text, encoding.offsets)
            wrong = got_spans != want_spans
            spans = f"\n    offsets  {got_spans}\n    expected {want_spans}"
        if wrong:
            different += 1
            if different <= SHOWN:
                print(f"  {text!r}\n    got      {got}\n    expected {encoding.ids}{spans}")
    print(f"{path}: {len(texts)} texts, {ids} ids, {compared} with offsets, {different} different", flush=True)
    return different


LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
DEEPSEEK3 = "|".join([
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+", r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
    r" ?[\p{P}\p{S}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])


def byte_level(prefix=False, regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def pre_tokenizers():
    last = byte_level(regex=False)
    yield "gpt2", byte_level()
    yield "prefix-space", byte_level(prefix=True)
    yield "no-regex", last
    yield "no-regex-prefix", byte_level(prefix=True, regex=False)
    for name, pattern in (("llama3", LLAMA3), ("o200k", O200K), ("deepseek3", DEEPSEEK3)):
        yield name, sequence(split(pattern), last)
    yield "digits", sequence({"type": "Digits", "individual_digits": True}, byte_level())
    yield "digit-runs", sequence({"type": "Digits", "individual_digits": False}, byte_level(prefix=True))
    for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            yield f"{behavior}-{invert}", sequence(split(r"\p{L}+|-|\s", behavior, invert), last)
        yield f"punctuation-{behavior}", sequence({"type": "Punctuation", "behavior": behavior}, last)
        yield f"literal-{behavior}", sequence(split("a.", behavior, kind="String"), split(" ", behavior, kind="String"), last)
        yield f"empty-matches-{behavior}", sequence(split(r"x*|(?=\p{Lu})", behavior), last)
    yield "falcon", sequence({"type": "Punctuation", "behavior": "Contiguous"}, byte_level(),
                             {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]"))
    yield "prefix-for-each", sequence(split(r"\s+", "Removed"), byte_level(prefix=True))
    yield "lines", sequence(split(r"^.|.$|\w+\d|\h{2}|[\w]\W|\v|\S\s"), last)
    yield "han", sequence(split(r"\p{Han}+|[\p{Hiragana}\p{Katakana}]+|\P{Greek}|\p{^Lu}{,3}"), last)
    yield "nested", sequence(sequence(split(r"\x41|\x{4e2d}|\u00e9")), sequence(last))


def variants(base):
    """Pairs of a name and a tokenizer.json, and whether the offsets are comparable."""
    def change(**parts):
        copy = json.loads(json.dumps(base))
        copy.update(parts)
        return copy

    for name, pre in pre_tokenizers():
        yield name, change(pre_tokenizer=pre), True
    simple = [{"type": form} for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase")]
    simple += [{"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "Strip", "strip_left": False, "strip_right": True},
               {"type": "Prepend", "prepend": "_x "}, {"type": "Replace", "pattern": {"String": "a"}, "content": "éa"},
               {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}]
    everything = {"type": "Sequence", "normalizers": [simple[1], simple[4], simple[9], simple[0]]}
    for normalizer in simple + [everything]:
        yield "normalizer " + normalizer["type"], change(normalizer=normalizer), False

    def added(**flags):
        vocab = base["model"]["vocab"]
        tokens = [dict(token) for token in base["added_tokens"]]
        for content in ("[TOK]", "tok", "token", "Tok", "é!", "<a>", "<ab>", "<abc>", "  ", "\n", "1"):
            default = {"special": False, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
            new = sum(token["content"] not in vocab for token in tokens)
            tokens.append({"id": vocab.get(content, len(vocab) + new), "content": content, **default, **flags})
        return {"added_tokens": tokens}

    for flags in ({}, {"single_word": True}, {"lstrip": True}, {"rstrip": True}, {"lstrip": True, "rstrip": True, "special": True},
                  {"normalized": True}, {"normalized": True, "single_word": True, "lstrip": True}):
        yield f"added {flags}", change(**added(**flags)), not (flags.get("lstrip") or flags.get("rstrip"))
        yield f"added {flags} NFD", change(normalizer=simple[1], **added(**flags)), False

    model = {**base["model"], "ignore_merges": True}
    yield "ignore_merges", change(model=model), True
    vocab = {token: i for token, i in base["model"]["vocab"].items() if token not in ("Ã", "a", "e")}
    merges = [m for m in base["model"]["merges"] if m[0] in vocab and m[1] in vocab and m[0] + m[1] in vocab]
    unk = {**base["model"], "vocab": vocab, "merges": merges}
    for fuse in (False, True):
        yield f"unk fuse={fuse}", change(model={**unk, "unk_token": "<|endoftext|>", "fuse_unk": fuse}), False
    yield "bytes missing", change(model=unk), False
    strings = {**base["model"], "merges": [" ".join(m) for m in base["model"]["merges"]]}
    yield "merges as strings", change(model=strings), True


def main():
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    tool, assets, data = sys.argv[1:]
    hard = difficult(4000, unicodedata)
    old = difficult(4000, unicodedata.ucd_3_2_0)
    texts = messages(data) + hard
    different = 0
    for name in NEEDED + MORE:
        path = os.path.join(assets, name, "tokenizer.json")
        if name in NEEDED or os.path.exists(path):
            different += compare(tool, path, texts)
        else:
            print(f"{path}: not there, left out")
    with open(os.path.join(assets, "models/smollm2/tokenizer.json"), encoding="utf-8") as file:
        base = json.load(file)
    with tempfile.TemporaryDirectory() as folder:
        for name, content, offsets in variants(base):
            path = os.path.join(folder, name.replace("/", "-") + ".json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(content, file)
            different += compare(tool, path, old if content["normalizer"] else hard, offsets)
    print(f"{different} differences")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
