#!/usr/bin/env python3
"""Whose code runs: libraries and programs that a stranger planted where hone might look for them.

    doors.py HONE ASSETS DATA

A planted library writes its path to a file as soon as it is opened, so that a test sees it whatever becomes of the command.
"""
import json
import os
import pathlib
import shutil
import stat
import subprocess

from case import CHAT, HONE, SANITIZED, TINY, Case, main

SPY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void spy(void)
{
    static const char here;
    Dl_info info;
    FILE *file = fopen(getenv("DOORS_SPY"), "a");
    if (file && dladdr(&here, &info))
        fprintf(file, "%s\n", info.dli_fname);
    if (file)
        fclose(file);
}
"""
# What Open MPI's launcher tells a rank.
RANK = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
PLUGINS = "hone-mpi-openmpi.so", "hone-mpi-mpich.so"


class Doors(Case):
    def setUp(self):
        super().setUp()
        self.seen, self.cwd, self.bin = self.dir / "seen", self.dir / "work", self.dir / "bin"
        self.cwd.mkdir()
        self.bin.mkdir()
        self.spy = self.dir / "spy.so"
        (self.dir / "spy.c").write_text(SPY)
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", self.spy, self.dir / "spy.c", "-ldl"], check=True)
        self.data = self.write("data.jsonl", CHAT, CHAT)

    def plant(self, *paths):
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.spy, path)

    def program(self):
        """A copy of hone in a folder of its own, without plug-ins next to it."""
        path = self.bin / "hone"
        if not path.exists():
            shutil.copy(HONE, path)
        return path

    def hone(self, *args, words=None, program=None, path=None, cwd=None, **variables):
        """A command as a shell starts it, by its plain name: argv[0] is `hone`."""
        environment = {**os.environ, "DOORS_SPY": str(self.seen), "PATH": path or f"{self.bin}:{os.environ['PATH']}",
                       **{k: str(v) for k, v in variables.items()}}
        # a confined library could not say that it was opened: whether it is does not depend on that
        return subprocess.run([words or "hone", *map(str, args), "--confine", "off"], executable=program or self.program(), cwd=cwd or self.cwd, env=environment,
                              capture_output=True, text=True, timeout=120)

    def train(self, *args, **variables):
        return self.hone("train", "--model", TINY, "--data", self.data, "--output", self.dir / "out", "--max-steps", 1, *args, **variables)

    def opened(self):
        text = self.seen.read_text() if self.seen.exists() else ""
        self.seen.unlink(missing_ok=True)
        return text.split()

    def test_a_plug_in_in_the_working_directory_is_never_opened(self):
        """Seen to fail with the program's folder taken from dladdr: argv[0] has no slash, so that it was `.`."""
        self.plant(*(self.cwd / name for name in PLUGINS))
        for words in ("hone", "./hone"):
            result = self.train(words=words, **RANK)
            self.assertEqual(self.opened(), [], result.stderr)
            self.assertEqual(result.returncode, 6, result.stderr)
            self.assertIn("plug-in", result.stderr)

    def test_a_strangers_configuration_with_nproc_opens_nothing_of_its_folder(self):
        """As after `hone pull evil/model --output .`: what is pulled lies in the working directory."""
        self.plant(*(self.cwd / name for name in PLUGINS))
        (self.cwd / "run.yaml").write_text(f"model: {TINY}\ndata: {self.data}\noutput: {self.dir / 'out'}\nmax_steps: 1\nnproc: 2\n")
        result = self.hone("train", "run.yaml")
        self.assertEqual(self.opened(), [], result.stderr)
        result = self.train("--nproc", 2, cwd=self.cwd)
        self.assertEqual(self.opened(), [], result.stderr)

    def test_nproc_works_from_a_build_folder_on_the_path(self):
        """Seen to fail with a launcher that starts `hone`, and with the plug-in looked for in the working directory."""
        if SANITIZED:
            self.skipTest("MPI leaks")
        result = self.train("--nproc", 2, "--json", program=HONE, path=f"{pathlib.Path(HONE).parent}:{os.environ['PATH']}")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(json.loads((self.dir / "out/metrics.jsonl").read_text().splitlines()[0])["ranks"], 2)

    def test_a_plug_in_next_to_the_program_is_opened_as_long_as_only_the_user_can_have_put_it_there(self):
        """Seen to fail without code_trust in library_open: everybody's folder, and other people's files."""
        planted = self.bin / PLUGINS[0]
        self.plant(planted)
        self.train(**RANK)
        self.assertEqual(self.opened(), [str(planted)])
        for change, words in ((lambda: self.bin.chmod(0o777), "everybody can write"), (lambda: planted.chmod(0o666), "everybody can write"),
                              (lambda: os.chown(planted, 65534, 65534), "belongs to user 65534"), (lambda: self.bin.chmod(0o1777), None)):
            if "chown" in change.__code__.co_names and os.geteuid():
                continue                            # only root gives files away
            change()
            result = self.train(**RANK)
            self.assertEqual(self.opened(), [] if words else [str(planted)], result.stderr)
            self.assertIn(words or "", result.stderr)
            self.bin.chmod(0o755)
            planted.chmod(0o644)
            if not os.geteuid():
                os.chown(planted, 0, 0)

    def test_variables_that_name_code_take_absolute_paths_only(self):
        """Seen to fail without code_trust in library_open."""
        self.plant(self.cwd / "evil.so")
        commands = {"HONE_MPI_PLUGIN": lambda **v: self.train(**RANK, **v),
                    "HONE_OPENCL_LIBRARY": lambda **v: self.train("--device", "opencl", **v),
                    "HONE_CUDA_LIBRARY": lambda **v: self.train("--device", "cuda", **v),
                    "HONE_CURL_LIBRARY": lambda **v: self.hone("pull", "org/name", HF_ENDPOINT="http://127.0.0.1:9", **v)}
        for variable, command in commands.items():
            for value in "./evil.so", "../work/evil.so", f"{self.cwd}/../work/evil.so":
                result = command(**{variable: value})
                self.assertEqual(self.opened(), [value] if value.startswith("/") else [], (variable, value, result.stderr))
                if not value.startswith("/"):
                    self.assertIn("not an absolute path", result.stderr)

    def test_a_link_is_followed_and_each_folder_on_the_way_is_looked_at(self):
        """Seen to fail with only the first or the last folder looked at."""
        theirs = self.dir / "theirs"
        self.plant(theirs / "evil.so")
        (self.dir / "first").symlink_to("second")
        (self.dir / "second").symlink_to(theirs)
        path = self.dir / "first/evil.so"
        self.train(HONE_MPI_PLUGIN=path, **RANK)
        self.assertEqual(self.opened(), [str(path)])
        theirs.chmod(0o777)
        result = self.train(HONE_MPI_PLUGIN=path, **RANK)
        self.assertEqual(self.opened(), [], result.stderr)
        self.assertIn(f"everybody can write to {theirs}", result.stderr)

    def test_a_loader_that_looks_in_the_working_directory_is_not_asked(self):
        """LD_LIBRARY_PATH=/some/where: has an empty part, which is the working directory. Seen to fail without code_check_loader."""
        self.plant(self.cwd / "libcurl.so.4", self.cwd / "sub/libcurl.so.4")
        for value in "/nowhere:", ":/nowhere", ".", "sub", "/nowhere::/elsewhere":
            result = self.hone("pull", "org/name", HF_ENDPOINT="http://127.0.0.1:9", LD_LIBRARY_PATH=value)
            self.assertEqual(self.opened(), [], (value, result.stderr))
            self.assertIn("LD_LIBRARY_PATH has an empty or relative part", result.stderr)
        for name in "libcurl.so.4", "sub/libcurl.so.4":             # as many people have it, in a folder without libraries
            (self.cwd / name).unlink()
        result = self.hone("pull", "org/name", HF_ENDPOINT="http://127.0.0.1:9", LD_LIBRARY_PATH="/nowhere:")
        self.assertNotIn("LD_LIBRARY_PATH", result.stderr)

    def test_a_launcher_is_found_by_the_absolute_parts_of_path_only(self):
        """Seen to fail with execvp."""
        script = f"#!/bin/sh\necho $0 >> {self.seen}\n"
        for folder in self.cwd, self.cwd / "sub", self.dir / "tools":
            folder.mkdir(exist_ok=True)
            (folder / "mpirun").write_text(script)
            (folder / "mpirun").chmod(0o755)
        (self.dir / "tools").chmod(0o777)
        for path, words in (("", "in no directory of PATH"), (".", "in no directory"), ("sub:", "in no directory"),
                            (f":{self.dir / 'tools'}", "everybody can write")):
            result = self.train("--nproc", 2, path=path or ":")
            self.assertEqual(self.opened(), [], (path, result.stderr))
            self.assertEqual(result.returncode, 6, result.stderr)
            self.assertIn(words, result.stderr)
        (self.dir / "tools").chmod(0o755)
        self.train("--nproc", 2, path=f".:{self.dir / 'tools'}")
        self.assertEqual(self.opened(), [str(self.dir / "tools/mpirun")])
        result = self.train("--nproc", 2, HONE_MPIRUN="./mpirun")
        self.assertEqual(self.opened(), [])
        self.assertIn("not an absolute path", result.stderr)

    def test_compiled_kernels_are_not_taken_from_a_folder_of_everybodys(self):
        """Seen to fail without code_trust in kernel_cache.c: an entry of PoCL's is code of this processor."""
        if SANITIZED:
            self.skipTest("PoCL leaks")
        cache = self.dir / "kernel-cache"
        (cache / "kernels").mkdir(parents=True)
        cache.chmod(cache.stat().st_mode | stat.S_IWOTH)
        result = self.train("--device", "opencl", HONE_CACHE=cache)
        self.assertIn("everybody can write", result.stderr)
        self.assertEqual(list((cache / "kernels").iterdir()), [])


if __name__ == "__main__":
    main(Doors, Doors)
