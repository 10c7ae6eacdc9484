"""Chat rendering, ids and masks against transformers, for every row of a data set.

    chat.py RENDER ASSETS DATA      RENDER: the program built from render.c

Checked for models/smollm2 and models/tiny-llama: the text is that of apply_chat_template(tokenize=False), the ids those of
apply_chat_template(tokenize=True), and the mask follows a rule that oracle.py computes only from the text: the contents of
the assistant messages, found in order, and the added token that begins where such a content ends.
"""
import glob
import json
import os
import subprocess
import sys

from oracle import expected_mask, load_tokenizer


def check(render, model, lines):
    tokenizer = load_tokenizer(model)
    added = set(tokenizer.added_tokens_decoder)
    out = subprocess.run([render, model], input="".join(lines), stdout=subprocess.PIPE, check=True, text=True, encoding="utf-8").stdout
    results = out.split("\n")[:-1]
    wrong = {"rows": int(len(results) != len(lines)), "text": 0, "ids": 0, "mask": 0}
    tokens = trained = 0
    for line, result in zip(lines, results):
        messages, got = json.loads(line)["messages"], json.loads(result)
        if "error" in got:
            print(f"{model}: {got['error']}", file=sys.stderr)
            wrong["rows"] += 1
            continue
        text = tokenizer.apply_chat_template(messages, tokenize=False)
        ids = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True)["input_ids"]
        wrong["text"] += got["text"] != text
        wrong["ids"] += got["ids"] != list(ids)
        wrong["mask"] += got["mask"] != expected_mask(tokenizer, added, text, messages)
        tokens += len(ids)
        trained += sum(got["mask"])
    print(f"{os.path.basename(model)}: {len(results)} rows, {tokens} tokens, {trained} trained; differences: {wrong}")
    return sum(wrong.values())


def main():
    render, assets, data = sys.argv[1:]
    lines = [line for path in sorted(glob.glob(os.path.join(data, "*.jsonl"))) for line in open(path, encoding="utf-8")]
    bad = sum(check(render, os.path.join(assets, "models", name), lines) for name in ("smollm2", "tiny-llama"))
    sys.exit(1 if bad or not lines else 0)


main()
