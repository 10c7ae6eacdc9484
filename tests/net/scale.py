#!/usr/bin/env python3
"""docs/scale.md: tokens a second and the validation loss of several processes, on this machine and on two hosts that are far apart.

    scale.py HONE ASSETS DATA [STEPS]

The hosts (rig.py) share this machine's processors with each other and with the relay between them. All runs of a model take the same
steps. Processes have a thread each; one process has as many as there are processors. With HONE_RECORD the table goes to the page, once the machine has nothing else to do.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import rig

HONE, ASSETS, DATA = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
STEPS = int(sys.argv[4]) if len(sys.argv) > 4 else 40
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/scale.md"
PLACE = re.compile(r"(<!-- measured -->\n).*?(<!-- end -->)", re.S)
TEXT = """## Processes on CPUs, measured

`ninja -C build/release scale`: {steps} steps of 8 chats of up to 128 tokens, LoRA. *1 process* has
the {cores} cores of the machine. The others have a thread each, so that 4 processes share the
cores. *2 hosts* are two of them with {rate:g} Gbit/s and {delay:g} ms each way between them, in
network namespaces of the same machine; what carries their packets takes a part of its cores. All
are single runs next to other work of low priority; those of the tiny Llama on one machine take less
than a second. Packets have 9,000 bytes and connections windows of 64 MB. So few steps do not say
where a long run with `--sync-every` ends.

"""
DELAY, RATE, MTU = 0.05, 1e9, 9000      # as of a data centre: the relay, which takes each packet, is not fast
WINDOW = 64 << 20                       # bytes of a connection under way: more than RATE and DELAY ask for
EVERY = 10
MODELS = {"tiny-llama": 1e-3, "smollm2": 2e-4}
NAMES = {"tiny-llama": "a tiny Llama", "smollm2": "SmolLM2-135M"}
WAYS = {"1 process": (1, []), "2 processes": (2, []), "4 processes": (4, []), "2 hosts, every step": ("hosts", []),
        f"2 hosts, `--sync-every {EVERY}`": ("hosts", ["--sync-every", EVERY]),
        f"2 hosts, `--sync-every {EVERY} --sync-int8`": ("hosts", ["--sync-every", EVERY, "--sync-int8"])}


def command(model, folder, flags):
    return [HONE, "train", "--model", ASSETS / "models" / model, "--data", DATA / "train.jsonl", "--eval-data", folder / "valid.jsonl", "--output",
            folder / "out", "--cache-dir", folder / "cache", "--max-samples", 1600, "--max-steps", STEPS, "--per-device-train-batch-size", 8,
            "--max-length", 128, "--excess-length", "truncate", "--micro-batch-tokens", 512, "--save-steps", 0, "--learning-rate",
            MODELS[model], "--device", "cpu", "--json", *flags]


def open_window(host):
    for name in "rmem", "wmem":
        host.tell("sh", "-c", f"echo 4096 1048576 {WINDOW} > /proc/sys/net/ipv4/tcp_{name}")


def sent(host):
    return int(host.run(["cat", "/sys/class/net/net0/statistics/tx_bytes"], capture_output=True, text=True, check=True).stdout)


def on_hosts(words, folder):
    with rig.network(2, delay=DELAY, rate=RATE, mtu=MTU) as hosts:
        for host in hosts:
            open_window(host)
        return rig.mpirun(hosts, [*words, "--threads", 1], folder, capture_output=True, text=True, timeout=600), sent(hosts[0])


def measure(model, processes, flags):
    """The result of a run, and the bytes that a host sent."""
    with tempfile.TemporaryDirectory() as name:
        folder, traffic = pathlib.Path(name), None
        (folder / "valid.jsonl").write_text("".join((DATA / "valid.jsonl").read_text().splitlines(True)[:64]))
        words = list(map(str, command(model, folder, flags)))
        if processes == "hosts":
            done, traffic = on_hosts(words, folder)
        else:
            more = ["--nproc", str(processes), "--threads", "1"] if processes > 1 else []
            done = subprocess.run([*words, *more], capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), traffic


def row(model, way, result, traffic, alone):
    speed, loss = result["tokens_per_second"], result["eval_loss"]
    compared = "| |" if result is alone else f"| {100 * speed / alone['tokens_per_second']:.0f}% |"
    above = "| |" if result is alone else f"| {100 * (loss / alone['eval_loss'] - 1):+.2f}% |"
    return f"| {NAMES[model]} | {way} | {speed:,.0f} {compared} {loss:.4f} {above} {f'{traffic / 1e6:,.1f} MB ' if traffic else ''}|"


def main():
    reason = rig.missing()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    lines = ["| model | | tokens/s | of one process's | validation loss | above one process's | sent by a host |", "|---|---|---|---|---|---|---|"]
    for model in MODELS:
        alone = None
        for way, (processes, flags) in WAYS.items():
            result, traffic = measure(model, processes, flags)
            alone = alone or result
            lines.append(row(model, way, result, traffic, alone))
            print(lines[-1], f"{result['seconds']:.1f} s, {result['tokens']} tokens", flush=True)
    if os.environ.get("HONE_RECORD"):
        text = TEXT.format(steps=STEPS, cores=os.cpu_count(), rate=RATE / 1e9, delay=1000 * DELAY) + "\n".join(lines) + "\n"
        PAGE.write_text(PLACE.sub(lambda found: found[1] + text + found[2], PAGE.read_text()))


if __name__ == "__main__":
    main()
