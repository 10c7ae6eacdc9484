"""The library from Python against transformers: ids of texts and chats, texts of ids, and log-probabilities in float32.

    library.py ASSETS DATA

Finds the library by HONE_LIBRARY and the package by PYTHONPATH.
"""
import os
import sys

import hone
import oracle

LIMIT = 2e-4        # of a log-probability, in float32 on both sides


def main():
    import torch
    assets, data = sys.argv[1:]
    checks, lines = oracle.Checks(), oracle.choose_chats(data, 6)
    for name in oracle.MODELS:
        path = os.path.join(assets, "models", name)
        tokenizer, truth, model = oracle.load_tokenizer(path), oracle.load_model(path), hone.Model(path, dtype="float32")
        chats = [oracle.messages(line) for line in lines]
        texts = [message["content"] for chat in chats for message in chat]
        plain = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
        differ = {"ids of texts": sum(model.tokenize(text) != ids for text, ids in zip(texts, plain)),
                  "ids with special tokens": sum(model.tokenize(text, special=True) != tokenizer(text)["input_ids"] for text in texts),
                  "texts of ids": sum(model.detokenize(ids) != tokenizer.decode(ids) for ids in plain)}
        for prompt in (False, True):
            want = [tokenizer.apply_chat_template(chat, tokenize=True, return_dict=True, add_generation_prompt=prompt)["input_ids"]
                    for chat in chats]
            differ["prompts" if prompt else "chats"] = sum(model.chat_template(chat, prompt=prompt).ids != list(ids)
                                                           for chat, ids in zip(chats, want))
        for what, count in differ.items():
            checks.equal(f"{name}, {what} that differ", count, 0)
        rows, off = [model.chat_template(chat).ids for chat in chats], 0
        for ids, got in zip(rows, model.logprobs(rows)):
            with torch.no_grad():
                logprobs = truth(input_ids=torch.tensor([ids])).logits[0].double().log_softmax(-1)
            want = [0.0] + [logprobs[i - 1, id].item() for i, id in enumerate(ids) if i]
            off = max(off, max(abs(a - b) for a, b in zip(want, got)))
        checks.at_most(f"{name}, log-probabilities of {sum(map(len, rows))} tokens, off by", off, LIMIT)
        model.close()
    checks.end()


main()
