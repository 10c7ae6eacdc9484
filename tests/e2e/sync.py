#!/usr/bin/env python3
"""Ranks that step on their own and exchange weights now and then: --sync-every.

    sync.py HONE ASSETS DATA

Seen to fail: the outer step, with a plain momentum in place of Nesterov's; traffic, with an exchange after every step.
"""
import json
import os
import struct
import subprocess

from case import HONE, TINY, Case, main, tensors
from train_chats import chat

RATE, MOMENTUM, BLOCK = 0.6, 0.8, 128
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
       "OMPI_MCA_hwloc_base_binding_policy": "none"}


def lines(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def numbers(path):
    """All of an adapter in float32, by name."""
    assert {dtype for dtype, *_ in tensors(path).values()} == {"F32"}
    return {name: struct.unpack(f"<{len(content) // 4}f", content) for name, (_, _, content) in tensors(path).items()}


class Sync(Case):
    def train(self, ranks, out, rows, *args, code=0):
        data = self.write(f"{out}.jsonl", *rows)
        start = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
        words = ["train", "--model", TINY, "--data", data, "--output", self.dir / out, "--json", "--learning-rate", 0.003, "--device", "cpu",
                 "--lr-scheduler-type", "constant", "--warmup-ratio", 0, "--micro-batch-tokens", 256, "--save-steps", 0, "--weight-decay", 0, *args]
        r = subprocess.run([*start, HONE, *map(str, words)], capture_output=True, text=True, timeout=300, env={**os.environ, **MPI})
        self.assertEqual(r.returncode, code, r.stdout + r.stderr)
        self.errors = r.stderr
        return json.loads(r.stdout) if not code else r.stderr

    def adapter(self, out):
        return numbers(self.dir / out / "adapter_model.safetensors")

    def test_the_outer_step_is_nesterovs_on_the_mean_of_what_ranks_moved(self):
        """All rows are the same, so every rank moves as one process with its share of them does."""
        same, steps = [chat(3)], 6
        self.train(1, "start", same * 4, "--per-device-train-batch-size", 4, "--max-steps", 1, "--learning-rate", 0)
        self.train(1, "alone", same * 4, "--per-device-train-batch-size", 4, "--max-steps", steps)
        self.train(2, "synced", same * 8, "--per-device-train-batch-size", 8, "--max-steps", steps, "--sync-every", steps,
                   "--outer-learning-rate", RATE, "--outer-momentum", MOMENTUM)
        start, alone, synced = (self.adapter(out) for out in ("start", "alone", "synced"))
        moved = 0
        for name, begin in start.items():
            for a, b, c in zip(begin, alone[name], synced[name]):
                self.assertAlmostEqual(c - a, RATE * (1 + MOMENTUM) * (b - a), delta=2e-6)
                moved += abs(c - a)
        self.assertGreater(moved, 1)

    def test_the_plan_has_what_exchanges_take(self):
        """12 bytes a trained element; in 8 bits 4 more, and what all ranks send. Seen to fail: neither the plan nor the check had them."""
        words = ["plan", "--model", TINY, "--data", self.write("plan.jsonl", chat(3)), "--json", "--finetuning-type", "full", "--device", "cpu", "--nproc", 2]
        plain, synced, int8 = (json.loads(self.ok(*words, *more))["peak_bytes"]
                               for more in ([], ["--sync-every", 10], ["--sync-every", 10, "--sync-int8"]))
        elements = sum(len(content) // 4 for _, _, content in tensors(TINY / "model.safetensors").values())
        for more, each in (synced - plain, 12), (int8 - plain, 16 + 2 * (1 + 4 / BLOCK)):
            self.assertAlmostEqual(more, each * elements, delta=each * elements / 2)             # the process itself varies too

    def test_weights_travel_once_in_so_many_steps(self):
        rows, args = [chat(i) for i in range(24)], ("--per-device-train-batch-size", 8, "--max-steps", 12)
        for flags, reduced, gathered in (([], 12, 0), (["--sync-every", 4], 3, 0), (["--sync-every", 5], 3, 0),
                                         (["--sync-every", 4, "--sync-int8"], 0, 3)):
            out = "out" + "".join(map(str, flags))
            r = self.train(2, out, rows, *args, *flags)
            end, n = lines(self.dir / out)[-1], r["trainable_parameters"]
            self.assertEqual(end["all_reduce_bytes"], reduced * 4 * n)
            self.assertEqual(end["all_gather_bytes"], gathered * 2 * (n + 4 * n // BLOCK))

    def test_two_runs_give_the_same_bytes_and_a_validation_sees_all_ranks(self):
        rows = [chat(i) for i in range(24)]
        valid = self.write("valid.jsonl", *map(chat, range(50, 57)))
        args = "--per-device-train-batch-size", 8, "--max-steps", 9, "--sync-every", 4, "--eval-data", valid, "--eval-steps", 3
        for flags in [], ["--sync-int8"]:
            a, b = (self.train(3, turn, rows, *args, *flags) for turn in ("a", "b"))
            self.assertEqual(a["eval_loss"], b["eval_loss"])
            self.assertEqual(self.adapter("a"), self.adapter("b"))
            again = self.train(1, "again", rows, "--per-device-train-batch-size", 8, "--max-steps", 1, "--learning-rate", 0,
                               "--init-adapter", self.dir / "a", "--eval-data", valid)
            self.assertAlmostEqual(again["eval_loss"], a["eval_loss"], places=5)
            for out in ("a", "b", "again"):
                subprocess.run(["rm", "-r", self.dir / out], check=True)

    def test_a_validation_is_that_of_one_process_where_shares_differ(self):
        """Ranks have micro-batches of different sizes here, and must cut the validation the same way all the same."""
        rows, valid = [chat(i) for i in range(24)], self.write("valid.jsonl", *map(chat, range(50, 57)))
        args = "--per-device-train-batch-size", 8, "--max-steps", 1, "--eval-data", valid, "--learning-rate", 0, "--micro-batch-tokens", 0
        one = self.train(1, "one", rows, *args)
        for ranks in 2, 3:
            self.assertAlmostEqual(self.train(ranks, f"of{ranks}", rows, *args)["eval_loss"], one["eval_loss"], places=6)

    def test_a_rank_without_a_chat_stays_where_it_is(self):
        """Seen to fail, before a step could be idle: "10 steps in a row were bad, the last one: not finite"."""
        rows, args = [chat(i) for i in range(24)], ("--max-steps", 12, "--sync-every", 4, "--outer-learning-rate", 1, "--outer-momentum", 0)
        r = self.train(3, "out", rows, *args, "--per-device-train-batch-size", 1)
        self.assertEqual((r["steps"], r["skipped_steps"]), (12, 0))
        self.assertIn("a step has 1 chats for 3 ranks", self.errors)
        self.assertTrue(all(o["loss"] < 20 for o in lines(self.dir / "out") if "loss" in o))

    def test_what_makes_no_sense_is_refused(self):
        rows = [chat(1)]
        self.assertIn("exclude each other", self.train(1, "a", rows, "--sync-every", 4, "--shard", "optimizer", code=2))
        for flags in ["--sync-int8"], ["--outer-momentum", 0.5], ["--outer-learning-rate", 1]:
            self.assertIn(f"{flags[0]} does nothing without --sync-every", self.train(1, "b", rows, *flags, code=2))


if __name__ == "__main__":
    main(Sync, Sync)
