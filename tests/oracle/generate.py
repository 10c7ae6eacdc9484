"""Greedy text of hone in float32 against that of transformers: 8 prompts, 64 new tokens, SmolLM2.

    generate.py HONE ASSETS DATA CACHE

The truth is greedy in float64, so a tie that float32 decides either way has one answer. It is found as float32's text that
one pass in float64 confirms: where the pass prefers another token, that one is taken and float32 goes on from there. The
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


def make_texts(folder, model, prompts):
    import torch
    tokenizer, single, double = oracle.load_tokenizer(model), oracle.load_model(model), oracle.load_model(model).double()
    ends = single.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    answers = []
    for prompt in prompts:
        conversation = [{"role": "user", "content": prompt}]
        ids = tokenizer.apply_chat_template(conversation, tokenize=True, return_dict=True, add_generation_prompt=True)["input_ids"]
        start, ids, changed, lead = len(ids), list(ids), 0, float("inf")
        while len(ids) < start + LENGTH and not (len(ids) > start and ids[-1] in ends):
            with torch.no_grad():
                begin = len(ids)
                given = torch.tensor([ids])
                ids = single.generate(input_ids=given, attention_mask=torch.ones_like(given), do_sample=False,
                                      max_new_tokens=start + LENGTH - begin)[0].tolist()
                logits = double(input_ids=torch.tensor([ids])).logits[0, begin - 1:-1]
            best, top = logits.topk(2, dim=-1)
            leads = ((best[:, 0] - best[:, 1]) / (logits.max() - logits.min())).tolist()
            for i, (id, _) in enumerate(top.tolist(), begin):
                lead = min(lead, leads[i - begin])
                if id != ids[i]:
                    ids, changed = ids[:i] + [id], changed + 1
                    break
        answers.append({"prompt": prompt, "text": tokenizer.decode(ids[start:], skip_special_tokens=True),
                        "tokens": len(ids) - start, "changed": changed, "lead": lead})
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
