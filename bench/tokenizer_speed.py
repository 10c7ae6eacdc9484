"""Encoding speed of hone and of Hugging Face's tokenizers, alternating in one run on the same threads.

    tokenizer_speed.py TOKENIZE ASSETS DATA [NAME ...] [--threads 2] [--rounds 7] [--min-ratio RATIO]

TOKENIZE is the program built from tests/oracle/tokenize.c, ASSETS the folder of test models and tokenizers, DATA a folder of chats
(*.jsonl) in which every message is one text. NAME is a folder of ASSETS with a tokenizer.json. Prints medians in MB/s and their
ratio, and the time to open; exits with 1 if a ratio is below RATIO.
"""

import argparse
import os
import statistics
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "oracle"))
from tokenizer_texts import NAMES, messages

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
import figures


class Hone:
    def __init__(self, tool, path, texts, threads):
        self.process = subprocess.Popen([tool, "time", path, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.opened = float(self.process.stdout.readline())
        frames = [text.encode() for text in texts]
        self.process.stdin.write(b"".join(struct.pack("=i", len(f)) + f for f in frames) + struct.pack("=i", -1))

    def run(self):
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("assets")
    parser.add_argument("data")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--min-ratio", type=float, default=0)
    arguments = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(arguments.threads)
    from tokenizers import Tokenizer
    texts = messages(arguments.data)
    size = sum(len(text.encode()) for text in texts) / 1e6
    print(f"{len(texts)} texts, {size:.2f} MB, {arguments.threads} threads, {arguments.rounds} rounds")
    print(f"{'tokenizer':<26} {'hone MB/s':>10} {'HF MB/s':>9} {'ratio':>7} {'hone opens':>11} {'HF opens':>10}")
    worst, best = float("inf"), 0
    for name in arguments.names or NAMES:
        path = os.path.join(arguments.assets, name, "tokenizer.json")
        start = time.perf_counter()
        theirs = Tokenizer.from_file(path)
        their_open = time.perf_counter() - start
        theirs.no_truncation()
        ours = Hone(arguments.tool, path, texts, arguments.threads)
        pairs = []
        for _ in range(arguments.rounds + 1):
            mine = ours.run()
            start = time.perf_counter()
            theirs.encode_batch(texts, add_special_tokens=False)
            pairs.append((mine, time.perf_counter() - start))
        ours.close()
        pairs = pairs[1:]                               # the first round is a warmup
        ratio = statistics.median(b / a for a, b in pairs)
        worst, best = min(worst, ratio), max(best, ratio)
        print(f"{name:<26} {size / statistics.median(a for a, _ in pairs):>10.1f} {size / statistics.median(b for _, b in pairs):>9.2f} "
              f"{ratio:>7.1f} {ours.opened * 1e3:>8.1f} ms {their_open * 1e3:>7.0f} ms", flush=True)
    print(f"min ratio: {worst:.1f}")
    figures.record("Speed", "encoding, compared with Hugging Face's tokenizers", times=f"{worst:.1f} to {best:.1f}")
    return 1 if worst < arguments.min_ratio else 0


if __name__ == "__main__":
    sys.exit(main())
