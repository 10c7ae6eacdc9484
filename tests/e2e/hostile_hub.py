#!/usr/bin/env python3
"""hone pull from a hub that is hostile, over TLS: redirects, lists, indices, sizes and checksums, a row of a table each.

Every row is a model of its own on one hub, so that they run at once. Which host a redirect means is judged by Python's urllib, not by
libcurl, which hone reads addresses with: only where Python reads the hub's own scheme, host and port may the token be seen. Every
server keeps what came to it. The hub is 127.0.0.1, its storage 127.0.0.2 and the stranger 127.0.0.3, who listens on the hub's port
too.
"""
import concurrent.futures
import hashlib
import http.server
import ipaddress
import json
import os
import pathlib
import re
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.parse

from case import HONE, Case, main
from hub import COMMIT, TOKEN, git_hash

DATA = b"weights " * 100
CONFIG = b'{"model_type": "none"}'
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"

# --- the cases ----------------------------------------------------------------------------------------------------------------------

# Location, and what must come of it: "token" and "bare" arrive with and without the token, "refused" arrives nowhere; "any" may end
# in every way that the oracle allows. {hub} {evil} {twin} are HOST:PORT; {twin} is the stranger on the hub's port; {plain} has no TLS.
REDIRECTS = [
    ("https://{hub}/x", "token"),
    ("/x", "token"),
    ("x", "token"),
    ("?x", "token"),
    ("//{hub}/x", "token"),
    ("HTTPS://{hub}/x", "token"),
    ("https://{hub}/x#@{evil}", "token"),
    ("https://{hub}?@{evil}/x", "token"),
    ("https://{evil}/x", "bare"),
    ("//{evil}/x", "bare"),
    ("hTTps://{twin}/x", "bare"),
    ("https://{evil}?@{hub}/x", "bare"),
    ("https://{evil}/@{hub}/x", "bare"),
    ("https://{evil}/x#@{hub}", "bare"),
    ("https://{evil}#@{hub}", "any"),
    ("https://{evil}/x?u=https://{hub}/", "bare"),
    ("https://127.0.0.1:{other}/x", "bare"),                        # the hub's host at another port
    ("https://2130706435:{port}/x", "bare"),                        # 127.0.0.3 as one number
    ("https://0x7f.0.0.3:{port}/x", "bare"),
    ("https://{hub}\\@{evil}/x", "refused"),
    ("https://{hub}\\\\@{evil}/x", "refused"),
    ("https://{hub}/\\@{evil}/x", "token"),                         # a path
    ("https://{hub}@{evil}/x", "refused"),
    ("https://127.0.0.1:pw@{evil}/x", "refused"),
    ("//{hub}@{evil}/x", "refused"),
    ("https://user:pw@{hub}/x", "refused"),
    ("https://{evil}@{hub}/x", "refused"),
    ("https://a@{hub}@{evil}/x", "refused"),
    ("https://{hub}%40{evil}/x", "refused"),
    ("https://{hub}%2f@{evil}/x", "refused"),
    ("https://{hub}%5c@{evil}/x", "refused"),
    ("https://127.0.0.1%2f:{port}/x", "refused"),
    ("https://127.0.0.1%00.evil:{port}/x", "refused"),
    ("https://%31%32%37.0.0.1:{port}/x", "any"),
    ("https://%31%32%37.0.0.3:{port}/x", "any"),
    ("https://{hub};@{evil}/x", "refused"),
    ("https://{hub} @{evil}/x", "refused"),
    ("https://{hub}\t@{evil}/x", "refused"),
    ("https://127.0\t.0.3:{port}/x", "refused"),
    ("ht\ttps://{evil}/x", "any"),
    ("\x01https://{evil}/x", "any"),
    ("https:\\\\{evil}\\x", "any"),
    ("https:/{evil}/x", "any"),
    ("https:///{evil}/x", "any"),
    ("https:////{evil}/x", "any"),
    ("///{evil}/x", "any"),
    ("\\\\{evil}\\x", "any"),
    ("https:{evil}/x", "any"),
    ("http://{plain}/x", "refused"),
    ("HtTp://{plain}/x", "refused"),
    ("http://{hub}/x", "refused"),
    ("ftp://{hub}/x", "refused"),
    ("file:///etc/passwd", "refused"),
    ("data:text/plain,x", "any"),
    ("https://127.0.0.1:{beyond}/x", "refused"),                    # the hub's port and 65536
    ("https://127.0.0.1:-{port}/x", "refused"),
    ("https://127.0.0.1:{port}x/x", "refused"),
    ("https://127.0.0.1:0{port}/x", "any"),
    ("https://2130706433:{port}/x", "any"),                         # the hub as one number
    ("https://127.1:{port}/x", "any"),
    ("https://[127.0.0.1]:{port}/x", "refused"),
    ("https://[::ffff:127.0.0.1]:{port}/x", "any"),
    ("https://[::1]:{port}/x", "any"),
    ("https://[::1%25lo]:{port}/x", "any"),
    ("https://[{hub}]@{evil}/x", "refused"),
    ("https://LOCALHOST:{port}/x", "any"),
    ("https://\uff11\uff12\uff17.0.0.1:{port}/x", "refused"),       # the hub in wide digits
    ("https://127\u3002\u0030\u3002\u0030\u3002\u0033:{port}/x", "refused"),
    ("https://{hub}\u2044@{evil}/x", "refused"),                    # a fraction's stroke
    ("https://{hub}\uff0f@{evil}/x", "refused"),
    ("", "any"),
]

