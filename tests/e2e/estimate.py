#!/usr/bin/env python3
"""hone plan --gpu: a model of time for cards that are not there.

    estimate.py HONE ASSETS DATA            without any device
    estimate.py HONE ASSETS DATA --large    on a CUDA device, which is the simulator in CI

The FLOPs of a step are computed here again, by hand, from the shapes of the models.
"""
import json
import pathlib
import re

from case import TINY, Case, main

RANK = 16
CARDS = "t4 a10 l4 rtx3090 rtx4060 rtx4090 rtx5090 a100 h100 b200".split()
LLAMA = dict(model_type="llama", vocab_size=128256, num_key_value_heads=8, max_position_embeddings=131072, rms_norm_eps=1e-5,
             rope_theta=500000.0, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
             dtype="bfloat16", tie_word_embeddings=False)
QWEN = dict(model_type="qwen3", vocab_size=151936, hidden_size=5120, intermediate_size=25600, num_hidden_layers=64,
            num_attention_heads=64, num_key_value_heads=8, head_dim=128, max_position_embeddings=40960, rms_norm_eps=1e-6,
            rope_theta=1000000.0, attention_bias=False, use_sliding_window=False, dtype="bfloat16", tie_word_embeddings=False)


def linears(c):
    """Of a layer: (out, in) of q, k, v, o, gate, up, down."""
    C, F = c["hidden_size"], c["intermediate_size"]
    D = c.get("head_dim") or C // c["num_attention_heads"]
    q, kv = c["num_attention_heads"] * D, c["num_key_value_heads"] * D
    return [(q, C), (kv, C), (kv, C), (C, q), (F, C), (F, C), (C, F)], q


def matmul_flops(c, T, full):
    """Of a micro-batch of T tokens without recompute: forward and backward."""
    layers, _ = linears(c)
    L, head = c["num_hidden_layers"], 2 * T * c["vocab_size"] * c["hidden_size"]
    base, ends = sum(2 * T * o * i for o, i in layers), sum(2 * T * RANK * (o + i) for o, i in layers)
    if full:
        return L * base * 3 + 3 * head
    first = sum(2 * T * i * (o + RANK) for o, i in layers[:3])      # the input of the first layer has no gradient
    return L * (2 * base + 3 * ends) - first + 2 * head


def recomputed_flops(c, T, full):
    """What recompute adds: the forward pass of each layer, the least and the most. Nothing reads the result of the last product,
    which may be left out."""
    layers, _ = linears(c)
    (o, i), rank = layers[6], 0 if full else RANK
    forward = sum(2 * T * (o * i + rank * (o + i)) for o, i in layers)
    return c["num_hidden_layers"] * (forward - 2 * T * (o * i + rank * o)), c["num_hidden_layers"] * forward


def attention_flops(c, length, T, times):
    _, q = linears(c)
    return c["num_hidden_layers"] * 2 * T * q * (length + 1) / 2 * times


