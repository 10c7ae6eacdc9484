"""Greedy text of hone in float32 against that of transformers: 8 prompts, 64 new tokens, SmolLM2.

    generate.py HONE ASSETS DATA CACHE

The truth is greedy in float64, so a tie that float32 decides either way has one answer. It is found as float32's text that
one pass in float64 confirms: where the pass prefers another token, that one is taken and float32 continues from there. The
smallest lead of a token over the next is printed, as a part of the range of the logits: it says how near to a tie the
prompts come, and a difference with a lead far above float32's error (logits.py) is a fault of the program.
"""
import json
import os

import oracle

COUNT = 8
LENGTH = 64


def choose_prompts(data):
    """User messages of all kinds in turn; a kind is what the first two words say."""
    kinds = {}
    for line in oracle.read_lines(data):
        for message in oracle.messages(line):
            if message["role"] == "user":
                kind = kinds.setdefault(" ".join(message["content"].split()[:2]), [])
                if message["content"] not in kind:
                    kind.append(message["content"])
    depth = max(len(kind) for kind in kinds.values())
    return [kind[i] for i in range(depth) for kind in kinds.values() if i < len(kind)][:COUNT]


def continuations(model, pad, ends, rows, length):
    """What the model adds to each row by itself, its end of turn included. The rows go in one batch, padded on the left."""
    import torch
    width = max(len(row) for row in rows)
    ids = torch.tensor([[pad] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    out = model.generate(input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=length)[:, width:].tolist()
    return [row[:next((i + 1 for i, id in enumerate(row) if id in ends), length)] for row in out]


def make_texts(folder, model, prompts):
    import torch
    tokenizer, single, double = oracle.load_tokenizer(model), oracle.load_model(model), oracle.load_model(model).double()
    pad, ends = single.generation_config.pad_token_id, single.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    starts = [list(tokenizer.apply_chat_template([{"role": "user", "content": prompt}], tokenize=True, return_dict=True,
                                                 add_generation_prompt=True)["input_ids"]) for prompt in prompts]
    answers = []
    for prompt, start, new in zip(prompts, starts, continuations(single, pad, ends, starts, LENGTH)):
        sure, changed, lead = 0, 0, float("inf")
        while sure < len(new):
            with torch.no_grad():
                logits = double(input_ids=torch.tensor([start + new])).logits[0, len(start) + sure - 1:-1]
            best, top = logits.topk(2, dim=-1)
            leads = ((best[:, 0] - best[:, 1]) / (logits.max() - logits.min())).tolist()
            for ahead, (id, _) in zip(leads, top.tolist()):
                sure, lead = sure + 1, min(lead, ahead)
                if id != new[sure - 1]:
                    new, changed = new[:sure - 1] + [id], changed + 1
                    if id not in ends and sure < LENGTH:
                        new += continuations(single, pad, ends, [start + new], LENGTH - sure)[0]
                    break
        answers.append({"prompt": prompt, "text": tokenizer.decode(new, skip_special_tokens=True), "tokens": len(new),
                        "changed": changed, "lead": lead})
    with open(os.path.join(folder, "truth.json"), "w", encoding="utf-8") as file:
        json.dump(answers, file)


def main():
    hone, assets, data, cache = oracle.arguments(__doc__)
    checks, model, prompts = oracle.Checks(), os.path.join(assets, "models", "smollm2"), choose_prompts(data)
    for answer in oracle.cached(cache, "greedy", model, prompts, make_texts, oracle.read_truth):
        got = oracle.run(hone, "generate", "--model", model, "--prompt", answer["prompt"], "--max-new-tokens", str(LENGTH),
                         "--dtype", "float32").decode(errors="backslashreplace")
        checks.same_text(f"{answer['prompt']!r}, {answer['tokens']} tokens, smallest lead {answer['lead']:.2g} of the range, "
                         f"transformers' float32 differs {answer['changed']} times", got, answer["text"] + "\n")
    checks.equal("prompts", len(prompts), COUNT)
    checks.end()


main()