# The same from the storage, to which the hub had sent on: who has left the hub has no token any more, wherever he is sent.
BOUNCES = ["https://{hub}/x", "https://{hub}\\@{evil}/x", "https://{evil}/x", "//{hub}/x", "/x"]


def lfs(data, **other):
    return {"size": len(data), "blobId": "0" * 40, "lfs": {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), **other}}


def small(data):
    return {"size": len(data), "blobId": git_hash(data)}


def indexed(*names):
    """A model whose index names these files."""
    index = json.dumps({"weight_map": {f"layer.{i}": name for i, name in enumerate((WEIGHTS, *names))}}).encode()
    return {INDEX: index, WEIGHTS: DATA, **{name: b"EVIL" for name in names}}


# What the list has besides config.json and the weights; hone's words; options. A name that is not in WRITTEN must not be there
# afterwards, and what lay in the folder before is as it was.
MINE = {"Makefile": b"mine", ".bashrc": b"mine", ".git/config": b"mine", "notes": b"mine"}
WRITTEN = {"config.json", "provenance.json", WEIGHTS, INDEX, "part.safetensors", "Model.safetensors", "plain"}
LISTS = [
    ("an index names .git/config", {"files": indexed(".git/config")}, "safetensors"),
    ("an index names .bashrc", {"files": indexed(".bashrc")}, "safetensors"),
    ("an index names Makefile", {"files": indexed("Makefile")}, "safetensors"),
    ("an index names a library", {"files": indexed("hone-mpi-openmpi.so")}, "safetensors"),
    ("an index names run.yaml", {"files": indexed("run.yaml")}, "safetensors"),
    ("an index names a hidden file", {"files": indexed(".x.safetensors")}, "dot"),
    ("an index names a file in a hidden folder", {"files": indexed("a/.git/x.safetensors")}, "dot"),
    ("an index names itself", {"files": indexed(INDEX)}, "safetensors"),
    ("an index names a file above", {"files": {**indexed(), INDEX: b'{"weight_map": {"a": "../x.safetensors"}}'}}, "not in the repository"),
    ("an index names no text", {"files": {**indexed(), INDEX: b'{"weight_map": {"a": ["model.safetensors"]}}'}}, "not in the repository"),
    ("an index has a name with a zero", {"files": {**indexed(), INDEX: b'{"weight_map": {"a": "model.safetensors\\u0000.so"}}'}}, "index"),
    ("an index is no object", {"files": {**indexed(), INDEX: b"[]"}}, "weight_map"),
    ("an index names one more", {"files": indexed("part.safetensors")}, None),
    ("a name leads above", {"extra": [{"rfilename": "../x.safetensors", **small(b"x")}]}, "a file's name"),
    ("a name is absolute", {"extra": [{"rfilename": "/tmp/x.safetensors", **small(b"x")}]}, "a file's name"),
    ("a name leads above in the middle", {"extra": [{"rfilename": "a/../../x", **small(b"x")}]}, "a file's name"),
    ("a name has a backslash", {"extra": [{"rfilename": "..\\x", **small(b"x")}]}, "a file's name"),
    ("a name has a zero", {"extra": [{"rfilename": "x\0y", **small(b"x")}]}, "a file's name"),
    ("a name has a line's end", {"extra": [{"rfilename": "x\ny", **small(b"x")}]}, "a file's name"),
    ("a name has an escape", {"extra": [{"rfilename": "x\x1b[2J", **small(b"x")}]}, "a file's name"),
    ("a name has a C1 control", {"extra": [{"rfilename": "x\x9b2J", **small(b"x")}]}, "a file's name"),
    ("a name is too long", {"extra": [{"rfilename": "n" * 300, **small(b"x")}]}, "a file's name"),
    ("a name is there twice", {"extra": [{"rfilename": "config.json", **small(b"x")}]}, "twice"),
    ("a name is there in capitals too", {"files": indexed("Model.safetensors")}, None),
    ("all files are asked for, some hidden", {"files": {"plain": b"x", ".bashrc": b"EVIL", "a/.b/c": b"EVIL"}, "args": ["--include", "*"]}, None),
    ("a hidden file is asked for", {"files": {".bashrc": b"EVIL"}, "args": ["--include", ".bashrc"]}, "dot"),
    ("a file of mine is asked for", {"files": {"notes": b"EVIL"}, "args": ["--include", "notes"]}, "--overwrite"),
    ("a hash is a path", {"extra": [{"rfilename": "x", "size": 1, "blobId": "../../../../x"}]}, "checksum"),
    ("a hash is in capitals", {"extra": [{"rfilename": "x", "size": 1, "blobId": "A" * 40}]}, "checksum"),
    ("a size is negative", {"extra": [{"rfilename": "x", "size": -1, "blobId": "0" * 40}]}, "size"),
    ("a size is no number", {"extra": [{"rfilename": "x", "size": "9", "blobId": "0" * 40}]}, "size"),
    ("sizes overflow", {"extra": [{"rfilename": f"x{i}", "size": 2**63 - 1, "blobId": "0" * 40} for i in range(2)], "args": ["--include", "x*"]}, "sizes"),
    ("a size is a disk's", {"extra": [{"rfilename": "x", "size": 10**15, "blobId": "0" * 40}], "args": ["--include", "x"]}, "GB"),
    ("an index is too large", {"extra": [{"rfilename": INDEX, "size": 10**12, "blobId": "0" * 40}]}, "64 MB"),
    ("another commit", {"sha": "../../../etc", "extra": []}, "HF_ENDPOINT"),
    ("bytes of another hash", {"body": b"W" * len(DATA)}, "checksum"),
    ("more bytes than listed", {"body": DATA + b"!"}, "more than"),
    ("fewer bytes than listed", {"body": DATA[:-1]}, "fewer than"),
    ("no bytes at all", {"body": b""}, "fewer than"),
    ("a range that was not asked for", {"body": DATA, "code": 206, "range": "bytes 7-806/800"}, "other bytes"),
    ("a range that is none", {"body": DATA, "code": 206, "range": "lines 1-2"}, "other bytes"),
    ("a git hash that does not match", {"listed": {"config.json": {"size": len(CONFIG), "blobId": "1" * 40}}}, "checksum"),
    ("packed bytes that nobody asked for", {"body": b"\x1f\x8b\x08\0" + bytes(len(DATA) - 4), "encoding": "gzip"}, "checksum"),
]


