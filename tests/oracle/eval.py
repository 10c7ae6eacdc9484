"""hone eval against the mean loss of transformers in float64 over 16 chats.

    eval.py HONE ASSETS DATA CACHE

The loss is the mean of -log p over the trained tokens: those of the assistants' bytes and of their ends of turn, wherever a
token comes before them. Which they are is computed in oracle.py only from the text.
"""
import json
import math
import os

import oracle

LIMIT = 1e-6
LIMIT_BFLOAT16 = 1e-2


def main():
    hone, assets, data, cache = oracle.arguments(__doc__)
    checks, lines = oracle.Checks(), oracle.choose_chats(data)
    for name in oracle.MODELS:
        model = os.path.join(assets, "models", name)
        truth, _ = oracle.logits_truth(cache, model, lines)

        def off(loss):
            return abs(loss - truth["loss"]) / truth["loss"]

        for dtype, limit in (("float32", LIMIT), ("bfloat16", LIMIT_BFLOAT16)):
            with oracle.rows_file(lines) as rows:
                got = json.loads(oracle.run(hone, "eval", "--model", model, "--data", rows, "--dtype", dtype, "--json"))
            label = f"{name} {dtype}"
            checks.at_most(f"{label}, loss {got['loss']:.9g}, off by a part of it", off(got["loss"]), limit,
                           f", transformers' float32 {off(truth['float32_loss']):.3g}")
            checks.at_most(f"{label}, perplexity away from exp(loss)", abs(got["perplexity"] / math.exp(got["loss"]) - 1), 1e-6)
            checks.equal(f"{label}, tokens", got["tokens"], truth["tokens"])
            checks.equal(f"{label}, trained tokens", got["trained_tokens"], truth["trained_tokens"])
    checks.end()


main()
