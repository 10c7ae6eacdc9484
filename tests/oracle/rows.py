#!/usr/bin/env python3
"""Rows of every kind against TRL: the tokens that its SFTTrainer would train with, and which of them.

    rows.py TOOL MODEL

Strings of prompts and completions are taken both ways: with --raw, as TRL joins them, and through the chat template, as TRL takes
lists of messages. Ids must be the same. For plain text so must the mask. In conversations TRL trains every byte after the prompt,
hone the answer and its end of turn, so there hone's mask must lie inside TRL's and what it leaves out must be white space.
"""
import json
import os
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
TOOL, MODEL = sys.argv[1], sys.argv[2]

WORDS = ["Grüße", "¿qué?", "日本語", "a\tb", "x  y", "{}", "\\n", "🙂", "ok.", "tab\n\nnew", "é", "1234567", "<b>"]


def words(i, n):
    return " ".join(WORDS[(i * 7 + j * j) % len(WORDS)] for j in range(n))


def user(i):
    return {"role": "user", "content": words(i, 1 + i % 5)}


def answer(i):
    return {"role": "assistant", "content": words(i + 3, 2 + i % 6)}


def system(i):
    return {"role": "system", "content": words(i + 5, 3)}


def kinds(end):
    """name -> (rows as hone gets them, rows as TRL gets them)"""
    n = range(24)
    turns = [[system(i)] * (i % 2) + [user(i), answer(i)] * (1 + i % 3) for i in n]
    names = {"user": "human", "assistant": "gpt", "system": "system"}
    text = [{"text": words(i, 1 + i % 9) + (end if i % 4 == 0 else "")} for i in n]
    strings = [{"prompt": words(i, i % 4) + (":" if i % 2 else "\n"), "completion": (" " if i % 2 else "") + words(i + 2, 3) +
                (end if i % 5 == 0 else "")} for i in n]
    lists = [{"prompt": t[:-1], "completion": t[-1:]} for t in turns]
    alpaca = [{"instruction": words(i, 3), "input": words(i, i % 3), "output": words(i + 1, 4)} for i in n]
    chosen = [{"prompt": words(i, 2) + "?", "chosen": " " + words(i + 1, 3), "rejected": " no"} for i in n]
    whole = [{"chosen": t, "rejected": t[:-1] + [{"role": "assistant", "content": "no"}]} for t in turns]
    return {
        "text": (text, text),
        "prompt and completion, raw": (strings, strings),
        "prompt and completion": (strings, [{"prompt": [{"role": "user", "content": r["prompt"]}],
                                             "completion": [{"role": "assistant", "content": r["completion"]}]} for r in strings]),
        "prompt and completion, lists": (lists, lists),
        "messages": ([{"messages": t} for t in turns], None),
        "ShareGPT": ([{"conversations": [{"from": names[m["role"]], "value": m["content"]} for m in t]} for t in turns],
                     [{"messages": t} for t in turns]),
        "Alpaca": (alpaca, [{"messages": [{"role": "user", "content": "\n".join(filter(None, (r["instruction"], r["input"])))},
                                          {"role": "assistant", "content": r["output"]}]} for r in alpaca]),
        "preference, raw": (chosen, [{"prompt": r["prompt"], "completion": r["chosen"]} for r in chosen]),
        "preference, whole lists": (whole, [{"prompt": t[:-1], "completion": t[-1:]} for t in turns]),
    }


def ours(rows, folder, name):
    path = os.path.join(folder, "rows.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(r, ensure_ascii=False) + "\n" for r in rows)
    out = subprocess.run([TOOL, MODEL, path] + ["raw"] * ("raw" in name), capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def theirs(rows, folder, tokenizer, model):
    import datasets
    import trl
    config = trl.SFTConfig(output_dir=folder, max_length=None, report_to=[], use_cpu=True, bf16=False, dataset_num_proc=None)
    trainer = trl.SFTTrainer(model=model, args=config, processing_class=tokenizer, train_dataset=datasets.Dataset.from_list(rows))
    made = trainer.train_dataset
    mask = made["labels"] if "labels" in made.column_names else made["input_ids"]
    return [{"ids": ids, "mask": [int(x != -100) for x in m]} for ids, m in zip(made["input_ids"], mask)]


def main():
    import transformers
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
    model = transformers.AutoModelForCausalLM.from_pretrained(MODEL)
    wrong = checked = 0
    for name, (mine, trl_rows) in kinds(tokenizer.eos_token).items():
        with tempfile.TemporaryDirectory() as folder:
            got, want = ours(mine, folder, name), theirs(trl_rows or mine, folder, tokenizer, model)
        for i, (a, b) in enumerate(zip(got, want, strict=True)):
            plain = name == "text" or "raw" in name
            problem = None
            if "error" in a:
                problem = a["error"]
            elif a["ids"] != b["ids"]:
                problem = f"ids {a['ids']} but {b['ids']}"
            elif plain and a["mask"] != b["mask"]:
                problem = f"mask {a['mask']} but {b['mask']}"
            elif not plain:
                rest = [t for t, x, y in zip(a["ids"], a["mask"], b["mask"]) if y and not x]
                if any(x and not y for x, y in zip(a["mask"], b["mask"])):
                    problem = "trained, but not by TRL"
                elif "lists" in name and tokenizer.decode(rest).strip():
                    problem = f"not trained: {tokenizer.decode(rest)!r}"
                elif not any(a["mask"]):
                    problem = "nothing trained"
            checked += 1
            if problem:
                wrong += 1
                print(f"{name}, row {i + 1}: {problem}")
    print(f"{checked} rows of {len(kinds(''))} kinds, {wrong} differ from TRL")
    return wrong > 0 or checked < 150


sys.exit(main())
