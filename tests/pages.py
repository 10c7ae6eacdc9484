#!/usr/bin/env python3
"""Reads the Markdown pages and fails where words, lines, links or names are not as they should be.

    pages.py [ROOT]         checks the pages below ROOT (the working directory), and the words of sources
    pages.py --self-test    shows on bad pages that each rule can fail

The rules: a line of prose has at most 100 columns (tables, code and single long words may have more); the field's own words are
used; links lead to files that exist, and so do paths in `code`; every contract test has its row in docs/contracts.md, and every
model family its row in docs/families.md.
"""
import pathlib
import re
import sys
import tokenize

COLUMNS = 100
# Only the words of these are checked: in Python those of comments and strings, elsewhere all.
SOURCES = [f"{folder}/**/*.{ending}" for ending in ("c", "h", "def", "kl", "cu", "py") for folder in
           ["src", "include", "tools/cudasim", "examples", "bench"] +
           [f"tests/{kind}" for kind in "unit oracle fuzz e2e device ops contract".split()]]
PAGES = ["*.md", ".github/**/*.md", "docs/**/*.md", "tests/**/*.md", "tools/**/*.md"]
# Made from tables elsewhere, whose lines may be long; the rest of the rules holds for them too.
GENERATED = {"docs/options.md", "docs/ops.md", "docs/kernels.md", "docs/configs.md", "docs/speed.md"}
# Of these only links and names are checked.
ROUGH = {"docs/options.md"}
# What reads as a translation, and what the field says.
WORDS = {
    r"way back": "backward pass, or gradient",
    r"way forward": "forward pass",
    r"behind": "after",
    r"whom": "which",
    r"the most tokens": "the maximum number of tokens",
    r"the least number": "the minimum",
    r"put in line|queued? up": "enqueue",
    r"in front of": "before",
    r"made[- ]up": "synthetic",
}
WORDS = [(re.compile(rf"\b(?:{phrase})\b", re.I), instead) for phrase, instead in WORDS.items()]
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`]*)`")
PATH = re.compile(r"(?:src|tests|tools|docs|include|examples|bench|cmake)/[\w./*-]+")
CONTRACTS = re.compile(r"contracts\(\s*\w+\s+([\w\s-]+)\)")
# The hone of PyPI is another project: who follows such a line runs a stranger's code.
INSTALL = re.compile(r"pip3? install (?:-\S+ )*[\"']?hone(?:\[[\w,]+\])?(?![\w-])")
FAMILY = re.compile(r"(?m)^FAMILY\((\w+)\)")


def prose(text):
    """The lines outside code blocks, with their numbers."""
    fenced = indented = False
    before = ""
    for number, line in enumerate(text.splitlines(), 1):
        indented = line.startswith("    ") and (indented or not before.strip())
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not indented:
            yield number, line
        before = line


def source(file):
    """The lines of a source that may hold words, with their numbers."""
    if file.suffix != ".py":
        yield from enumerate(file.read_text().splitlines(), 1)
        return
    with tokenize.open(file) as text:
        for token in tokenize.generate_tokens(text.readline):
            if token.type == tokenize.COMMENT or "STRING" in tokenize.tok_name[token.type]:
                yield from enumerate(token.string.splitlines(), token.start[0])


def check_words(path, number, line):
    return [f"{path}:{number}: '{m[0]}': say {instead}" for phrase, instead in WORDS for m in phrase.finditer(line)]


def check(path, text, exists):
    """The complaints about one page; exists says of a path below the root, perhaps with a *, whether there is such a file."""
    found = []
    folder = pathlib.PurePosixPath(path).parent
    found += [f"{path}: '{line}' installs another project of that name: a file of libhone" for line in INSTALL.findall(text)]
    for number, line in prose(text):
        def complain(what):
            found.append(f"{path}:{number}: {what}")
        table = line.lstrip().startswith("|")
        if len(line) > COLUMNS and not table and path not in GENERATED | ROUGH and " " in line.strip():
            complain(f"{len(line)} columns, at most {COLUMNS}")
        if path not in ROUGH:
            found += check_words(path, number, CODE.sub("", line))
        for target in LINK.findall(line):
            if not re.match(r"[a-z]+:|#", target) and not exists(str(folder / target.split("#")[0])):
                complain(f"no file {target}")
        for code in CODE.findall(line):
            if PATH.fullmatch(code) and not exists(code):
                complain(f"no file {code}")
    return found


def check_contracts(cmake, page):
    names = [name for theme in CONTRACTS.findall(cmake) for name in theme.split()]
    return [f"docs/contracts.md: no row for contract-{name}" for name in names if f"`{name}`" not in page]


def check_families(table, page):
    return [f"docs/families.md: no row for {name}" for name in FAMILY.findall(table) if f"| `{name}` |" not in page]


def check_all(root):
    def exists(path):
        return any(root.glob(path)) if "*" in path else (root / path).exists()
    pages = sorted({file for pattern in PAGES for file in root.glob(pattern)})
    found = [what for file in pages for what in check(file.relative_to(root).as_posix(), file.read_text(), exists)]
    for file in (file for pattern in SOURCES for file in root.glob(pattern)):
        for number, line in source(file):
            found += check_words(file.relative_to(root).as_posix(), number, line)
    found += check_contracts((root / "tests/CMakeLists.txt").read_text(), (root / "docs/contracts.md").read_text())
    found += check_families((root / "src/models/models.def").read_text(), (root / "docs/families.md").read_text())
    if not pages:
        found.append(f"{root}: no pages")
    return found, len(pages)


def self_test():
    files = {"docs/a.md", "src/a.c"}
    def exists(path):
        return "*" in path or str(pathlib.PurePosixPath(path)) in files
    bad = ["word " * 21, "The way back.", "What is Behind it.", "to whom", "the most tokens of a row", "it is queued up",
           "in front of it", "made-up tokens", "- a list\n    - " + "word " * 20, "[a](b.md)", "see `src/b.c`", "| a table | with `src/b.c` |",
           "| a table | of what is behind |", "```\npip install hone[cuda]\n```", "`pip install -U hone`"]
    good = ["word " * 20, "x" * 200, "| " + "word " * 40 + "|", "```\n" + "word " * 40 + "\n```",
            "    the way back\n\n    the way back", "`behind`",
            "[a](a.md#part)", "[a](https://a.b/c)", "`src/a.c`", "`src/*.c`", "`src/a.c:3` and src/b.c",
            "pip install ./libhone-0.1.whl nvidia-cuda-nvrtc"]
    wrong = [f"not found: {text}" for text in bad if not check("docs/page.md", text, exists)]
    wrong += [f"found: {text}" for text in good if check("docs/page.md", text, exists)]
    if not check_contracts("contracts(a\n    b-c d-e)", "| `b-c` |") or check_contracts("contracts(a b-c)", "| `b-c` |"):
        wrong.append("contracts")
    if not check_families("FAMILY(a)\nFAMILY(b)", "| `a` |") or check_families("FAMILY(a)", "| `a` |"):
        wrong.append("families")
    return wrong


def main():
    if sys.argv[1:] == ["--self-test"]:
        found, count = self_test(), 0
    else:
        found, count = check_all(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "."))
    print("\n".join(found) or f"pages: {count or 'self-test'} good")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
