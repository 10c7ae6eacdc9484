#!/usr/bin/env python3
"""The program as a user runs it.

    cli.py HONE ASSETS DATA [--large]

Without --large: tiny models, every message and exit code. With it: SmolLM2, the plan against measured memory, and start-up.
"""
import json
import os
import pathlib
import pty
import re
import resource
import shutil
import signal
import statistics
import subprocess
import time

from case import ASSETS, CHAT, DATA, HONE, SANITIZED, SMOL, TINY, Case, main, read_terminal, run

# The configs of Llama-2-70B and Llama-3-70B.
SEVENTY = dict(model_type="llama", architectures=["LlamaForCausalLM"], hidden_size=8192, intermediate_size=28672, num_hidden_layers=80,
               num_attention_heads=64, num_key_value_heads=8, vocab_size=128256, max_position_embeddings=131072, rms_norm_eps=1e-5,
               rope_theta=500000.0, torch_dtype="bfloat16", tie_word_embeddings=False, hidden_act="silu")


class Tiny(Case):
    def test_help_and_version(self):
        cmake = (pathlib.Path(__file__).parents[2] / "CMakeLists.txt").read_text()
        version = re.search(r"^project\(hone VERSION (\d+\.\d+\.\d+) ", cmake, re.M)[1]      # its one place
        self.assertRegex(self.ok("--version"), rf"^hone {re.escape(version)}\nconfines itself: (not )?files .*, (not )?programs and sockets .*\n$")
        overview = self.ok("--help")
        for command in ("train", "eval", "generate", "chat", "plan", "inspect", "devices", "bench"):
            self.assertIn(command, overview)
            self.assertIn("--", self.ok(command, "--help"))
        self.assertIn("hone completion bash", overview)
        self.assertIn("Usage: hone completion bash", self.ok("completion", "--help"))
        self.assertEqual(run().returncode, 2)

    def test_answers_in_milliseconds(self):
        times = []
        for _ in range(9):
            start = time.monotonic()
            self.ok("--version")
            times.append(time.monotonic() - start)
        self.assertLess(statistics.median(times), 0.1)

    def test_eval(self):
        data = self.write("chats.jsonl", CHAT, CHAT)
        out = json.loads(self.ok("eval", "--model", TINY, "--data", data, "--json"))
        self.assertEqual((out["rows"], out["dtype"]), (2, "float32"))
        self.assertGreater(out["trained_tokens"], 0)
        self.assertLess(out["trained_tokens"], out["tokens"])
        every = json.loads(self.ok("eval", "--model", TINY, "--data", data, "--json", "--train-on-inputs"))
        self.assertEqual(every["trained_tokens"], every["tokens"] - 2)
        self.assertIn("perplexity", self.ok("eval", "--model", TINY, "--data", data))
        again = json.loads(self.ok("eval", "--model_name_or_path", TINY, f"--dataset-path={data}", "--json"))
        self.assertEqual(again["loss"], out["loss"])
        one = json.loads(self.ok("eval", "--model", TINY, "--data", data, "--json", "--micro-batch-tokens", 64))
        self.assertAlmostEqual(one["loss"], out["loss"], delta=1e-6 * out["loss"])

    def test_yaml(self):
        data = self.write("chats.jsonl", CHAT)
        config = self.write("run.yaml", f"model_name_or_path: {TINY}", f"data: {data}", "dtype: bfloat16", "max_new_tokens: 3")
        out = json.loads(self.ok("eval", "--config", config, "--json"))
        self.assertEqual(out["dtype"], "bfloat16")
        out = json.loads(self.ok("eval", "--config", config, "--json", "--dtype", "float32"))
        self.assertEqual(out["dtype"], "float32")
        wrong = self.write("wrong.yaml", f"model: {TINY}", "dtpye: float32")
        self.fails(2, "eval", "--config", wrong, says=["wrong.yaml:2", "dtpye", "dtype"])

    def test_the_process_keeps_the_name_of_the_program(self):
        command = [HONE, "eval", "--model", TINY, "--data", self.write("chats.jsonl", CHAT)]
        process, names = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL), set()
        while process.poll() is None:
            names.add(pathlib.Path(f"/proc/{process.pid}/comm").read_text().strip())
        names.discard(pathlib.Path("/proc/self/comm").read_text().strip())      # of the child before it is the program
        self.assertEqual((process.returncode, names), (0, {pathlib.Path(HONE).name}))

    def test_mistakes(self):
        data = self.write("chats.jsonl", CHAT)
        good = ("--model", TINY, "--data", data)
        self.fails(2, "evil", says=["evil", "eval"])
        self.fails(2, "eval", *good, "--dtyp", "float32", says=["--dtyp", "--dtype"])
        self.fails(2, "eval", *good, "--dtype", "float33", says=["float33", "float32"])
        self.fails(2, "eval", *good, "--max-new-tokens", 5, says=["generate"])
        self.fails(2, "eval", *good, "stray", says=["stray"])
        self.fails(2, "eval", "--data", data, says=["--model"])
        self.fails(2, "eval", "--model", TINY, says=["--data"])
        self.fails(3, "eval", "--model", "someone/some-model", "--data", data, says=["someone/some-model", "no such directory"])
        self.fails(3, "eval", "--model", TINY, "--data", self.dir / "none.jsonl", says=["none.jsonl", "no such file"])
        self.fails(6, "eval", *good, "--device", "cuda", says=["cuda", "--device cpu"])
        self.fails(2, "eval", *good, "--device", "gpu", says=["gpu", "cpu", "cuda", "auto"])
        self.fails(2, "eval", *good, "--max-length", 100000, says=["window"])
        self.fails(3, "eval", "--model", f"{TINY}/config.json", "--data", data, says=["config.json: a file, not a directory"])
        self.fails(2, "train", *good, says=["--output DIR"])
        self.fails(9, "eval", "--model", TINY, "--data", self.write("a.txt", "prompt,answer"), says=["a.txt:1: ", "a JSON object"])
        self.fails(9, "eval", "--model", TINY, "--data", self.write("a.csv", "prompt,answer"), says=["a.csv: ", 'no "completion"', "--column-mapping"])
        (self.dir / "adapter").mkdir()
        self.write("adapter/adapter_config.json", "{}")
        self.fails(2, "generate", "--model", self.dir / "adapter", "--prompt", "Hi", says=["an adapter", "--adapter"])
        (self.dir / "bare").mkdir()
        shutil.copy(pathlib.Path(TINY) / "config.json", self.dir / "bare")
        self.fails(3, "eval", "--model", self.dir / "bare", "--data", data, says=["bare/tokenizer.json: no such file"])

    def test_variables_of_a_launcher_change_no_other_command(self):
        """As in a pod of a PyTorchJob. Seen to fail: reports of other ranks than 0 were not printed, and what was said of a variable took
        the place of any other error."""
        for command in ["devices"], ["plan", "--model", TINY], ["inspect", "model", "--model", TINY]:
            r = run(*command, env={**os.environ, "RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"})
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertTrue(r.stdout)
        r = run("eval", "--model", "someone/some-model", "--data", "x", env={**os.environ, "RANK": "2", "WORLD_SIZE": "2"})
        self.assertEqual(r.returncode, 3)
        self.assertIn("someone/some-model", r.stderr)

    def test_mistakes_with_bases_and_adapters(self):
        moe, gemma3 = (ASSETS / "models" / name for name in ("tiny-qwen3_moe", "tiny-gemma3"))
        data, base, adapter, pair = self.write("chats.jsonl", CHAT), self.dir / "base.gguf", self.dir / "out", self.dir / "pair.gguf"
        few = ("--data", data, "--max-steps", 1, "--output")
        self.ok("train", "--model", TINY, *few, adapter)
        self.ok("export", "--model", TINY, "--adapter", adapter, "--output", pair)
        self.ok("quantize", "--model", TINY, "--output", base, "--type", "q8_0")
        self.fails(2, "generate", "--model", TINY, "--adapter", pair, "--prompt", "Hi", says=["no GGUF adapters", "adapter_config.json"])
        self.fails(4, "generate", "--model", pair, "--prompt", "Hi", says=["no tokenizer", "not an adapter"])
        self.fails(4, "plan", "--model", pair, says=["an adapter, not a model"])
        self.fails(2, "train", "--model", base, *few, self.dir / "a", "--finetuning-type", "qlora", says=["Q8_0 already", "lora for qlora"])
        self.fails(2, "plan", "--model", TINY, "--finetuning-type", "qlora", "--load-in-4bit", "false", says=["take lora"])
        self.fails(2, "merge", "--model", TINY, "--adapter", adapter, says=["--output DIR: where the result goes", ".gguf"])
        self.fails(2, "plan", "--model", TINY, "--lora-target-parameters", "mlp.experts.down_proj", says=["no experts", "leave it out"])
        said = self.fails(2, "plan", "--model", moe, "--lora-target-modules", "gate", says=["this model has q_proj"])
        self.assertNotIn(", gate", said)
        self.ok("train", "--model", moe, *few, self.dir / "experts", "--lora-target-parameters", "mlp.experts.down_proj")
        self.ok("merge", "--model", moe, "--adapter", self.dir / "experts", "--output", self.dir / "b")
        self.fails(7, "export", "--model", moe, "--adapter", self.dir / "experts", "--output", self.dir / "b.gguf",
                   says=["no GGUF files of a qwen3_moe", "merge to safetensors"])
        self.fails(7, "quantize", "--model", gemma3, "--output", self.dir / "c.gguf", says=["local", "merge to safetensors"])

    def test_rows(self):
        def says(code, *rows, words):
            self.fails(code, "eval", "--model", TINY, "--data", self.write("rows.jsonl", *rows), says=words)
        says(9, CHAT, '{"messages": [', words=["rows.jsonl:2: ", "column 14"])
        says(9, CHAT, {"txt": "x"}, words=["rows.jsonl:2: ", "messages"])
        says(9, CHAT, {"messages": []}, words=["rows.jsonl:2: "])
        says(9, CHAT, {"messages": [{"role": "user"}]}, words=["rows.jsonl:2: "])
        says(9, {"messages": [{"role": "user", "content": "Hi"}]}, words=["assistant"])
        says(9, "", words=["no rows"])
        long = {"messages": [CHAT["messages"][0], {"role": "assistant", "content": "word " * 4000}]}
        says(9, CHAT, CHAT, long, words=["rows.jsonl:3: ", "tokens", "the model's window", "--excess-length"])

    def test_generate(self):
        args = ("generate", "--model", TINY, "--prompt", "Hi", "--max-new-tokens", 12)
        self.assertEqual(self.ok(*args), self.ok(*args))
        drawn = self.ok(*args, "--temperature", 2, "--seed", 1)
        self.assertEqual(drawn, self.ok(*args, "--temperature", 2, "--seed", 1))
        self.assertNotEqual(drawn, self.ok(*args, "--temperature", 2, "--seed", 2))
        self.ok(*args, "--raw")
        self.assertNotEqual(self.ok(*args), self.ok(*args, "--system", "You speak only in numbers."))
        self.fails(2, "generate", "--model", TINY, says=["--prompt"])
        self.fails(2, "generate", "--model", TINY, "--prompt", "x", "--max-new-tokens", 10000, says=["window"])

    # Fails if what "auto" took is told before every answer, or not before a run.
    def test_the_device_is_told_before_a_run_and_not_before_an_answer(self):
        some, data = ("--model", TINY), self.write("chats.jsonl", CHAT, CHAT)
        run_of_ranks = ("train", *some, "--data", data, "--max-steps", 1, "--output")
        for args in (*run_of_ranks, self.dir / "one"), (*run_of_ranks, self.dir / "two", "--nproc", 2), ("plan", *some):
            self.assertEqual(len(re.findall("(?m)^device [a-z]+: ", run(*args).stderr)), 1, args)
        for args in ("generate", *some, "--prompt", "Hi", "-n", 4), ("eval", *some, "--data", data):
            self.assertNotRegex(run(*args).stderr, "(?m)^device ")
            self.assertRegex(run(*args, "--verbose").stderr, "(?m)^device [a-z]+: .*--device chooses another")

    def test_a_prompt_comes_from_standard_input(self):
        """Without its last newline; other blanks stay."""
        args = ("generate", "--model", TINY, "--max-new-tokens", 12, "--prompt")
        for prompt, piped in (("Hi", "Hi\n"), ("Hi", "Hi"), ("Hi\n", "Hi\n\n"), (" two\nlines", " two\nlines\n")):
            self.assertEqual(run(*args, "-", input=piped).stdout, self.ok(*args, prompt))
        for piped, says in ((b"", "is empty"), (b"\n", "is empty"), (b"a\0b", "a zero byte"), (b"\xff", "UTF-8")):
            result = subprocess.run([HONE, *map(str, args), "-"], input=piped, capture_output=True)
            self.assertEqual(result.returncode, 2)
            self.assertIn(says, result.stderr.decode())

    def test_the_program_alone_shows_the_way(self):
        result = run()
        self.assertEqual((result.returncode, result.stderr), (2, ""))
        for line in ("hone pull ", "hone train --model ", "--data chats.jsonl --output out", "hone chat out\n", "hone --help"):
            self.assertIn(line, result.stdout)
        self.assertLess(result.stdout.count("\n"), 25)
        self.assertLessEqual(max(map(len, result.stdout.splitlines())), 80)

    def test_control_characters_of_an_answer_do_not_reach_a_terminal(self):
        """A pipe gets them as they are."""
        command = [HONE, "generate", "--model", TINY, "--prompt", "Hi", "--max-new-tokens", "100", "--temperature", "5", "--seed", "1"]
        plain = subprocess.run(command, capture_output=True, check=True).stdout.decode()
        controls = [c for c in plain if (c < " " and c not in "\n\t") or "\x7f" <= c < "\xa0"]
        self.assertTrue(controls, plain)
        mine, its = pty.openpty()
        process = subprocess.Popen(command, stdout=its, stderr=subprocess.DEVNULL)
        os.close(its)
        seen = read_terminal(mine).decode().replace("\r\n", "\n")      # the terminal's own
        self.assertEqual(process.wait(), 0)
        for c in controls:
            plain = plain.replace(c, chr(0x2400 + ord(c)) if c < " " else f"\\u{ord(c):04x}")
        self.assertEqual(seen, plain)

    def test_reports(self):
        model = json.loads(self.ok("inspect", "model", "--model", TINY, "--json"))
        self.assertEqual((model["family"], model["config"]["layers"], model["config"]["rope"]), ("llama", 2, "llama3"))
        self.assertIn("llama", self.ok("inspect", "model", "--model", TINY))
        self.assertIn(f"{model['parameters'] / 1e3:.1f} thousand parameters", self.ok("plan", "--model", TINY))
        devices = json.loads(self.ok("devices", "--json"))["devices"]
        self.assertTrue(next(d for d in devices if d["device"] == "cpu")["usable"])
        self.assertIn("cpu", self.ok("devices"))
        tried = json.loads(self.ok("devices", "--json"))["tried"]
        self.assertEqual(self.ok("devices").splitlines()[-1], tried + ".")      # one line
        readme = (pathlib.Path(__file__).parents[2] / "README.md").read_text()
        plain = " ".join(readme.replace("[docs/gpu-first-run.md](docs/gpu-first-run.md)", "docs/gpu-first-run.md").split())
        self.assertIn(tried, plain)                     # the README says the same

    def test_every_family_is_inspected(self):
        for model in sorted((ASSETS / "models").glob("tiny-*")):
            config = json.loads((model / "config.json").read_text())
            report = json.loads(self.ok("inspect", "model", "--model", model, "--json"))
            self.assertEqual(report["family"], config.get("text_config", config)["model_type"])
            self.assertIsInstance(report["config"]["rope"], str)

    def test_a_command_line_is_planned_and_measured_by_changing_one_word(self):
        data = self.write("chats.jsonl", *[CHAT] * 12)
        prompts = self.write("prompts.txt", "Why?")
        output = self.dir / "out"
        line = f"""--model {TINY} --data {data} --output {output} --cache-dir {self.dir / "cache"} --val-set-size 0.25 --max-samples 12 --max-length 64
            --excess-length truncate --bad-rows skip --packing --shuffle false --train-on-inputs -r 4 --lora-alpha 8 --lora-dropout 0.1
            --column-mapping messages
            --lora-target-modules q_proj,v_proj --use-rslora --rank-pattern q_proj=2 --alpha-pattern q_proj=4 --train-norms
            --recompute selective --optim lion --learning-rate 1e-3 --lr-scheduler-type warmup_stable_decay --warmup-ratio 0.1
            --warmup-steps 1 --num-cycles 0.5 --min-lr-rate 0.1 --num-decay-steps 1 --num-stable-steps 2 --warmup-type cosine --decay-type 1-sqrt
            --weight-decay 0.01 --adam-beta1 0.8 --adam-beta2 0.99 --adam-epsilon 1e-7 --max-grad-norm 0.5 --verify-every 2
            --per-device-train-batch-size 2 --gradient-accumulation-steps 2 --num-train-epochs 2 --max-steps 4 --eval-steps 2
            --evals-per-epoch 0 --saves-per-epoch 0
            --eval-on-start false --save-steps 2 --save-total-limit 1 --max-bad-steps 5 --resume auto --sample-prompt Hi --sample-length 64
            --sample-prompts {prompts} --early-stopping-patience 9 --early-stopping-threshold 0.1 --load-best-model-at-end --report-to all --on-finish true
            --dtype float32 --device cpu --tf32 --cuda-graph off --cuda-code ptx --micro-batch-tokens 128 --seed 7 --threads 2 --verbose
            --nproc 1 --max-restarts 0 --shard gradients --resident-layers all --activation-offloading off --ddp-timeout 900
            --finetuning-type lora --load-in-4bit --bnb-4bit-use-double-quant --load-in-fp8 false --confine auto --raw false --json""".split()
        plan = json.loads(self.ok("plan", *line))
        bench = json.loads(self.ok("bench", *line))
        self.assertFalse(output.exists())
        self.assertEqual((bench["tokens"], bench["micro_batch_tokens"]), (4 * 64, 128))
        out = json.loads(self.ok("train", *line))
        self.assertTrue(output.exists())
        for key in ("allocated_bytes", "mapped_bytes", "micro_batch_tokens", "recompute"):
            self.assertEqual(plan[key], out[key])
        self.assertEqual(bench["steps"], out["steps"])
        page = (pathlib.Path(__file__).parents[2] / "docs/options.md").read_text()
        rows = [row.split(" | ") for row in page.splitlines() if row.startswith("| `") and row.count(" | ") == 6]
        known = {row[0].strip("| `") for row in rows if row[4] == "all" or "train" in row[4].split(", ")}
        given = {word[2:].replace("-", "_") for word in line if word.startswith("--")}
        self.assertEqual(known - given - {"model_name_or_path", "dataset_path", "output_dir", "lora_r"},
                         {"eval_dataset_path", "init_adapter", "any_base", "lora_target_parameters", "lr_end", "power", "min_lr", "config",
                          "config_format", "dry_run", "help", "sign", "sync_every", "sync_int8", "outer_learning_rate",
                          "outer_momentum"})     # what excludes the others, and what is not a setting

    def test_an_option_given_twice_is_reported(self):
        line = ("plan", "--model", TINY)
        def said(*more):
            result = run(*line, *more)
            self.assertEqual(result.returncode, 0, result.stderr)
            return [text for text in result.stderr.splitlines() if "warning" in text]
        for first, second, says in (("--seed 1", "--seed 2", "--seed '2' counts, not --seed '1'"),
                                    ("--lr 1e-4", "--learning-rate 2e-4", "--learning-rate '0.0002' counts, not --lr '0.0001'"),
                                    ("--packing", "--no-packing", "--no-packing 'false' counts, not --packing 'true'"),
                                    ("--bf16", "--dtype float32", "--dtype 'float32' counts, not --bf16 'bfloat16'"),
                                    ("--lora-target-modules q_proj", "--lora-target-modules v_proj", "separated by commas")):
            warnings = said(*first.split(), *second.split())
            self.assertEqual(len(warnings), 1, warnings)
            self.assertIn(says, warnings[0])
        self.assertEqual(said("--seed", "1", "--seed", "1", "--lr", "1e-4", "--learning-rate", "0.0001", "--packing", "--packing"), [])
        config = self.write("run.yaml", "seed: 3")
        self.assertEqual(said("--config", config, "--seed", "4"), [])       # flags override files, as documented

    def test_a_plan_says_first_what_is_mapped(self):
        text = self.ok("plan", "--model", TINY, "--dtype", "float32").splitlines()
        table = json.loads(self.ok("plan", "--model", TINY, "--dtype", "float32", "--json"))["table"]
        self.assertEqual([row["block"] for row in table[:2]], ["weights in mapped files", "weights"])
        self.assertRegex(text[1], r"^weights in mapped files +607.49 kB")
        self.assertRegex(text[2], r"^other weights ")

    def test_the_library_exports_only_its_header(self):
        library = pathlib.Path(HONE).parent / "libhone.so"
        names = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True).stdout.split("\n")
        names = {line.split()[-1] for line in names if line and not line.split()[-1].startswith("_")}
        header = (pathlib.Path(__file__).parent / "../../include/hone.h").read_text()
        self.assertEqual(names, set(re.findall(r"^HONE_API .*?(hone_\w+)\(", header, re.M)))
        kept = (pathlib.Path(__file__).parents[2] / "debian/libhone0.symbols").read_text()              # what programs may rely on
        self.assertEqual(set(re.findall(r"^ (hone_\w+)@Base", kept, re.M)) - names, set())
        for language in ("c", "c++"):
            subprocess.run(["g++" if language == "c++" else "gcc", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", language, "-"], input=header, text=True, check=True)

    def test_a_base_model(self):
        model = self.dir / "base"
        shutil.copytree(TINY, model)
        (model / "chat_template.jinja").unlink(missing_ok=True)
        config = json.loads((model / "tokenizer_config.json").read_text())
        config.pop("chat_template", None)
        (model / "tokenizer_config.json").write_text(json.dumps(config))
        self.ok("generate", "--model", model, "--prompt", "Once upon", "--raw", "--max-new-tokens", 3)
        self.ok("plan", "--model", model)
        self.ok("inspect", "model", "--model", model)
        self.fails(7, "generate", "--model", model, "--prompt", "Hi", says=["no chat template"])
        self.fails(7, "eval", "--model", model, "--data", self.write("chats.jsonl", CHAT), says=["no chat template"])

    def test_results_that_cannot_be_written(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([HONE, "devices", "--json"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(result.returncode, 3, result.stderr)

    def test_plan_of_seventy_billion(self):
        self.write("config.json", SEVENTY)
        slower = 5 if SANITIZED else 1
        for run, limit in (("eval", 0.1 * slower), ("train", 0.5 * slower)):
            times = []
            for tokens in (1024, 131072, 1024):
                start = time.monotonic()
                plan = json.loads(self.ok("plan", "--model", self.dir, "--json", "--for", run, "--recompute", "full", "--micro-batch-tokens", tokens))
                times.append(time.monotonic() - start)
            print(f"plan of 70B, {run}: {statistics.median(times) * 1e3:.0f} ms (at most {limit * 1e3:.0f})")
            self.assertLess(statistics.median(times), limit)
        self.assertEqual(plan["parameters"], 70553706496)
        self.assertEqual(plan["peak_bytes"], sum(row["bytes"] for row in plan["table"]))
        self.assertIn("70.55 billion", self.ok("plan", "--model", self.dir))

    def test_the_smallest_limit_of_memory_is_named(self):
        self.write("config.json", SEVENTY)
        args = ("plan", "--model", self.dir, "--for", "eval", "--dtype", "bfloat16", "--device", "cpu", "--micro-batch-tokens", 64)
        kinds = ((resource.RLIMIT_AS, "ulimit -v", False), (resource.RLIMIT_DATA, "ulimit -d", True))   # mapped weights are addresses too
        for kind, name, fits in kinds if not SANITIZED else ():
            def limit():
                resource.setrlimit(kind, (1 << 30, 1 << 30))
            plan = json.loads(run(*args, "--json", preexec_fn=limit).stdout)
            self.assertEqual((plan["limit"], plan["fits"]), (name, fits))
            self.assertLess(plan["free_bytes"], 1 << 30)
            self.assertRegex(run(*args, preexec_fn=limit).stdout, rf"(?m)^cpu has [\d.]+ [MG]B of .* free by {name}$")

    def test_weights_beyond_the_page_cache_are_reported(self):
        self.write("config.json", SEVENTY)
        args = ("plan", "--model", self.dir, "--for", "eval", "--dtype", "bfloat16", "--device", "cpu", "--micro-batch-tokens", 64)
        plan, text = json.loads(self.ok(*args, "--json")), self.ok(*args)
        free = plan["free_bytes"] - plan["allocated_bytes"]
        self.assertEqual(plan["reads_from_disk"], free < plan["mapped_bytes"])
        if plan["reads_from_disk"]:                     # on most machines
            self.assertIn("the weights in mapped files need 141.11 GB of page cache, ", text)
            self.assertIn("it will read weights from disk in every step", text)
            self.assertNotIn("it fits", text)


class Large(Case):
    # Fails if nothing is said, or the library's words about the reader of a text.
    def test_ctrl_c_ends_a_measurement_and_an_answer_in_words(self):
        for args, code, says in ((("bench", "--model", SMOL, "--max-steps", 10000), -signal.SIGINT, "ended before the steps were measured"),
                                 (("generate", "--model", SMOL, "--prompt", "Count.", "--raw", "-n", 4000), 10, "hone: stopped on request: the answer is not whole")):
            process = subprocess.Popen([HONE, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            process.stderr.readline() if args[0] == "bench" else process.stdout.read(1)     # the device; the first letter of the answer
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            err = process.communicate(timeout=60)[1]
            self.assertEqual(process.returncode, code, err)
            self.assertIn(says, err)

    def test_the_plan_is_exact(self):
        rows = (DATA / "valid.jsonl").read_text().splitlines()
        for dtype in ("float32", "bfloat16"):
            for tokens, count in ((512, 12), (4096, 80)):
                data = self.write("chats.jsonl", *rows[:count])
                args = ("--model", SMOL, "--dtype", dtype, "--micro-batch-tokens", tokens, "--json")
                plan = json.loads(self.ok("plan", "--for", "eval", *args))
                out = json.loads(self.ok("eval", *args, "--data", data))
                self.assertEqual(plan["allocated_bytes"], out["allocated_bytes"])
                self.assertEqual(plan["mapped_bytes"], out["mapped_bytes"])
                off = plan["peak_bytes"] / out["peak_rss_bytes"] - 1
                print(f"{dtype}, {tokens} slots: planned {plan['peak_bytes'] / 1e6:.1f} MB, peak RSS {out['peak_rss_bytes'] / 1e6:.1f} MB, off by {off:+.1%} (at most 5%)")
                self.assertLess(abs(off), 0.05)

    def test_it_starts_at_once(self):
        data = self.write("chats.jsonl", *(DATA / "valid.jsonl").read_text().splitlines()[:2])
        for dtype in ("float32", "auto"):
            times = []
            for _ in range(6):
                out = json.loads(self.ok("eval", "--model", SMOL, "--data", data, "--dtype", dtype, "--json", "--micro-batch-tokens", 512))
                times.append(out["startup_seconds"])
            median = statistics.median(times[1:])
            print(f"start-up, {dtype}: {median:.3f} s (at most 0.5)")
            self.assertLessEqual(median, 0.5)


if __name__ == "__main__":
    main(Tiny, Large)
