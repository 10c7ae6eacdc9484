#!/usr/bin/env python3
"""hone pull from a hub that breaks off, is silent, lies, or tries to get at what is not its own."""
import json
import os
import shutil
import signal
import subprocess
import time

from case import HONE, main
from hub import COMMIT, NAME, TOKEN, Hub, HubCase, git_hash


class Server(HubCase):
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

    def test_the_token_goes_only_to_the_hub(self):
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
        for elsewhere, words in ((self.hub.cdn_url, "without encryption"), ("ftp://127.0.0.1", "https://"), ("file:///etc/passwd", "https://")):
            hub.cdn_url = elsewhere
            self.fails(3, "pull", NAME, says=["127.0.0.1", "redirect is refused", words])
        self.assertFalse(self.hub.requests)
        os.environ["HF_ENDPOINT"] = self.hub.url
        self.hub.cdn_url = "ftp://127.0.0.1"
        self.fails(3, "pull", NAME, says=["127.0.0.1", "redirect is refused"])

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
        self.assertEqual(len(self.hub.requests), 1)                                     # only the list
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

    def test_a_redirect_that_names_the_hub_before_another_host_is_refused(self):
        os.environ["HF_TOKEN"] = TOKEN
        with Hub(self.hub.files) as other:
            names = self.hub.url[7:], other.cdn_url[7:]
            for text in ("http://{}\\@{}", "http://{}@{}", "//{}\\@{}"):
                self.hub.fault = lambda handler, kind, name: kind == "cdn" and (handler.answer(302, Location=text.format(*names) + "/x") or True)
                self.fails(3, "pull", NAME, says=["redirect is refused", "user name or password"])
            self.assertFalse(other.requests)

    def test_signatures_are_not_in_messages(self):
        self.hub.fault = lambda handler, kind, name: kind == "cdn" and (handler.answer(403) or True)
        self.assertNotIn("Signature", self.fails(3, "pull", NAME, says=["403"]))


if __name__ == "__main__":
    main(Server, Server)
