#!/usr/bin/env python3
"""The first run on a card: every step of docs/gpu-first-run.md, and one file to send.

    tools/gpu-first-run.py --model DIR [--device cuda|cuda:1|opencl] [--data chats.jsonl] [--build build/release]

A step that fails does not end the script: it is a line of the table at the end, and its whole output is in the file. The exit
code is 0 if all steps went as they should. --small takes a few ops and steps, to try the script itself.
"""
import argparse
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")


class Wrong(Exception):
    """What a step found, in a sentence."""


class Run:
    def __init__(self, args, folder):
        self.args, self.folder, self.rows = args, folder, []
        self.log = folder / "log"
        self.log.mkdir()
        self.hone, self.ops = args.build / "hone", args.build / "tests/ops"
        self.cuda = args.device.split(":")[0] == "cuda"

    def command(self, *words, fails=True, seconds=None):
        """Runs a program; its words and all that it says are kept. Returns what it wrote to standard output."""
        words, start = [str(w) for w in words], time.monotonic()
        environment = {"HONE_CACHE": str(self.folder / "cache"), **os.environ}
        path = self.log / f"{len(list(self.log.iterdir())):02d}.txt"
        try:
            done = subprocess.run(words, capture_output=True, text=True, errors="replace", env=environment,
                                  timeout=seconds or self.args.timeout, stdin=subprocess.DEVNULL, check=False)
            code, out, err = done.returncode, done.stdout, done.stderr
        except FileNotFoundError:
            code, out, err = 127, "", f"{words[0]} is not here"
        except subprocess.TimeoutExpired as e:
            code, out, err = 124, str(e.stdout or ""), "it did not end in time"
        path.write_text(f"$ {' '.join(words)}\nexit {code} after {time.monotonic() - start:.1f} s\n--- stdout\n{out}\n--- stderr\n{err}\n",
                        encoding="utf-8")
        if code and fails:
            last = (err.strip().splitlines() or out.strip().splitlines() or ["nothing was said"])[-1]
            raise Wrong(f"exit {code}: {last[:300]} ({path.name})")
        return out + (err if not fails else "")

    def step(self, name, call):
        start = time.monotonic()
        try:
            result, said = "ok", call() or ""
        except Wrong as e:
            result, said = "WRONG", str(e)
        self.rows.append({"step": name, "result": result, "said": said, "seconds": round(time.monotonic() - start, 1)})
        print(f"{name:28} {result:6} {said}", flush=True)

    # --- the steps

    def machine(self):
        for words in (["nvidia-smi"], ["nvidia-smi", "-q"], ["clinfo"], ["lscpu"]):
            self.command(*words, fails=False)
        return platform.platform()

    def devices(self):
        listed = json.loads(self.command(self.hone, "devices", "--json"))["devices"]
        mine = [d for d in listed if self.args.device in (d["device"], f"{d['device'].split(':')[0]}")]
        if not mine or not mine[0]["usable"]:
            raise Wrong(mine[0].get("why", "not usable") if mine else f"hone devices has no {self.args.device}")
        return f"{self.command(self.hone, '--version').strip()}, {mine[0]['name']}, {mine[0]['free_bytes'] / 1e9:.1f} GB free"

    def ops_forward(self):
        return self.run_ops("forward")

    def ops_gradient(self):
        return self.run_ops("gradient")

    def run_ops(self, mode):
        words = ["--pairs", "rmsnorm"] if self.args.small else []
        return self.command(self.ops, mode, "--device", self.args.device, *words).strip().splitlines()[-1]

    def train(self, name, device, *words, steps=None):
        out = self.folder / name
        self.command(self.hone, "train", "--model", self.args.model, "--data", self.args.data, "--output", out, "--device", device,
                     "--max-steps", steps or self.args.steps, "--per-device-train-batch-size", 4, "--json", "--verbose", *words)
        return [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text().splitlines() if '"loss"' in line]

    def same_losses(self, kind, dtype, tolerance, *words):
        name = f"{kind}-{dtype}"
        cpu = self.train(f"{name}-cpu", "cpu", "--dtype", dtype, *words)
        card = self.train(f"{name}-card", self.args.device, "--dtype", dtype, *words)
        worst = max((abs(a - b) / abs(a) for a, b in zip(cpu, card)), default=1)
        if len(cpu) != len(card) or not worst <= tolerance:
            raise Wrong(f"losses differ from the CPU's by {worst:.1e} of their size, {tolerance:.0e} is expected")
        return f"{len(card)} losses within {worst:.1e} of the CPU's"

    def generate(self):
        said = {d: self.command(self.hone, "generate", "--model", self.args.model, "--prompt", "Hello, who are you?", "--dtype", "float32",
                                "--max-new-tokens", 24, "--device", d) for d in ("cpu", self.args.device)}
        if said["cpu"] != said[self.args.device]:
            raise Wrong(f"{said[self.args.device]!r}, the CPU says {said['cpu']!r}")
        return "the CPU's text"

    def graphs(self):
        runs = {"captured": ["on"], "launched": ["off"], "repeated": ["on"]}
        config = pathlib.Path(self.args.model) / "config.json"
        if config.exists() and json.loads(config.read_text(encoding="utf-8")).get("num_hidden_layers", 0) > 3:
            runs["copied"] = ["on", "--resident-layers", "1"]      # all layers but one come from host memory
            runs["offloaded"] = ["on", "--activation-offloading", "on"]
        for name, words in runs.items():
            self.train(name, self.args.device, "--cuda-graph", *words, steps=2 * self.args.steps)
        if len({(self.folder / name / "adapter_model.safetensors").read_bytes() for name in runs}) != 1:
            raise Wrong(f"{', '.join(runs)} runs do not give the same bytes")
        return f"{', '.join(runs)} runs give the same bytes"

    def bench(self, *words):
        return json.loads(self.command(self.hone, "bench", "--model", self.args.model, "--device", self.args.device, "--json",
                                       "--max-steps", self.args.steps, *(["--max-length", 32] if self.args.small else []), *words))

    def count(self):
        step = self.bench("--count")["per_step"]
        wrong = {k: step[k] for k in ("allocations", "compiled", "loaded", "syncs") if step[k]}
        if (step["copies_in"], step["copies_out"]) != (1, 1):
            wrong["copies"] = (step["copies_in"], step["copies_out"])
        if self.cuda and (step["graph_launches"], step["launches"]) != (2, 0):
            wrong["launches"] = (step["graph_launches"], step["launches"])
        if wrong:
            raise Wrong(f"a step has {wrong}")
        return f"1 copy in, 1 out, no wait, {step['graph_launches'] or step['launches']} launches a step"

    def profile(self):
        p = self.bench("--profile")["profile"]
        return f"ops {1e3 * p['ops_seconds']:.1f} ms, only their matmuls {1e3 * p['bare_seconds']:.1f} ms"

    def speed(self):
        report = self.bench("--per-device-train-batch-size", 4, *(["--graph"] if self.cuda else []))
        graph = report.get("graph")
        said = f"{report['tokens_per_second']:.0f} tok/s"
        return said + (f", captured steps {graph['ratio']:.2f} times as fast as launched ones" if graph else "")

    def plan(self):
        self.command(self.hone, "plan", "--model", self.args.model, "--device", self.args.device)
        return "compare its estimates with nvidia-smi's numbers"

    def sanitizer(self, tool):
        if not shutil.which("compute-sanitizer"):
            return "compute-sanitizer is not here: skipped"
        # calls that fail are hone's to check: cuBLAS makes some that are meant to
        options = ["--report-api-errors", "no"] if tool == "memcheck" else []
        clean = "RACECHECK SUMMARY: 0 hazards displayed" if tool == "racecheck" else "ERROR SUMMARY: 0 errors"
        for words in ([self.ops, "forward", "--device", self.args.device, "--pairs", "linear"],
                      [self.ops, "gradient", "--device", self.args.device, "--pairs", "attention"],
                      [self.hone, "bench", "--model", self.args.model, "--device", self.args.device, "--max-length", 64, "--max-steps", 2]):
            out = self.command("compute-sanitizer", "--tool", tool, *options, *words, fails=False)
            if clean not in out:
                raise Wrong(f"{tool} found errors (initcheck may name cuBLAS's workspace, which is not hone's)")
        return "0 errors"

    def all(self):
        self.step("machine", self.machine)
        self.step("devices", self.devices)
        self.step("ops forward", self.ops_forward)
        self.step("ops gradient", self.ops_gradient)
        self.step("LoRA float32", lambda: self.same_losses("lora", "float32", 1e-4))
        self.step("LoRA bfloat16", lambda: self.same_losses("lora", "bfloat16", 0.02))
        self.step("QLoRA float32", lambda: self.same_losses("qlora", "float32", 1e-4, "--finetuning-type", "qlora"))
        self.step("full float32", lambda: self.same_losses("full", "float32", 1e-4, "--finetuning-type", "full", "--learning-rate", "1e-5"))
        self.step("generate", self.generate)
        if self.cuda:
            self.step("the same bytes", self.graphs)
        self.step("what a step does", self.count)
        self.step("where time goes", self.profile)
        self.step("speed", self.speed)
        self.step("plan", self.plan)
        for tool in TOOLS if self.cuda else ():
            self.step(f"compute-sanitizer {tool}", lambda tool=tool: self.sanitizer(tool))


