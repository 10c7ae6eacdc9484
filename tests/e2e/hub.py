"""A Hugging Face hub on this machine, with the answers of the real one and faults on demand.

    with Hub({"config.json": b"...", "model.safetensors": b"..."}) as hub:
        hub.url                      for HF_ENDPOINT
        hub.fault = some function    called with (handler, kind, name) before an answer; True: it has answered itself
        hub.requests                 every request: (server, path, headers)

With `certificate`, a file with a key and a certificate, it is an https:// server. Large files (Git LFS) are sent on to a second server, as to the hub's CDN, at another port: another host to a client.
"""
import hashlib
import http.server
import json
import os
import random
import re
import ssl
import subprocess
import threading

from case import HONE, TINY, Case

NEEDED = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
          "chat_template.jinja", "model.safetensors")
NAME, COMMIT = "org/tiny-model", "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_secretsecretsecret"
LARGE = (".safetensors", ".gguf", ".bin")               # what lies in Git LFS


def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, code, body=b"", length=None, **headers):
        self.send_response(code)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_file(self, data, **headers):
        """All of it, or what Range asks for."""
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if not wanted:
            return self.answer(200, data, Accept_Ranges="bytes", **headers)
        begin = int(wanted[1])
        if begin >= len(data):
            return self.answer(416, Content_Range=f"bytes */{len(data)}", **headers)
        self.answer(206, data[begin:], Content_Range=f"bytes {begin}-{len(data) - 1}/{len(data)}", **headers)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub = self.server.hub
        model = re.escape(hub.name)
        path, _, query = self.path.partition("?")
        with hub.lock:
            hub.requests.append((self.server.kind, self.path, dict(self.headers)))
        if self.server.kind == "cdn":
            name, kind = path.lstrip("/"), "cdn"
        elif found := re.fullmatch(rf"/api/models/{model}/revision/([^/]+)", path):
            name, kind = found[1], "api"
        elif re.fullmatch(rf"/api/models/{model}/tree/{COMMIT}", path):       # what huggingface_hub asks for
            return self.answer(200, json.dumps(hub.tree()).encode(), Content_Type="application/json")
        elif found := re.fullmatch(rf"/{model}/resolve/([^/]+)/(.+)", path):
            name, kind = found[2], "file"
        else:
            return self.answer(401, X_Error_Code="RepoNotFound")
        if hub.fault and hub.fault(self, kind, name):
            return None
        if kind == "api":
            if name not in ("main", "v1.0", "refs%2Fpr%2F1", COMMIT):
                return self.answer(404, X_Error_Code="RevisionNotFound")
            return self.answer(200, json.dumps(hub.listing(query)).encode(), Content_Type="application/json")
        data = hub.files.get(name)
        if data is None:
            return self.answer(404, X_Error_Code="EntryNotFound")
        if kind == "cdn":
            return self.send_file(data)
        if name.endswith(LARGE):
            return self.answer(302, Location=f"{hub.cdn_url}/{name}?Signature=secret", X_Repo_Commit=COMMIT,
                               X_Linked_Size=str(len(data)), X_Linked_Etag=f'"{hashlib.sha256(data).hexdigest()}"')
        return self.send_file(data, ETag=f'"{git_hash(data)}"', X_Repo_Commit=COMMIT)


class Hub:
    def __init__(self, files, certificate=None, name=NAME):
        self.certificate, self.name = certificate, name
        self.files, self.fault, self.requests, self.lock = dict(files), None, [], threading.Lock()
        self.extra = []                                 # more entries of the list
        self.servers = []

    def listing(self, query):
        rows = []
        for name, data in self.files.items():
            row = {"rfilename": name}
            if "blobs=true" in query:
                row |= {"size": len(data), "blobId": git_hash(data)}
                if name.endswith(LARGE):
                    row["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
            rows.append(row)
        return {"id": self.name, "sha": COMMIT, "private": False, "gated": False, "tags": [], "downloads": 1, "likes": 0, "siblings": rows + self.extra}

    def tree(self):
        rows = []
        for name, data in self.files.items():
            row = {"type": "file", "path": name, "size": len(data), "oid": git_hash(data)}
            if name.endswith(LARGE):
                row["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
            rows.append(row)
        return rows

    def paths(self, kind):
        return [path for server, path, _ in self.requests if server == kind]

    def __enter__(self):
        for kind in ("hub", "cdn"):
            server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
            server.hub, server.kind, server.daemon_threads = self, kind, True
            server.block_on_close = False
            if self.certificate:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(self.certificate)
                server.handle_error = lambda *_: None   # a client that does not trust it says so and is gone
                server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            self.servers.append(server)
        scheme = "https" if self.certificate else "http"
        self.url, self.cdn_url = (f"{scheme}://127.0.0.1:{s.server_address[1]}" for s in self.servers)
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.shutdown()
            server.server_close()


class HubCase(Case):
    """A hub with one model for each test, and an empty cache."""
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
