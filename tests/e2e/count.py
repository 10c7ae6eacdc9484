#!/usr/bin/env python3
"""What a training step makes a device do, as `hone bench --count` prints it: fixed as exact numbers.

    count.py HONE ASSETS DATA cpu|opencl|cuda

Seen to fail with an engine_read in trainer_queue (one copy out and one synchronisation more), with engine_run in place of
engine_run_lead (one copy in more), with a device_alloc in trainer_queue, and with a budget of one launch or one byte less. The
profile's: with programs of one run counted twice, with bytes of only the first command of a node, and without the matmuls of
attention. SmolLM2's: with --recompute full, which multiplies some things twice.
"""
import json
import sys

from case import SANITIZED, SMOL, TINY, Case, main, run

DEVICE = sys.argv[4]

# Launches of a decoder layer of LoRA on its 7 modules, forward and backward, including matmuls. Fewer is better: lower it. A
# processor multiplies by the weights of layers with one input one by one, and on AMX a weight's matmul is joined with its adapter's.
AMX = "amx_bf16" in open("/proc/cpuinfo", encoding="utf-8").read()
LAYER_LAUNCHES = 53 if DEVICE != "cpu" else 47 if AMX else 59
# Those of all weights, which are trained as one where layers have one input.
FULL_LAUNCHES = 28
# And the bytes of the operands of that layer of LoRA, 64 tokens, on a GPU: what it moves where each command reads them once.
LAYER_BYTES = {"float32": 3180288, "bfloat16": 1834240}
# The same for a whole step of SmolLM2 in bfloat16 with 4 windows of 64 tokens, and the bytes of the commands' operands.
SMOL_LAUNCHES, SMOL_BYTES = (1452, 2962832104) if AMX else (1781, 2847138536)


def smol_flops(rows, length, r=16, layers=30, C=576, F=1536, H=9, K=3, D=64, V=49152):
    """Of the matmuls of a LoRA step, 2 for a multiplication: no product twice, and none whose result is not needed."""
    T, keys = rows * length, (length + 2) // 2          # what a token sees on average, rounded
    into = [(C, H * D), (C, K * D), (C, K * D)]         # of the first layer: what goes into them has no gradient
    linear = into + [(H * D, C), (C, F), (C, F), (F, C)]
    weights, pairs = (sum(f(*shape) for shape in linear) for f in (lambda a, b: a * b, lambda a, b: r * (a + b)))
    forward, backward = weights + pairs, weights + 2 * pairs
    first = sum(a * b + r * a for a, b in into)
    attention = 7 * H * D * keys
    head = 2 * C * V
    return 2 * T * (layers * (forward + backward + attention) - first + head)


