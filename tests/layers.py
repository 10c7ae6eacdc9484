#!/usr/bin/env python3
"""Reads the sources and fails where the architecture is broken.

    layers.py [ROOT]        checks src, include and tests below ROOT (the working directory)
    layers.py --self-test   shows on bad lines that each rule can fail

The rules: a folder includes only folders to its left; system and foreign headers appear in base and in the one file that owns
them; the library neither exits, aborts nor prints; threads belong to base/parallel.c; files stay short; nothing is left undone.
"""
import pathlib
import re
import sys

# What each folder may include: itself and those before it that it is built on.
MAY = {
    "base": "",
    "config": "base",
    "text": "base",
    "format": "base",
    "device": "base",
    "data": "base text",
    "tensor": "base device",
    "ops": "base format device tensor",
    "models": "base text format device tensor ops",
    "run": "base text format device data tensor ops models",
    "train": "base config text format device data tensor ops models run",
    "api": "base config text format device data tensor ops models run train hone.h",
    "cli": "base config hone.h",                            # the program is a user of the public header
    "include": "",
}
MAY = {folder: {folder, *others.split()} for folder, others in MAY.items()}

STANDARD = {name + ".h" for name in """ctype errno float inttypes limits math stdalign stdarg stdatomic stdbool stddef stdint
    stdio stdlib string""".split()}

# Outside base, a header of the system or of a library is one file's business.
# Each has one owner, or one for each of its uses.
OWNERS = {
    "yaml.h": ["config/yaml.c"],
    "pcre2.h": ["text/tokenizer/regex.c"],
    "utf8proc.h": ["text/tokenizer/normalize.c", "text/unicode.c"],
    "dnnl.h": ["device/gemm_onednn.c"],
    "sys/mman.h": ["device/cpu.c"],
    "unistd.h": ["device/cpu.c", "cli/terminal.c"],
    "signal.h": ["cli/terminal.c"],
}

LINES_MOST = 600
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.M)
ENDS = re.compile(r"(?<!\w)(exit|_exit|_Exit|quick_exit|abort|assert)\s*\(")
PRINTS = re.compile(r"(?<!\w)(v?f?printf|v?dprintf|f?puts|f?putc|putchar|perror)\s*\(")
OPENS = re.compile(r"(?<!\w)(fopen|freopen|tmpfile)\s*\(")
THREADS = re.compile(r"#\s*pragma\s+omp|(?<!\w)(omp_|GOMP_|pthread_create|thrd_create)")
UNDONE = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
# Comments become blanks and texts empty, lines stay where they are.
NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def plain(text):
    return NOISE.sub(lambda m: "\n" * m[0].count("\n") + ('""' if m[0][0] in "\"'" else " "), text)


def uncommented(text):
    return NOISE.sub(lambda m: m[0] if m[0][0] in "\"'" else "\n" * m[0].count("\n") + " ", text)


def check(path, text):
    """The complaints about one file; path is relative to the root ("src/base/file.c")."""
    found = []

    def complain(position, what, source=text):
        found.append(f"{path}:{source.count(chr(10), 0, position) + 1}: {what}")

    for m in UNDONE.finditer(text):
        complain(m.start(), f"'{m[0]}': finish it, or write an issue")
    if text.count("\n") > LINES_MOST:
        found.append(f"{path}:{LINES_MOST}: {text.count(chr(10))} lines, more than {LINES_MOST}: split it by concept")

    parts = path.split("/")
    if parts[0] == "tests" or path.endswith(".kl"):
        return found
    folder = "include" if parts[0] == "include" else parts[1]
    inside = "/".join(parts[1:])
    if folder not in MAY:
        return found + [f"{path}:1: folder '{folder}' has no place among the layers"]

    code = uncommented(text)
    for m in INCLUDE.finditer(code):
        name = m[2]
        if m[1] == '"':
            target = name.split("/")[0]
            if "/" not in name and name != "hone.h":
                complain(m.start(), f'"{name}": write the folder too, as in "base/file.h"', code)
            elif target not in MAY[folder]:
                complain(m.start(), f'{folder} must not include "{name}"', code)
        elif name not in STANDARD and folder != "base" and inside not in OWNERS.get(name, []):
            owner = " and ".join(OWNERS.get(name, []))
            complain(m.start(), f"<{name}> belongs to {'src/' + owner if owner else 'base, or to an owner in tests/layers.py'}", code)

    code = plain(text)
    if folder != "cli":
        for m in ENDS.finditer(code):
            complain(m.start(), f"{m[1]}(): the library returns a status instead", code)
        for m in PRINTS.finditer(code):
            complain(m.start(), f"{m[1]}(): the library prints nothing: log_message, or a buffer", code)
    if folder not in ("base", "cli"):
        for m in OPENS.finditer(code):
            complain(m.start(), f"{m[1]}(): files are read and written by base/file.h", code)
    if inside != "base/parallel.c":
        for m in THREADS.finditer(code):
            complain(m.start(), "threads belong to base/parallel.c", code)
    return found


