"""What the end-to-end tests share: SCRIPT HONE ASSETS DATA [--large] [-k PATTERN], a folder for each test, and the program run in it."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HONE, ASSETS, DATA = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
SANITIZED = bool(re.search(rb"__[at]san_init", pathlib.Path(HONE).read_bytes()))    # slower, and it takes terabytes of addresses
TINY, SMOL = ASSETS / "models/tiny-llama", ASSETS / "models/smollm2"
CHAT = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello there."}]}


def run(*args, **options):
    return subprocess.run([HONE, *map(str, args)], capture_output=True, text=True, timeout=600, **options)


def tensors(file):
    """{name: (type, shape, bytes)} of a safetensors file."""
    content = file.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], content[begin + t["data_offsets"][0]:begin + t["data_offsets"][1]]) for name, t in header.items()}


def forge_checksums(*folders):
    """Writes lists of checksums that are right for whatever is in these checkpoints now."""
    script = "import pathlib, sys, xxhash\nfor d in map(pathlib.Path, sys.argv[1:]):\n  (d / 'checksums.xxh128').write_text(''.join(" \
             "f'{xxhash.xxh3_128_hexdigest(f.read_bytes())}  {f.name}\\n' for f in sorted(d.iterdir()) if f.name != 'checksums.xxh128'))"
    subprocess.run([ASSETS / "venv/bin/python", "-c", script, *folders], check=True)


def read_terminal(master):
    """The bytes that came to a terminal, until its other side is closed. Closes it too."""
    seen = b""
    try:
        while piece := os.read(master, 4096):
            seen += piece
    except OSError:                                     # how Linux says that nobody writes any more
        pass
    os.close(master)
    return seen


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.dir = pathlib.Path(self.folder.name)
        os.environ["XDG_CACHE_HOME"] = str(self.dir / "cache")

    def tearDown(self):
        self.folder.cleanup()

    def write(self, name, *rows):
        path = self.dir / name
        path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))
        return path

    def ok(self, *args):
        result = run(*args)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def fails(self, code, *args, says=()):
        result = run(*args)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        lines = [line for line in result.stderr.splitlines(True)        # except what a run prints at its start
                 if not line.startswith("device ") and " kernels ready in " not in line and ", which was given before" not in line]
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertTrue(lines[0].startswith("hone: ") and lines[0].endswith("\n"), result.stderr)
        for text in says:
            self.assertIn(text, lines[0])
        return lines[0]


def main(tiny, large):
    loader = unittest.defaultTestLoader
    if "-k" in sys.argv:                                # tests whose names have this in them
        loader.testNamePatterns = [f"*{sys.argv[sys.argv.index('-k') + 1]}*"]
    suite = loader.loadTestsFromTestCase(large if "--large" in sys.argv else tiny)
    assert suite.countTestCases(), "no test has such a name"
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())
