#!/usr/bin/env python3
"""Reads the sources and fails where the architecture is broken.

    layers.py [ROOT]        checks every source below ROOT (the working directory)
    layers.py --self-test   shows on bad lines that each rule can fail, and on good ones that it need not

RULES says what is checked. Tests may include anything; they are only to be short, and done.
"""
import pathlib
import re
import sys

# What each folder may include: itself and those before it that it is built on.
MAY = {
    "base": "",
    "config": "base",
    "hub": "base",
    "format": "base",
    "text": "base format",
    "device": "base",
    "dist": "base device",
    "data": "base format text",
    "tensor": "base device",
    "ops": "base format device tensor ops/losses ops/weights",
    **{f"ops/{inner}": "base format device tensor ops" for inner in ("attention", "delta", "experts", "losses", "optimizers", "weights")},
    "models": "base text format device tensor ops",
    "run": "base text format device data tensor ops models",
    "export": "base text format device data tensor ops models run",
    "job": "base config text format device dist data tensor ops models run",
    "state": "base config format device dist data tensor ops models run job",
    "train": "base config text format device dist data tensor ops models run job state",
    "perf": "base config device dist data tensor ops models run job state train",
    "commands": "base config text format device dist data tensor ops models run export job state train perf hub",
    "api": "base config text format device dist data tensor ops models run export job state train perf hub commands hone.h",
    "cli/view": "base hone.h",                              # the program is a user of the public header
    "cli/report": "base config hone.h cli/view",
    "cli": "base config hone.h cli/view",
    "cli/commands": "base config hone.h cli cli/view cli/report",
    "include": "",
}
MAY = {folder: {folder, *others.split()} for folder, others in MAY.items()}


def room(path):
    """The row of MAY for a file below src: of a folder inside a folder, if it has one of its own."""
    top, *rest = path.split("/")
    inner = f"{top}/{rest[0]}" if rest else top
    return inner if inner in MAY else top


RULES = {
    "place": "a source lies in a folder that has a place here",
    "layer": "a folder of src includes only itself and folders to its left",
    "path": "an include names the folder too",
    "door": "a folder inside a folder of src has one header for those outside, of its own name",
    "owner": "a header of the system or of a library is included in base or by the file that owns it",
    "tool": "a tool includes no part of hone: only what lies next to it, and the system's headers",
    "example": "an example includes hone.h and the standard headers",
    "end": "the library never ends the process",
    "print": "the library prints nothing",
    "out": "what the program prints leaves through cli/view/out.h, which makes a stranger's text harmless; hone's own codes go by few files",
    "page": "what stands in a page comes by cli/report/page.h, which escapes every text",
    "open": "files are opened only in base and cli",
    "thread": "threads belong to base/parallel.c, the one that waits for signals to cli/signals.c, that of ranks to dist/watch.c, oneDNN's to device/gemm_onednn.c",
    "name": "a file's name occurs once in src, and a function's too unless all of that name stand in rows of tables",
    "long": "a file has one concept and stays short",
    "undone": "nothing is left undone",
}

STANDARD = {name + ".h" for name in """ctype errno float inttypes limits math stdalign stdarg stdatomic stdbool stddef stdint
    stdio stdlib string""".split()}

# Outside base, a header of the system or of a library is one file's business.
# Each has one owner, or one for each of its uses.
OWNERS = {
    "yaml.h": ["config/yaml_reader.h"],
    "fnmatch.h": ["hub/listing.c"],
    "pcre2.h": ["text/tokenizer/regex.c"],
    "utf8proc.h": ["text/tokenizer/normalize.c", "text/unicode.c"],
    "dnnl.h": ["device/gemm_onednn.c"],
    "sys/mman.h": ["device/cpu.c"],
    "sys/ioctl.h": ["cli/view/terminal.c"],
    "unistd.h": ["device/cpu.c", "cli/view/terminal.c", "cli/signals.c", "cli/launch.c", "cli/helper.c", "dist/rank_link.c", "dist/connection.c", "dist/place.c"],
    "signal.h": ["cli/signals.c", "cli/launch.c", "cli/helper.c"],
    "pthread.h": ["cli/signals.c", "dist/watch.c"],
    "mpi.h": ["dist/plugin/mpi_plugin.c"],
    "poll.h": ["dist/connection.c", "dist/place.c", "dist/rank_link.c", "dist/watch.c"],
    "sys/stat.h": ["cli/launch.c"],
    "sys/wait.h": ["cli/launch.c", "cli/helper.c"],
    "sys/prctl.h": ["cli/launch.c", "cli/helper.c"],
    "sys/syscall.h": ["cli/helper.c"],
    "fcntl.h": ["dist/connection.c", "cli/launch.c", "cli/helper.c"],
    "sys/socket.h": ["dist/connection.c", "dist/place.h", "cli/helper.c"],
    **{name: ["dist/connection.c"] for name in "netinet/in.h netinet/tcp.h".split()},
    **{name: ["dist/place.c"] for name in "arpa/inet.h ifaddrs.h netdb.h sys/un.h".split()},
    "immintrin.h": ["device/transpose.h", "device/gemm_amx.c", "device/gemm_amx_few.c", "device/gemm_avx2.c", "device/gemm_avx512.c", "ops/attention/attention_bf16.c", "ops/weights/weight_bf16.c"],
}

