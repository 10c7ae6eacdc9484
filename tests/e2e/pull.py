#!/usr/bin/env python3
"""hone pull, and models by their name on the hub, against a hub on this machine.

huggingface_hub, from the assets' Python, is asked whether the cache that hone wrote is one.
"""
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

from case import ASSETS, CHAT, HONE, TINY, Case, main
from hub import COMMIT, NAME, Hub, git_hash

NEEDED = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
          "chat_template.jinja", "model.safetensors")
TOKEN = "hf_secretsecretsecret"


class Pull(Case):
    def setUp(self):
        super().setUp()
        ours = ("HF_", "HUGGING", "TRANSFORMERS_", "SSL_CERT_FILE", "REQUESTS_CA_", "CURL_CA_", "HONE_CURL_")
        for variable in [v for v in os.environ if v.startswith(ours) or v.lower().endswith("_proxy")]:
            del os.environ[variable]
        files = {p.name: p.read_bytes() for p in TINY.iterdir() if p.name in NEEDED}
        self.assertIn("model.safetensors", files)
        files |= {"README.md": b"# not needed\n", "pytorch_model.bin": b"\x80\x02x" * 1000, "onnx/model.onnx": b"o" * 1000,
                  "consolidated.safetensors": b"c" * 1000, ".gitattributes": b"*.bin filter=lfs\n"}
        self.hub = Hub(files).__enter__()
        self.addCleanup(self.hub.__exit__)
        self.home = self.dir / "hf"
        os.environ |= {"HF_HOME": str(self.home), "HF_ENDPOINT": self.hub.url, "no_proxy": "*"}
        self.model = self.home / "hub/models--org--tiny-model"
        self.snapshot = self.model / "snapshots" / COMMIT

    def pull(self, *args):
        return json.loads(self.ok("pull", NAME, "--json", *args))

    def gives_up(self, code, words):
        """After so long that there may be lines of progress."""
        result = subprocess.run([HONE, "pull", NAME], capture_output=True, text=True, timeout=120)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        self.assertIn(words, result.stderr.splitlines()[-1])

    def large(self, size=3_000_000):
        """A file that comes in several pieces, in place of the weights."""
        data = random.Random(1).randbytes(size)
        self.hub.files["model.safetensors"] = data
        return data

    def blob(self, data):
        return self.model / "blobs" / hashlib.sha256(data).hexdigest()

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
        self.assertEqual({p.name for p in out.iterdir()}, {n for n in self.hub.files if n in NEEDED})      # no locks, no links
        self.assertFalse(any(p.is_symlink() for p in out.iterdir()))
        self.ok("plan", "--model", out)
        self.assertFalse(self.model.exists())
        (out / "config.json").write_bytes(b"x" * len(self.hub.files["config.json"]))    # of the right size
        self.assertEqual(self.pull("--output", out)["downloaded_bytes"], len(self.hub.files["config.json"]))
        self.ok("plan", "--model", out)

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
        names = ("adapter_config.json", "adapter_model.safetensors")
        self.hub.files = {name: (out / name).read_bytes() for name in names} | {"optimizer.pt": b"x"}
        self.assertEqual({f["name"] for f in self.pull()["files"]}, set(names))
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

    # --- downloads that break -----------------------------------------------------------------------------------------------------

    def test_a_cut_connection_goes_on_where_it_was(self):
        data = self.large()
        cuts = [1_000_000, 900_000, 10]
        def fault(handler, kind, name):
            if kind != "cdn" or not cuts:
                return False
            begin = int(handler.headers.get("Range", "bytes=0-")[6:-1])
            end = begin + cuts.pop(0)
            handler.send_response(206 if begin else 200)
            if begin:
                handler.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
            handler.send_header("Content-Length", str(len(data) - begin))
            handler.end_headers()
            handler.wfile.write(data[begin:end])
            handler.close_connection = True
            return True
        self.hub.fault = fault
        report = self.pull()
        self.assertFalse(cuts)
        self.assertEqual((self.snapshot / "model.safetensors").read_bytes(), data)
        self.assertEqual(report["downloaded_bytes"], report["bytes"])                   # no byte twice
        ranges = [h.get("Range") for server, _, h in self.hub.requests if server == "cdn"]
        self.assertEqual(ranges, [None, "bytes=1000000-", "bytes=1900000-", "bytes=1900010-"])

    def test_a_pull_that_was_killed_is_gone_on_with(self):
        data = self.large(8_000_000)
        def fault(handler, kind, name):
            if kind != "cdn":
                return False
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data[:5_000_000])
            time.sleep(20)
            return True
        self.hub.fault = fault
        for kill in (signal.SIGKILL, signal.SIGINT):
            asked = len(self.hub.paths("cdn"))
            process = subprocess.Popen([HONE, "pull", NAME], stderr=subprocess.PIPE, text=True)
            part = self.blob(data).with_name(self.blob(data).name + ".incomplete")
            while not (part.exists() and part.stat().st_size >= 5_000_000 and len(self.hub.paths("cdn")) > asked):
                self.assertIsNone(process.poll())
                time.sleep(0.02)
            process.send_signal(kill)
            text = process.communicate(timeout=10)[1]
            self.assertEqual(process.returncode, -9 if kill == signal.SIGKILL else 10, text)
            self.assertFalse((self.model / "refs/main").exists())                      # nobody finds a part of a model
            self.fails(3, "plan", "--model", NAME, says=["hone pull"])
            self.hub.fault = lambda handler, kind, name: kind == "cdn" and time.sleep(20)
        self.assertIn("goes on from there", text.splitlines()[-1])
        self.assertNotIn("removed", text)
        self.hub.fault = None
        report = self.pull()
        self.assertEqual(self.blob(data).read_bytes(), data)
        self.assertLess(report["downloaded_bytes"], 3_100_000)

    def test_a_server_without_ranges(self):
        data = self.large()
        self.pull()
        part = self.blob(data).with_name(self.blob(data).name + ".incomplete")
        part.write_bytes(data[:1_000_000])
        self.blob(data).unlink()
        self.hub.fault = lambda handler, kind, name: kind == "cdn" and (handler.answer(200, data) or True)
        self.pull()
        self.assertEqual(self.blob(data).read_bytes(), data)

    def test_an_incomplete_file_with_other_bytes(self):
        data = self.large()
        self.pull()
        part = self.blob(data).with_name(self.blob(data).name + ".incomplete")
        for content in (b"z" * 1000, b"z" * len(data), b"z" * (len(data) + 5)):
            self.blob(data).unlink()
            part.write_bytes(content)
            self.pull()
            self.assertEqual(self.blob(data).read_bytes(), data)
            self.assertFalse(part.exists())

    def test_wrong_bytes_are_not_taken(self):
        data = self.large(200_000)
        other = bytes(reversed(data))
        small = self.hub.files["config.json"]
        for kind, name, body in (("cdn", "model.safetensors", other), ("file", "config.json", b"x" * len(small))):
            self.hub.fault = lambda handler, k, n: (k, n) == (kind, name) and (handler.answer(200, body) or True)
            self.fails(4, "pull", NAME, says=[name, "checksum"])
            self.assertFalse((self.model / "refs").exists())
            self.assertFalse(list(self.home.rglob("*.incomplete")))
        bad = [other]                                                                   # once only
        self.hub.fault = lambda handler, k, n: k == "cdn" and bool(bad) and (handler.answer(200, bad.pop()) or True)
        self.pull()
        self.assertEqual(self.blob(data).read_bytes(), data)

    def test_lengths_that_are_not_true(self):
        data = self.large(200_000)
        for body in (data + b"more", data[:1000]):
            self.hub.fault = lambda handler, k, n: k == "cdn" and (handler.answer(200, body) or True)
            self.fails(4, "pull", NAME, says=["model.safetensors", "more than" if len(body) > len(data) else "fewer than"])
        tries = []
        def lie(handler, kind, name):                   # a larger Content-Length than what comes
            if kind == "cdn" and not tries:
                tries.append(1)
                handler.answer(200, data, length=len(data) + 1000)
                handler.close_connection = True
                return True
            return False
        self.hub.fault = lie
        self.pull()
        self.assertEqual(self.blob(data).read_bytes(), data)

    def test_a_connection_that_is_silent(self):
        data = self.large(200_000)
        silent = [1]
        def fault(handler, kind, name):
            if kind == "cdn" and silent:
                silent.pop()
                handler.send_response(200)
                handler.send_header("Content-Length", str(len(data)))
                handler.end_headers()
                handler.wfile.write(data[:1000])
                time.sleep(20)
                return True
            return False
        self.hub.fault = fault
        os.environ["HF_HUB_DOWNLOAD_TIMEOUT"] = "2"
        start = time.monotonic()
        self.pull()
        self.assertLess(time.monotonic() - start, 15)
        self.assertEqual(self.blob(data).read_bytes(), data)

    # --- what a server must not do ---------------------------------------------------------------------------------------------------

    def test_names_of_files_that_lead_away_are_refused(self):
        for name in ("../x.safetensors", "a/../../x", "/etc/x", "a//b", "./a", "..", "", "a\nb", "a\\b", "x\x00y", "a/" + "n" * 300):
            self.hub.extra = [{"rfilename": name, "size": 1, "blobId": git_hash(b"x")}]
            self.fails(4, "pull", NAME, "--include", "*", says=["a file's name"])
        self.assertFalse(self.model.exists())
        for key, value in (("blobId", "../../../../x"), ("blobId", "A" * 40), ("size", -1), ("size", 1.5), ("size", None)):
            self.hub.extra = [{"rfilename": "x.json", "size": 1, "blobId": git_hash(b"x"), key: value}]
            self.fails(4, "pull", NAME, says=["x.json"])
        self.hub.extra = [{"rfilename": "x.json", "size": 1, "lfs": {"sha256": "../" * 20, "size": 1}}]
        self.fails(4, "pull", NAME, says=["x.json"])

    def test_the_token_goes_to_the_hub_alone(self):
        os.environ["HF_TOKEN"] = f" {TOKEN}\n"
        result = subprocess.run([HONE, "pull", NAME], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn(TOKEN, result.stdout + result.stderr)
        seen = {server: {h.get("Authorization") for s, _, h in self.hub.requests if s == server} for server in ("hub", "cdn")}
        self.assertEqual(seen, {"hub": {f"Bearer {TOKEN}"}, "cdn": {None}})
        for path in self.home.rglob("*"):
            self.assertNotIn(TOKEN.encode(), path.read_bytes() if path.is_file() else b"")

    def test_tokens_of_the_file(self):
        self.home.mkdir()
        (self.home / "token").write_text(TOKEN + "\n")
        self.pull()
        self.assertEqual(self.hub.requests[0][2].get("Authorization"), f"Bearer {TOKEN}")
        os.environ["HF_TOKEN_PATH"] = str(self.write("other", "hf_other"))
        self.pull()
        self.assertEqual(self.hub.requests[-1][2].get("Authorization"), "Bearer hf_other")
        os.environ["HF_TOKEN"] = "hf_third"
        self.pull()
        self.assertEqual(self.hub.requests[-1][2].get("Authorization"), "Bearer hf_third")

    def test_the_token_is_not_sent_without_encryption_to_another_machine(self):
        os.environ |= {"HF_TOKEN": TOKEN, "HF_ENDPOINT": self.hub.url.replace("127.0.0.1", "127.0.0.2")}
        for server in self.hub.servers:                 # both addresses lead here
            server.server_close()
        result = subprocess.run([HONE, "pull", NAME], capture_output=True, text=True, timeout=60)
        self.assertIn("the token is not sent", result.stderr)
        self.assertNotIn(TOKEN, result.stderr)

    def test_a_proxy_does_not_get_what_is_for_this_machine(self):
        with Hub({}) as proxy:
            os.environ |= {"HF_TOKEN": TOKEN, "http_proxy": proxy.url, "all_proxy": proxy.url}
            del os.environ["no_proxy"]
            self.pull()
            self.assertFalse(proxy.requests)

    def certified(self):
        """A hub with encryption, and the file with its certificate, which nobody has signed."""
        both, alone = self.dir / "key.pem", self.dir / "certificate.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", "/CN=hub", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", both, "-out", alone],
                       check=True, capture_output=True)
        both.write_bytes(both.read_bytes() + alone.read_bytes())
        hub = Hub(self.hub.files, both).__enter__()
        self.addCleanup(hub.__exit__)
        os.environ["HF_ENDPOINT"] = hub.url
        return hub, alone

    def test_only_a_certificate_that_is_trusted_is_accepted(self):
        hub, certificate = self.certified()
        os.environ["HF_TOKEN"] = TOKEN
        for library in ("libcurl.so.4", "libcurl-gnutls.so.4"):
            shutil.rmtree(self.home, ignore_errors=True)
            os.environ["HONE_CURL_LIBRARY"] = library
            self.fails(3, "pull", NAME, says=["127.0.0.1", "certificate is not accepted", "SSL_CERT_FILE"])
            self.assertFalse(hub.requests)
            os.environ["SSL_CERT_FILE"] = str(certificate)
            self.pull()
            self.assertEqual({h.get("Authorization") for s, _, h in hub.requests if s == "hub"}, {f"Bearer {TOKEN}"})
            self.assertEqual({h.get("Authorization") for s, _, h in hub.requests if s == "cdn"}, {None})
            del os.environ["SSL_CERT_FILE"]
            hub.requests.clear()

    def test_an_encrypted_server_does_not_send_on_to_one_that_is_not(self):
        hub, certificate = self.certified()
        os.environ["SSL_CERT_FILE"] = str(certificate)
        for elsewhere in (self.hub.cdn_url, "ftp://127.0.0.1", "file:///etc/passwd"):
            hub.cdn_url = elsewhere
            self.fails(3, "pull", NAME, says=["127.0.0.1", "without encryption"])
        self.assertFalse(self.hub.requests)
        os.environ["HF_ENDPOINT"] = self.hub.url
        self.hub.cdn_url = "ftp://127.0.0.1"
        self.fails(3, "pull", NAME, says=["127.0.0.1", "ftp"])

    def test_an_endpoint_with_a_name_or_password_is_refused_and_not_printed(self):
        port = self.hub.url.rsplit(":", 1)[1]
        os.environ["HF_TOKEN"] = TOKEN
        for url in (f"http://127.0.0.1:pw@127.0.0.2:{port}", f"http://me:pw@127.0.0.1:{port}", f"http://localhost:{port}\\@127.0.0.2:{port}"):
            os.environ["HF_ENDPOINT"] = url
            line = self.fails(2, "pull", NAME, says=["HF_ENDPOINT", "'@'", "HF_TOKEN"])
            self.assertNotRegex(line, rf"pw|127\.0|{TOKEN}")
        self.assertFalse(self.hub.requests)

    def test_a_commit_that_is_asked_for_is_the_one_that_comes(self):
        other = "b" * 40
        self.hub.fault = lambda handler, kind, name: kind == "api" and (handler.answer(200, json.dumps(self.hub.listing("blobs=true")).encode()) or True)
        self.fails(4, "pull", NAME, "--revision", other, says=[other, COMMIT])
        self.assertFalse(self.model.exists())

    def test_an_index_without_measure_is_refused_before_it_is_downloaded(self):
        self.hub.extra = [{"rfilename": "model.safetensors.index.json", "size": 10**15, "blobId": "0" * 40}]
        self.fails(4, "pull", NAME, says=["model.safetensors.index.json", "64 MB"])
        self.assertEqual(len(self.hub.requests), 1)                                     # the list alone
        self.assertFalse(self.model.exists())

    def test_answers_that_break_off_again_and_again_have_an_end(self):
        data = self.large()
        for more in (lambda n: 1_500_000 if n % 2 else 1_200_000, lambda n: n):         # to and fro, and byte by byte
            sizes = []
            def fault(handler, kind, name):
                if kind != "cdn" or len(sizes) > 20:
                    return False
                sizes.append(more(len(sizes) + 1))
                handler.send_response(200)
                handler.send_header("Content-Length", str(len(data)))
                handler.send_header("Retry-After", "0.1")
                handler.end_headers()
                handler.wfile.write(data[:sizes[-1]])
                handler.close_connection = True
                return True
            self.hub.fault = fault
            self.gives_up(3, "failed 5 times")
            self.assertLess(len(sizes), 10)
            shutil.rmtree(self.model)

    def test_the_text_of_an_error_has_an_end(self):
        sent = [0]
        def fault(handler, kind, name):
            handler.send_response(404)
            handler.end_headers()
            handler.close_connection = True
            try:
                while sent[0] < 200 << 20:
                    handler.wfile.write(bytes(1 << 20))
                    sent[0] += 1 << 20
            except OSError:                                                             # hone has read enough
                pass
            return True
        self.hub.fault = fault
        self.fails(3, "pull", NAME, says=["no such model"])
        self.assertLess(sent[0], 50 << 20)
        self.assertEqual(len(self.hub.requests), 1)

    def test_answers_of_one_byte_have_an_end(self):
        data = self.large(200_000)
        def fault(handler, kind, name):
            if kind != "cdn":
                return False
            begin = int(handler.headers.get("Range", "bytes=0-")[6:-1])
            handler.answer(206, data[begin:begin + 1], Content_Range=f"bytes {begin}-{begin}/{len(data)}")
            return True
        self.hub.fault = fault
        self.gives_up(4, "fewer than")
        self.assertLess(len(self.hub.paths("cdn")), 200)

    def test_names_of_files_that_hone_uses_itself_are_not_overwritten(self):
        lock = "0" * 40 + ".lock"
        self.hub.files |= {"a": b"first", "a.incomplete": b"second", lock: b"third", "poetry.lock": b"fourth"}
        for pattern, name in (("a*", "a.incomplete"), ("0*", lock)):
            self.fails(7, "pull", NAME, "--include", pattern, "--output", self.dir / "out", says=[name, "--output"])
        self.pull("--include", "poetry.lock", "--output", self.dir / "out")
        self.assertEqual((self.dir / "out/poetry.lock").read_bytes(), b"fourth")
        self.pull("--include", "a*,0*")                                                 # in the cache names are checksums
        self.assertEqual([(self.snapshot / n).read_bytes() for n in ("a", "a.incomplete", lock)], [b"first", b"second", b"third"])

    def test_redirects_have_an_end_and_keep_to_http(self):
        self.hub.fault = lambda handler, kind, name: handler.answer(302, Location=handler.path) or True
        self.fails(3, "pull", NAME, says=["redirects"])
        self.hub.fault = lambda handler, kind, name: handler.answer(302, Location="file:///etc/passwd") or True
        self.fails(3, "pull", NAME)

    def test_signatures_are_not_in_messages(self):
        self.hub.fault = lambda handler, kind, name: kind == "cdn" and (handler.answer(403) or True)
        self.assertNotIn("Signature", self.fails(3, "pull", NAME, says=["403"]))

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
