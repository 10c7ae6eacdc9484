#!/usr/bin/env python3
"""Every message that docs/troubleshooting.md quotes is one of hone's: its fixed words stand in one string of src.

    messages.py [ROOT]         checks the page below ROOT (the working directory)
    messages.py --self-test    shows that each rule can fail

A message is the first cell of a table's row, as `code`, with … for what differs from one time to the next. The strings of the
sources are joined as C joins them, and what printf would fill in becomes … too. A changed message so breaks the page.
"""
import pathlib
import re
import sys

PAGE = "docs/troubleshooting.md"
COUNT_MIN = 60
WORDS_MIN = 3
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
COMMENT = re.compile(r'("(?:[^"\\\n]|\\.)*")|/\*.*?\*/', re.S)
SPEC = re.compile(r"(?:%[-0-9.*]*(?:ll|l|z|h)?[sdiucxgf])+")
NAME = re.compile(r"[A-Z_]+")       # a macro between two strings, which is one too


def strings(text):
    """The strings of a C file, neighbours joined, with … for what printf fills in."""
    text = COMMENT.sub(lambda m: m[1] or " ", text)
    pieces, end = [], None
    for m in STRING.finditer(text):
        between = text[end:m.start()].strip() if end is not None else None
        joined = between == "" or (between and NAME.fullmatch(between))
        if joined:
            pieces[-1] += ("…" if between else "") + m[1]
        else:
            pieces.append(m[1])
        end = m.end()
    for piece in pieces:
        plain = piece.replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")
        yield SPEC.sub("…", plain).replace("%%", "%")


def quotes(page):
    """(line, message, the rest of its row's cells) of each row of the page's tables."""
    for number, line in enumerate(page.splitlines(), 1):
        if line.startswith("| `"):
            cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            yield number, cells[0].strip("`"), cells[1:]


def check(page, known, count_min):
    found, seen = [], set()
    for number, message, cells in quotes(page):
        fixed = message.strip("… ")
        if len(re.findall(r"\w+", fixed)) < WORDS_MIN:
            found.append(f"{PAGE}:{number}: too few words to tell it by: {message}")
        elif not any(fixed in text for text in known):
            found.append(f"{PAGE}:{number}: no string of src has these words: {message}")
        if len(cells) != 2 or not all(cells):
            found.append(f"{PAGE}:{number}: a message has a cause and a remedy, in two more columns: {message}")
        if fixed in seen:
            found.append(f"{PAGE}:{number}: there twice: {message}")
        seen.add(fixed)
    if len(seen) < count_min:
        found.append(f"{PAGE}: {len(seen)} messages, at least {count_min} should be there")
    return found, len(seen)


def self_test():
    source = r'''/* "a comment is no message" */ fail(E, "%s: tensor %s " /* why */ "ends \"beyond\" the %.2f%% file%s%s");
                 fail(E, "there is no " PLACE_FILE " in it"); char *s = "it's /* no comment */ here";'''
    known = list(strings(source))
    good = ['…: tensor … ends "beyond" the …% file…', "there is no … in it", 'tensor … ends "beyond"', "it's /* no comment */ here"]
    bad = ["a comment is no message", "tensor x ends beyond", "tensor …", "the … file and more"]
    row = "| `{}` | why | what |".format
    wrong = [f"found: {text}" for text in good if check(row(text), known, 1)[0]]
    wrong += [f"not found: {text}" for text in bad if not check(row(text), known, 1)[0]]
    for page, least in ((row(good[0]), 2), ("| `there is no … in it` | why |", 1), (row(good[1]) + "\n" + row(good[1]), 1)):
        if not check(page, known, least)[0]:
            wrong.append(f"not found: {page}")
    return wrong


def main():
    if sys.argv[1:] == ["--self-test"]:
        found, count = self_test(), "self-test"
    else:
        root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
        known = [text for kind in ("c", "h", "def") for file in sorted(root.glob(f"src/**/*.{kind}"))
                 for text in strings(file.read_text(encoding="utf-8"))]
        found, count = check((root / PAGE).read_text(encoding="utf-8"), known, COUNT_MIN)
    print("\n".join(found) or f"messages: {count} good")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