class Count(Case):
    def bench(self, *args):
        return json.loads(self.ok("bench", "--model", TINY, "--device", DEVICE, "--dtype", "float32", "--json", "--max-steps", 4, *args))

    def counts(self, *args):
        report = self.bench("--count", *args)
        self.assertEqual(report["device"], DEVICE)
        step = report["per_step"]
        for none in ("allocations", "host_allocations", "compiled", "loaded", "syncs"):
            self.assertEqual(step[none], 0, none)
        return report, step

    def test_a_step_is_one_copy_in_and_one_copy_out_and_waits_for_nothing(self):
        report, step = self.counts("--max-length", 16)
        commands = 116 if DEVICE != "cpu" else 104 if AMX else 126
        self.assertEqual((report["tokens"], report["micro_batch_tokens"]), (64, 64))
        self.assertEqual((step["copies_in"], step["copies_out"], step["runs"]), (1, 1, 2))
        self.assertEqual((step["bytes_in"], step["bytes_out"]), (2816, 512))
        if DEVICE == "cuda":                            # the loss of the previous step, and nothing else
            self.assertEqual((step["waits"], step["graph_launches"], step["launches"]), (1, 2, 0))
        else:
            self.assertEqual((step["graph_launches"], step["launches"]), (0, commands))
        self.assertEqual(sum(op["launches"] + op["products"] + op["fills"] for op in report["ops"]), commands)

    def test_each_further_micro_batch_is_one_copy_each_way(self):
        report, step = self.counts("--max-length", 32, "--micro-batch-tokens", 64)
        self.assertEqual((report["tokens"], report["micro_batch_tokens"]), (128, 64))
        self.assertEqual((step["copies_in"], step["copies_out"], step["runs"]), (2, 2, 3))

    def test_a_decoder_layer_stays_within_its_budget(self):
        for dtype in "float32", "bfloat16":
            report = self.bench("--count", "--max-length", 16, "--dtype", dtype)
            self.assertLessEqual(report["launches_per_layer"], LAYER_LAUNCHES, dtype)
            if DEVICE != "cpu":
                self.assertLessEqual(report["bytes_per_layer"], LAYER_BYTES[dtype], dtype)
        launches = self.bench("--count", "--max-length", 16, "--finetuning-type", "full")["launches_per_layer"]
        self.assertLessEqual(launches, FULL_LAUNCHES)

    def test_a_profile_has_the_commands_of_the_step_and_no_others(self):
        report = self.bench("--count", "--profile", "--max-length", 16)
        profile = report["profile"]
        self.assertEqual({op["op"]: (op["calls"], op["bytes"]) for op in profile["ops"]},
                         {op["op"]: (op["launches"] + op["products"] + op["fills"], op["bytes"]) for op in report["ops"]})
        self.assertEqual(profile["rounds"], 4)
        self.assertAlmostEqual(profile["flops"], sum(op["flops"] for op in profile["ops"]))
        multiplied = {op["op"] for op in report["ops"] if op["products"]} | {"attention", "attention_bwd"}
        self.assertEqual({op["op"] for op in profile["ops"] if op["bare_seconds"] > 0}, multiplied)
        self.assertTrue(all(op["seconds"] > 0 for op in profile["ops"]))
        self.assertEqual(profile["ops"], sorted(profile["ops"], key=lambda op: -op["seconds"]))

    def test_a_profile_is_a_table_too(self):
        text = self.ok("bench", "--model", TINY, "--device", DEVICE, "--profile", "--max-length", 16, "--max-steps", 2)
        for expected in (r"(?m)^linear_lora +\d+ +[\d.]+ +[\d.]+% +[\d.]+ ", r"(?m)^attention_bwd ", r"(?m)^step +[\d.]+ ms, \d+ tok/s",
                         r"(?m)^bare +[\d.]+ ms .* \(medians of 2 rounds\)$"):
            self.assertRegex(text, expected)

    def test_a_profile_of_steps_that_are_not_usual_is_refused_or_reported(self):
        short = ("bench", "--model", TINY, "--device", DEVICE, "--profile", "--max-length", 8, "--max-steps", 1)
        self.fails(2, *short, "--verify-every", 2, says=("leave out --verify-every",))
        told = run(*short, "--learning-rate", 1e30)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertRegex(told.stderr, "hone: warning: 2 of 3 steps were skipped, as their loss or gradient is not finite")
        self.assertRegex(told.stdout, r"\(medians of 1 round\)\n")

    def test_a_step_of_smollm2_stays_within_its_budget(self):
        if DEVICE != "cpu" or SANITIZED:
            return
        report = json.loads(self.ok("bench", "--model", SMOL, "--device", "cpu", "--dtype", "bfloat16", "--count", "--profile", "--json",
                                    "--max-length", 64, "--max-steps", 1))
        self.assertLessEqual(report["per_step"]["launches"], SMOL_LAUNCHES)
        self.assertLessEqual(sum(op["bytes"] for op in report["ops"]), SMOL_BYTES)
        multiplied = sum(op["flops"] for op in report["profile"]["ops"] if op["bare_seconds"] > 0)
        self.assertEqual(multiplied, smol_flops(4, 64))

    def test_graphs_change_no_byte(self):
        if DEVICE != "cuda":
            self.fails(2, "bench", "--model", TINY, "--device", DEVICE, "--graph", "--max-length", 8, says=("--device cuda",))
            return
        graph = self.bench("--graph", "--max-length", 8)["graph"]
        self.assertTrue(graph["same_bytes"] and graph["captured"])
        self.assertIsNone(graph["reached"])             # times of a simulator mean nothing


if __name__ == "__main__":
    main(Count, Count)