class Estimates(Case):
    def model(self, config, name="model"):
        folder = self.dir / name
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    def plan(self, model, *args, card="rtx4090"):
        return json.loads(self.ok("plan", "--model", model, "--gpu", card, "--lora-r", RANK, "--json", *args))

    def work(self, plan, *kinds):
        return sum(row["flops"] for row in plan["estimate"]["work"] if row["kind"] in kinds)

    def check(self, plan, config, length, rows, full, recompute):
        T = length * rows
        self.assertEqual(plan["recompute"], recompute)
        extra = self.work(plan, "matmul_bfloat16", "matmul_float32") - matmul_flops(config, T, full)
        least, most = recomputed_flops(config, T, full) if recompute == "full" else (0, 0)
        self.assertLessEqual(least, extra)
        self.assertLessEqual(extra, most)
        forward = self.work(plan, "attention", "attention_mma")
        self.assertIn(forward, [attention_flops(config, length, T, 2 * times) for times in ((1, 2) if recompute == "full" else (1,))])
        self.assertEqual(self.work(plan, "attention_bwd", "attention_bwd_mma"), attention_flops(config, length, T, 5))

    def test_flops_are_those_of_hand_formulas(self):
        tiny = json.loads((TINY / "config.json").read_text())
        for config, name in ((LLAMA, "8b"), (QWEN, "32b"), (tiny, "tiny")):
            for full in (False, True):
                for recompute in ("none", "full"):
                    with self.subTest(model=name, full=full, recompute=recompute):
                        length = 64 if name == "tiny" else 1024
                        plan = self.plan(self.model(config, name), "--max-length", length, "--per-device-train-batch-size", 2,
                                         "--micro-batch-tokens", 2 * length, "--recompute", recompute,
                                         "--finetuning-type", "full" if full else "lora", card="b200")
                        self.check(plan, config, length, 2, full, recompute)

    def test_the_reference_point_of_an_8b_on_a_4090(self):
        plan = self.plan(self.model(LLAMA), "--max-length", 4096, "--per-device-train-batch-size", 1, "--recompute", "full")
        e = plan["estimate"]
        print(f"8B LoRA r={RANK}, T=4096, full recompute on an RTX 4090, estimated: {e['tokens_per_second']:.0f} tok/s, "
              f"roofline {e['roofline_tokens_per_second']:.0f}")
        self.assertTrue(plan["fits"])
        self.assertEqual(e["tokens_per_step"], 4096)
        self.assertGreater(e["tokens_per_second"], 500)
        self.assertLess(e["tokens_per_second"], e["roofline_tokens_per_second"])

    def test_seconds_are_the_sum_of_kinds_and_gaps(self):
        e = self.plan(self.model(LLAMA), "--max-length", 512)["estimate"]
        self.assertAlmostEqual(e["step_seconds"], sum(row["seconds"] for row in e["work"]) + e["gap_seconds"], places=9)
        self.assertAlmostEqual(e["tokens_per_second"], e["tokens_per_step"] / e["step_seconds"], places=6)
        self.assertEqual(e["launches_per_step"], sum(row["commands"] for row in e["work"]))
        slow = self.plan(self.model(LLAMA), "--max-length", 512, "--cuda-graph", "off")["estimate"]
        self.assertGreater(slow["gap_seconds"], e["gap_seconds"])

    def calibration(self, scale=1.0, gap=1e-6, **rates):
        kinds = dict(matmul_bfloat16=1e14, matmul_float32=3e13, attention=1e13, attention_bwd=1e13, attention_mma=5e13,
                     attention_bwd_mma=5e13, memory=8e11, expand=5e11)
        kinds.update(rates)
        path = self.dir / "card.json"
        path.write_text(json.dumps(dict(format="hone calibration 1", name="a card", stand_in=False, target=89, bfloat16=True,
                                        memory_bytes=24 << 30, units=128, gap_seconds=gap,
                                        rates={kind: scale * rate for kind, rate in kinds.items()})))
        return path

    def test_more_of_any_rate_is_never_slower(self):
        model = self.model(LLAMA)
        usual = self.plan(model, "--max-length", 512, card=self.calibration())["estimate"]["step_seconds"]
        for more in (dict(matmul_bfloat16=2e14), dict(attention=2e13, attention_mma=1e14), dict(memory=16e11), dict(gap=0)):
            with self.subTest(more=more):
                self.assertLess(self.plan(model, "--max-length", 512, card=self.calibration(**more))["estimate"]["step_seconds"], usual)
        twice = self.plan(model, "--max-length", 512, card=self.calibration(2, gap=0.5e-6))["estimate"]["step_seconds"]
        self.assertAlmostEqual(twice, usual / 2, places=9)
        by_card = {row["card"]: row["tokens_per_second"] for row in self.cards(model)}
        for slower, faster in (("rtx3090", "rtx4090"), ("rtx4090", "rtx5090"), ("a100", "h100"), ("h100", "b200")):
            self.assertLess(by_card[slower], by_card[faster])

    def test_an_rtx_4090_is_as_fast_as_the_page_says(self):
        """By the estimate: 2,600 tokens a second of LoRA and 2,000 of QLoRA are the goals."""
        page = (pathlib.Path(__file__).parents[2] / "docs/time.md").read_text()
        model, args = self.model({**LLAMA, "head_dim": 128}), ("--max-length", 4096, "--recompute", "full")
        for goal, says, *more in ((2600, r"\*\*: ([0-9,]+) tokens/s \| the roofline"), (2000, r"NF4 is ([0-9,]+) tokens/s", "--finetuning-type", "qlora")):
            found = self.plan(model, *args, *more)["estimate"]["tokens_per_second"]
            self.assertGreaterEqual(found, goal)
            said = int(re.search(says, page).group(1).replace(",", ""))
            self.assertLess(abs(found / said - 1), 0.005, f"docs/time.md says {said}, the estimate is {found:.0f}")

    def cards(self, model, *args):
        return json.loads(self.ok("plan", "--model", model, "--gpu", "all", "--max-length", 512, "--json", *args))["cards"]

    def test_a_table_over_all_cards(self):
        model = self.model(LLAMA)
        rows = self.cards(model, "--resident-layers", "all")
        self.assertEqual([row["card"] for row in rows], CARDS)
        fits = {row["card"] for row in rows if row["fits"]}
        self.assertNotIn("t4", fits)                                            # 32 GB in float32: it has no bfloat16
        self.assertLessEqual({"rtx4090", "a100", "h100", "b200"}, fits)
        small = {row["card"] for row in self.cards(model, "--finetuning-type", "qlora", "--resident-layers", "all") if row["fits"]}
        self.assertGreater(small, fits)
        text = self.ok("plan", "--model", model, "--gpu", "all", "--max-steps", 100)
        self.assertIn("estimates", text)
        self.assertIn("nobody has measured", text)

    def test_a_table_over_so_many_of_all_cards(self):
        """A row is what the card's own plan says of the layout. Seen to fail without --world-size in the rows, and with the first layout
        taken whether it fits or not."""
        model = self.model(LLAMA)
        args = "--world-size", 4, "--network", 400, "--per-device-train-batch-size", 8, "--finetuning-type", "full", "--max-steps", 100
        rows = {row["card"]: row for row in self.cards(model, *args)}
        self.assertEqual({card: rows[card]["layout"] for card in ("b200", "h100", "a100")}, dict(b200="none", h100="optimizer", a100="optimizer"))
        self.assertFalse(rows["rtx4090"]["fits"])
        shown = self.plan(model, "--max-length", 512, *args, card="h100")["estimate"]["world"]
        want = next(l for l in shown["layouts"] if l["layout"] == "optimizer")
        for key in "rank_bytes", "fits", "step_seconds", "tokens_per_second", "overlapped_tokens_per_second":
            self.assertEqual(rows["h100"][key], want[key])
        self.assertEqual((rows["h100"]["ranks"], rows["h100"]["run_seconds"]), (4, 100 * want["step_seconds"]))
        asked = {row["card"]: row["layout"] for row in self.cards(model, *args, "--shard", "gradients")}
        self.assertEqual(set(asked.values()), {"gradients"})
        self.assertIn("4 cards, each with a link of 400 Gbit/s", self.ok("plan", "--model", model, "--gpu", "all", *args))

    def test_a_base_larger_than_the_card_is_copied_through_pcie(self):
        model = self.model(LLAMA)
        all_stay = self.plan(model, "--max-length", 2048, "--resident-layers", "all", "--activation-offloading", "off", card="rtx4060")
        self.assertFalse(all_stay["fits"])
        self.assertEqual((all_stay["resident_layers"], all_stay["host_bytes"], all_stay["estimate"]["copy_seconds"]), (32, 0, 0))
        plan = self.plan(model, "--max-length", 2048, card="rtx4060")
        e, stay = plan["estimate"], plan["resident_layers"]
        self.assertTrue(plan["fits"])
        self.assertLess(stay, 29)
        layer = 2 * (sum(o * i for o, i in linears(LLAMA)[0]) + 2 * 4096)
        self.assertEqual(plan["host_bytes"], (32 - stay) * layer)
        self.assertEqual(plan["copied_bytes"], 2 * (32 - stay - 1) * layer)
        self.assertAlmostEqual(e["copied_bytes_per_step"], e["micro_batches_per_step"] * plan["copied_bytes"])
        self.assertAlmostEqual(e["copy_seconds"], e["copied_bytes_per_step"] / (0.8 * 15.75e9))
        self.assertGreaterEqual(e["step_seconds"], e["copy_seconds"])               # no step is faster than its copies
        self.assertGreaterEqual(e["roofline_step_seconds"], e["copied_bytes_per_step"] / 15.75e9)
        self.assertEqual(e["copy_wait_seconds"], 0)                                 # 2,048 tokens take longer than a layer's copy
        row = ["--max-length", 512, "--per-device-train-batch-size", 1, "--gradient-accumulation-steps", 1]
        few = self.plan(model, *row, card="rtx4060")["estimate"]
        self.assertGreater(few["copy_seconds"], 0.9 * few["step_seconds"])          # 512 do not: PCIe decides
        self.assertGreater(few["copy_wait_seconds"], 0.3 * few["step_seconds"])
        text = self.ok("plan", "--model", model, "--gpu", "rtx4060", *row)
        self.assertRegex(text, r"\d+ of 32 layers stay on the card; the other \d+ \(")
        self.assertIn("Copies through PCIe limit it", text)
        fast = self.plan(model, "--max-length", 2048, card="rtx4090")
        self.assertEqual((fast["resident_layers"], fast["estimate"]["copy_wait_seconds"]), (32, 0))
        self.fails(2, "plan", "--model", model, "--gpu", "rtx4060", "--world-size", 2, "--resident-layers", 4, says=["leave out --resident-layers 4"])

    def test_activations_wait_in_host_memory_where_rows_do_not_fit(self):
        """Of each layer but the last two its input in float32 and attention's output in bfloat16: 24,576 bytes for a token."""
        model = self.model(LLAMA)
        long = ["--max-length", 32768]
        self.assertFalse(self.plan(model, *long, "--activation-offloading", "off")["fits"])
        plan = self.plan(model, *long)
        e, bytes_of_all = plan["estimate"], 30 * 24576 * 32768
        self.assertTrue(plan["fits"])
        self.assertEqual((plan["resident_layers"], plan["recompute"], plan["offloaded_bytes"]), (32, "full", bytes_of_all))
        self.assertEqual((plan["copied_bytes"], plan["offloaded_copied_bytes"]), (2 * bytes_of_all, 2 * bytes_of_all))
        self.assertAlmostEqual(e["copied_bytes_per_step"], e["micro_batches_per_step"] * plan["copied_bytes"])
        self.assertAlmostEqual(e["copy_seconds"], e["copied_bytes_per_step"] / (0.8 * 31.5e9))
        text = self.ok("plan", "--model", model, "--gpu", "rtx4090", *long)
        self.assertIn("24.16 GB of activations wait in pinned host memory for the backward pass, 48.32 GB are copied out and back", text)
        half = self.plan(model, "--max-length", 16384)                              # either would do, and layers are fewer bytes
        on = self.plan(model, "--max-length", 16384, "--activation-offloading", "on")
        self.assertEqual((half["fits"], on["fits"], half["offloaded_bytes"]), (True, True, 0))
        self.assertEqual(on["resident_layers"], 32)
        self.assertLess(half["copied_bytes"], on["copied_bytes"])
        both = self.plan(model, "--max-length", 8192, card="rtx4060")               # neither alone
        self.assertTrue(both["fits"])
        self.assertLess(both["resident_layers"], 29)
        self.assertGreater(both["copied_bytes"], both["offloaded_copied_bytes"])
        self.assertEqual(both["offloaded_bytes"], 30 * 24576 * 8192)
        self.assertIn("*: activations wait in host memory", self.ok("plan", "--model", model, "--gpu", "all", *long))
        self.fails(2, "plan", "--model", model, "--gpu", "rtx4060", "--world-size", 2, "--activation-offloading", "on", says=["leave out --activation-offloading on"])

    def test_a_plan_is_for_the_cards_memory_and_types(self):
        model = self.model(LLAMA)
        card = self.plan(model, "--max-length", 512, "--recompute", "full")
        self.assertEqual(card["memory_bytes"], 24564 << 20)
        self.assertEqual(card["dtype"], "bfloat16")
        blocks = {row["block"]: row["bytes"] for row in card["table"]}
        self.assertEqual(blocks["gradients"], 4 * 41943040)
        self.assertEqual(blocks["workspace of matmuls"], 4 << 20)
        t4 = self.plan(model, "--max-length", 512, card="t4")
        self.assertEqual(t4["dtype"], "float32")

    def test_the_time_of_a_run_is_its_steps(self):
        data = self.write("train.jsonl", *(json.dumps({"text": "hone " * (5 + i)}) for i in range(40)))
        plan = self.plan(TINY, "--data", data, "--num-train-epochs", 2, "--per-device-train-batch-size", 8)
        e = plan["estimate"]
        self.assertEqual((e["steps"], e["synthetic_rows"], e["rows"]), (10, False, 40))
        self.assertAlmostEqual(e["run_seconds"], 10 * e["step_seconds"])
        self.assertEqual(e["tokens_per_step"] * 5, plan["data"]["train"]["tokens"] if "train" in plan["data"] else plan["data"]["tokens"])
        self.assertEqual((self.plan(TINY)["estimate"]["steps"], self.plan(TINY)["estimate"]["longest_row"]), (0, 256))
        self.assertIn("rows of 1024 tokens", self.ok("plan", "--model", self.model(LLAMA), "--gpu", "l4"))

    def test_an_unknown_card_is_refused_with_the_list(self):
        self.fails(2, "plan", "--model", TINY, "--gpu", "rtx9090", says=["rtx9090", *CARDS, "--calibrate"])
        self.fails(2, "plan", "--model", TINY, "--gpu", "a100", "--device", "cpu", says=["--device", "--gpu"])
        self.fails(2, "plan", "--model", TINY, "--gpu", "a100", "--for", "eval", says=["--for"])

    def test_a_broken_calibration_is_refused(self):
        path = self.write("x.json", '{"format": "another"}')
        self.fails(4, "plan", "--model", TINY, "--gpu", path, says=["x.json", "--calibrate"])
        self.fails(4, "plan", "--model", TINY, "--gpu", self.write("notes.txt", "a card"), says=["notes.txt", "--gpu all", "--calibrate"])
        self.fails(4, "plan", "--model", TINY, "--gpu", self.calibration(memory=-1), says=["memory", "above 0"])
        tree = json.loads(self.calibration().read_text())
        del tree["rates"]["memory"]
        path.write_text(json.dumps(tree))
        self.fails(2, "plan", "--model", TINY, "--gpu", path, says=["launches that move memory", "--dtype"])

    def test_a_device_is_measured_and_its_file_planned_with(self):
        path = self.dir / "cpu.json"
        text = self.ok("bench", "--model", TINY, "--device", "cpu", "--calibrate", path, "--max-steps", 3, "--json")
        report, tree = json.loads(text), json.loads(path.read_text())
        self.assertEqual(report["calibration"]["rates"].keys(), tree["rates"].keys())
        self.assertIn("memory", tree["rates"])
        self.assertIn("attention", tree["rates"])
        plan = self.plan(TINY, "--max-length", 128, "--per-device-train-batch-size", 4, "--micro-batch-tokens", 512, card=path)
        e = plan["estimate"]
        self.assertTrue(e["measured"])
        print(f"tiny-llama on this processor: {1e3 * report['profile']['step_seconds']:.2f} ms a step measured, "
              f"{1e3 * e['step_seconds']:.2f} ms by the calibration")

    def test_several_cards_share_the_rows_of_a_step(self):
        model, args = self.model(LLAMA), ("--max-length", 1024, "--per-device-train-batch-size", 64, "--micro-batch-tokens", 1024)
        one = self.plan(model, *args[:2], "--per-device-train-batch-size", 8, *args[4:], card="h100")["estimate"]
        e = self.plan(model, *args, "--world-size", 8, "--network", 400, card="h100")["estimate"]
        world, trained = e["world"], 41943040
        self.assertEqual(e["step_seconds"], one["step_seconds"])
        replicated, state, gradients, weights = world["layouts"]
        self.assertEqual(replicated["payload_bytes"], 4 * trained)
        self.assertEqual(replicated["sent_bytes"], 2 * 7 / 8 * 4 * trained)
        seconds = 2 * 7 / 8 * 4 * trained * 8 / (400e9 * 0.8) + 2 * 3 * 10e-6
        self.assertAlmostEqual(replicated["communication_seconds"], seconds)
        self.assertAlmostEqual(replicated["tokens_per_second"], 64 * 1024 / (one["step_seconds"] + seconds), places=3)
        self.assertAlmostEqual(replicated["overlapped_tokens_per_second"], 8 * one["tokens_per_second"], places=3)
        self.assertEqual(state["payload_bytes"], (4 + 2) * trained)
        layer = 2 * (2 * 4096 + sum(o * i for o, i in linears(LLAMA)[0]))                  # bytes, its two norms among them
        self.assertEqual(gradients["payload_bytes"], (8 * 4 + 2) * trained)                # in each of 8 micro-batches
        self.assertEqual(weights["payload_bytes"], (8 * 4 + 2) * trained + 8 * 62 * layer) # and all but two layers twice
        self.assertAlmostEqual(gradients["rank_bytes"] - weights["rank_bytes"], 32 * layer * 7 / 8 - 2 * layer, delta=32 * 1024)
        self.assertLess(gradients["rank_bytes"], state["rank_bytes"])
        self.assertAlmostEqual(replicated["rank_bytes"] - state["rank_bytes"], 12 * trained * 7 / 8, delta=1024)
        self.assertLess(weights["rank_bytes"], state["rank_bytes"])
        self.assertLess(state["rank_bytes"], replicated["rank_bytes"])
        self.fails(2, "plan", "--model", model, "--gpu", "h100", "--world-size", 64, says=["16 rows", "--per-device-train-batch-size 64"])
        self.fails(2, "plan", "--model", model, "--gpu", "h100", "--network", 64, says=["--world-size"])


