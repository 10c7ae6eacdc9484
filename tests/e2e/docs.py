"""Every command of the pages does what a reader expects: the lines of ```sh blocks in README.md and docs/ that start hone are run.

    docs.py HONE ASSETS DATA [PAGE...]      all pages, or those of these names

A page has a folder of its own, with smollm2 (a tiny Llama), the same on a hub of this machine, in its cache and as a GGUF file, and
train.jsonl, valid.jsonl, chats.jsonl, qa.csv and configurations in it; its commands run in their order, so that one finds what those
before it made. Other programs' lines are not run, and they must begin with a word of OTHERS.
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys

from case import ASSETS, DATA, HONE, TINY, Case, main
from hub import Hub

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if page.name in (sys.argv[4:] or [page.name])]
HUB_NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
OTHERS = {"sudo", "apt-get", "make", "pip", "python3", "ollama", "cmake", "ctest", "ninja", "source", "xxhsum", "cc", "cd", "git",
          "tests/fuzz/run", "$HONE_ASSETS/venv/bin/python", "wandb", "mlflow", "tensorboard", "dpkg-buildpackage", "minisign"}
# What no test can give, with why.
NOT_HERE = {"--device cuda": "needs a card", "…": "a part of a command"}
# Pages that speak of a run which somebody has made.
AFTER_A_RUN = {"export.md"}
# A checklist for a card, whose commands have variables of that page; what tests/e2e/library.py compiles and runs; and what
# tests/e2e/provenance.py does with keys of its own.
ELSEWHERE = {"gpu-first-run.md", "library.md", "provenance.md"}


def commands(text):
    """The lines of a page's shell blocks, continued lines joined, comments gone."""
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            if words := shlex.split(line, comments=True):
                yield words


class Pages(Case):
    def setUp(self):
        super().setUp()
        lines = sorted((DATA / "train.jsonl").read_text(encoding="utf-8").splitlines()[:100], key=len)
        for name, rows in {"train": lines[:40], "chats": lines[:40], "valid": lines[40:44]}.items():
            self.write(f"{name}.jsonl", *rows)
        self.write("qa.csv", "question,answer", "What is jq for?,It reads JSON.")
        self.write("config.yaml", "model: smollm2", "data: chats.jsonl", "output: out")
        self.write("axolotl.yml", "base_model: smollm2", "datasets: [{path: chats.jsonl, type: chat_template}]", "adapter: lora",
                   "lora_r: 8", "lora_alpha: 16", "micro_batch_size: 2", "num_epochs: 1", "learning_rate: 1e-4", "output_dir: out-axolotl")
        (self.dir / "smollm2").symlink_to(TINY)
        snapshot = self.dir / "hub" / ("models--" + HUB_NAME.replace("/", "--"))
        (snapshot / "snapshots").mkdir(parents=True)
        (snapshot / "refs").mkdir()
        (snapshot / "refs/main").write_text("0" * 40)
        (snapshot / "snapshots" / ("0" * 40)).symlink_to(TINY)
        self.ok("quantize", "--model", TINY, "--output", self.dir / "SmolLM2-135M-Instruct-Q4_1.gguf", "--type", "q8_0")
        hub = Hub({p.name: p.read_bytes() for p in TINY.iterdir() if p.is_file()}, name=HUB_NAME).__enter__()
        self.addCleanup(hub.__exit__)
        self.environment = {**os.environ, "HF_HUB_CACHE": str(self.dir / "hub"), "VIRTUAL_ENV": str(ASSETS / "venv"),
                            "HF_ENDPOINT": hub.url, "no_proxy": "*"}

    def try_page(self, page):
        done = 0
        if page.name in AFTER_A_RUN:
            self.ok("train", "--model", TINY, "--data", self.dir / "train.jsonl", "--output", self.dir / "out", "--max-steps", 1)
        for words in commands(page.read_text(encoding="utf-8")):
            text = shlex.join(words)
            if words[0] != "hone":
                self.assertIn(words[0], OTHERS, f"{page.name}: {text}")
            elif not any(part in " ".join(words) for part in NOT_HERE):
                result = subprocess.run([pathlib.Path(HONE).resolve(), *words[1:]], cwd=self.dir, env=self.environment,
                                        capture_output=True, text=True, timeout=900, check=False, stdin=subprocess.DEVNULL)
                self.assertEqual(result.returncode, 0, f"{page.name}: {text}\n{result.stderr}")
                done += 1
        return done

    def test_the_commands_of_every_page_work_as_they_stand(self):
        """Fails if a page names an option, a file or a command that is not there."""
        done = {}
        for page in PAGES:
            if page.name not in ELSEWHERE:
                with self.subTest(page=page.name):
                    self.tearDown()
                    self.setUp()
                    done[page.name] = self.try_page(page)
        if len(PAGES) > 1:
            self.assertGreater(sum(done.values()), 30, done)
        for name in {"README.md", "laptop.md", "export.md"} & set(done):
            self.assertGreater(done[name], 2, done)


main(Pages, Pages)
