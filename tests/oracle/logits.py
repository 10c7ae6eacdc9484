"""Logits in float32 against transformers in float64, at every position of 16 chats.

    logits.py TOOL ASSETS DATA CACHE

TOOL MODEL ROWS.jsonl OUT TOKENS runs the rows, packed several to a micro-batch of TOKENS slots, and writes for each row in
order: int32 n, int32 ids[n], float32 logits[n][V]. The ids must be those of apply_chat_template, and no logit may be further
from the truth than LIMIT of the range of all of them. Every chat's truth was computed alone, so a chat that sees another one
in its micro-batch is found; two sizes of micro-batch give it different company.
"""
import os
import tempfile

import numpy as np
import oracle

LIMIT = 1e-5
SLOTS = (256, 1024)


def compare(checks, label, path, truth, logits):
    out = np.memmap(path, dtype=np.int32, mode="r") if os.path.getsize(path) else np.zeros(0, np.int32)
    at = row = same = 0
    worst, where = 0.0, ""
    for number, chat in enumerate(truth["chats"]):
        n = len(chat["ids"])
        size = 1 + n + n * truth["vocabulary"]
        if out[at:at + 1 + n].tolist() != [n] + chat["ids"] or at + size > len(out):
            break  # without its ids the place of the next row is unknown
        got = out[at + 1 + n:at + size].view(np.float32).reshape(n, -1)
        far = np.abs(got - logits[row:row + n].astype(np.float64)).max(axis=1)
        i = int(np.argmax(far))  # of a NaN if there is one
        if not (np.isnan(worst) or far[i] <= worst):
            worst, where = float(far[i]), f"; chat {number}, position {i}"
        at, row, same = at + size, row + n, same + 1
    checks.equal(f"{label}, chats with the ids of transformers", same, len(truth["chats"]))
    checks.equal(f"{label}, bytes left over", 4 * (len(out) - at), 0)
    if same:
        checks.at_most(f"{label}, logits off by a part of their range", worst / truth["range"], LIMIT,
                       f", transformers' float32 {truth['float32_logits']:.3g}{where}")


def main():
    tool, assets, data, cache = oracle.arguments(__doc__)
    checks, lines = oracle.Checks(), oracle.choose_chats(data)
    for name in oracle.MODELS:
        model = os.path.join(assets, "models", name)
        truth, logits = oracle.logits_truth(cache, model, lines)
        for slots in SLOTS:
            assert slots >= max(len(chat["ids"]) for chat in truth["chats"])
            with oracle.rows_file(lines) as rows, tempfile.TemporaryDirectory() as folder:
                out = os.path.join(folder, "logits.bin")
                oracle.run(tool, model, rows, out, str(slots))
                compare(checks, f"{name}, {slots} slots", out, truth, logits)
    checks.end()


main()
