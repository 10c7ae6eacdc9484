#!/usr/bin/env python3
"""Circles of files: which sources call each other in a loop, by the symbols of their object files.

    circles.py BUILD        fails for a circle in BUILD that KNOWN does not have, and for one of KNOWN that is gone or has shrunk
    circles.py BUILD --why  prints what ties each: FILE -> FILE: the functions that the first calls

A file calls another if its object file refers to a symbol that the other's defines. What is in a circle can only be understood
together, so each that stays has its reason here.
"""
import pathlib
import subprocess
import sys

SOURCES = pathlib.Path(__file__).resolve().parents[1] / "src"
KNOWN = {
    # The language: an expression may call a macro, whose body is statements, and statements have expressions.
    frozenset({"text/jinja/evaluate.c", "text/jinja/exec.c"}),
}


def read(build):
    """{file: {file: symbols}}"""
    defines, uses = {}, {}
    for path in sorted(build.glob("CMakeFiles/hone-*.dir/src/**/*.o")):
        name = path.as_posix().split(".dir/src/")[1].removesuffix(".o")
        if not (SOURCES / name).exists():           # of a source that was moved: ninja leaves its object
            continue
        symbols = subprocess.run(["nm", "-P", path], check=True, capture_output=True, text=True).stdout.splitlines()
        kinds = [line.split()[:2] for line in symbols]
        defines.update((symbol, name) for symbol, kind in kinds if kind.isupper() and kind != "U")
        uses[name] = [symbol for symbol, kind in kinds if kind == "U"]
    graph = {name: {} for name in uses}
    for name, symbols in uses.items():
        for symbol in symbols:
            if defines.get(symbol, name) != name:
                graph[name].setdefault(defines[symbol], []).append(symbol)
    return graph


def reachable(graph, start):
    seen, left = set(), [start]
    while left:
        for name in graph[left.pop()]:
            if name not in seen:
                seen.add(name)
                left.append(name)
    return seen


def circles(graph):
    """Sets of files that reach each other, the smallest first."""
    reach = {name: reachable(graph, name) for name in graph}
    found = {frozenset({other for other in reach[name] if name in reach[other]}) for name in graph if name in reach[name]}
    return sorted(found, key=lambda circle: (len(circle), sorted(circle)))


def main():
    graph = read(pathlib.Path(sys.argv[1]))
    if len(graph) < 100:
        sys.exit(f"{sys.argv[1]}: has only {len(graph)} object files of hone's: build first")
    found = circles(graph)
    if "--why" in sys.argv:
        for circle in found:
            print(f"{len(circle)} files: {' '.join(sorted(circle))}")
            for name in sorted(circle):
                for other in sorted(circle & graph[name].keys()):
                    print(f"    {name} -> {other}: {' '.join(sorted(graph[name][other])[:8])}")
    wrong = [f"new: {' '.join(sorted(circle))}" for circle in found if circle not in KNOWN]
    wrong += [f"gone or smaller, its row in KNOWN too: {' '.join(sorted(circle))}" for circle in KNOWN if circle not in found]
    print("\n".join(wrong + [f"circles: {len(graph)} files, {len(found)} circles, {len(wrong)} complaints"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