def chats(path):
    """120 rows of questions with answers of many lengths, where the user has none."""
    with path.open("w", encoding="utf-8") as out:
        for i in range(120):
            answer = " ".join(f"{k} times {i} is {k * i}." for k in range(1, 2 + i % 5))
            out.write(json.dumps({"messages": [{"role": "user", "content": f"Say the row of {i}, up to {1 + i % 5}."},
                                               {"role": "assistant", "content": answer}]}) + "\n")


def pack(run, name):
    """The table, what every command said, and the metrics of every run, without models and caches."""
    (run.folder / "table.json").write_text(json.dumps(run.rows, indent=1), encoding="utf-8")
    with tarfile.open(name, "w:gz") as tar:
        for path in sorted(run.folder.rglob("*")):
            inside = path.relative_to(run.folder)
            if path.is_file() and inside.parts[0] != "cache" and path.suffix in (".txt", ".json", ".jsonl") and path.stat().st_size < 8 << 20:
                tar.add(path, pathlib.Path("gpu-first-run") / inside)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True, help="a small model of the Llama family, as SmolLM2-135M-Instruct")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--data", type=pathlib.Path, help="chats, 100 rows or more; else the script makes some")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1] / "build/release")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("gpu-first-run.tar.gz"))
    parser.add_argument("--timeout", type=float, default=3600, help="seconds of one command")
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    args.steps = 2 if args.small else 20
    with tempfile.TemporaryDirectory() as folder:
        run = Run(args, pathlib.Path(folder))
        if not args.data:
            args.data = run.folder / "chats.jsonl"
            chats(args.data)
        run.all()
        pack(run, args.output)
    wrong = [row["step"] for row in run.rows if row["result"] != "ok"]
    print(f"\n{len(run.rows) - len(wrong)} of {len(run.rows)} steps are as they should be"
          + (f"; not: {', '.join(wrong)}" if wrong else "") + f". Please send {args.output} in an issue, good or bad.")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
