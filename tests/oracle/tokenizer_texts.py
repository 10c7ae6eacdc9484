"""Texts that tokenizers are tried on: chats, the vectors of llama.cpp, manuals in many scripts, and random Unicode."""

import glob
import gzip
import json
import os
import random

# The folders of the assets that have a tokenizer.json of their own.
NAMES = ["models/smollm2"] + ["tokenizers/" + name for name in (
    "llama-bpe", "qwen2", "gpt-2", "starcoder", "falcon", "deepseek-llm", "llama-spm", "phi-3")]

def messages(data):
    texts = []
    for path in sorted(glob.glob(os.path.join(data, "*.jsonl"))):
        with open(path, encoding="utf-8") as file:
            for line in file:
                texts += [message["content"] for message in json.loads(line)["messages"]]
    return texts


def vectors(assets):
    """The texts of llama.cpp's vocabulary tests."""
    texts = set()
    for path in sorted(glob.glob(os.path.join(assets, "vocabs", "*.inp"))):
        with open(path, encoding="utf-8", newline="") as file:
            texts.update(file.read().split("\n__ggml_vocab_test__\n"))
    return sorted(texts)


def manuals(assets):
    """The folders of Debian's manuals, each in another script."""
    return sorted(glob.glob(os.path.join(assets, "documents", "*")))


def files_of(place):
    """What is text among the files of a folder."""
    texts = []
    for root, folders, files in os.walk(place):
        folders.sort()
        for file in sorted(files):
            path = os.path.join(root, file)
            if os.path.islink(path):
                continue
            with open(path, "rb") as stream:
                data = stream.read()
            try:
                data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
                text = data.decode()
            except (UnicodeDecodeError, OSError, EOFError):
                continue
            if text and "\0" not in text:
                texts.append(text)
    return texts


SPACES = [" ", "  ", "\t", "\n", "\r\n", "\n\n", "\x0b", "\x0c", "\x85", "\xa0", "\u1680", "\u180e", "\u2003", "\u2028",
          "\u202f", "\u3000", "\u200b", "\ufeff", " \n ", "   \n", "\r"]
DIGITS = list("0123456789") + ["12", "345", "6789", "٣", "²", "½", "Ⅷ", "๔", "𝟙", "〇", "①", "1.5", "1,000"]
WORDS = ["hello", "World", "I'm", "it's", "WE'LL", "they'Re", "can't", "'s", "'S", "’s", "'\u017f", "don't", "naïve", "İstanbul",
         "straße", "ΣΊΣΥΦΟΣ", "żółć", "Ärger", "ﬁn", "日本語", "中文字符", "한국어", "각", "ᄀ", "ᆨ", "ᅡ", "ㄱㅏ", "ｶﾞ", "สวัสดี",
         "हिन्दी", "עברית", "العربية", "e\u0301", "a\u0323\u0302", "\u0302\u0323a", "ö", "o\u0308", "Å", "Ω", "㎏", "ﷺ", "ক\u09be",
         "\u0301", "x" * 50, "ab" * 40, "_under_score_", "camelCase", "snake_case", "\u200d", "ы\u0306", "🙂", "👨\u200d👩\u200d👧",
         "🇩🇪🇫🇷", "👍🏽", "𝒳", "\U00020000", "\U000e0041", "\x00", "\x7f", "\x01\x02", "\u2581", "\u2581\u2581", "a\u2581b"]
MARKS = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~¡¿«»“”„…—–‰€¥©®°•、。！") + ["...", "!!", "?!", "->", "==", "//", "/*", "*/"]
TOKENS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_start", "|>", "<", "<|", "<<|im_end|>>", "[TOK]", "tok", "token",
          "Tok", "TOK", "é!", "É!", "e\u0301!", "<a>", "<ab>", "<abc>", "<b>", "<s>", "</s>", "<unk>", "<0x41>", "<0xE2>", "[PAD1516",
          "<|begin_of_text|>", "<|eot_id|>", "<｜begin▁of▁sentence｜>", "<fim_prefix>", ">>TITLE<<", "<|end|>", "<|user|>", "ø", "ÿ"]


