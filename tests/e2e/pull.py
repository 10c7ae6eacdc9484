#!/usr/bin/env python3
"""hone pull, and models by their name on the hub, against a hub on this machine.

huggingface_hub, from the assets' Python, is asked whether the cache that hone wrote is one.
"""
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time

from case import ASSETS, CHAT, HONE, TINY, main, run
from hub import COMMIT, NAME, NEEDED, TOKEN, HubCase


class Pull(HubCase):
    # --- what it writes ---------------------------------------------------------------------------------------------------

    def test_a_model_is_pulled_and_used_by_its_name(self):
        report = self.pull()
        self.assertEqual((report["commit"], report["path"]), (COMMIT, str(self.snapshot)))
        wanted = {n for n in self.hub.files if n in NEEDED}
        self.assertEqual({p.name for p in self.snapshot.iterdir()}, wanted)             # and nothing that is not needed
        for name in wanted:
            self.assertEqual((self.snapshot / name).read_bytes(), self.hub.files[name])
            self.assertRegex(os.readlink(self.snapshot / name), r"^\.\./\.\./blobs/[0-9a-f]{40}([0-9a-f]{24})?$")
        self.assertEqual((self.model / "refs/main").read_text(), COMMIT)
        self.assertEqual(report["downloaded_bytes"], report["bytes"])
        self.assertFalse(list(self.home.rglob("*.incomplete")) + list(self.home.rglob("*.part")))
        data, adapter = self.write("chats.jsonl", *[CHAT] * 4), self.dir / "adapter"
        plan = json.loads(self.ok("plan", "--model", NAME, "--json"))
        self.assertEqual(plan["parameters"], json.loads(self.ok("plan", "--model", TINY, "--json"))["parameters"])
        self.ok("inspect", "model", "--model", NAME)
        self.ok("inspect", "data", "--model", NAME, "--data", data)
        self.ok("eval", "--model", NAME, "--data", data)
        self.ok("generate", "--model", NAME, "--prompt", "Hi", "--max-new-tokens", 2)
        self.ok("bench", "--model", NAME, "--max-steps", 1, "--max-length", 16)
        self.assertIn(f"hone generate {adapter} ", self.ok("train", "--model", NAME, "--data", data, "--output", adapter, "--max-steps", 1))
        self.ok("generate", adapter, "--prompt", "Hi", "--max-new-tokens", 2)             # its base is known by that name
        self.assertEqual(json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"], NAME)
        self.assertEqual(json.loads((adapter / "metrics.jsonl").read_text().splitlines()[0])["model"], NAME)
        origin = json.loads((adapter / "provenance.json").read_text())["made_from"]["model"]
        self.assertEqual((origin["name"], origin["commit"]), (NAME, COMMIT))
        self.assertEqual({f["name"]: f["sha256"] for f in origin["files"]},
                         {name: hashlib.sha256(self.hub.files[name]).hexdigest() for name in wanted})
        kept = json.loads((adapter / "run.json").read_text())
        self.assertEqual((kept["hub"], kept["made_from"]["model"]), ({"name": NAME, "commit": COMMIT}, origin))
        self.ok("verify", adapter, "--model", NAME, "--data", data)
        self.ok("merge", "--model", NAME, "--adapter", adapter, "--output", self.dir / "merged")
        self.ok("export", "--model", NAME, "--adapter", adapter, "--output", self.dir / "a.gguf")
        self.ok("quantize", "--model", NAME, "--output", self.dir / "m.gguf", "--type", "q8_0")
        self.ok("kernels", "list", "--model", NAME, "--target", "sm_89")

    def test_huggingface_hub_takes_the_cache_for_its_own(self):
        self.pull()
        script = """if True:
            import os, sys, huggingface_hub as h
            print(h.snapshot_download(sys.argv[1], allow_patterns=["*.json", "model.safetensors"]))
            print(h.try_to_load_from_cache(sys.argv[1], "config.json"))
            info = h.scan_cache_dir()
            print([(r.repo_id, r.nb_files) for r in info.repos], [str(w) for w in info.warnings])"""
        result = subprocess.run([ASSETS / "venv/bin/python", "-c", script, NAME], capture_output=True, text=True,
                                env={**os.environ, "HF_HUB_OFFLINE": "1"})
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        self.assertEqual(lines[:2], [str(self.snapshot), str(self.snapshot / "config.json")])
        files = len(list(self.snapshot.iterdir()))
        self.assertEqual(lines[2], f"[('{NAME}', {files})] []")

    def test_hone_takes_the_cache_of_huggingface_hub(self):
        script = """if True:
            import sys, huggingface_hub as h
            h.snapshot_download(sys.argv[1], ignore_patterns=["onnx/*", "*.bin"])"""
        result = subprocess.run([ASSETS / "venv/bin/python", "-c", script, NAME], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.ok("plan", "--model", NAME)
        before = len(self.hub.requests)
        self.assertEqual(self.pull()["downloaded_bytes"], 0)
        self.assertEqual(len(self.hub.requests), before + 1)                            # only the list

    def test_a_second_pull_asks_only_for_the_list(self):
        self.pull()
        before = len(self.hub.requests)
        self.assertEqual(self.pull()["downloaded_bytes"], 0)
        self.assertEqual(len(self.hub.requests), before + 1)

    def test_revisions(self):
        self.pull("--revision", "v1.0")
        self.assertEqual((self.model / "refs/v1.0").read_text(), COMMIT)
        self.fails(3, "plan", "--model", NAME, says=[f"`hone pull {NAME}`"])           # main was not pulled
        self.pull("--revision", "refs/pr/1")
        self.assertEqual((self.model / "refs/refs/pr/1").read_text(), COMMIT)
        self.pull("--revision", COMMIT)
        self.assertFalse((self.model / "refs" / COMMIT).exists())
        self.assertFalse((self.model / "refs/main").exists())
        self.fails(3, "pull", NAME, "--revision", "no", says=["no revision 'no'"])
        self.fails(2, "pull", NAME, "--revision", "../../x", says=["--revision"])

    def test_a_plain_directory(self):
        out = self.dir / "models/tiny"
        report = self.pull("--output", out)
        self.assertEqual(report["path"], str(out))
        wanted = {n for n in self.hub.files if n in NEEDED}
        self.assertEqual({p.name for p in out.iterdir()}, wanted | {"provenance.json"})                    # no locks, no links
        self.assertFalse(any(p.is_symlink() for p in out.iterdir()))
        self.ok("plan", "--model", out)
        self.assertFalse(self.model.exists())
        self.assertEqual(self.pull("--output", out)["downloaded_bytes"], 0)

    def test_what_differs_in_the_output_is_replaced_only_with_overwrite(self):
        out, elsewhere = self.dir / "out", self.write("elsewhere", "mine")
        out.mkdir()
        config, mine = self.hub.files["config.json"], (out / "config.json", out / "model.safetensors")
        shutil.copy(TINY / "tokenizer.json", out)
        kept = (out / "tokenizer.json").stat()
        for content in (b"mine", b"x" * len(config)):                                   # the second is of the right size
            mine[0].write_bytes(content)
            for more in ((), ("--dry-run",)):
                self.fails(2, "pull", NAME, "--output", out, *more, says=[str(mine[0]), "--overwrite"])
            self.assertEqual(mine[0].read_bytes(), content)
        self.assertEqual({p.name for p in out.iterdir()}, {"config.json", "tokenizer.json"})
        self.assertEqual(set(self.hub.paths("cdn")), set())                             # it is said before anything is downloaded
        mine[1].symlink_to(elsewhere)
        mine[0].unlink()
        self.fails(2, "pull", NAME, "--output", out, says=[str(mine[1]), "--overwrite"])
        mine[0].write_bytes(b"x" * len(config))
        self.pull("--output", out, "--overwrite")
        self.assertEqual([p.read_bytes() for p in mine], [config, self.hub.files["model.safetensors"]])
        self.assertFalse(mine[1].is_symlink())
        self.assertEqual(elsewhere.read_text(), "mine\n")
        self.assertEqual((out / "tokenizer.json").stat(), kept)                         # what is right is left alone

    def test_a_linked_directory_in_the_output_is_not_written_through(self):
        out, elsewhere = self.dir / "out", self.dir / "elsewhere"
        out.mkdir()
        elsewhere.mkdir()
        (out / "onnx").symlink_to(elsewhere)
        self.fails(3, "pull", NAME, "--output", out, "--include", "onnx/*", says=[str(out / "onnx"), "is a link"])
        self.assertFalse(list(elsewhere.iterdir()))
        (self.dir / "way").symlink_to(elsewhere)                                        # the output itself may be one
        self.pull("--output", self.dir / "way", "--include", "onnx/*")
        self.assertTrue((elsewhere / "onnx/model.onnx").exists())

    # --- the cache, to which others write ---------------------------------------------------------------------------------

    def change(self, blob):
        """Other bytes of the same size, and the same time."""
        times = blob.stat()
        content = bytearray(blob.read_bytes())
        content[len(content) // 2] ^= 1
        blob.chmod(0o644)
        blob.write_bytes(content)
        os.utime(blob, ns=(times.st_atime_ns, times.st_mtime_ns))
        return bytes(content)

    def test_a_blob_that_was_changed_is_refused_and_downloaded_again(self):
        data = self.write("chats.jsonl", *[CHAT] * 4)
        self.pull()
        commands = (("plan", "--model", NAME), ("train", "--model", NAME, "--data", data, "--output", self.dir / "out", "--max-steps", 1),
                    ("plan", "--model", self.model), ("plan", "--model", self.snapshot))
        for name in ("model.safetensors", "config.json"):                               # by SHA-256, and by git's SHA-1
            blob = (self.snapshot / name).resolve()
            self.ok("plan", "--model", NAME)
            self.change(blob)
            for command in commands:
                self.fails(4, *command, says=[str(self.snapshot / name), blob.name[:12], "hone pull"])
            result = subprocess.run([HONE, "pull", NAME, "--json"], capture_output=True, text=True, check=True)
            self.assertIn("downloaded again", result.stderr)
            self.assertEqual(json.loads(result.stdout)["downloaded_bytes"], len(self.hub.files[name]))
            self.assertEqual((self.snapshot / name).read_bytes(), self.hub.files[name])
            self.ok("plan", "--model", NAME)

    def test_a_blob_is_compared_with_its_name_once(self):
        self.pull()
        records = self.dir / "cache/hone/blobs"
        blob = (self.snapshot / "config.json").resolve()
        self.assertEqual({p.name for p in records.iterdir()}, {p.name for p in (self.model / "blobs").iterdir()})
        shutil.rmtree(records)
        self.ok("plan", "--model", NAME)
        record = (records / blob.name).read_text()
        self.change(blob)
        self.fails(4, "plan", "--model", NAME)
        st = blob.stat()                                                                # a record as hone would have written it: so the bytes are not read
        seconds = [f"{ns // 10**9}.{ns % 10**9:09}" for ns in (st.st_mtime_ns, st.st_ctime_ns)]
        (records / blob.name).write_text(f"{st.st_dev}:{st.st_ino} {st.st_size} {' '.join(seconds)}\n")
        self.assertNotEqual((records / blob.name).read_text(), record)
        self.assertNotIn("checksum", subprocess.run([HONE, "plan", "--model", NAME], capture_output=True, text=True).stderr)
        os.environ["HONE_CACHE"] = "/proc/nowhere"                                      # nothing can be remembered there
        self.fails(4, "plan", "--model", NAME, says=["config.json"])
        del os.environ["HONE_CACHE"]

    def test_only_what_a_run_reads_is_compared(self):
        self.pull("--include", "*.safetensors,*.bin,*.json")
        self.change((self.snapshot / "pytorch_model.bin").resolve())
        self.change((self.snapshot / "consolidated.safetensors").resolve())
        self.ok("plan", "--model", NAME)

    def test_changed_blobs_of_gguf_files_and_adapters_are_refused_too(self):
        self.ok("quantize", "--model", TINY, "--output", self.dir / "tiny-q8_0.gguf", "--type", "q8_0")
        self.hub.files = {"tiny-q8_0.gguf": (self.dir / "tiny-q8_0.gguf").read_bytes()}
        self.pull("--include", "*.gguf")
        self.change((self.snapshot / "tiny-q8_0.gguf").resolve())
        self.fails(4, "plan", "--model", NAME, says=["tiny-q8_0.gguf", "checksum"])
        shutil.rmtree(self.model)
        data, out = self.write("chats.jsonl", *[CHAT] * 4), self.dir / "adapter"
        self.ok("train", "--model", TINY, "--data", data, "--output", out, "--max-steps", 1)
        names = ("adapter_config.json", "adapter_model.safetensors")
        self.hub.files = {name: (out / name).read_bytes() for name in names}
        self.pull()
        self.change((self.snapshot / names[1]).resolve())
        self.fails(4, "eval", "--model", TINY, "--data", data, "--adapter", NAME, says=[names[1], "checksum"])

    def test_linked_directories_in_the_cache_are_not_written_through(self):
        elsewhere = self.dir / "elsewhere"
        for place in (self.snapshot, self.snapshot.parent, self.model / "blobs", self.model / "refs", self.home / "hub/.locks" / self.model.name):
            shutil.rmtree(self.home, ignore_errors=True)
            elsewhere.mkdir()
            place.parent.mkdir(parents=True)
            place.symlink_to(elsewhere)
            self.fails(3, "pull", NAME, says=[str(place), "is a link"])
            self.assertFalse(list(elsewhere.iterdir()))
            elsewhere.rmdir()
        shutil.rmtree(self.home)
        elsewhere.mkdir()
        self.model.parent.mkdir(parents=True)
        self.model.symlink_to(elsewhere)                                                # a model on another disk
        self.pull()
        self.ok("plan", "--model", NAME)

    def test_a_planted_part_is_not_written_to(self):
        victim = self.write("victim", "mine")
        part = self.blob(self.large())
        part = part.with_name(part.name + ".incomplete")
        for plant in (lambda: part.symlink_to(victim), lambda: part.hardlink_to(victim), lambda: os.mkfifo(part), lambda: part.symlink_to("/nowhere/x")):
            shutil.rmtree(self.home, ignore_errors=True)
            part.parent.mkdir(parents=True)
            plant()
            self.pull()
            self.assertEqual(victim.read_text(), "mine\n")
            self.assertEqual((victim.stat().st_nlink, part.exists()), (1, False))
            self.assertEqual((self.snapshot / "model.safetensors").read_bytes(), self.large())
        shutil.rmtree(self.home)
        part.mkdir(parents=True)
        self.fails(3, "pull", NAME, says=[str(part), "remove it"])
        if os.geteuid() == 0:                                                           # another user's, which he may still write to
            part.rmdir()
            part.write_bytes(self.large()[:1000])
            os.chown(part, 12345, 12345)
            self.pull()
            self.assertEqual((self.snapshot / "model.safetensors").resolve().stat().st_uid, 0)

    def test_a_plain_directory_says_which_commit_it_is_and_a_run_keeps_that(self):
        out, data = self.dir / "tiny", self.write("chats.jsonl", *[CHAT] * 4)
        self.pull("--output", out)
        record = json.loads((out / "provenance.json").read_text())
        self.assertEqual(record["made_from"], {"model": {"name": NAME, "commit": COMMIT}})
        self.assertEqual({f["name"]: f["sha256"] for f in record["files"]},
                         {name: hashlib.sha256(self.hub.files[name]).hexdigest() for name in self.hub.files if name in NEEDED})
        self.ok("verify", out)
        self.ok("train", "--model", out, "--data", data, "--output", self.dir / "adapter", "--max-steps", 1)
        origin = json.loads((self.dir / "adapter/provenance.json").read_text())["made_from"]["model"]
        self.assertEqual((origin["name"], origin["commit"]), (NAME, COMMIT))
        (out / "chat_template.jinja").write_text("other")
        self.fails(4, "verify", out, says=["chat_template.jinja"])
        (out / "provenance.json").write_text("{}")                          # of somebody else
        self.assertIn("is not of hone pull, and stays", run("pull", NAME, "--output", out, "--overwrite").stderr)
        self.assertEqual((out / "provenance.json").read_text(), "{}")

    def test_weights_in_parts_are_those_of_the_index(self):
        data = self.hub.files.pop("model.safetensors")
        parts = {f"model-0000{i}-of-00002.safetensors": data + bytes([i]) for i in (1, 2)}
        index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
        self.hub.files |= parts | {"model.safetensors.index.json": json.dumps(index).encode()}
        self.pull()
        self.assertEqual({p.name for p in self.snapshot.glob("*.safetensors")}, set(parts))             # not consolidated.safetensors
        index["weight_map"]["c"] = "gone.safetensors"
        self.hub.files["model.safetensors.index.json"] = json.dumps(index).encode()
        self.fails(4, "pull", NAME, says=["not in the repository"])

    def test_a_gguf_file_is_chosen_by_a_pattern(self):
        self.ok("quantize", "--model", TINY, "--output", self.dir / "tiny-q8_0.gguf", "--type", "q8_0")
        gguf = (self.dir / "tiny-q8_0.gguf").read_bytes()
        self.hub.files = {"README.md": b"x", "config.json": b"{}", "tiny-q8_0.gguf": gguf, "tiny-f16.gguf": gguf + b"f"}
        self.fails(2, "pull", NAME, says=["only GGUF files", "--include", "tiny-q8_0.gguf"])
        self.fails(2, "pull", NAME, "--include", "*q5*", says=["no file matches", "tiny-q8_0.gguf (0.00 GB)"])
        self.assertEqual([f["name"] for f in self.pull("--include", "*q8_0.gguf")["files"]], ["tiny-q8_0.gguf"])
        self.ok("plan", "--model", NAME)
        self.ok("generate", "--model", NAME, "--prompt", "Hi", "--max-new-tokens", 2)
        self.pull("--include", "*.gguf")
        self.fails(2, "plan", "--model", NAME, says=["2 GGUF files", "--model"])

    def test_what_hone_cannot_read_is_said_before_anything_is_downloaded(self):
        del self.hub.files["model.safetensors"], self.hub.files["consolidated.safetensors"]
        self.fails(7, "pull", NAME, says=["pytorch_model.bin", "safetensors"])
        self.assertFalse(self.hub.paths("cdn"))

    # --- finding --------------------------------------------------------------------------------------------------------------

    def test_a_directory_of_the_name_comes_first(self):
        self.pull()
        shutil.copytree(TINY, self.dir / NAME)
        config = json.loads((TINY / "config.json").read_text())
        config["num_hidden_layers"] = 1
        (self.dir / NAME / "config.json").write_text(json.dumps(config))
        def layers():
            result = subprocess.run([HONE, "plan", "--model", NAME, "--json"], capture_output=True, text=True, check=True, cwd=self.dir)
            return json.loads(result.stdout)["parameters"]
        here = layers()
        shutil.rmtree(self.dir / "org")
        self.assertLess(here, layers())

    def test_the_folder_in_the_cache_is_the_model_too(self):
        self.pull()
        self.assertEqual(json.loads(self.ok("plan", "--model", self.model, "--json"))["parameters"],
                         json.loads(self.ok("plan", "--model", TINY, "--json"))["parameters"])
        (self.model / "refs/main").unlink()
        self.fails(3, "plan", "--model", self.model)

    def test_an_adapter_is_pulled_and_used_by_its_name(self):
        data, out = self.write("chats.jsonl", *[CHAT] * 4), self.dir / "adapter"
        self.ok("train", "--model", TINY, "--data", data, "--output", out, "--max-steps", 1, "--learning-rate", 0.01)
        names = ("adapter_config.json", "adapter_model.safetensors", "provenance.json")
        self.hub.files = {name: (out / name).read_bytes() for name in names} | {"optimizer.pt": b"x"}
        report = self.pull()
        self.assertEqual({f["name"] for f in report["files"]}, set(names))
        self.ok("verify", report["path"], "--data", data)                   # what came with it, by the links of the cache
        losses = {json.loads(self.ok("eval", "--model", TINY, "--data", data, "--adapter", adapter, "--json"))["loss"] for adapter in (NAME, out)}
        self.assertEqual(len(losses), 1)
        self.assertNotIn(json.loads(self.ok("eval", "--model", TINY, "--data", data, "--json"))["loss"], losses)
        self.ok("train", "--model", TINY, "--data", data, "--output", self.dir / "more", "--max-steps", 1, "--init-adapter", NAME)

    def test_the_variables_that_say_where_the_cache_is(self):
        self.pull()
        cache = self.home / "hub"
        for environment in ({"HF_HUB_CACHE": str(cache), "HF_HOME": "/nowhere"}, {"HF_HOME": str(self.home)}):
            os.environ.update(environment)
            self.ok("plan", "--model", NAME)
            for key in environment:
                del os.environ[key]
        shutil.move(self.home, self.dir / "cache/huggingface")                          # XDG_CACHE_HOME is DIR/cache
        self.ok("plan", "--model", NAME)
        os.environ["HOME"], home = str(self.dir), os.environ["HOME"]
        del os.environ["XDG_CACHE_HOME"]
        (self.dir / "cache").rename(self.dir / ".cache")
        self.ok("plan", "--model", NAME)
        os.environ["HOME"] = home

    def test_a_model_that_is_not_there(self):
        for command in (("plan",), ("eval", "--data", "x"), ("generate", "--prompt", "x"), ("inspect", "model"), ("train", "--output", "x"),
                        ("kernels", "list"), ("quantize", "--output", "x.gguf"), ("init", "--data", "x")):
            self.fails(3, *command, "--model", "org/other", says=["no such directory", str(self.home), "`hone pull org/other`"])
        self.assertNotIn("pull", self.fails(3, "plan", "--model", "some/path/there"))
        self.assertFalse(self.hub.requests)                                             # only pull uses the network

    # --- mistakes ---------------------------------------------------------------------------------------------------------------

    def test_names_that_are_none(self):
        self.fails(2, "pull", says=["hone pull ORG/NAME"])
        for name in ("tiny", "a/b/c", "../x", "org/..", "org/-x", "org/x y", "org/a--b", "/etc/x", "https://huggingface.co/org/x"):
            self.fails(2, "pull", name, says=["not the name of a model"])
        self.fails(2, "pull", "https://huggingface.co/org/x", says=["the last two parts"])
        self.fails(2, "pull", NAME, "more", says=["unexpected argument"])
        self.assertFalse(self.hub.requests)

    def test_answers_that_do_not_change_are_said_at_once(self):
        def answers(code, cause, *words, token=None):
            os.environ.pop("HF_TOKEN", None)
            if token:
                os.environ["HF_TOKEN"] = token
            self.hub.fault = lambda handler, kind, name: handler.answer(code, **({"X_Error_Code": cause} if cause else {})) or True
            self.hub.requests.clear()
            line = self.fails(3, "pull", NAME, says=words)
            self.assertEqual(len(self.hub.requests), 1)
            self.assertNotIn(TOKEN, line)
        answers(401, "GatedRepo", "gated", "accept its terms", "HF_TOKEN")
        answers(403, "GatedRepo", "gated", "has not been let in", token=TOKEN)
        answers(401, "RepoNotFound", "no such model", "private", "HF_TOKEN")
        answers(401, None, "asks for a token", "HF_TOKEN")
        answers(401, None, "the one that was sent is not", token=TOKEN)
        answers(403, None, "does not let the token's account", token=TOKEN)
        answers(404, None, "no such model")
        answers(418, None, "418", "HF_ENDPOINT")

    def test_faults_that_pass_are_waited_for(self):
        left = {"api": [500, 429, 503], "file": [502], "cdn": [504]}
        def fault(handler, kind, name):
            if not left[kind]:
                return False
            handler.answer(left[kind].pop(0), Retry_After="0.1")
            return True
        self.hub.fault = fault
        self.pull()
        self.assertFalse(any(left.values()))

    def test_faults_that_stay_are_reported(self):
        self.hub.fault = lambda handler, kind, name: handler.answer(429, Retry_After="0.1") or True
        self.fails(3, "pull", NAME, says=["429", "HF_TOKEN"])
        self.assertEqual(len(self.hub.requests), 5)
        self.hub.fault = lambda handler, kind, name: handler.answer(500, Retry_After="0.1") or True
        self.fails(3, "pull", NAME, says=["fault of its own (500)"])
        os.environ["HF_ENDPOINT"] = "http://127.0.0.1:9"
        start = time.monotonic()
        self.fails(3, "pull", NAME, says=["127.0.0.1:9", "failed 5 times"])
        refused = time.monotonic() - start
        self.assertLess(refused, 30)
        os.environ["HF_ENDPOINT"] = "http://no-such-hub.invalid"            # as without DNS: tried as often, and as long
        start = time.monotonic()
        self.fails(3, "pull", NAME, says=["no-such-hub.invalid failed 5 times (", "esolve host", "Is the network up, and HF_ENDPOINT right",
                                          "the same command goes on"])
        self.assertGreater(time.monotonic() - start, 0.9 * refused)

    def test_the_environment(self):
        for value, words in (("ftp://x", "HF_ENDPOINT"), ("huggingface.co", "HF_ENDPOINT")):
            os.environ["HF_ENDPOINT"] = value
            self.fails(2, "pull", NAME, says=[words])
        os.environ["HF_ENDPOINT"] = self.hub.url + "//"
        self.pull()
        os.environ["HF_TOKEN"] = "a b\r\nX-Other: header"
        self.assertNotIn("Other", self.fails(2, "pull", NAME, says=["HF_TOKEN is not a token"]))
        del os.environ["HF_TOKEN"]
        os.environ["HF_HUB_OFFLINE"] = "1"
        self.fails(2, "pull", NAME, says=["HF_HUB_OFFLINE"])
        self.ok("plan", "--model", NAME)
        del os.environ["HF_HUB_OFFLINE"]
        os.environ["HONE_CURL_LIBRARY"] = "/nowhere/libcurl.so"
        self.fails(7, "pull", NAME, says=["libcurl4"])
        os.environ["HONE_CURL_LIBRARY"] = "libcurl-gnutls.so.4"
        self.pull()
        del os.environ["HONE_CURL_LIBRARY"]

    def test_a_server_that_is_no_hub(self):
        for body, words in ((b"<html>", "pull"), (b"{}", "HF_ENDPOINT"), (b'{"sha": "x", "siblings": []}', "HF_ENDPOINT"),
                            (json.dumps({"sha": COMMIT, "siblings": [{"rfilename": "config.json"}]}).encode(), "checksum")):
            self.hub.fault = lambda handler, kind, name: handler.answer(200, body) or True
            self.fails(4, "pull", NAME)
        self.assertFalse(list(self.home.rglob("config.json")))

    # --- the disk -------------------------------------------------------------------------------------------------------------------

    def test_a_full_disk_is_told_before_the_download(self):
        self.hub.extra = [{"rfilename": "huge.safetensors", "lfs": {"sha256": "0" * 64, "size": 10**15}}]
        self.fails(3, "pull", NAME, "--include", "huge*", says=["1000000.00 GB", "left", "HF_HUB_CACHE"])
        self.assertFalse(self.hub.paths("cdn"))

    def test_many_pulls_at_once(self):
        data = self.large()
        self.hub.fault = lambda handler, kind, name: kind == "cdn" and time.sleep(0.3)
        pulls = [subprocess.Popen([HONE, "pull", NAME, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)]
        reports = []
        for p in pulls:
            out, err = p.communicate(timeout=60)
            self.assertEqual(p.returncode, 0, err)
            reports.append(json.loads(out))
        self.assertEqual(self.blob(data).read_bytes(), data)
        self.assertEqual(sum(r["downloaded_bytes"] for r in reports), reports[0]["bytes"])     # each file once
        self.assertEqual(len(self.hub.paths("cdn")), 1)

    def test_what_a_person_sees(self):
        result = subprocess.run([HONE, "pull", NAME], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, rf"(?s)^model       {NAME}, commit {COMMIT[:12]}: \d files, .*\npath        {re.escape(str(self.snapshot))}\n"
                                        rf"next        hone init --model {NAME} --data FILE\n$")


if __name__ == "__main__":
    main(Pull, Pull)
