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
        self.assertIn(f"--model {NAME} ", self.ok("train", "--model", NAME, "--data", data, "--output", adapter, "--max-steps", 1))
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
        self.assertEqual(len(self.hub.requests), before + 1)                            # the list alone

    def test_a_second_pull_asks_for_the_list_alone(self):
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
        (out / "config.json").write_bytes(b"x" * len(self.hub.files["config.json"]))    # of the right size
        self.assertEqual(self.pull("--output", out)["downloaded_bytes"], len(self.hub.files["config.json"]))
        self.ok("plan", "--model", out)

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
        self.assertIn("is not of hone pull, and stays", run("pull", NAME, "--output", out).stderr)
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

    def test_faults_that_stay_are_told(self):
        self.hub.fault = lambda handler, kind, name: handler.answer(429, Retry_After="0.1") or True
        self.fails(3, "pull", NAME, says=["429", "HF_TOKEN"])
        self.assertEqual(len(self.hub.requests), 5)
        self.hub.fault = lambda handler, kind, name: handler.answer(500, Retry_After="0.1") or True
        self.fails(3, "pull", NAME, says=["fault of its own (500)"])
        os.environ["HF_ENDPOINT"] = "http://127.0.0.1:9"
        start = time.monotonic()
        self.fails(3, "pull", NAME, says=["127.0.0.1:9", "failed 5 times"])
        self.assertLess(time.monotonic() - start, 30)

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