def difficult(count, unicode, seed=1):
    """Random mixtures of what tokenizers trip over. Random characters are those that a version of Unicode knows: the tables
    of the libraries have different ages. (Hugging Face's normalizers are older than Unicode 11.)"""
    rng = random.Random(seed)
    known = [chr(c) for c in range(0x110000) if unicode.category(chr(c)) not in ("Cn", "Cs")]
    pools = [SPACES, SPACES, DIGITS, WORDS, WORDS, MARKS, TOKENS, known, [chr(c) for c in range(32, 127)], [" "]]
    texts = ["", " ", "\n", "'", "a" * 3000, " " * 3000, "é" * 500, " a" * 500, "\u0301" * 300, "9" * 100, "\r\n" * 200]
    texts += [a + b + c for a in SPACES for b in ("x", " x", "1", ".") for c in SPACES]
    while len(texts) < count:
        texts.append("".join(rng.choice(rng.choice(pools)) for _ in range(rng.randint(1, rng.choice([4, 12, 60])))))
    return texts


# Blocks of one script each; text of one script is what makes long words.
SCRIPTS = [(0x20, 0x7e), (0xa0, 0x17f), (0x250, 0x2ff), (0x300, 0x36f), (0x370, 0x3ff), (0x400, 0x52f), (0x530, 0x58f), (0x590, 0x5ff),
           (0x600, 0x6ff), (0x900, 0x97f), (0x980, 0x9ff), (0xb80, 0xbff), (0xe00, 0xe7f), (0x0f00, 0x0fff), (0x10a0, 0x10ff),
           (0x1100, 0x11ff), (0x1200, 0x137f), (0x1e00, 0x1eff), (0x2000, 0x206f), (0x2070, 0x209f), (0x20a0, 0x20cf), (0x2100, 0x214f),
           (0x2150, 0x218f), (0x2190, 0x21ff), (0x2460, 0x24ff), (0x2500, 0x25ff), (0x2600, 0x27bf), (0x3000, 0x30ff), (0x3130, 0x318f),
           (0x3200, 0x33ff), (0x4e00, 0x9fff), (0xa640, 0xa69f), (0xac00, 0xd7af), (0xd7b0, 0xd7ff), (0xe000, 0xe0ff), (0xf900, 0xfaff),
           (0xfb00, 0xfb4f), (0xfe00, 0xfe0f), (0xff00, 0xffef), (0xfff0, 0xffff), (0x10000, 0x100ff), (0x10400, 0x1044f),
           (0x1d400, 0x1d7ff), (0x1f1e6, 0x1f1ff), (0x1f300, 0x1faff), (0x20000, 0x2a6df), (0xe0000, 0xe007f), (0x10fff0, 0x10ffff)]


def random_unicode(count, seed):
    """Any code points that there can be, assigned or not: runs of one script, combining marks, controls, emoji, spaces, and what
    looks like special tokens."""
    rng = random.Random(seed)
    choice, randint, pick = rng.choice, rng.randint, rng.random

    def run():
        kind = pick()
        if kind < 0.30:
            low, high = choice(SCRIPTS)
            return "".join(chr(randint(low, high)) for _ in range(randint(1, 8)))
        if kind < 0.42:
            code = randint(0, 0x10f7ff)
            return chr(code if code < 0xd800 else code + 0x800)
        if kind < 0.47:
            return chr(randint(0, 31))
        return choice(choice(POOLS))

    texts = []
    for _ in range(count):
        texts.append("".join([run() for _ in range(randint(1, 10))]))
    return texts


POOLS = [SPACES, SPACES, [" "], DIGITS, WORDS, WORDS, MARKS, TOKENS, [chr(c) for c in range(32, 127)]]
