#!/usr/bin/env python3
"""Data sets as a user brings them: what happens to rows that are too long or cannot be used, and the summary of it.

    data.py HONE ASSETS DATA
"""
import json
import os
import subprocess

from case import CHAT, DATA, HONE, SANITIZED, SMOL, TINY, Case, main, run

PACKED = 0.97


def chat(words, i=0):
    return {"messages": [{"role": "user", "content": f"Number {i}?"}, {"role": "assistant", "content": "word " * words}]}


class Data(Case):
    def setUp(self):
        super().setUp()
        self.rows = [chat(5, 1), chat(60, 2), chat(5, 3), chat(25, 4), CHAT]
        self.data = self.write("chats.jsonl", *self.rows)

    def account(self, command, *args):
        if command == "train":
            args = ("--output", self.dir / "out", "--max-steps", 1, "--resume", "none", *args)
        return json.loads(self.ok(command, "--model", TINY, "--data", self.data, "--json", *args))["data"]

    def test_commands_tell_the_same(self):
        whole = self.account("plan")
        self.assertEqual((whole["rows"], whole["rows_read"], whole["kinds"], whole["untrained_rows"]), (5, 5, {"messages": 5}, 0))
        self.assertEqual((whole["longest"]["line"], whole["longest"]["path"]), (2, str(self.data)))
        self.assertEqual((whole["longest_row"], whole["max_length"]), (whole["longest"]["tokens"], 256))
        for args in ((), ("--max-length", 64, "--excess-length", "truncate"), ("--max-length", 64, "--excess-length", "drop"),
                     ("--max-length", 64, "--excess-length", "split"), ("--train-on-inputs",)):
            plan, train = self.account("plan", *args), self.account("train", *args)
            self.assertEqual(train.pop("eval_rows"), 0)
            self.assertEqual(plan, train)
            self.assertEqual(plan, self.account("eval", *args))
            self.assertEqual(plan, self.account("plan", "--for", "eval", *args))

    def peak(self, *args):
        """Of its resident memory, in bytes."""
        process = subprocess.Popen([HONE, *map(str, args)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        err = process.stderr.read()
        _, process.returncode, usage = os.wait4(process.pid, 0)
        process.stderr.close()
        self.assertEqual(process.returncode, 0, err)
        return usage.ru_maxrss * 1024

    def test_memory_of_a_long_row(self):
        """It took twice as much: places of 64 bits, copies of what was done, and a text that was there twice."""
        if SANITIZED:
            self.skipTest("sanitizers keep what is freed")
        text = " ".join(map(str, range(600_000)))                # 4 MB, of a token each byte or two
        for kind, row in (("text", {"text": text}), ("chat", {"messages": [CHAT["messages"][0], {"role": "assistant", "content": text}]})):
            data = self.write(f"{kind}.jsonl", row)
            train = self.peak("train", "--model", TINY, "--data", data, "--output", self.dir / kind, "--max-steps", 1, "--excess-length", "split")
            inspect = self.peak("inspect", "data", "--model", TINY, "--data", data, "--excess-length", "drop")
            print(f"a row of 4 MB, {kind}: {train / 1e6:.0f} MB to train (at most 95), {inspect / 1e6:.0f} MB to inspect (at most 145)")
            self.assertLess(train, 95e6)
            self.assertLess(inspect, 145e6)

    def test_long_rows(self):
        whole = self.account("plan")
        self.fails(9, "eval", "--model", TINY, "--data", self.data, "--max-length", 64,
                   says=["chats.jsonl:2: ", "2 of 5 rows have more", "--max-length", "--excess-length truncate, split or drop"])
        cut = self.account("plan", "--max-length", 64, "--excess-length", "truncate")
        self.assertEqual((cut["rows"], cut["truncated_rows"], cut["longest_row"]), (5, 2, 64))
        self.assertEqual(cut["tokens"] + cut["lost_tokens"], whole["tokens"])
        split = self.account("plan", "--max-length", 64, "--excess-length", "split")
        self.assertEqual((split["split_rows"], split["trained_tokens"], split["rows"]), (2, whole["trained_tokens"], 3 + split["split_windows"]))
        self.assertEqual(split["tokens"], whole["tokens"] + split["split_windows"] - 2)      # windows share a token
        drop = self.account("plan", "--max-length", 64, "--excess-length", "drop")
        self.assertEqual((drop["rows"], drop["dropped_rows"], drop["tokens"] + drop["lost_tokens"]), (3, 2, whole["tokens"]))
        late = {"messages": [{"role": "user", "content": "word " * 60}, CHAT["messages"][1]]}
        self.fails(9, "eval", "--model", TINY, "--data", self.data, "--max-length", 4, "--excess-length", "drop", says=["left none of them"])
        data, self.data = self.data, self.write("late.jsonl", CHAT, late)
        left = self.account("eval", "--max-length", 64, "--excess-length", "truncate")
        self.assertEqual((left["rows"], left["truncated_rows"], left["emptied_rows"]), (1, 1, 1))
        left = self.account("train", "--max-length", 64, "--excess-length", "split")
        self.assertEqual((left["split_rows"], left["rows"]), (1, 1 + left["split_windows"] - left["emptied_rows"]))
        self.assertGreater(left["emptied_rows"], 0)
        self.data = data
        said = run("eval", "--model", TINY, "--data", self.data, "--max-length", 64, "--excess-length", "truncate").stderr
        for text in ("2 of 5 rows are cut to --max-length 64", "  read      5 rows, messages 5", "  truncated 2 rows"):
            self.assertIn(text, said)

    # Fails if a number and its noun do not agree.
    def test_one_row_is_told_as_one(self):
        data = self.write("one.jsonl", CHAT, {"messages": [CHAT["messages"][0], {"role": "assistant", "content": "A word. " * 60}]})
        def said(*args):
            return run("eval", "--model", TINY, "--data", data, *args).stderr
        self.assertIn("1 of 2 rows has more", said("--max-length", 64))
        self.assertRegex(said("--max-length", 64, "--excess-length", "truncate"), r"1 of 2 rows is cut to --max-length 64: \d+ tokens are lost")
        self.assertRegex(said("--max-length", 64, "--excess-length", "drop"), "1 of 2 rows is longer than --max-length 64 and left out")
        data = self.write("bad.jsonl", CHAT, "no JSON")
        self.assertIn("1 row cannot be used and is skipped; the first:", said("--bad-rows", "skip"))

    def test_bad_rows(self):
        self.data = self.write("bad.jsonl", CHAT, '{"messages": 7}', CHAT, "no JSON", {"messages": []}, CHAT)
        self.fails(9, "eval", "--model", TINY, "--data", self.data, says=["bad.jsonl:2: "])
        for command in ("plan", "eval", "train"):
            account = self.account(command, "--bad-rows", "skip")
            self.assertEqual((account["rows"], account["skipped_rows"], len(account["skipped"])), (3, 3, 3))
            for line, text in zip((2, 4, 5), account["skipped"]):
                self.assertTrue(text.startswith(f"{self.data}:{line}: "), text)
        said = run("eval", "--model", TINY, "--data", self.data, "--bad-rows", "skip").stderr
        for text in ("warning: 3 rows cannot be used and are skipped", "bad.jsonl:2: ", "bad.jsonl:4: ", "  skipped   3 rows"):
            self.assertIn(text, said)
        self.fails(9, "eval", "--model", TINY, "--data", self.data, says=["bad.jsonl:2: "])     # now it is in the cache

    def test_directories_and_weights(self):
        folder = self.dir / "set"
        folder.mkdir()
        for name, count in (("train", 6), ("valid", 2), ("test", 3)):
            self.write(f"set/{name}.jsonl", *(chat(3 + i, i) for i in range(count)))
        self.data = folder
        train = self.account("train")
        self.assertEqual((train["rows"], train["eval"]["rows"], train["eval_rows"]), (6, 2, 2))
        self.assertEqual(self.account("eval")["rows"], 3)
        self.data = f"{folder}/train.jsonl:2.5,{folder}/test.jsonl"
        r = json.loads(self.ok("train", "--model", TINY, "--data", self.data, "--output", self.dir / "w", "--json",
                               "--per-device-train-batch-size", 1))
        self.assertEqual(r["steps_per_epoch"], 15 + 3)
        self.assertEqual([f["rows"] for f in r["data"]["files"]], [6, 3])
        self.assertEqual(r["data"]["files"][0]["weight"], 2.5)
        self.fails(2, "train", "--model", TINY, "--data", f"{folder}/train.jsonl:1.5,{folder}/test.jsonl", "--output", self.dir / "w",
                   "--per-device-train-batch-size", 1, says=["other data (data_units was 18"])

    def test_a_run_goes_on_with_the_same_lengths_only(self):
        args = ("train", "--model", TINY, "--data", self.data, "--output", self.dir / "out", "--max-length", 64, "--excess-length")
        self.ok(*args, "truncate", "--max-steps", 1)
        self.fails(2, *args, "split", "--max-steps", 1, says=["excess_length", "truncate"])

    def test_packing_fills_windows_of_real_chats(self):
        for length in (512, 1024, 2048):
            plan = json.loads(self.ok("plan", "--model", SMOL, "--data", DATA / "train.jsonl", "--packing", "--max-length", length,
                                      "--excess-length", "split", "--json"))
            packing = plan["data"]["packing"]
            print(f"{packing['windows']} windows of {length} tokens, {100 * packing['full']:.2f} % full")
            self.assertEqual(packing["window"], length)
            self.assertGreaterEqual(packing["full"], PACKED)
            self.assertEqual(packing["full"], plan["data"]["tokens"] / (packing["windows"] * length))


main(Data, Data)
