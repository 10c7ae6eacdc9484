#!/usr/bin/env python3
"""What a result says of its origin, and who signed it. The program minisign is the oracle of signatures.

    provenance.py HONE ASSETS DATA
"""
import base64
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys

from case import TINY, forge_checksums, main, run
from train import TrainCase, chat

SIGN = pathlib.Path(__file__).parents[2] / "packaging/sign.py"
RECORD, SIGNATURE = "provenance.json", "provenance.json.minisig"


def minisign(*args, **options):
    return subprocess.run(["minisign", *map(str, args)], capture_output=True, timeout=60, check=False, **options)


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Provenance(TrainCase):
    def setUp(self):
        super().setUp()
        for name in ("own", "other"):
            minisign("-G", "-W", "-f", "-p", self.dir / f"{name}.pub", "-s", self.dir / f"{name}.key")
        self.key, self.public, self.other = self.dir / "own.key", self.dir / "own.pub", self.dir / "other.pub"

    def signed(self, out="out", *args):
        self.train(out, "--max-steps", 2, "--save-steps", 1, "--sign", self.key, *args)
        return self.dir / out

    def copy(self, folder, name="copy"):
        shutil.rmtree(self.dir / name, ignore_errors=True)
        return shutil.copytree(folder, self.dir / name)

    def refused(self, folder, *args, says):
        self.fails(4, "verify", folder, "--verify-key", self.public, *args, says=says)

    def test_a_result_and_a_checkpoint_say_what_they_are_and_what_they_were_made_from(self):
        self.train("out", "--max-steps", 2)
        for folder in (self.dir / "out", self.dir / "out/checkpoint-2"):
            record = json.loads((folder / RECORD).read_text())
            listed = {f["name"]: f["sha256"] for f in record["files"]}
            self.assertTrue({"adapter_config.json", "adapter_model.safetensors"} <= set(listed))
            self.assertEqual(listed, {name: sha256(folder / name) for name in listed})
            model, data = record["made_from"]["model"], record["made_from"]["data"]
            self.assertEqual({f["name"]: f["sha256"] for f in model["files"]}["model.safetensors"], sha256(TINY / "model.safetensors"))
            self.assertEqual([f["sha256"] for f in data["files"]], [sha256(self.data)])
            self.assertEqual((record["step"], record["made_from"]["settings"]["max_steps"]), (2, "2"))
            self.assertNotIn(str(self.dir), (folder / RECORD).read_text())          # a path is nobody's business
            out = self.ok("verify", folder, "--model", TINY, "--data", self.data)
            self.assertIn("intact; who made it was not checked (--verify-key KEY)", out.splitlines())
            self.assertIn("signature   none that was checked and holds", out)
        run_file = json.loads((self.dir / "out/run.json").read_text())
        self.assertEqual(run_file["made_from"], json.loads((self.dir / "out" / RECORD).read_text())["made_from"])

    def test_the_same_run_gives_the_same_record_also_if_it_is_stopped_on_the_way(self):
        self.train("one", "--max-steps", 4, "--save-steps", 2, "--sign", self.key)
        self.train("two", "--max-steps", 4, "--save-steps", 2, "--sign", self.key)
        shutil.rmtree(self.dir / "two/checkpoint-4")
        self.train("two", "--max-steps", 4, "--save-steps", 2, "--sign", self.key)
        for name in (RECORD, SIGNATURE):
            self.assertEqual((self.dir / "one" / name).read_bytes(), (self.dir / "two" / name).read_bytes())

    def test_what_was_changed_is_missing_or_came_later_is_named(self):
        self.train("out", "--max-steps", 2)
        changed, missing, later = (self.copy(self.dir / "out", name) for name in ("changed", "missing", "later"))
        flip(changed / "adapter_model.safetensors", -1)
        self.fails(4, "verify", changed, says=["adapter_model.safetensors: was changed: its checksum is not the one"])
        (missing / "adapter_config.json").unlink()
        self.fails(4, "verify", missing, says=["adapter_config.json: is missing, but provenance.json names it"])
        (later / "modeling_llama.py").write_text("import os\n")
        self.fails(4, "verify", later, says=["modeling_llama.py: was added later"])
        report = run("verify", later, "--json")
        self.assertEqual((report.returncode, json.loads(report.stdout)["verified"]), (4, False))
        (changed / RECORD).unlink()
        self.fails(4, "verify", changed, says=["provenance.json: is missing"])
        self.fails(3, "verify", self.dir / "nowhere", says=["nowhere: no such directory"])
        state = self.copy(self.dir / "out/checkpoint-2", "state")
        flip(state / "state.safetensors", -1)
        self.fails(4, "verify", state, says=["state.safetensors"])

    def test_another_model_and_other_data_are_told_apart(self):
        self.train("out", "--max-steps", 2)
        model = shutil.copytree(TINY, self.dir / "model")
        self.ok("verify", self.dir / "out", "--model", model)
        flip(model / "model.safetensors", -1)
        self.fails(4, "verify", self.dir / "out", "--model", model, says=["model.safetensors: was changed: its checksum is not the one"])
        self.fails(4, "verify", self.dir / "out", "--data", self.valid, says=["valid.jsonl: was changed: its checksum is not the one"])
        self.fails(4, "verify", self.dir / "out", "--data", f"{self.data},{self.valid}", says=["2 files, and it was made from 1"])

    def test_minisign_verifies_what_hone_signs(self):
        out = self.signed()
        for folder in (out, out / "checkpoint-1", out / "checkpoint-2"):
            done = minisign("-V", "-H", "-p", self.public, "-m", folder / RECORD)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"sha256:{sha256(folder / RECORD)}", done.stdout.decode())
            self.assertNotEqual(minisign("-V", "-p", self.other, "-m", folder / RECORD).returncode, 0)
            key = self.public.read_text().splitlines()[1]
            for given in (self.public, key):
                self.assertIn("which is that of --verify-key", self.ok("verify", folder, "--verify-key", given))
            self.assertIn("not checked", self.ok("verify", folder))

    def test_hone_verifies_what_minisign_signs(self):
        self.train("out", "--max-steps", 2)
        for legacy in ((), ("-l",)):
            done = minisign("-S", *legacy, "-W", "-s", self.key, "-m", self.dir / "out" / RECORD, "-t", "by hand")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("by hand", self.ok("verify", self.dir / "out", "--verify-key", self.public))

    def test_what_was_forged_after_it_was_signed_is_refused(self):
        out = self.signed()
        copy = self.copy(out)
        flip(copy / "adapter_model.safetensors", -1)
        self.refused(copy, says=["adapter_model.safetensors"])
        record = json.loads((copy / RECORD).read_text())                    # and so is the digest that goes with it
        for entry in record["files"]:
            entry["sha256"] = sha256(copy / entry["name"])
        (copy / RECORD).write_text(json.dumps(record))
        self.ok("verify", copy)
        self.refused(copy, says=["the signature is not of these bytes"])
        minisign("-S", "-W", "-s", self.dir / "other.key", "-m", copy / RECORD)
        self.refused(copy, says=["is by the key", "and not by"])
        lines = (copy / SIGNATURE).read_text().splitlines()                 # under the right key's id
        own = base64.b64decode((out / SIGNATURE).read_text().splitlines()[1])
        theirs = base64.b64decode(lines[1])
        lines[1] = base64.b64encode(theirs[:2] + own[2:10] + theirs[10:]).decode()
        (copy / SIGNATURE).write_text("\n".join(lines) + "\n")
        self.refused(copy, says=["the signature is not of these bytes"])
        (copy / SIGNATURE).unlink()
        self.refused(copy, says=["provenance.json.minisig: is missing: this is not signed"])

    def test_a_signature_that_was_changed_is_refused(self):
        out = self.signed()
        copy = self.copy(out)
        text = (out / SIGNATURE).read_bytes()
        lines = text.splitlines(True)
        for what, forged, says in (
                ("a bit of the signature", lines[0] + lines[1][:60] + bytes([lines[1][60] ^ 1]) + lines[1][61:] + b"".join(lines[2:]), "signature"),
                ("the trusted comment", text.replace(b"hone:", b"gone:"), "its trusted comment was changed"),
                ("a letter of the last line", b"".join(lines[:3]) + (b"B" if lines[3][:1] == b"A" else b"A") + lines[3][1:], "its trusted comment was changed"),
                ("its end is gone", b"".join(lines[:3]), "not a whole one"),
                ("half of it", text[:150], "not a whole one"),
                ("a line more", text + b"x\n", "not a whole one"),
                ("nothing", b"", "not a whole one"),
                ("a zero byte", text.replace(b"hone:", b"hon\0:"), "not a whole one"),
                ("far too long", text + b"x" * 20000, "")):
            with self.subTest(what):
                (copy / SIGNATURE).write_bytes(forged)
                self.refused(copy, says=[says] if says else [SIGNATURE])
                if b"untrusted" not in forged[:9]:
                    self.assertNotEqual(minisign("-V", "-p", self.public, "-m", copy / RECORD).returncode, 0)
        (copy / SIGNATURE).write_bytes(text.replace(b"\n", b"\r\n"))        # as mail may do; minisign takes it too
        self.ok("verify", copy, "--verify-key", self.public)

    def test_a_bad_key_fails_before_the_first_step(self):
        broken = self.dir / "broken.key"
        content = bytearray(base64.b64decode(self.key.read_text().splitlines()[1]))
        content[70] ^= 1                                                    # of the secret
        broken.write_text("untrusted comment: x\n" + base64.b64encode(content).decode() + "\n")
        with_password = self.dir / "password.key"
        minisign("-G", "-f", "-p", self.dir / "password.pub", "-s", with_password, input=b"secret\nsecret\n")
        (self.dir / "long.key").write_text("untrusted comment: " + "x" * 20000)
        for key, code, says in ((broken, 4, "its two halves do not belong together"), (self.public, 4, "is not a secret key of minisign"),
                                (with_password, 7, "is protected by a password"), (self.dir / "none.key", 3, "none.key"),
                                (self.dir / "long.key", 4, "more than the 16384")):
            with self.subTest(says):
                result = run(*self.command("out", "--sign", key))
                self.assertEqual(result.returncode, code, result.stderr)
                self.assertIn(says, result.stderr)
                self.assertFalse((self.dir / "out").exists())
        self.fails(4, "verify", self.signed("signed"), "--verify-key", self.key, says=["is not a public key of minisign"])

    def test_a_file_of_options_can_neither_sign_nor_say_which_key_to_trust(self):
        config = self.write("run.yaml", f"sign: {self.key}")
        self.fails(2, *self.command("out", "--config", config), says=["'sign' can only be given on the command line"])
        config = self.write("verify.yaml", f"verify_key: {self.other}")
        self.fails(2, "verify", self.dir, "--config", config, says=["'verify_key' can only be given on the command line"])

    def test_without_libsodium_a_run_trains_and_does_not_sign(self):
        os.environ["HONE_SODIUM_LIBRARY"] = str(self.dir / "libsodium.so")
        try:
            self.train("out", "--max-steps", 1)
            self.ok("verify", self.dir / "out")
            says = "libsodium, which --sign and --verify-key need, is not on this machine"
            self.fails(7, *self.command("signed", "--sign", self.key), says=[says])
            minisign("-S", "-W", "-s", self.key, "-m", self.dir / "out" / RECORD)
            self.fails(7, "verify", self.dir / "out", "--verify-key", self.public, says=[says])
        finally:
            del os.environ["HONE_SODIUM_LIBRARY"]

    def test_a_result_that_is_not_signed_keeps_no_signature_of_an_earlier_one(self):
        out = self.signed()
        again = run(*self.command("out", "--max-steps", 2, "--save-steps", 1))
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn(f"{SIGNATURE}: removed, because the result that takes its place is not signed", again.stderr)
        self.assertFalse((out / SIGNATURE).exists())
        self.ok("verify", out)
        self.refused(out, says=["is missing"])

    def test_a_run_that_signs_resumes_only_from_what_the_same_key_signed(self):
        """Fails without origin_check_signed: the run's own signature would stand for the steps of somebody who planted a checkpoint."""
        out = self.signed("out", "--save-total-limit", 9)
        self.train("planted", "--max-steps", 4, "--save-steps", 2)                  # the same run, by somebody without the key
        shutil.copytree(self.dir / "planted/checkpoint-4", out / "checkpoint-4")
        self.train("longer", "--max-steps", 3, "--save-steps", 1, "--sign", self.key)
        forged = shutil.copytree(self.dir / "longer/checkpoint-3", out / "checkpoint-3")
        flip(forged / "state.safetensors", -1)
        forge_checksums(forged)
        result = run(*self.command("out", "--max-steps", 2, "--save-steps", 1, "--sign", self.key))
        self.assertEqual(result.returncode, 0, result.stderr)
        for step in (4, 3):
            self.assertIn(f"checkpoint-{step} cannot be used, the one before it is tried", result.stderr)
        self.assertIn("provenance.json.minisig: is missing: this is not signed. With --sign a run takes only", result.stderr)
        self.assertIn("state.safetensors: was changed", result.stderr)
        self.fails(4, *self.command("elsewhere", "--max-steps", 2, "--sign", self.key, "--resume", self.dir / "planted/checkpoint-2"),
                   says=["is missing: this is not signed", "--resume none"])
        self.fails(4, *self.command("elsewhere", "--max-steps", 2, "--sign", self.dir / "other.key", "--resume", out / "checkpoint-1"),
                   says=["is by the key", "and not by"])

    def test_the_best_checkpoint_as_the_result_has_a_record_of_its_own(self):
        against = [chat(i) for i in range(6)]
        for row in against:
            row["messages"][1]["content"] = "Nothing of the kind: Debian has no such thing."
        self.train("out", "--eval-data", self.write("against.jsonl", *against), "--eval-steps", 4, "--save-steps", 10, "--max-steps", 40,
                   "--learning-rate", 0.02, "--load-best-model-at-end", "--sign", self.key)
        record = json.loads((self.dir / "out" / RECORD).read_text())
        self.assertLess(record["step"], 40)
        self.assertEqual({f["name"] for f in record["files"]}, {"adapter_config.json", "adapter_model.safetensors"})
        self.ok("verify", self.dir / "out", "--verify-key", self.public)

    def test_all_weights_have_a_record_too_and_no_file_that_a_stranger_put_next_to_them_is_signed(self):
        (self.dir / "out").mkdir()
        out = self.signed("out", "--finetuning-type", "full", "--learning-rate", "1e-4")
        names = {f["name"] for f in json.loads((out / RECORD).read_text())["files"]}
        self.assertTrue({"model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"} <= names)
        self.ok("verify", out, "--verify-key", self.public)
        (out / "vocab.json").write_text("{}")
        self.train("out", "--max-steps", 2, "--save-steps", 1, "--sign", self.key, "--finetuning-type", "full", "--learning-rate", "1e-4")
        self.assertNotIn("vocab.json", {f["name"] for f in json.loads((out / RECORD).read_text())["files"]})

    def test_a_release_is_signed_and_checked_as_a_whole(self):
        release = self.dir / "release"
        release.mkdir()
        (release / "hone-1.0-linux-x86_64.tar.gz").write_bytes(b"tarball")
        (release / "hone_1.0_amd64.deb").write_bytes(b"deb")

        def tool(*args):
            return subprocess.run([sys.executable, SIGN, release, *map(str, args)], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(tool("--key", self.key).returncode, 0)
        first = (release / "SHA256SUMS.minisig").read_bytes()
        self.assertEqual(tool("--key", self.key).returncode, 0)
        self.assertEqual((release / "SHA256SUMS.minisig").read_bytes(), first)
        for given in (self.public, self.public.read_text().splitlines()[1]):
            self.assertEqual(tool("--verify", given).returncode, 0)
        self.assertEqual(subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=release, check=False).returncode, 0)
        self.assertIn("is not signed by this key", tool("--verify", self.other).stderr)
        flip(release / "hone_1.0_amd64.deb", 0)
        self.assertIn("hone_1.0_amd64.deb", tool("--verify", self.public).stderr)
        flip(release / "hone_1.0_amd64.deb", 0)
        (release / "evil.whl").write_bytes(b"x")
        self.assertIn("evil.whl", tool("--verify", self.public).stderr)
        (release / "evil.whl").unlink()
        (release / "SHA256SUMS").write_text((release / "SHA256SUMS").read_text().replace("a", "b"))
        self.assertIn("is not signed by this key", tool("--verify", self.public).stderr)

    def test_a_record_of_a_stranger_reaches_no_terminal_and_no_other_folder(self):
        self.train("out", "--max-steps", 1)
        whole = json.loads((self.dir / "out" / RECORD).read_text())
        for bad in ("../secret", "/etc/passwd", "", ".", "a\u009b31mred", "a\u202egnp.exe", "two\nlines", RECORD, "x" * 300):
            forged = {**whole, "files": [{"name": bad, "bytes": 1, "sha256": "0" * 64}]}
            (self.dir / "out" / RECORD).write_text(json.dumps(forged))
            line = self.fails(4, "verify", self.dir / "out", says=["has no plain name"])
            self.assertTrue(line.isprintable() or line[:-1].isprintable())
        forged = {**whole, "made_by": "\u009b31m\u202e\x1b]0;title\x07"}
        (self.dir / "out" / RECORD).write_text(json.dumps(forged, ensure_ascii=False))
        shown = run("verify", self.dir / "out").stdout
        self.assertTrue(all(c.isprintable() or c == "\n" for c in shown), shown)
        (self.dir / "out" / RECORD).write_bytes(b" " * (2 << 20))
        self.fails(4, "verify", self.dir / "out", says=["more than the 1048576"])


if __name__ == "__main__":
    if not shutil.which("minisign"):
        sys.exit("minisign is needed (Debian: minisign)")
    main(Provenance, Provenance)
