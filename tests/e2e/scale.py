#!/usr/bin/env python3
"""docs/scale.md: its tables are what `hone plan --world-size` prints for models of published dimensions.

    scale.py HONE ASSETS DATA       compares the page; with HONE_UPDATE_DOCS=1 it writes it
"""
import json
import os
import pathlib
import re

from case import Case, main

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/scale.md"
LLAMA3 = dict(model_type="llama", vocab_size=128256, num_key_value_heads=8, max_position_embeddings=131072, rms_norm_eps=1e-5,
              rope_theta=500000.0, dtype="bfloat16", tie_word_embeddings=False)
MODELS = {
    "8B": dict(LLAMA3, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32),
    "70B": dict(LLAMA3, hidden_size=8192, intermediate_size=28672, num_hidden_layers=80, num_attention_heads=64),
}
# What is trained, on which card, with rows of how many tokens, and over which networks: each card of a step has 4 rows.
RUNS = {
    "8B, LoRA": ("8B", "lora", "h100", 4096, {100: "100 Gbit/s"}),
    "70B, QLoRA": ("70B", "qlora", "h100", 4096, {100: "100 Gbit/s"}),
    "70B, QLoRA, small cards": ("70B", "qlora", "rtx4090", 2048, {256: "PCIe 4.0", 100: "100 Gbit/s"}),
    "8B, all weights": ("8B", "full", "h100", 4096, {3600: "NVLink", 400: "400 Gbit/s", 100: "100 Gbit/s"}),
}
ROWS = 4
RANKS = (8, 64)                 # 1,024 differ little from 64
TABLE = re.compile(r"<!-- table: (.*?) -->\n(.*?)<!-- end -->", re.S)


def size(number):
    return f"{number / 1e9:.1f} GB" if number < 1e12 else f"{number / 1e12:.2f} TB"


class Scale(Case):
    def plan(self, run, ranks, network):
        model, method, card, length, _ = RUNS[run]
        folder = self.dir / model
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(MODELS[model]))
        words = ["--gpu", card, "--finetuning-type", method, "--max-length", length, "--micro-batch-tokens", length, "--recompute", "full",
                 "--per-device-train-batch-size", ROWS * ranks, "--world-size", ranks, "--network", network]
        return json.loads(self.ok("plan", "--model", folder, *words, "--json"))["estimate"]

    def lines(self, run):
        """For each number of cards and each network the first layout that fits, and what it costs."""
        yield "| cards | network | divided | a card | sent a step | seconds | tokens/s | overlapped | of one card's |"
        yield "|---|---|---|---|---|---|---|---|---|"
        for ranks in RANKS:
            for network, name in RUNS[run][4].items():
                if name in ("NVLink", "PCIe 4.0") and ranks > 8:                   # they join the cards of one machine
                    continue
                e = self.plan(run, ranks, network)
                fitting = [layout for layout in e["world"]["layouts"] if layout["fits"]]
                if not fitting:
                    yield f"| {ranks:,} | {name} | none fits | | | | | | |"
                    continue
                l = fitting[0]
                yield (f"| {ranks:,} | {name} | {l['layout']} | {size(l['rank_bytes'])} | {size(l['sent_bytes'])} | "
                       f"{e['step_seconds']:.2f} + {l['communication_seconds']:.3f} | {l['tokens_per_second']:,.0f} | "
                       f"{l['overlapped_tokens_per_second']:,.0f} | "
                       f"{100 * l['tokens_per_second'] / ranks / e['tokens_per_second']:.1f}% |")

    def test_the_page_has_the_tables_that_the_command_prints(self):
        old = PAGE.read_text(encoding="utf-8")
        self.assertEqual([name for name, _ in TABLE.findall(old)], list(RUNS))
        new = TABLE.sub(lambda found: f"<!-- table: {found[1]} -->\n" + "\n".join(self.lines(found[1])) + "\n<!-- end -->", old)
        if os.environ.get("HONE_UPDATE_DOCS"):
            PAGE.write_text(new, encoding="utf-8")
            return
        self.assertEqual(new, old, "docs/scale.md is not what hone plan says: make docs")


if __name__ == "__main__":
    main(Scale, Scale)