LINES_MAX = 600
SUFFIXES = (".c", ".h", ".def", ".kl", ".inc")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.M)
DIRECTIVE = re.compile(r"^\s*(#|%:|\?\?=)\s*(include|import)", re.M)         # in any form
ENDS = re.compile(r"(?<!\w)(exit|_exit|_Exit|quick_exit|abort|assert|raise|__builtin_trap)\s*\(")
PRINTS = re.compile(r"(?<!\w)(v?f?printf|v?dprintf|f?puts|f?putc|putchar|perror)\s*\(|\b(?:stdout|stderr)\b")
# What writes past cli/view/out.h's cleaning, and the files of cli that may: they print what is hone's own, or was cleaned.
OUTS = [(re.compile(r"(?<!\w)(v?f?printf|v?dprintf|f?puts|f?putc|putchar|perror|fwrite|write|writev|psignal|psiginfo)\s*\("),
         ("cli/view/out.c", "cli/signals.c", "cli/launch.c", "cli/helper.c")),
        (re.compile(r"(?<!\w)(out_raw|out_paint)\s*\("), ("cli/view/out.c", "cli/view/out.h", "cli/view/progress.c", "cli/commands/cli_inspect_data.c"))]
PAGES = re.compile(r"(?<!\w)(buffer_format|buffer_append)\s*\(\s*&?page\b")
OPENS = re.compile(r"(?<!\w)(fopen|freopen|tmpfile)\s*\(")
# What makes threads or settles their number, and the one file that may.
THREADS = [(re.compile(r"#\s*pragma\s+omp|(?<!\w)(GOMP_|pthread_create|thrd_create)"),
            ("base/thread.c", "cli/signals.c")),
           (re.compile(r"(?<!\w)omp_"), ("device/gemm_onednn.c",))]
PRAGMA = re.compile(r'(?<!\w)_Pragma\s*\(\s*"\s*omp')
UNDONE = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
# Comments become blanks and texts empty, lines stay where they are.
NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def plain(text):
    return NOISE.sub(lambda m: "\n" * m[0].count("\n") + ('""' if m[0][0] in "\"'" else " "), text)


FUNCTION = re.compile(r"^(?:static |const |inline |_Thread_local )*(?:enum |struct |union |unsigned |signed )?\w+[ \w*]*?[ *](\w+)"
                      r"\((?:[^;{}]|\n)*?\)\n\{", re.M)


def uncommented(text):
    return NOISE.sub(lambda m: m[0] if m[0][0] in "\"'" else "\n" * m[0].count("\n") + " ", text)


def check_include(path, bracket, name):
    """(rule, complaint) about one include of a file, or None."""
    top, *parts = path.split("/")
    folder = "include" if top == "include" else room("/".join(parts))
    quoted = bracket == '"'
    own = name.split("/")[0] in MAY
    if top == "tools":
        return ("tool", f'a tool must not include "{name}"') if own or (quoted and "/" in name) else None
    if top == "examples":
        allowed = not quoted and name in STANDARD | {"hone.h"}
        return None if allowed else ("example", f'an example uses only hone.h, not "{name}"')
    if not quoted and (own or name == "hone.h"):
        return "path", f'<{name}>: a header of hone stands in quotes'
    if quoted and not name.endswith(SUFFIXES):
        return "path", f'"{name}": a source ends in {" ".join(SUFFIXES)}'
    if not quoted:
        owners = OWNERS.get(name, [])
        if name in STANDARD or folder == "base" or "/".join(parts) in owners:
            return None
        return "owner", f"<{name}> belongs to {' and '.join('src/' + o for o in owners) or 'base, or to an owner in tests/layers.py'}"
    if "/" not in name and name != "hone.h":
        return "path", f'"{name}": write the folder too, as in "base/file.h"'
    inside = name.split("/")[0] == folder.split("/")[0]             # who may include a folder may include the folders inside it
    if (room(name) if inside else name.split("/")[0]) not in MAY[folder]:
        return "layer", f'{folder} must not include "{name}"'
    inner = name.rsplit("/", 1)[0]
    door = f"{inner}/{inner.split('/')[-1]}.h"
    if "/" in inner and inner not in MAY and name != door and not "/".join(parts).startswith(inner + "/"):
        return "door", f'"{name}" is only for src/{inner}: include "{door}"'
    return None