class Simulated(Case):
    """Seen to fail: blocks, with cuBLAS's workspace of another target; commands, without fills."""
    def test_a_card_that_is_not_there_is_planned_as_one_that_is(self):
        path, args = self.dir / "card.json", ("--model", TINY, "--max-length", 32, "--per-device-train-batch-size", 2)
        bench = json.loads(self.ok("bench", *args, "--device", "cuda", "--calibrate", path, "--count", "--max-steps", 1, "--json"))
        self.assertTrue(bench["stand_in"])
        self.assertTrue(json.loads(path.read_text())["stand_in"])
        for flags in [], ["--finetuning-type", "full", "--dtype", "bfloat16"]:
            data = self.write("train.jsonl", *(json.dumps({"text": "hone " * (5 + i)}) for i in range(40)))
            words = "--model", TINY, "--data", data, "--json", *flags
            there = json.loads(self.ok("plan", *words, "--device", "cuda"))
            if not flags:
                absent = json.loads(self.ok("plan", *words, "--gpu", path))
                self.assertIn("times mean nothing", self.ok("plan", "--model", TINY, "--gpu", path, "--max-length", 32))
            else:
                absent = json.loads(self.ok("plan", *words, "--gpu", "rtx4090"))
            blocks = [{row["block"]: row["bytes"] for row in plan["table"] if row["block"] != "the process itself"} for plan in (there, absent)]
            self.assertEqual(*blocks)
        e = json.loads(self.ok("plan", *args, "--gpu", path, "--micro-batch-tokens", 64, "--json"))["estimate"]
        issued = sum(op["launches"] + op["products"] + op["fills"] for op in bench["ops"])
        self.assertEqual(e["launches_per_step"], issued)


if __name__ == "__main__":
    main(Estimates, Simulated)
