#!/usr/bin/env python3
"""Several processes (ranks) that train together step by step, from Python, over MPI: hone_trainer_forward_backward and what follows it.

    stepped_ranks.py HONE ASSETS DATA

Rank 0 has 5 sequences and rank 1 the other 70, which are two pieces of a call; a single process has all of them. Seen to fail:
settings, without ranks_agree_numbers (each rank steps on its own) and without group_agree in optim_agree (rank 0 waits for ever);
sharded, without micro_even_out in stepper_add_for, missing_rows in stepper_add_with, what follows a stop there, even_out in score_run,
stepper_join, or score_join (ranks wait for ever, or end by a truncated message of MPI); exchanges, without check_exchange.
"""
import json
import os
import subprocess
import sys

from case import TINY, Case, main
from ranks import MPI

SCRIPT = """
import hashlib, json, os, sys
import hone

what, model, shard, out = sys.argv[1:]
rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", -1))
every = [[(d * 41 + i * i * 7 + i * 3 + 5) % 250 for i in range(6 + d % 5)] for d in range(75)]
data = {-1: every, 0: every[:5], 1: every[5:]}[rank]
said = []


def tried(call, *arguments, **settings):
    try:
        call(*arguments, **settings)
        said.append("")
    except (hone.Error, KeyError) as error:
        said.append(f"{getattr(error, 'status', 'raised')} {error}")


def rises(datum, first, logits, gradient):
    for row in gradient:
        row[3] = 1.0
    return sum(row[3] for row in logits)


def stops(datum, first, logits, gradient):
    if rank == 1 and datum == 65:
        raise KeyError("enough")
    return rises(datum, first, logits, gradient)


def result(step, **more):
    weights = b"".join(trainer.read_tensor(name).tobytes() for name in trainer.tensors())
    return {"loss": step.loss, "norm": step.grad_norm, "tokens": step.tokens, "weights": hashlib.sha256(weights).hexdigest(), **more}


def settings():
    trainer.forward_backward(data)
    if rank >= 0:
        tried(trainer.optim_step, 0.02 if rank else 0.01)
        tried(trainer.optim_step, 0.01, beta1=2 if rank else 0.5)
        tried(trainer.optim_step, 0.01, divisor=50 + rank)
    return [result(trainer.optim_step(0.01, divisor=50))]


def sharded():
    if rank >= 0:
        wrong = data + [[5, 10 ** 6]] * rank
        tried(trainer.forward_backward, wrong)
        tried(trainer.logprobs, wrong)
        tried(trainer.forward_backward, data, loss=stops)
        trainer.clear_gradients()
    logprobs = sum(map(sum, trainer.logprobs(data)))
    total = trainer.forward_backward(data).sum
    first = result(trainer.optim_step(0.001), logprobs=logprobs, sum=total)
    total = trainer.forward_backward(data, loss=rises).sum
    return [first, result(trainer.optim_step(0.001), sum=total)]


def exchanges():
    tried(trainer.forward_backward, data)
    tried(trainer.optim_step, 0.01)
    return []


with hone.Trainer(model, lora_r=4, micro_batch_tokens=64, dtype="float32", sampling=False, shard=shard,
                  sync_every=4 if what == "exchanges" else 1) as trainer:
    steps = {"settings": settings, "sharded": sharded, "exchanges": exchanges}[what]()
with open(f"{out}/{what}{rank}.json", "w") as file:
    json.dump({"steps": steps, "said": said}, file)
"""


class Stepped(Case):
    def run_ranks(self, what, ranks, shard="none"):
        """What each of them wrote, in order."""
        script = self.write("script.py", SCRIPT)
        start = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
        r = subprocess.run([*start, sys.executable, script, what, TINY, shard, self.dir], capture_output=True, text=True, timeout=120,
                           env={**os.environ, **MPI}, check=False)
        self.assertEqual(r.returncode, 0, r.stdout + r.stderr)
        return [json.loads((self.dir / f"{what}{rank}.json").read_text()) for rank in (range(ranks) if ranks > 1 else [-1])]

    def same_steps(self, one, ranks):
        for rank in ranks:
            self.assertEqual([step["weights"] for step in rank["steps"]], [step["weights"] for step in ranks[0]["steps"]])
            for step, single in zip(rank["steps"], one["steps"], strict=True):
                self.assertEqual(step["tokens"], single["tokens"])
                for name in "loss", "norm":
                    self.assertAlmostEqual(step[name] / single[name], 1, delta=1e-5)

    def test_ranks_step_with_the_same_settings_or_not_at_all(self):
        one, = self.run_ranks("settings", 1)
        for shard in "none", "optimizer":
            ranks = self.run_ranks("settings", 2, shard)
            self.same_steps(one, ranks)
            for number, text in enumerate(["learning_rate is 0.02 here and 0.01 on rank 0", "beta1 is 2", "divisor is 51 here and 50 on rank 0"]):
                for rank, before in enumerate(["2 rank 1: ", "2 "]):
                    self.assertTrue(ranks[rank]["said"][number].startswith(before), ranks[rank]["said"])
                    self.assertIn(text, ranks[rank]["said"][number])

    def test_ranks_that_keep_parts_make_as_many_micro_batches(self):
        one, = self.run_ranks("sharded", 1)
        for shard in "gradients", "weights":
            ranks = self.run_ranks("sharded", 2, shard)
            self.same_steps(one, ranks)
            for step in range(2):
                for name in one["steps"][step].keys() & {"sum", "logprobs"}:
                    self.assertAlmostEqual(sum(rank["steps"][step][name] for rank in ranks) / one["steps"][step][name], 1, delta=1e-5)
            refused, scored, stopped = ranks[1]["said"]
            self.assertIn("ids[1] of datum 70 is 1000000", refused)
            self.assertIn("ids[1] of datum 70 is 1000000", scored)
            self.assertEqual(stopped, "raised 'enough'")
            self.assertEqual(ranks[0]["said"], [f"9 rank 1: {refused[2:]}", f"9 rank 1: {scored[2:]}" if shard == "weights" else "", ""])

    def test_ranks_that_exchange_weights_do_not_step_by_hand(self):
        for rank in self.run_ranks("exchanges", 2):
            for said in rank["said"]:
                self.assertTrue(said.startswith("7 ") and "sync_every" in said, said)
            self.assertEqual(len(rank["said"]), 2)


if __name__ == "__main__":
    main(Stepped, Stepped)