# --- who is meant: Python's reading ---------------------------------------------------------------------------------------------------

def origin(url, location=""):
    """(scheme, host, port) as urllib reads them; a host in numbers by its four bytes. None: no such address."""
    try:
        parts = urllib.parse.urlsplit(urllib.parse.urljoin(url, location))
        host = urllib.parse.unquote(parts.hostname or "")
        port = parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    except ValueError:
        return None
    if not host or not port or parts.username is not None:
        return None
    if re.fullmatch(r"[0-9a-fx.]+", host):
        try:
            host = str(ipaddress.ip_address(socket.inet_aton(host)))
        except OSError:
            pass
    return parts.scheme, host.lower(), port


# --- the servers ------------------------------------------------------------------------------------------------------------------------

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.world.answer(self)

    def reply(self, code, body=b"", **headers):
        self.send_response(code)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_header(self, key, value):                                  # as it is: urllib would refuse some
        self._headers_buffer = getattr(self, "_headers_buffer", [])
        self._headers_buffer.append(f"{key}: {value}\r\n".encode("utf-8"))


class World:
    """The hub, its storage and the strangers; each request is kept by the number of its case."""
    def __init__(self, folder):
        key, self.certificate = folder / "key.pem", folder / "certificate.pem"
        names = ",".join([f"IP:127.0.0.{i}" for i in range(1, 5)] + ["IP:::1", "DNS:localhost"])
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", "/CN=hub", "-addext", f"subjectAltName={names}", "-keyout", key, "-out", self.certificate],
                       check=True, capture_output=True)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.certificate, key)
        self.servers, self.seen, self.cases, self.lock = [], [], [], threading.Lock()
        port = self.listen("hub", "127.0.0.1", 0)
        storage, evil = self.listen("storage", "127.0.0.2", 0), self.listen("evil", "127.0.0.3", 0)
        plain, other = self.listen("plain", "127.0.0.4", 0, tls=False), self.listen("other port", "127.0.0.1", 0)
        self.listen("twin", "127.0.0.3", port)
        if pathlib.Path("/proc/net/if_inet6").exists():
            self.listen("six", "::1", port)
        self.words = {"hub": f"127.0.0.1:{port}", "storage": f"127.0.0.2:{storage}", "evil": f"127.0.0.3:{evil}", "twin": f"127.0.0.3:{port}",
                      "plain": f"127.0.0.4:{plain}", "port": port, "other": other, "beyond": port + 65536}

    def listen(self, name, address, port, tls=True):
        kind = type("Server", (http.server.ThreadingHTTPServer,), {"address_family": socket.AF_INET6 if ":" in address else socket.AF_INET})
        try:
            server = kind((address, port), Handler)
        except OSError:                                                 # no IPv6 here
            return 0
        server.world, server.name, server.daemon_threads, server.block_on_close = self, name, True, False
        server.handle_error = lambda *_: None
        if tls:
            server.socket = self.context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        self.servers.append(server)
        return server.server_address[1]

    def close(self):
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def address(self, text):
        for word, value in self.words.items():
            text = text.replace("{" + word + "}", str(value))
        return text

    def answer(self, handler):
        """The model's number is in its name, hone asks with it at the hub; elsewhere it is in Range, or unknown."""
        path, where = handler.path, handler.server.name
        found = re.search(r"case-(\d+)", path)
        number = int(found[1]) if found else None
        with self.lock:
            self.seen.append((number, where, path, handler.headers.get("Authorization")))
        case = self.cases[number] if found else {}
        asked = re.fullmatch(r"/org/case-\d+/resolve/[0-9a-f]+/(.+)", path)
        if where == "hub" and path.startswith("/api/"):
            return handler.reply(200, json.dumps(self.listing(case)).encode())
        if where == "hub" and asked and asked[1] == WEIGHTS and "location" in case:
            return handler.reply(302, Location=case["first"])
        if where == "storage" and "bounce" in path:
            return handler.reply(302, Location=case["location"])
        if where == "hub" and asked:
            data = case["files"].get(urllib.parse.unquote(asked[1]), b"")
            return self.send_file(handler, case, asked[1], data)
        return handler.reply(200, DATA)

    def send_file(self, handler, case, name, data):
        if name != WEIGHTS or "body" not in case:
            return handler.reply(200, data)
        headers = {"Content_Range": case["range"]} if "range" in case else {}
        headers |= {"Content_Encoding": case["encoding"]} if "encoding" in case else {}
        return handler.reply(case.get("code", 200), case["body"], **headers)

    def listing(self, case):
        rows = [{"rfilename": name, **(lfs(data) if name == WEIGHTS else small(data)), **case.get("listed", {}).get(name, {})}
                for name, data in case["files"].items()]
        return {"sha": case.get("sha", COMMIT), "siblings": rows + case.get("extra", [])}

    def add(self, **case):
        """The new case's number."""
        case["files"] = {"config.json": CONFIG, **case.get("files", {WEIGHTS: DATA})}
        self.cases.append(case)
        return len(self.cases) - 1