def check(path, text):
    """The (rule, complaint)s about one file; path is relative to the root ("src/base/file.c")."""
    found = []

    def complain(rule, position, what, source=text):
        found.append((rule, f"{path}:{source.count(chr(10), 0, position) + 1}: {what}"))

    for m in UNDONE.finditer(text):
        complain("undone", m.start(), f"'{m[0]}': finish it, or write an issue")
    if text.count("\n") > LINES_MAX:
        found.append(("long", f"{path}:{LINES_MAX}: {text.count(chr(10))} lines, more than {LINES_MAX}: split it by concept"))

    parts = path.split("/")
    folder = "include" if parts[0] == "include" else parts[1]
    if parts[0] not in ("src", "include", "tests", "bench", "tools", "examples") or (parts[0] == "src" and folder not in MAY):
        complain("place", 0, f"folder '{folder if parts[0] == 'src' else parts[0]}' has no place among the layers")
        return found
    if parts[0] in ("tests", "bench") or path.endswith(".kl"):
        return found

    code = uncommented(text)
    includes = list(INCLUDE.finditer(code))
    for m in includes:
        wrong = check_include(path, m[1], m[2])
        if wrong:
            complain(wrong[0], m.start(), wrong[1], code)
    if len(DIRECTIVE.findall(code.replace("\\\n", ""))) != len(includes):
        complain("path", 0, 'an include has another form than #include "folder/file.h" or #include <file.h>')
    if parts[0] in ("tools", "examples"):
        return found

    for m in PRAGMA.finditer(code):
        complain("thread", m.start(), "threads belong to base/parallel.c", code)
    code = plain(text)
    if folder != "cli":
        for m in ENDS.finditer(code):
            complain("end", m.start(), f"{m[1]}(): the library returns a status instead", code)
        for m in PRINTS.finditer(code):
            complain("print", m.start(), f"{m[0].strip(' (')}: the library prints nothing: log_message, or a buffer", code)
    for pattern, owners in OUTS if folder == "cli" else ():
        for m in pattern.finditer(code) if "/".join(parts[1:]) not in owners else ():
            complain("out", m.start(), f"{m[1]}(): print by out_print, out_error or progress_say, for which every value is a stranger's", code)
    for m in PAGES.finditer(code) if folder == "cli" and parts[1:] != ["cli", "report", "page.c"] else ():
        complain("page", m.start(), f"{m[1]}(): write to a page by page_format or page_put, which escape what a stranger wrote", code)
    if folder not in ("base", "cli"):
        for m in OPENS.finditer(code):
            complain("open", m.start(), f"{m[1]}(): files are read and written by base/file.h", code)
    for pattern, owners in THREADS:
        for m in pattern.finditer(code) if "/".join(parts[1:]) not in owners else ():
            complain("thread", m.start(), f"{m[0]} belongs to {' and '.join(owners)}", code)
    return found


def check_names(sources):
    """The complaints about names that occur twice, of {path: text} of src."""
    found, files, functions = [], {}, {}
    for path, text in sources.items():
        name = path.rsplit("/", 1)[-1]
        if name in files:
            found.append(("name", f"{path}:1: {files[name]} has this name too: a search for it ends at two places"))
        files.setdefault(name, path)
        if name.endswith(".c"):
            for function in {m[1] for m in FUNCTION.finditer(text)}:
                row = path.startswith("src/ops/") or re.search(rf"\.\w+\s*=\s*&?{function}\b(?!\()", text)
                functions.setdefault(function, []).append((path, bool(row)))
    for function, places in functions.items():
        if len(places) > 1 and not all(row for _, row in places):
            found.append(("name", f"{places[1][0]}:1: {function}() is defined in {places[0][0]} too: name one for what it is of"))
    return found


