#!/usr/bin/env python3
"""The Debian packages that README.md and CONTRIBUTING.md name are those that the build needs.

    prerequisites.py                    each find_… REQUIRED of the build has its package in README.md, each of the tests in one of
                                        both pages, and .ci/run and debian/control have them too
    prerequisites.py --self-test        shows that each rule can fail
    prerequisites.py --clean FOLDER     makes a clean Debian 12 in FOLDER (which must not exist), installs what both pages name and
                                        runs `make check` there. As root, with debootstrap; about 700 MB of downloads and ten
                                        minutes, so the gate has the first form only
"""
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What a find_… asks for, and the package that has it. C's compiler brings its library, threads and libgomp.
PACKAGES = {
    "PkgConfig": "pkg-config", "jansson": "libjansson-dev", "yaml-0.1": "libyaml-dev", "libpcre2-8": "libpcre2-dev",
    "libutf8proc": "libutf8proc-dev", "libxxhash": "libxxhash-dev", "zlib": "zlib1g-dev", "libzstd": "libzstd-dev",
    "dnnl": "libdnnl-dev", "gomp": "gcc", "Threads": "gcc", "cmocka": "libcmocka-dev", "Python3": "python3",
}
TOOLS = ["gcc", "cmake", "ninja-build"]         # nothing finds them: they find the rest
FIND = re.compile(r"\b(find_package|find_library|pkg_check_modules)\(([^)]*)\)")


def finds(text):
    """What a list file cannot do without: modules of pkg-config, names of libraries, packages of CMake."""
    for command, words in FIND.findall(text):
        words = words.split()
        if "REQUIRED" not in words:
            continue
        words = [word for word in words if word not in ("REQUIRED", "IMPORTED_TARGET", "QUIET", "NAMES", "COMPONENTS")]
        yield from words[:1] if command == "find_package" else words[1:2] if command == "find_library" else words[1:]


def installed(page):
    """The packages of the page's apt-get install."""
    command = re.search(r"apt-get install ((?:[^\n\\]|\\\n)+)", page)
    return [word for word in command[1].replace("\\\n", " ").split() if not word.startswith("-")] if command else []


def quoted(page):
    """The words in `code` before the first block of commands of the section on building."""
    section = re.search(r"(?ms)^## Build.*?(?=^```|\Z)", page)
    return re.findall(r"`([a-z0-9][a-z0-9.+-]+)`", section[0]) if section else []


def complaints(build, tests, readme, contributing, gate, control):
    wanted = {name: PACKAGES.get(name) for name in finds(build)}
    of_tests = {name: PACKAGES.get(name) for name in finds(tests)}
    for name, package in (wanted | of_tests).items():
        if not package:
            yield f"{name}: PACKAGES of tests/prerequisites.py does not say which package has it"
    for package in sorted({*TOOLS, *filter(None, wanted.values())}):
        if package not in installed(readme):
            yield f"README.md: apt-get install lacks {package}"
        if package != "gcc" and not re.search(rf"[\s,]{re.escape(package)}\b", control):
            yield f"debian/control: Build-Depends lacks {package}"
    for package in sorted(set(filter(None, of_tests.values()))):
        if package not in installed(readme) + quoted(contributing):
            yield f"CONTRIBUTING.md: the section on building does not name {package}"
    for package in sorted({*TOOLS, *filter(None, (wanted | of_tests).values())}):
        if not re.search(rf"(?m)(^|[\s(]){re.escape(package)}(?=[\s)])", gate):
            yield f".ci/run: packages lack {package}"


def texts():
    tests = "".join(path.read_text() for folder in ("tests", "tools") for path in sorted((ROOT / folder).rglob("CMakeLists.txt")))
    return [(ROOT / "CMakeLists.txt").read_text() + (ROOT / "cmake/install.cmake").read_text(), tests,
            *((ROOT / name).read_text() for name in ("README.md", "CONTRIBUTING.md", ".ci/run", "debian/control"))]


def check():
    found = list(complaints(*texts()))
    print(*found, f"prerequisites: {len(PACKAGES)} packages, {len(found)} complaints", sep="\n")
    return 1 if found else 0


def self_test():
    build, tests, readme, contributing, gate, control = texts()
    bad = {
        "lacks libzstd-dev": [build, tests, readme.replace("libzstd-dev", ""), contributing, gate, control],
        "does not name libcmocka-dev": [build, tests, readme, contributing.replace("`libcmocka-dev`", ""), gate, control],
        "packages lack zlib1g-dev": [build, tests, readme, contributing, gate.replace("zlib1g-dev", ""), control],
        "Build-Depends lacks libyaml-dev": [build, tests, readme, contributing, gate, control.replace("libyaml-dev", "")],
        "does not say which package has it": [build + "\nfind_library(NEW new REQUIRED)\n", tests, readme, contributing, gate, control],
    }
    for words, page in bad.items():
        assert any(words in line for line in complaints(*page)), words
    print(f"prerequisites: {len(bad)} rules can fail")
    return 0


def clean(folder):
    folder = pathlib.Path(folder).absolute()
    if folder.exists():
        sys.exit(f"{folder}: there is something already")
    _, tests, readme, contributing, _, _ = texts()
    packages = installed(readme) + [PACKAGES[name] for name in finds(tests) if PACKAGES[name] in quoted(contributing)]
    inside = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}

    def there(*words):
        subprocess.run(["chroot", folder, *words], env=inside, check=True)
    subprocess.run(["debootstrap", "--variant=minbase", "bookworm", folder], check=True, stdout=subprocess.DEVNULL)
    for system in ("proc", "dev"):
        subprocess.run(["mount", "--bind", "/" + system, folder / system], check=True)
    try:
        there("apt-get", "-qq", "update")
        there("apt-get", "-qq", "install", "-y", *sorted(set(packages)))
        (folder / "hone").mkdir()
        files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
        made = subprocess.run(["tar", "c", "--null", "-T", "-"], cwd=ROOT, input=files, check=True, capture_output=True).stdout
        subprocess.run(["tar", "x", "-C", folder / "hone"], input=made, check=True)
        before = os.times()
        there("make", "-C", "/hone", "check")
        after = os.times()
        print(f"make check: {after.elapsed - before.elapsed:.0f} s, of the processors "
              f"{after.children_user + after.children_system - before.children_user - before.children_system:.0f} s")
    finally:
        for system in ("proc", "dev"):
            subprocess.run(["umount", folder / system], check=False)
    return 0


if __name__ == "__main__":
    sys.exit(clean(sys.argv[2]) if sys.argv[1:2] == ["--clean"] else self_test() if sys.argv[1:] == ["--self-test"] else check())
