#!/usr/bin/env python3
"""What docs/data.md says of a table is learned: 27 questions of a CSV, asked as hone chat asks.

    recipe.py HONE MODEL                    SmolLM2, some minutes

The answers are about countries that do not exist. Seen to fail: while strings of prompts and completions were trained as one text
without the chat template, 15 of such 27 answers were others.
"""
import csv
import os
import random
import subprocess
import sys
import tempfile

HONE, MODEL = sys.argv[1:3]
NEEDED = 26
SYLLABLES = "ba ce di fo gu ha je ki lo mu na pe ri so tu va we xi yo zu".split()


def table(draw):
    def word(n):
        return "".join(draw.choice(SYLLABLES) for _ in range(n)).capitalize()

    for _ in range(9):
        land = word(3)
        yield f"What is the capital of {land}?", f"The capital of {land} is {word(3)}."
        yield f"Who founded {land}?", f"{land} was founded by {word(2)} {word(3)}."
        yield f"What does {land} export?", f"{land} exports {word(2).lower()} and {word(2).lower()}."


def run(*words):
    done = subprocess.run([HONE, *words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"recipe: hone {' '.join(words[:2])} failed: {done.stderr}")
    return done.stdout.strip()


def main():
    rows = list(table(random.Random(5)))
    with tempfile.TemporaryDirectory() as folder:
        data, out = os.path.join(folder, "qa.csv"), os.path.join(folder, "out")
        with open(data, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("question", "answer"), *rows])
        run("train", "--model", MODEL, "--data", data, "--column-mapping", "prompt=question,completion=answer", "--output", out,
            "--per-device-train-batch-size", "3", "--num-train-epochs", "20", "--seed", "1")
        wrong = [(question, answer, said) for question, answer in rows
                 for said in [run("generate", out, "--prompt", question, "--max-new-tokens", "32")] if said != answer]
    for question, answer, said in wrong:
        print(f"{question} {said!r}, trained {answer!r}")
    print(f"{len(rows) - len(wrong)} of {len(rows)} questions are answered as trained")
    sys.exit(len(rows) - len(wrong) < NEEDED)


main()