# By the rule that each breaks.
BAD = {
    "place": [
        ("src/utils/a.c", ""),
        ("extras/a.c", ""),
    ],
    "layer": [
        ("src/base/a.c", '#include "config/options.h"'),
        ("src/data/a.c", '#include "ops/op.h"'),
        ("src/ops/attention/a.c", '#include "ops/experts/expert_slots.h"'),
        ("src/cli/view/a.c", '#include "cli/report/page.h"'),
        ("src/text/a.c", '\n\n  #  include   "device/device.h"'),
        ("src/text/chat/a.c", '#include "data/row.h"'),
        ("src/device/a.h", '#include "tensor/value.h"'),
        ("src/ops/a.c", '#include "models/family.h"'),
        ("src/ops/ops.def", '#include "train/trainer.h"'),
        ("src/data/a.c", '#include "tensor/program.h"'),
        ("src/tensor/a.c", '#include "data/data.h"'),
        ("src/run/a.c", '#include "config/options.h"'),
        ("src/train/a.c", '#include "hone.h"'),
        ("src/cli/a.c", '#include "train/trainer.h"'),
        ("include/hone.h", '#include "base/status.h"'),
    ],
    "path": [
        ("src/base/a.c", '#include "file.h"'),
        ("src/text/jinja/a.c", '#include "value.h"'),
        ("src/base/a.c", "#include <config/options.h>"),
        ("src/base/a.c", '#include "base/options.txt"'),
        ("src/base/a.c", '#define OTHER "config/options.h"\n#include OTHER'),
        ("src/base/a.c", '#inc\\\nlude "config/options.h"'),
        ("src/base/a.c", '%:include "config/options.h"'),
        ("src/base/a.c", '#include_next "config/options.h"'),
    ],
    "door": [
        ("src/text/chat/a.c", '#include "text/jinja/run.h"'),
        ("src/text/unicode.c", '#include "text/tokenizer/regex.h"'),
        ("src/data/a.c", '#include "text/chat/chat_inside.h"'),
        ("src/models/a.c", '#include "text/tokenizer/pre.def"'),
    ],
    "owner": [
        ("src/text/a.c", "#include <jansson.h>"),
        ("src/config/options.c", "#include <yaml.h>"),
        ("src/format/a.c", "#include <sys/stat.h>"),
        ("src/train/a.c", "#include <omp.h>"),
        ("src/tensor/a.c", "#include <assert.h>"),
        ("include/hone.h", "#include <unistd.h>"),
    ],
    "tool": [
        ("tools/cudasim/a.c", '#include "device/cuda.h"'),
        ("tools/cudasim/a.c", '#include "../../src/base/file.h"'),
        ("tools/cudasim/a.c", "#include <base/file.h>"),
    ],
    "example": [
        ("examples/a.c", '#include "base/file.h"'),
        ("examples/a.c", "#include <jansson.h>"),
    ],
    "end": [
        ("src/text/a.c", "void f(void) { exit(1); }"),
        ("src/base/a.c", "void f(void) { abort (); }"),
        ("src/ops/a.c", "void f(void) { assert(0); }"),
        ("src/ops/a.c", "void f(void) { raise(6); }"),
    ],
    "print": [
        ("src/api/a.c", 'void f(void) { printf("x"); }'),
        ("src/api/a.c", 'void f(void) { fprintf(stderr, "x"); }'),
        ("src/api/a.c", "void f(void) { fwrite(text, 1, size, stdout); }"),
        ("src/api/a.c", 'char c = \'"\'; void f(void) { puts("x"); }'),
    ],
    "out": [
        ("src/cli/a.c", 'void f(void) { printf("%s", name); }'),
        ("src/cli/a.c", 'void f(void) { fprintf(stderr, "%s", name); }'),
        ("src/cli/a.c", "void f(void) { puts(name); }"),
        ("src/cli/a.c", "void f(void) { fwrite(name, 1, n, stdout); }"),
        ("src/cli/a.c", "void f(void) { write(1, name, n); }"),
        ("src/cli/a.c", "void f(void) { out_raw(stdout, name, n); }"),
        ("src/cli/view/progress.c", "void f(void) { fputs(name, stderr); }"),
    ],
    "page": [
        ("src/cli/a.c", 'enum status f(struct buffer *page) { return buffer_format(page, "<b>%s</b>", name); }'),
        ("src/cli/report/report_page.c", "enum status f(struct buffer *page) { return buffer_append( page, name, 3); }"),
    ],
    "open": [
        ("src/text/a.c", 'FILE *f = fopen("x", "r");'),
    ],
    "thread": [
        ("src/ops/a.c", "#pragma omp parallel for"),
        ("src/base/parallel.c", "int n = omp_get_max_threads();"),
        ("src/device/gemm_onednn.c", "void f(void) { pthread_create(&t, 0, g, 0); }"),
        ("src/ops/a.c", '_Pragma("omp parallel for")'),
    ],
    "long": [
        ("src/base/a.c", "int x;\n" * (LINES_MAX + 1)),
        ("tools/cudasim/a.c", "int x;\n" * (LINES_MAX + 1)),
    ],
    "undone": [
        ("src/base/a.c", "/* TO" "DO */"),
        ("tests/unit/test_a.c", "int x; // FIX" "ME later"),
    ],
}