class Hostile(Case):
    def setUp(self):
        super().setUp()
        self.world = World(self.dir)
        self.addCleanup(self.world.close)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING", "TRANSFORMERS_", "HONE_CURL_")) and not k.lower().endswith("_proxy")}
        self.environment = kept | {"HF_HOME": str(self.dir / "hf"), "HF_ENDPOINT": f"https://{self.world.words['hub']}", "HF_TOKEN": TOKEN,
                                   "SSL_CERT_FILE": str(self.world.certificate), "no_proxy": "*"}

    def pull(self, number, *args):
        result = subprocess.run([HONE, "pull", f"org/case-{number}", *args], capture_output=True, text=True, errors="replace", timeout=100, env=self.environment)
        return result.returncode, result.stderr

    def all(self, run, numbers):
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            return list(pool.map(run, numbers))

    def token_cases(self):
        """(number, Location, whether it comes from the storage, what must come of it)"""
        rows = []
        for text, must in REDIRECTS:
            number = len(self.world.cases)
            location = self.world.address(text)
            parts = re.fullmatch(r"(.*)/x(.*)", location, re.S)         # the case's number where the path ends
            location = f"{parts[1]}/x-case-{number}{parts[2]}" if parts else location
            self.world.add(location=location, first=location)
            rows.append((number, location, False, must))
        for text in BOUNCES:
            number = len(self.world.cases)
            location = self.world.address(text).replace("/x", f"/x-case-{number}")
            first = f"https://{self.world.words['storage']}/bounce-case-{number}"
            self.world.add(location=location, first=first)
            rows.append((number, location, True, "bare" if "\\" not in text else "refused"))
        return rows

    def test_the_token_is_seen_only_where_python_reads_the_hub(self):
        rows, start = self.token_cases(), time.monotonic()
        hub = origin(self.environment["HF_ENDPOINT"])
        results = self.all(lambda row: self.pull(row[0], "--output", str(self.dir / f"out-{row[0]}")), rows)
        for (number, location, away, must), (code, said) in zip(rows, results):
            first = f"/org/case-{number}/resolve/{COMMIT}/{WEIGHTS}"
            after = [(where, path, token) for n, where, path, token in self.world.seen
                     if n == number and not path.startswith("/api/") and not path.endswith("config.json") and "bounce" not in path]
            asked, followed = [a for a in after if a[1] == first][:1], [a for a in after if a[1] != first]
            with self.subTest(location=location, code=code, said=said, followed=followed):
                self.assertEqual(asked, [("hub", first, f"Bearer {TOKEN}")])
                self.assertNotIn(TOKEN, said)
                self.assertIn(code, (0, 3, 4))
                may = not away and origin(self.environment["HF_ENDPOINT"] + first, location) == hub
                for where, path, token in followed:
                    self.assertTrue(token is None or (where == "hub" and may), f"the token is seen at {where}")
                if must == "token":
                    self.assertTrue(may and followed and all(token for *_, token in followed))
                elif must == "bare":
                    self.assertTrue(code == 0 and followed and not any(token for *_, token in followed))
                elif must == "refused":
                    self.assertFalse(followed)
                    self.assertEqual(code, 3)
                    self.assertIn("refused", said)
        for number, where, path, token in self.world.seen:              # also where no number says whose it is
            self.assertTrue(token is None or where == "hub", f"{path}: the token is seen at {where}")
        print(f"{len(rows)} hostile redirects in {time.monotonic() - start:.1f} s")

    def tree(self, folder):
        return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}

    def test_a_list_and_what_it_names_write_only_what_a_model_has(self):
        start, numbers = time.monotonic(), [self.world.add(**case) for _, case, _ in LISTS]
        def run(number):
            out = self.dir / f"list-{number}/out"
            for name, data in MINE.items():
                (out / name).parent.mkdir(parents=True, exist_ok=True)
                (out / name).write_bytes(data)
            return self.pull(number, "--output", str(out), *self.world.cases[number].get("args", []))
        for (name, case, words), number, (code, said) in zip(LISTS, numbers, self.all(run, numbers)):
            with self.subTest(name, code=code, said=said):
                left = self.tree(self.dir / f"list-{number}")
                mine = {f"out/{n}": data for n, data in MINE.items()}
                self.assertEqual({n: left.get(n) for n in mine}, mine)
                self.assertLessEqual({n[4:] if n.startswith("out/") else n for n in left} - set(MINE), WRITTEN)
                self.assertFalse([n for n in left if n.endswith(WEIGHTS) and n[-len(WEIGHTS) - 1] == "/" and left[n] != DATA])
                if words is None:
                    self.assertEqual(code, 0)
                else:
                    self.assertIn(code, (2, 3, 4, 7))
                    self.assertIn(words, said)
        print(f"{len(LISTS)} hostile lists, indices, sizes and checksums in {time.monotonic() - start:.1f} s")

    def test_there_are_at_least_60_cases(self):
        self.assertGreaterEqual(len(REDIRECTS) + len(BOUNCES) + len(LISTS), 60)
        self.assertEqual(len({text for text, _ in REDIRECTS}), len(REDIRECTS))
        print(f"{len(REDIRECTS) + len(BOUNCES) + len(LISTS)} cases")


if __name__ == "__main__":
    main(Hostile, Hostile)
