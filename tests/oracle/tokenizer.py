"""Compares hone's tokenizers with Hugging Face's: ids, decoded text and, where theirs are exact, offsets.

    tokenizer.py TOKENIZE ASSETS DATA [--full] [--strings N] [--only PART] [--name NAME ...]

TOKENIZE is the program built from tokenize.c, ASSETS the folder of test models and tokenizers, DATA a folder of chats (*.jsonl).
Every tokenizer gets all messages of the chats, llama.cpp's test vectors, the text files of a documentation package and N random
strings; then difficult strings go through variants of tokenizers, each with another normalizer, pre-tokenizer, model, decoder,
post-processor or set of added tokens. --full: all packages and a million strings. Exits with 1 if anything differs.
"""

import argparse
import json
import os
import sys
import tempfile
import time
import unicodedata

from tokenizers import Tokenizer

import tokenizer_texts as corpus
import tokenizer_tool as hone
import tokenizer_variants as kinds

SHOWN = 5  # differences printed for one tokenizer
AT_ONCE = 100000  # texts


class Counts:
    def __init__(self):
        self.texts = self.ids = self.different = self.decoded = self.lost = self.offsets = 0


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


def show(counts, text, what, got, expected):
    counts.different += 1
    if counts.different <= SHOWN:
        print(f"  {text[:200]!r}\n    {what:<8} {str(got)[:600]}\n    expected {str(expected)[:600]}")


def check_offsets(counts, tool, path, texts, encodings, decoded):
    """Hugging Face loses count after a byte that the vocabulary lacks, and counts only one of the characters that a normalizer
    joined; where its own decoding gives the text, its offsets are exact."""
    for text, mine, encoding, back in zip(texts, hone.encode(tool, path, texts, "offsets"), encodings, decoded):
        if back != text or isinstance(mine, hone.Failed):
            continue
        counts.offsets += 1
        got = whole_characters(text, [(b, e) for _, b, e in hone.triples(mine)])
        expected = in_bytes(text, encoding.offsets)
        if got != expected:
            show(counts, text, "offsets", got, expected)


def check_texts(counts, tool, path, theirs, texts, offsets, surrounded):
    encodings = theirs.encode_batch(texts, add_special_tokens=surrounded)
    packed = [hone.pack(encoding.ids) for encoding in encodings]
    mine = hone.encode(tool, path, texts, "surrounded" if surrounded else "ids")
    counts.texts += len(texts)
    for text, got, expected in zip(texts, mine, packed):
        counts.ids += len(expected) // 4
        if got != expected:
            show(counts, text, "got", got if isinstance(got, hone.Failed) else hone.numbers(got), hone.numbers(expected))
    decoded = theirs.decode_batch([encoding.ids for encoding in encodings], skip_special_tokens=False)
    for mode in ("decode", "pieces") if offsets else ("decode",):
        for text, got, expected in zip(texts, hone.run(tool, mode, path, packed), decoded):
            back = got if isinstance(got, hone.Failed) else got.decode(errors="replace")
            counts.decoded += 1
            if back == expected:
                continue
            if "\ufffd" in expected and back.count("\ufffd") < expected.count("\ufffd"):
                counts.lost += 1        # an added token whose characters stand for bytes elsewhere: Hugging Face breaks it
            else:
                show(counts, text, mode, repr(back), repr(expected))
    if offsets:
        check_offsets(counts, tool, path, texts, encodings, decoded)


def load(path):
    theirs = Tokenizer.from_file(path)
    theirs.no_truncation()
    theirs.no_padding()
    return theirs


def compare(tool, path, theirs, texts, name, offsets=False, surrounded=False):
    """Returns how many texts differ."""
    start = time.time()
    counts = Counts()
    for i in range(0, len(texts), AT_ONCE):
        check_texts(counts, tool, path, theirs, texts[i:i + AT_ONCE], offsets, surrounded)
    print(f"{name}: {counts.texts} texts, {counts.ids} ids, {counts.decoded} decoded ({counts.lost} where only hone's are whole "
          f"characters), {counts.offsets} with offsets, {counts.different} different, {time.time() - start:.1f} s", flush=True)
    return counts.different


def compare_all(arguments):
    tool, assets = arguments.tool, arguments.assets
    strings = arguments.strings or (1000000 if arguments.full else 10000)
    parts = {"chats": corpus.messages(arguments.data), "vectors": corpus.vectors(assets)}
    for place in corpus.manuals(assets)[:None if arguments.full else 1]:
        parts[os.path.basename(place)] = corpus.files_of(place)
    parts[f"{strings} random strings"] = corpus.random_unicode(strings, 7)
    for name, texts in parts.items():
        print(f"{name}: {len(texts)} texts, {sum(len(text.encode()) for text in texts) / 1e6:.1f} MB")
    different = 0
    for name in arguments.name or corpus.NAMES:
        path = os.path.join(assets, name, "tokenizer.json")
        theirs = load(path)
        for part, texts in parts.items():
            different += compare(tool, path, theirs, texts, f"{name}, {part}", part == "vectors")
    return different


def compare_variants(arguments):
    different = 0

    def read(name, merges):
        with open(os.path.join(arguments.assets, name, "tokenizer.json"), encoding="utf-8") as file:
            return kinds.smaller(json.load(file), merges)

    def run(name, content, texts, **options):
        path = os.path.join(folder, "tokenizer.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(content, file)
        return compare(arguments.tool, path, load(path), texts, name, **options)

    hard = corpus.difficult(2500, unicodedata)
    old = corpus.difficult(2500, unicodedata.ucd_3_2_0)
    strings = corpus.random_unicode(1000, 3)
    smollm, phi = read("models/smollm2", 4000), read("tokenizers/phi-3", 8000)
    with tempfile.TemporaryDirectory() as folder:
        for name, content, offsets in kinds.variants(smollm):
            form = content["normalizer"] is None or content["normalizer"]["type"] in ("NFC", "NFD", "NFKC", "NFKD")
            different += run(name, content, hard + strings if form else old, offsets=offsets)
        for name, content in kinds.spaced_variants(phi):
            different += run(name, content, hard)
        for name, content in kinds.unigrams(corpus.messages(arguments.data)[:3000]):
            different += run(name, content, old)
        vocabulary = os.path.join(arguments.assets, "vocabs", "ggml-vocab-nomic-bert-moe.gguf")
        different += run("precompiled", kinds.precompiled(vocabulary), hard + strings)
        for name, content in kinds.post_processors(smollm):
            different += run(name, content, hard[:300], surrounded=True)
    return different


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("assets")
    parser.add_argument("data")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--strings", type=int)
    parser.add_argument("--name", nargs="+")
    parser.add_argument("--only", choices=["models", "variants"])
    arguments = parser.parse_args()
    different = 0
    if arguments.only != "variants":
        different += compare_all(arguments)
    if arguments.only != "models":
        different += compare_variants(arguments)
    print(f"{different} differences")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
