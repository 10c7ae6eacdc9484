"""Compares the tokenizers that hone reads from GGUF files with llama.cpp's own test vectors, with llama.cpp, and with Hugging
Face's tokenizers where the same vocabulary exists as tokenizer.json.

    gguf_tokenizer.py TOKENIZE ASSETS DATA [--strings N]

The vectors (.inp and .out next to a vocabulary) are what the models' own tokenizers give, and must be met exactly. llama.cpp must
agree on chats and random strings; texts with a token for which it has a rule of its own are counted apart.
Exits with 1 on any other difference.
"""

import argparse
import ctypes
import glob
import os
import sys

import llama_cpp

import tokenizer_texts as corpus
import tokenizer_tool as hone

UNSUPPORTED = {"bert-bge": "bert", "nomic-bert-moe": "t5"}
# llama.cpp takes the first for special whatever the file says, and strips the space after Phi-3's special tokens.
OVERRIDDEN = {"": ["</s>"], "phi-3": ["<|end|>", "<|user|>", "<|endoftext|>"]}
SHOWN = 3


class Llama:
    def __init__(self, path):
        parameters = llama_cpp.llama_model_default_params()
        parameters.vocab_only = True
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), parameters)
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)

    def encode(self, text, special=True):
        data = text.encode()
        room = len(data) + 16
        out = (llama_cpp.llama_token * room)()
        n = llama_cpp.llama_tokenize(self.vocab, data, len(data), out, room, False, special)
        assert n >= 0
        return list(out[:n])

    def close(self):
        llama_cpp.llama_model_free(self.model)


def check_vectors(tool, path):
    """The texts of .inp against the ids of .out."""
    with open(path + ".inp", encoding="utf-8", newline="") as file:
        texts = file.read().split("\n__ggml_vocab_test__\n")
    with open(path + ".out", encoding="utf-8") as file:
        lines = [[int(word) for word in line.split()] for line in file.read().split("\n")]
    different = 0
    texts = texts[:len(lines)]
    for text, got, expected in zip(texts, hone.encode(tool, path, texts), lines):
        got = got if isinstance(got, hone.Failed) else hone.numbers(got)
        if got != expected:
            different += 1
            if different <= SHOWN:
                print(f"  {text!r}\n    got      {got}\n    expected {expected}")
    return len(texts), different


def check_llama(tool, path, parts, overridden):
    llama = Llama(path)
    counts = {}
    for name, texts in parts.items():
        different = 0
        for text, got in zip(texts, hone.encode(tool, path, texts)):
            expected = llama.encode(text)
            got = got if isinstance(got, hone.Failed) else hone.numbers(got)
            if got != expected and any(token in text for token in overridden):
                counts["apart"] = counts.get("apart", 0) + 1
            elif got != expected:
                different += 1
                if different <= SHOWN:
                    print(f"  {name}: {text[:150]!r}\n    got      {str(got)[:300]}\n    expected {str(expected)[:300]}")
        counts[name] = different
    llama.close()
    return counts


def check_hugging_face(tool, path, other, texts):
    if not os.path.exists(other):
        return None
    return sum(a != b for a, b in zip(hone.encode(tool, path, texts), hone.encode(tool, other, texts)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("assets")
    parser.add_argument("data")
    parser.add_argument("--strings", type=int, default=500)
    arguments = parser.parse_args()
    quiet = llama_cpp.llama_log_callback(lambda level, text, user: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    chats = corpus.messages(arguments.data)[:2000]
    parts = {"chats": chats, "random strings": corpus.random_unicode(arguments.strings, 11)}
    wrong = 0
    paths = sorted(glob.glob(os.path.join(arguments.assets, "vocabs", "*.gguf")))
    for path in paths + [os.path.join(arguments.assets, "models", "smollm2.q4_1.gguf")]:
        name = os.path.basename(path)[:-5].replace("ggml-vocab-", "")
        if name in UNSUPPORTED:
            try:
                hone.encode(arguments.tool, path, ["x"])
                print(f"{name}: is read, but should not be")
                wrong += 1
            except SystemExit as error:
                good = f'"{UNSUPPORTED[name]}" is not supported' in str(error)
                print(f"{name}: {'refused by name' if good else error}")
                wrong += not good
            continue
        vectors = check_vectors(arguments.tool, path) if os.path.exists(path + ".out") else (0, 0)
        counts = check_llama(arguments.tool, path, parts, OVERRIDDEN[""] + OVERRIDDEN.get(name, []))
        same = check_hugging_face(arguments.tool, path, os.path.join(arguments.assets, "tokenizers", name, "tokenizer.json"), chats)
        wrong += vectors[1] + counts["chats"] + counts["random strings"]
        print(f"{name}: vectors {vectors[0]}, different {vectors[1]}; unlike llama.cpp: {counts['chats']} of {len(chats)} chats, "
              f"{counts['random strings']} of {arguments.strings} random strings ({counts.get('apart', 0)} apart); unlike its tokenizer.json: "
              f"{'there is none' if same is None else f'{same} of {len(chats)} chats'}", flush=True)
    print(f"{wrong} differences")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
