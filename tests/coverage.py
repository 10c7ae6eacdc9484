#!/usr/bin/env python3
"""How much of the code that reads foreign bytes, or keeps what a run has done, the tests run: lines and branches of each file.

    coverage.py BUILD [TESTS]   runs the tests of a build by the preset `coverage` whose names match TESTS, a regular expression (the
                                unit tests, the fuzzers' corpora, the program on rows and on hostile files), and prints a table; fails
                                below the bars, or where a test does. Tests in which programs are killed or may not write
                                are left out: the counters could not be written either

Which files are counted is in CMakeLists.txt. With HONE_RECORD the sums go to tests/RESULTS.md.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys

import llvm
import figures

ROOT = pathlib.Path(__file__).resolve().parent.parent
TESTS = "^(unit-|fuzz-|e2e-(data|hostile|rows)$)"
NOT = "^unit-(device|dropout|engine|gemm.*|gradient|kernels|lora_ops|loss_ops|optimizer_ops|parallel|plan|weight)$"    # they only compute
LINES, BRANCHES = 95, 85            # per cent, over all of them


def percent(counts):
    return 100 * counts["covered"] / counts["count"] if counts["count"] else 100.0


def total(rows, kind):
    return {key: sum(row[kind][key] for row in rows) for key in ("count", "covered")}


def main(build, tests=TESTS):
    cov = llvm.find("llvm-cov")
    if not cov:
        return 1
    profdata = cov.replace("llvm-cov", "llvm-profdata")         # of the same package; it does not say its version
    raw, merged = build / "profiles", build / "merged.profdata"
    shutil.rmtree(raw, ignore_errors=True)
    run = subprocess.run(["ctest", "--test-dir", build, "-R", tests, "-E", NOT, "-j2", "--output-on-failure"],
                         env={**os.environ, "LLVM_PROFILE_FILE": str(raw / "%8m.profraw"), "HONE_SLOWER": "4"})    # counting takes time
    (raw / "list").write_text("\n".join(map(str, raw.glob("*.profraw"))))
    subprocess.run([profdata, "merge", "-sparse", "-f", raw / "list", "-o", merged], check=True)
    shutil.rmtree(raw)
    # The library has all of the code; the profiles are of programs that have parts of it inside.
    export = subprocess.run([cov, "export", "-summary-only", f"-instr-profile={merged}", build / "libhone.so"], check=True,
                            capture_output=True, text=True)
    rows = {}
    for file in json.loads(export.stdout)["data"][0]["files"]:
        name = os.path.relpath(file["filename"], ROOT)
        if name.endswith(".c"):
            rows[name] = file["summary"]
    print("| file | lines | % | branches | % |\n|---|---|---|---|---|")
    for name, row in sorted(rows.items()):
        print(f"| `{name}` | {row['lines']['count']} | {percent(row['lines']):.1f} | {row['branches']['count']} | {percent(row['branches']):.1f} |")
    lines, branches = (total(rows.values(), kind) for kind in ("lines", "branches"))
    print(f"| all {len(rows)} files | {lines['count']} | {percent(lines):.1f} | {branches['count']} | {percent(branches):.1f} |")
    figures.record("Coverage", "parsers and checkpoints", files=len(rows), lines=lines["count"], of_them_run=f"{percent(lines):.1f}%",
                   branches=branches["count"], of_them_taken=f"{percent(branches):.1f}%")
    return int(run.returncode != 0 or percent(lines) < LINES or percent(branches) < BRANCHES)


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), *sys.argv[2:]))
