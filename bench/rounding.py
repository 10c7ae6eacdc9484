"""What bfloat16 costs LoRA's learning: the same run in float32 and in bfloat16, by hone and by PEFT, for several learning rates.

    rounding.py HONE ASSETS DATA RESULTS.jsonl [--trainers hone,PEFT] [--dtypes float32,bfloat16] [--rates 5e-6,2e-5,2e-4,1e-3]
                [--seeds 1] [--steps 200] [--threads 1] [--name hone]

Run with the Python of the assets (ASSETS/venv/bin/python). Every run is a line of RESULTS; one that is there is not repeated, so
the study can be interrupted, and several processes can share it if they are given different runs. Two with one thread each need
less time than one with two threads. --name is what hone's runs are called, to compare builds. plot_rounding.py draws the results.

A run trains SmolLM2 with LoRA (r = 16 on all linear layers, alpha 32, no dropout) for --steps steps of four chats; constant rate,
no warm-up, AdamW without weight decay, gradients clipped at 1. The seed draws the chats and the adapter it starts from, the same
for all runs of that seed: PEFT's own initialisation, B = 0. Chats have at most LONGEST characters as rows, about 80 tokens.

PEFT is what a user of get_peft_model has: the base model in the run's type with PyTorch's default attention, the adapter in
float32 in both (PEFT's autocast_adapter_dtype). Logits are rounded to float32 before the loss, as transformers does. The four
chats are padded to one batch, which is faster than one by one. The loss of a step is the mean over its trained tokens.

In a line: the losses of the steps; eval_loss, the loss over EVALUATED chats of valid.jsonl at the end as the run itself computes
it; adapter_loss, the loss over them that hone computes in float32 with the run's adapter.
"""
import argparse
import json
import os
import random
import sys
import tempfile
import time

BENCH = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(BENCH, "..", "tests", "oracle"))

import oracle
import plot_loss
import train_truth

CHATS = train_truth.CHATS  # of a step
LONGEST = 300              # row, in characters
EVALUATED = 48
RUN = ("trainer", "dtype", "rate", "seed", "steps")  # what a run is known by


# What all runs of a seed share.

def short_rows(data, name):
    with open(os.path.join(data, name), encoding="utf-8") as file:
        return [line for line in file if line.strip() and len(line) <= LONGEST]


def write_rows(path, lines):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(lines)
    return path


def make_adapter(folder, model, seed):
    import torch
    from peft import LoraConfig, get_peft_model
    torch.manual_seed(seed)
    lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, bias="none", target_modules="all-linear", task_type="CAUSAL_LM")
    get_peft_model(oracle.load_model(model), lora).save_pretrained(folder)
    return folder


class Start:
    """The files that the runs of a seed start from."""

    def __init__(self, options, folder, seed):
        self.model = os.path.join(options.assets, "models", "smollm2")
        self.lines = random.Random(seed).sample(short_rows(options.data, "train.jsonl"), CHATS * options.steps)
        self.evaluated = short_rows(options.data, "valid.jsonl")[:EVALUATED]
        self.folder = folder
        self.rows = write_rows(os.path.join(folder, "train.jsonl"), self.lines)
        self.valid = write_rows(os.path.join(folder, "valid.jsonl"), self.evaluated)
        self.adapter = make_adapter(os.path.join(folder, "adapter"), self.model, seed)


# The trainers: (losses of the steps, loss over the evaluated chats) of a run, whose adapter they write to `out`.

def train_hone(options, start, run, out):
    oracle.run(options.hone, "train", "--model", start.model, "--data", start.rows, "--eval-data", start.valid, "--output", out,
               "--cache-dir", os.path.join(start.folder, "cache"), "--init-adapter", start.adapter, "--dtype", run["dtype"],
               "--shuffle", "false", "--per-device-train-batch-size", str(CHATS), "--max-steps", str(run["steps"]),
               "--learning-rate", str(run["rate"]), "--lr-scheduler-type", "constant", "--warmup-ratio", "0",
               "--eval-steps", "0", "--eval-on-start", "false", "--save-steps", "0", "--resume", "none",
               "--micro-batch-tokens", "448", "--threads", str(options.threads))
    steps, evals = plot_loss.read(os.path.join(out, "metrics.jsonl"))
    return [loss for _, loss in steps], evals[-1][1]


