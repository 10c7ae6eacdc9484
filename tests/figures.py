#!/usr/bin/env python3
"""What campaigns counted: tests/RESULTS.md, a table for each, which no test compares.

    HONE_RECORD=1 ninja -C build/release kills      a campaign writes its rows there when it ends
    figures.py SECTION KEY COLUMN=CELL...           writes a row by hand
    figures.py --self-test                          shows that rows are added and replaced

A row is known by its section and its first cell. Writing it again replaces it; a row of other columns replaces the whole table. Each
row ends with the commit that was tested (a + after it: with changes that were not committed) and the date.
"""
import datetime
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "tests/RESULTS.md"
OWN = [":!tests/RESULTS.md", ":!tests/fuzz/campaign"]       # what campaigns write


def record(section, key, **cells):
    """Writes a row if HONE_RECORD is set."""
    if os.environ.get("HONE_RECORD"):
        write(section, key, **cells)


def write(section, key, stamp=None, **cells):
    """Writes a row; a name of a cell has _ for blanks. stamp: the commit and the date, if they are not those of now."""
    commit, date = stamp or (tested_commit(), datetime.date.today().isoformat())
    row = {"of": key, **{name.replace("_", " "): value for name, value in cells.items()}, "commit": commit, "date": date}
    PAGE.write_text(put(PAGE.read_text(), section, {name: str(value) for name, value in row.items()}))


def tested_commit():
    def git(*words):
        return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True).stdout.strip()
    return git("rev-parse", "--short=8", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no", "--", *OWN) else "")


def line(cells):
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def put(page, section, row):
    """The page with this row, {column: cell}, in its section."""
    before, title, rest = page.partition(f"\n## {section}\n")
    if not title:
        before, title, rest = page.rstrip("\n") + "\n", f"\n## {section}\n", "\n"
    body, following, after = rest.partition("\n## ")
    lines = body.rstrip("\n").split("\n")
    text, table = [s for s in lines if not s.startswith("|")], [s for s in lines if s.startswith("|")]
    header, name = line(row), next(iter(row.values()))
    rows = table[2:] if table[:1] == [header] else []
    place = next((i for i, old in enumerate(rows) if old.startswith(f"| {name} |")), len(rows))
    rows[place:place + 1] = [line(row.values())]
    table = [header, "|" + "---|" * len(row), *rows]
    return before + title + "\n".join([*text, *([] if text[-1:] == [""] else [""]), *table]) + "\n" + following + after


def self_test():
    page = put(put("# T\n", "A", {"of": "a", "n": "1"}), "B", {"of": "b", "n": "2"})
    again = put(put(page, "A", {"of": "a", "n": "3"}), "A", {"of": "c", "n": "4"})
    wrong = page.count("| a | 1 |") != 1 or again.count("| a |") != 1 or "| a | 3 |\n| c | 4 |\n\n## B\n" not in again or "| b | 2 |" not in again
    wrong = wrong or "| 3 |" in put(again, "A", {"of": "a", "m": "5"})
    text = "# T\n\n## A\n\nWhat it is.\n"
    wrong = wrong or put(text, "A", {"of": "a"}) != text + "\n| of |\n|---|\n| a |\n"
    print("figures: self-test failed" if wrong else "figures: self-test good")
    return int(wrong)


def main(words):
    if words == ["--self-test"]:
        return self_test()
    if len(words) < 3 or not all("=" in word for word in words[2:]):
        raise SystemExit(__doc__)
    return write(*words[:2], **dict(word.split("=", 1) for word in words[2:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
