#!/usr/bin/env python3
"""The token cache's key covers every source that decides tokens.

    digest.py CMAKE ROOT BUILT FOLDER...    BUILT: the C file with the hash that the build made of the folders below ROOT

In a copy of the folders each file grows by one byte in turn, and each time the hash is another one. One process of CMake includes
the script that the build runs as often as there are files.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

CMAKE, ROOT, BUILT, *FOLDERS = sys.argv[1:]


def hash_in(path):
    return re.search(r'"([0-9a-f]{64})"', pathlib.Path(path).read_text())[1]


def digests(work, root, files):
    """The hash of the sources as they are, and after each file in turn has a byte more."""
    script = [f'set(ROOT "{root}")\nset(NAME digest)']
    for i, path in enumerate([None, *files]):
        script += [f'file(APPEND "{path}" " ")'] if path else []
        script += [f'set(OUTPUT "{work}/{i}.c")\nset(FOLDERS "{",".join(FOLDERS)}")\ninclude("{ROOT}/cmake/digest.cmake")']
    (work / "script.cmake").write_text("\n".join(script))
    subprocess.run([CMAKE, "-P", work / "script.cmake"], check=True)
    return [hash_in(work / f"{i}.c") for i in range(len(files) + 1)]


def main():
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        root = work / "root"
        for name in FOLDERS:
            shutil.copytree(pathlib.Path(ROOT) / name, root / name)
        files = sorted(p for name in FOLDERS for p in (root / name).rglob("*") if p.is_file())
        added = root / "src/text/tokenizer/new.def"       # is made by the byte that it grows by
        seen, *after = digests(work, root, [*files, added])
        wrong = [] if hash_in(BUILT) == seen else [f"{BUILT} is not the hash of the sources: build first"]
        for path, found in zip([*files, added], after):
            if found == seen:
                wrong.append(f"{path.relative_to(root)} is not part of the hash")
            seen = found
    for line in wrong:
        print(line)
    print(f"digest: {len(files)} files, {len(wrong)} complaints")
    return 1 if wrong else 0


sys.exit(main())