def padded(chats):
    """The ids of chats side by side, the mask of those that are not padding, and what each position is to predict, or -100."""
    import torch
    longest = max(ids.shape[1] for ids, _ in chats)
    ids, real = (torch.zeros(len(chats), longest, dtype=torch.long) for _ in range(2))
    targets = torch.full((len(chats), longest), -100)
    for row, (chat, trained) in enumerate(chats):
        ids[row, :chat.shape[1]], real[row, :chat.shape[1]] = chat[0], 1
        targets[row, trained - 1] = chat[0, trained]
    return ids, real, targets


def peft_loss(net, chats):
    """The sum over the trained tokens, and their number. The head sees only those."""
    import torch
    ids, real, targets = padded(chats)
    llama = net.get_base_model()
    hidden = llama.model(input_ids=ids, attention_mask=real, use_cache=False).last_hidden_state
    used = targets != -100
    logits = llama.lm_head(hidden[used]).float()
    return torch.nn.functional.cross_entropy(logits, targets[used], reduction="sum"), int(used.sum())


def peft_evaluate(net, chats):
    import torch
    with torch.no_grad():
        sums = [peft_loss(net, chats[at:at + CHATS]) for at in range(0, len(chats), CHATS)]
    return sum(loss.item() for loss, _ in sums) / sum(count for _, count in sums)


def train_peft(options, start, run, out):
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(options.threads)
    base = AutoModelForCausalLM.from_pretrained(start.model, dtype=getattr(torch, run["dtype"]))
    net = PeftModel.from_pretrained(base, start.adapter, is_trainable=True)
    parameters, losses = list(train_truth.trained(net).values()), []
    assert all(tensor.dtype == torch.float32 for tensor in parameters)
    optimizer = torch.optim.AdamW(parameters, lr=run["rate"], betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    chats = train_truth.encode(start.model, start.lines)
    for at in range(0, len(chats), CHATS):
        optimizer.zero_grad(set_to_none=True)
        loss, count = peft_loss(net, chats[at:at + CHATS])
        (loss / count).backward()
        losses.append(loss.item() / count)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
    net.save_pretrained(out)
    return losses, peft_evaluate(net, train_truth.encode(start.model, start.evaluated))


def adapter_loss(options, start, adapter):
    return json.loads(oracle.run(options.hone, "eval", "--model", start.model, "--adapter", adapter, "--data", start.valid,
                                 "--cache-dir", os.path.join(start.folder, "cache"), "--dtype", "float32",
                                 "--threads", str(options.threads), "--json"))["loss"]


# The study.

def read_results(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def missing(options, seed):
    """The runs of a seed that are not in the results."""
    done = [[line[key] for key in RUN] for line in read_results(options.results)]
    runs = [dict(zip(RUN, (options.name if trainer == "hone" else trainer, dtype, rate, seed, options.steps)))
            for rate in options.rates for dtype in options.dtypes for trainer in options.trainers]
    return [run for run in runs if list(run.values()) not in done]


def study(options, seed):
    runs = missing(options, seed)
    if not runs:
        return
    with tempfile.TemporaryDirectory() as folder:
        start = Start(options, folder, seed)
        for run in runs:
            with tempfile.TemporaryDirectory() as out:
                begin = time.time()
                losses, eval_loss = (train_peft if run["trainer"] == "PEFT" else train_hone)(options, start, run, out)
                line = {**run, "seconds": round(time.time() - begin, 1), "eval_loss": eval_loss,
                        "adapter_loss": adapter_loss(options, start, out), "losses": losses}
            with open(options.results, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(*run.values(), f"{line['seconds']} s, validation loss {eval_loss:.5f}, in float32 {line['adapter_loss']:.5f}",
                  flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("hone", "assets", "data", "results"):
        parser.add_argument(name)
    words, numbers = (lambda text: text.split(",")), (lambda text: [float(part) for part in text.split(",")])
    parser.add_argument("--trainers", type=words, default=["hone", "PEFT"])
    parser.add_argument("--dtypes", type=words, default=["float32", "bfloat16"])
    parser.add_argument("--rates", type=numbers, default=[5e-6, 2e-5, 2e-4, 1e-3])
    parser.add_argument("--seeds", type=lambda text: [int(part) for part in text.split(",")], default=[1])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--name", default="hone")
    options = parser.parse_args()
    for seed in options.seeds:
        study(options, seed)


if __name__ == "__main__":
    main()