GOOD = [
    ("src/base/a.c", '#include <sys/mman.h>\n#include "base/status.h"'),
    ("src/config/yaml_reader.h", '#include <yaml.h>\n#include <stdio.h>\n#include "base/file.h"'),
    ("src/train/a.c", '#include "models/family.h"\n#include "text/chat/chat.h"'),
    ("src/text/chat/a.c", '#include "text/chat/chat_inside.h"\n#include "text/jinja/jinja.h"\n#include "text/unicode.h"'),
    ("src/api/a.c", '#include "hone.h"\n#include "train/trainer.h"\n#include "config/options.h"'),
    ("src/cli/a.c", '#include "hone.h"\nint main(void) { out_print("%s", x); exit(1); }'),
    ("src/cli/view/out.c", "void f(void) { fwrite(text, 1, n, to); }"),
    ("src/cli/a.c", 'int n = snprintf(b, 3, "x"); report_page_write(x); void g(const char *f, ...) __attribute__((format(printf, 1, 2)));'),
    ("src/text/a.c", '/* #include "train/x.h", exit(1) */\n// abort()\nchar *s = "printf(1)"; // "'),
    ("src/text/a.c", '_Static_assert(1, ""); int n = snprintf(b, 3, "x"); on_exit_code(3); __attribute__((format(printf, 1, 2)))'),
    ("src/base/thread.c", "#include <pthread.h>\nvoid f(void) { pthread_create(&t, 0, g, 0); }"),
    ("src/device/gemm_onednn.c", "void f(void) { omp_set_num_threads(1); }"),
    ("src/ops/a.kl", '#include "dialect.h"'),
    ("tests/unit/test_a.c", '#include <unistd.h>\n#include "text/jinja/run.h"\nchar path[] = "/tmp/XXXXXX"; void f(void) { exit(1); }'),
    ("tools/cudasim/a.c", '#include "ptx.h"\n#include <pthread.h>\nvoid f(void) { abort(); }'),
    ("examples/a.c", "#include <stdio.h>\n#include <hone.h>\nint main(void) { exit(1); }"),
]


def self_test():
    wrong = [f"rule '{rule}' has no bad source, or none has it" for rule in RULES.keys() ^ (BAD.keys() | {"name"})]
    for rule, cases in BAD.items():
        for path, text in cases:
            found = {r for r, _ in check(path, text)}
            if found != {rule}:
                wrong.append(f"{path}: {text[:60]!r} breaks '{rule}', found: {', '.join(found) or 'nothing'}")
    wrong += [f"wrongly found: {c}" for path, text in GOOD for _, c in check(path, text)]
    one, row = "static int find(int x)\n{\n}\n", "static int find(int x)\n{\n}\nstruct t t = {.find = find};\n"
    for sources, count in (({"src/base/a.c": one, "src/text/a.c": ""}, 1), ({"src/base/a.h": "", "src/text/a.h": ""}, 1),
                           ({"src/base/a.c": one, "src/text/b.c": one}, 1), ({"src/base/a.c": one, "src/text/b.c": row}, 1),
                           ({"src/base/a.c": row, "src/text/b.c": row}, 0)):
        if len(check_names(sources)) != count:
            wrong.append(f"names of {sources}: {check_names(sources)}")
    if not check("src/text/a.c", 'int x;\n/* a\n b */\n#include "ops/x.h"')[0][1].startswith("src/text/a.c:4: "):
        wrong.append("the line of a complaint is wrong")
    return wrong, f"{len(RULES)} rules, {sum(map(len, BAD.values()))} bad and {len(GOOD)} good sources"


def check_tree(root):
    tops = [p for p in sorted(root.iterdir()) if p.is_dir() and p.name != "build" and not p.name.startswith(".")]
    files = [p for top in tops for p in sorted(top.rglob("*")) if p.suffix in SUFFIXES and p.is_file()]
    texts = {p.relative_to(root).as_posix(): p.read_text(encoding="utf-8") for p in files}
    wrong = [c for path, text in texts.items() for _, c in check(path, text)]
    wrong += [c for _, c in check_names({path: text for path, text in texts.items() if path.startswith("src/")})]
    if not files:
        wrong = [f"{root}: no sources here"]
    return wrong, f"{len(files)} files"


def main(arguments):
    wrong, what = self_test() if arguments == ["--self-test"] else check_tree(pathlib.Path(arguments[0] if arguments else "."))
    for line in wrong:
        print(line)
    print(f"layers: {what}, {len(wrong)} complaints")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
