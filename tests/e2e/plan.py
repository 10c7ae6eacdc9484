#!/usr/bin/env python3
"""hone plan for models of published dimensions, only from config.json.

    plan.py HONE ASSETS DATA

The bytes of what is stored (weights, adapter, gradients, optimizer) are computed here again, from the shapes of the models as
their authors publish them.
"""
import json
import os

from case import CHAT, SANITIZED, TINY, Case, main, run

T, RANK = 4096, 16
LLAMA3 = dict(model_type="llama", vocab_size=128256, num_key_value_heads=8, max_position_embeddings=131072, rms_norm_eps=1e-5,
              rope_theta=500000.0, rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                                     original_max_position_embeddings=8192))
MODELS = {
    "Llama-3.1-8B": dict(LLAMA3, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32),
    "Llama-3.1-70B": dict(LLAMA3, hidden_size=8192, intermediate_size=28672, num_hidden_layers=80, num_attention_heads=64),
    "Qwen3-32B": dict(model_type="qwen3", vocab_size=151936, hidden_size=5120, intermediate_size=25600, num_hidden_layers=64,
                      num_attention_heads=64, num_key_value_heads=8, head_dim=128, max_position_embeddings=40960,
                      rms_norm_eps=1e-6, rope_theta=1000000.0, attention_bias=False, use_sliding_window=False),
    "Qwen3-30B-A3B": dict(model_type="qwen3_moe", vocab_size=151936, hidden_size=2048, intermediate_size=6144, num_hidden_layers=48,
                          num_attention_heads=32, num_key_value_heads=4, head_dim=128, max_position_embeddings=40960,
                          rms_norm_eps=1e-6, rope_theta=1000000.0, num_experts=128, num_experts_per_tok=8,
                          moe_intermediate_size=768, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[]),
    "gpt-oss-20b": dict(model_type="gpt_oss", vocab_size=201088, hidden_size=2880, intermediate_size=2880, num_hidden_layers=24,
                        num_attention_heads=64, num_key_value_heads=8, head_dim=64, max_position_embeddings=131072,
                        rms_norm_eps=1e-5, rope_theta=150000, attention_bias=True, sliding_window=128, swiglu_limit=7.0,
                        num_local_experts=32, num_experts_per_tok=4, hidden_act="silu",
                        layer_types=12 * ["sliding_attention", "full_attention"],
                        rope_scaling=dict(rope_type="yarn", factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                                          original_max_position_embeddings=4096),
                        quantization_config=dict(quant_method="mxfp4", modules_to_not_convert=[
                            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"])),
}
PARAMETERS = {"Llama-3.1-8B": 8030261248, "Llama-3.1-70B": 70553706496, "Qwen3-32B": 32762123264,      # as published
              "Qwen3-30B-A3B": 30532122624, "gpt-oss-20b": 20914757184}


def shapes(c):
    """Of one layer: the linear layers (out, in), the sizes of vectors, of other matrices and of the matrices of all experts."""
    C, F = c["hidden_size"], c["intermediate_size"]
    D = c.get("head_dim", C // c["num_attention_heads"])
    q, kv = c["num_attention_heads"] * D, c["num_key_value_heads"] * D
    linear, vectors = [(q, C), (kv, C), (kv, C), (C, q)], [C, C] + ([D, D] if c["model_type"].startswith("qwen3") else [])
    E, F = c.get("num_experts", c.get("num_local_experts")), c.get("moe_intermediate_size", F)
    if c["model_type"] == "gpt_oss":                                                    # with sinks, and biases everywhere
        return linear, vectors + [q, kv, kv, C, c["num_attention_heads"], E], [E * C, E * 2 * F, E * C], [E * 2 * F * C, E * C * F]
    if E:
        return linear, vectors, [E * C], [E * 2 * F * C, E * C * F]
    return linear + [(F, C), (F, C), (C, F)], vectors, [], []


def stored(c):
    """Elements of all weights, of those of experts, and of a LoRA adapter of all linear layers."""
    linear, vectors, matrices, experts = shapes(c)
    layer, L = sum(o * i for o, i in linear) + sum(vectors + matrices + experts), c["num_hidden_layers"]
    ends = 2 * c["vocab_size"] * c["hidden_size"] + c["hidden_size"]
    return L * layer + ends, L * sum(experts), L * sum(RANK * (o + i) for o, i in linear)


def processor_seconds():
    """Of all processes that have ended: what a busy machine does not change."""
    times = os.times()
    return times.children_user + times.children_system


class Plans(Case):
    def plan(self, model, *args):
        folder, config = self.dir / model, MODELS[model]
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(dict(config, dtype="bfloat16", tie_word_embeddings=False)))
        times = []
        for _ in range(3):
            start = processor_seconds()
            text = self.ok("plan", "--model", folder, "--dtype", "bfloat16", "--device", "cpu", "--micro-batch-tokens", T,
                           "--lora-r", RANK, "--json", *args)
            times.append(processor_seconds() - start)
        plan = json.loads(text)
        blocks = {row["block"]: row for row in plan["table"]}
        self.assertEqual(plan["peak_bytes"], sum(row["bytes"] for row in plan["table"]))
        self.assertGreater(blocks["activations"]["bytes"], config["num_hidden_layers"] * T * config["hidden_size"] * 2)
        slower = 10 if SANITIZED else 1
        print(f"{model} {' '.join(args)}: {min(times) * 1e3:.0f} ms, peak {plan['peak_bytes'] / 1e9:.1f} GB, "
              f"{plan['bits_per_weight']:.3f} bits a weight")
        self.assertLess(min(times), 0.2 * slower)
        return plan, blocks

    def check_arrays(self, blocks, trained):
        """Weights that are trained in bfloat16, their gradients, masters and AdamW's two moments in float32, and two counts."""
        self.assertEqual(blocks["gradients"]["bytes"], 4 * trained)
        self.assertEqual(blocks["trainable"]["bytes"], 2 * trained)
        self.assertEqual(blocks["optimizer state"]["bytes"], 12 * trained + 256)

    def test_it_warns_of_what_a_run_would(self):
        data = self.write("chats.jsonl", *[CHAT] * 8)
        words = ("--model", TINY, "--data", data, "--eval-data", data, "--max-steps", 4, "--warmup-steps", 4, "--early-stopping-patience", 9)
        plan = run("plan", *words)
        dry = run("train", *words, "--output", self.dir / "out", "--dry-run")
        for said in ("--eval-data is the file of --data", "--warmup-steps 4: the run has 4 steps", "cannot end early"):
            self.assertEqual((plan.stderr.count(said), dry.stderr.count(said)), (1, 1), said)

    def test_a_type_that_the_processor_has_no_units_for_is_warned_of(self):
        """By a plan on its page, by a run that asked for it as a warning; where there are no such matmuls it is refused."""
        data, env = self.write("chats.jsonl", *[CHAT] * 8), {**os.environ, "HONE_ISA": "avx512"}
        if run("devices", env=env).stdout.find("AVX-512") < 0:
            env["HONE_ISA"] = "avx2"
        words = "has no units for bfloat16: with --dtype "
        for dtype, warned in ("bfloat16", True), ("float32", False), ("auto", False):
            plan = run("plan", "--model", TINY, "--device", "cpu", "--dtype", dtype, env=env)
            train = run("train", "--model", TINY, "--data", data, "--output", self.dir / dtype, "--max-steps", 1, "--device", "cpu",
                        "--dtype", dtype, env=env)
            if env["HONE_ISA"] == "avx2":
                self.assertEqual((plan.returncode, train.returncode), (7, 7) if dtype == "bfloat16" else (0, 0))
                continue
            said = self.assertRegex if warned else self.assertNotRegex      # TINY is in float32
            said(plan.stdout, words + r"\w+ the run takes 0\.0\d GB in place of 0\.0\d GB, and a matmul is \d")
            self.assertEqual((train.returncode, train.stderr.count(words)), (0, int(warned)), train.stderr)

    def test_lora_leaves_the_weights_in_their_files_and_adds_its_arrays(self):
        for model, config in MODELS.items():
            with self.subTest(model=model):
                weights, experts, adapter = stored(config)
                plan, blocks = self.plan(model)
                self.assertEqual(weights, PARAMETERS[model])
                self.assertEqual((plan["parameters"], plan["bits_per_weight"]), (weights, 16))
                self.assertEqual(blocks["weights in mapped files"]["bytes"], 2 * (weights - experts))
                self.assertEqual(blocks["weights"]["bytes"], 2 * experts + 256)         # stacked, and the rotary frequencies
                self.assertEqual(blocks["weights in mapped files"]["bits_per_weight"], 16)
                self.assertNotIn("bits_per_weight", blocks["trainable"])
                self.check_arrays(blocks, adapter)

    def test_qlora_holds_linear_layers_in_4_13_bits(self):
        """A matrix is codes, a byte for 64 of them, a float32 for 256 such bytes and one for all; every array begins at a multiple of
        256. The map of bytes, the vectors and the rotary frequencies lie next to them, and so do the matrices of experts, which stay
        in 16 bits. The embedding, the head and what else is dense stay in their files."""
        def place(size):
            return -(size // -256) * 256

        for model, config in MODELS.items():
            with self.subTest(model=model):
                weights, _, adapter = stored(config)
                linear, vectors, matrices, experts = shapes(config)
                L = config["num_hidden_layers"]
                plan, blocks = self.plan(model, "--finetuning-type", "qlora")
                ends = 2 * config["vocab_size"] * config["hidden_size"]
                nf4 = sum(place(o * i // 2) + place(o * i // 64) + place(4 * (1 + -(o * i // -16384))) for o, i in linear)
                dense = sum(place(2 * size) for size in vectors + experts)
                last = place(2 * config["hidden_size"]) + 1024 + 256
                self.assertEqual(blocks["weights"]["bytes"], L * (nf4 + dense) + last)
                if not experts:
                    self.assertLessEqual(blocks["weights"]["bits_per_weight"], 4.13)
                self.assertEqual(blocks["weights in mapped files"]["bytes"], 2 * (ends + L * sum(matrices)))
                self.assertEqual(plan["parameters"], weights)
                self.check_arrays(blocks, adapter)

    def test_fp8_holds_linear_layers_in_8_bits(self):
        """A matrix is its bytes and a float32 for each row."""
        def place(size):
            return -(size // -256) * 256

        for model, config in MODELS.items():
            with self.subTest(model=model):
                weights, _, adapter = stored(config)
                linear, vectors, matrices, experts = shapes(config)
                L = config["num_hidden_layers"]
                plan, blocks = self.plan(model, "--load-in-fp8")
                fp8 = sum(place(o * i) + place(4 * o) for o, i in linear)
                dense = sum(place(2 * size) for size in vectors + experts)
                last = place(2 * config["hidden_size"]) + 256
                self.assertEqual(blocks["weights"]["bytes"], L * (fp8 + dense) + last)
                if not experts:
                    self.assertLessEqual(blocks["weights"]["bits_per_weight"], 8.02)
                self.assertEqual(plan["parameters"], weights)
                self.check_arrays(blocks, adapter)

    def test_full_training_holds_the_weights_and_their_arrays(self):
        for model, config in MODELS.items():
            if config["model_type"] == "gpt_oss":                                       # test_full_training_of_gpt_oss_is_refused
                continue
            with self.subTest(model=model):
                weights, *_ = stored(config)
                plan, blocks = self.plan(model, "--finetuning-type", "full")
                self.assertEqual((plan["parameters"], blocks["trainable"]["bits_per_weight"]), (weights, 16))
                self.assertNotIn("weights in mapped files", blocks)
                self.check_arrays(blocks, weights)

    def test_full_training_of_gpt_oss_is_refused(self):
        folder = self.dir / "full"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(dict(MODELS["gpt-oss-20b"], quantization_config=None)))
        self.fails(7, "plan", "--model", folder, "--finetuning-type", "full",
                   says=["of a gpt_oss sinks and biases of experts have no gradient", "take --finetuning-type lora"])


if __name__ == "__main__":
    main(Plans, Plans)