def self_test():
    bad = [
        ("src/base/a.c", '#include "config/options.h"'),
        ("src/text/a.c", '#include "format/gguf.h"'),
        ("src/text/a.c", '\n\n  #  include   "device/device.h"'),
        ("src/device/a.h", '#include "tensor/value.h"'),
        ("src/ops/a.c", '#include "models/family.h"'),
        ("src/ops/ops.def", '#include "train/trainer.h"'),
        ("src/data/a.c", '#include "tensor/program.h"'),
        ("src/tensor/a.c", '#include "data/data.h"'),
        ("src/run/a.c", '#include "config/options.h"'),
        ("src/train/a.c", '#include "hone.h"'),
        ("src/cli/a.c", '#include "train/trainer.h"'),
        ("src/base/a.c", '#include "file.h"'),
        ("src/utils/a.c", ""),
        ("include/hone.h", '#include "base/status.h"'),
        ("src/text/a.c", "#include <jansson.h>"),
        ("src/config/options.c", "#include <yaml.h>"),
        ("src/format/a.c", "#include <sys/stat.h>"),
        ("src/train/a.c", "#include <omp.h>"),
        ("src/tensor/a.c", "#include <assert.h>"),
        ("include/hone.h", "#include <unistd.h>"),
        ("src/text/a.c", "void f(void) { exit(1); }"),
        ("src/base/a.c", "void f(void) { abort (); }"),
        ("src/ops/a.c", "void f(void) { assert(0); }"),
        ("src/api/a.c", 'void f(void) { printf("x"); }'),
        ("src/api/a.c", 'void f(void) { fprintf(stderr, "x"); }'),
        ("src/api/a.c", 'char c = \'"\'; void f(void) { puts("x"); }'),
        ("src/text/a.c", 'FILE *f = fopen("x", "r");'),
        ("src/ops/a.c", "#pragma omp parallel for"),
        ("src/base/a.c", "int n = omp_get_max_threads();"),
        ("src/base/a.c", "int x;\n" * (LINES_MOST + 1)),
        ("src/base/a.c", "/* TO" "DO */"),
        ("tests/unit/test_a.c", "int x; // FIX" "ME later"),
    ]
    good = [
        ("src/base/a.c", '#include <sys/mman.h>\n#include "base/status.h"'),
        ("src/config/yaml.c", '#include <yaml.h>\n#include <stdio.h>\n#include "base/file.h"'),
        ("src/train/a.c", '#include "models/family.h"\n#include "text/chat/chat.h"'),
        ("src/api/a.c", '#include "hone.h"\n#include "train/trainer.h"\n#include "config/options.h"'),
        ("src/cli/a.c", '#include "hone.h"\nint main(void) { printf("x"); exit(1); }'),
        ("src/text/a.c", '/* #include "train/x.h", exit(1) */\n// abort()\nchar *s = "printf(1)"; // "'),
        ("src/text/a.c", '_Static_assert(1, ""); int n = snprintf(b, 3, "x"); on_exit_code(3); __attribute__((format(printf, 1, 2)))'),
        ("src/base/parallel.c", "void GOMP_parallel(void);\n#pragma omp parallel"),
        ("src/ops/a.kl", '#include "dialect.h"'),
        ("tests/unit/test_a.c", '#include <unistd.h>\nchar path[] = "/tmp/XXXXXX"; void f(void) { exit(1); }'),
    ]
    wrong = [f"not found: {path}: {text[:60]!r}" for path, text in bad if not check(path, text)]
    wrong += [f"wrongly found: {c}" for path, text in good for c in check(path, text)]
    assert check("src/text/a.c", 'int x;\n/* a\n b */\n#include "ops/x.h"')[0].startswith("src/text/a.c:4: ")
    return wrong, f"{len(bad)} bad and {len(good)} good sources"


def check_tree(root):
    files = [p for top in ("src", "include", "tests") for p in sorted((root / top).rglob("*"))
             if p.suffix in (".c", ".h", ".def", ".kl", ".inc") and p.is_file()]
    wrong = [c for p in files for c in check(p.relative_to(root).as_posix(), p.read_text(encoding="utf-8"))]
    if not files:
        wrong = [f"{root}: no sources here"]
    return wrong, f"{len(files)} files"


def main(arguments):
    wrong, what = self_test() if arguments == ["--self-test"] else check_tree(pathlib.Path(arguments[0] if arguments else "."))
    for line in wrong:
        print(line)
    print(f"layers: {what}, {len(wrong)} complaints")
    return 1 if wrong else 0


sys.exit(main(sys.argv[1:]))
