#!/usr/bin/env python3
"""What a parser's fault could do: every command is run with a library under it that, as soon as a file of a stranger is opened, tries
to start a program, to connect, to listen, to write and to read elsewhere, as code that somebody injected would.

    confine.py HONE ASSETS DATA
"""
import json
import os
import pathlib
import resource
import shutil
import socket
import statistics
import subprocess
import time

from case import CHAT, HONE, SANITIZED, TINY, Case, main
from hub import NAME, Hub

# It calls the kernel itself, as injected code would. What came of each attempt goes to a descriptor that was open before.
INTRUDER = r"""
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static void say(const char *what, long got)
{
    dprintf(atoi(getenv("INTRUDER_LOG")), "%s %s\n", what, got < 0 ? strerrorname_np(errno) : "OK");
}

static void start(void)
{
    const char *path = getenv("INTRUDER_STARTED");
    char *words[] = {"sh", "-c", NULL, NULL}, command[4096];
    snprintf(command, sizeof command, "touch %s", path);
    words[2] = command;
    int ends[2], cause = 0;
    if (pipe2(ends, O_CLOEXEC))
        return;
    pid_t child = fork();
    if (!child) {
        syscall(SYS_execve, "/bin/sh", words, environ);
        cause = errno;
        if (write(ends[1], &cause, sizeof cause) < 0)
            _exit(2);
        _exit(1);
    }
    close(ends[1]);
    long failed = read(ends[0], &cause, sizeof cause) > 0;
    close(ends[0]);
    waitpid(child, NULL, 0);
    errno = cause;
    say("start", failed ? -1 : 0);
}

static void reach(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(getenv("INTRUDER_PORT")))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = (int)syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);
    say("connect", fd < 0 ? -1 : syscall(SYS_connect, fd, &to, sizeof to));
    fd = fd < 0 ? -1 : (int)syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);
    say("listen", fd < 0 ? -1 : syscall(SYS_listen, fd, 1));
    say("local", syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0));
    int pair[2];
    say("pair", syscall(SYS_socketpair, AF_UNIX, SOCK_DGRAM, 0, pair));
    char letter = 'x';
    say("type", syscall(SYS_ioctl, 0, TIOCSTI, &letter) < 0 && errno != EPERM ? 0 : -1);
    say("limit", syscall(SYS_prlimit64, getppid(), RLIMIT_CPU, NULL, NULL));
    say("namespace", syscall(SYS_unshare, 0));
    say("ring", syscall(SYS_io_uring_setup, 1, NULL) < 0 && errno == EFAULT ? 0 : -1);
}

static void touch_files(void)
{
    int fd = (int)syscall(SYS_openat, AT_FDCWD, getenv("INTRUDER_WRITES"), O_WRONLY | O_CREAT, 0600);
    say("write", fd < 0 ? -1 : write(fd, "x", 1));
    char byte;
    fd = (int)syscall(SYS_openat, AT_FDCWD, getenv("INTRUDER_READS"), O_RDONLY);
    say("read", fd < 0 ? -1 : read(fd, &byte, 1));
    say("mode", syscall(SYS_fchmodat, AT_FDCWD, getenv("INTRUDER_REMOVES"), 0600));
    say("cut", syscall(SYS_truncate, getenv("INTRUDER_REMOVES"), 1));
    say("remove", syscall(SYS_unlinkat, AT_FDCWD, getenv("INTRUDER_REMOVES"), 0));
}

static void intrude(const char *path)
{
    static int done;
    const char *at = getenv("INTRUDER_AT");
    if (!at || done || !path || !strstr(path, at) || __sync_fetch_and_add(&done, 1))
        return;
    start();
    reach();
    touch_files();
}

#define OPEN(name)                                                                       \
    int name(const char *path, int flags, ...)                                           \
    {                                                                                    \
        va_list rest;                                                                    \
        va_start(rest, flags);                                                           \
        int mode = va_arg(rest, int);                                                    \
        va_end(rest);                                                                    \
        if (!(flags & O_PATH))                                                           \
            intrude(path);                                                               \
        return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name))(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)
"""
ALL = {"start", "connect", "listen", "local", "pair", "ring", "type", "limit", "namespace", "write", "read", "mode", "cut", "remove"}


class Confine(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if SANITIZED:
            return
        folder = pathlib.Path(cls.enterClassContext(__import__("tempfile").TemporaryDirectory()))
        (folder / "intruder.c").write_text(INTRUDER)
        cls.intruder = folder / "intruder.so"
        subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-w", "-o", cls.intruder, folder / "intruder.c", "-ldl"], check=True)

    def setUp(self):
        super().setUp()
        if SANITIZED:
            self.skipTest("a preloaded library comes before the sanitizer's")
        (self.dir / "in").mkdir()
        self.data = self.write("in/data.jsonl", *[CHAT] * 4)
        self.elsewhere = self.dir / "elsewhere"
        self.elsewhere.mkdir()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(self.listener.close)
        self.outputs = 0

    def intrude(self, at, *args, stdin="", **variables):
        """({what was tried: what came of it}, the finished command) with the intrusion at a file whose path has `at` in it."""
        started, written, kept = (self.elsewhere / name for name in ("started", "written", "kept"))
        for path in started, written:
            path.unlink(missing_ok=True)
        kept.write_text("kept")
        (self.elsewhere / "secret").write_text("secret")
        log, end = os.pipe()
        environment = {**os.environ, "LD_PRELOAD": str(self.intruder), "INTRUDER_AT": at, "INTRUDER_LOG": str(end),
                       "INTRUDER_PORT": str(self.listener.getsockname()[1]), "INTRUDER_STARTED": str(started),
                       "INTRUDER_WRITES": str(written), "INTRUDER_READS": str(self.elsewhere / "secret"), "INTRUDER_REMOVES": str(kept),
                       "HONE_CACHE": str(self.dir / "cache"), **variables}
        done = subprocess.run([HONE, *map(str, args)], env=environment, pass_fds=[end], input=stdin, capture_output=True, text=True, timeout=300)
        os.close(end)
        with os.fdopen(log) as file:
            tried = dict(line.split() for line in file)
        self.assertEqual(set(tried), ALL, f"{args}: nothing was tried: {done.stderr}")
        self.assertEqual(tried["start"] == "OK", started.exists(), args)
        self.assertEqual(tried["write"] == "OK", written.exists(), args)
        self.assertEqual(tried["remove"] == "OK", not kept.exists(), args)
        return tried, done

    def commands(self):
        """{name: (where the intrusion begins, the command)}: each command, on each kind of a stranger's file that it reads."""
        model, data, out = ["--model", TINY], ["--data", self.data], lambda: self.dir / f"out/{self.next()}"
        train = ["train", *model, *data, "--max-steps", 1, "--device", "cpu"]
        run = out()
        self.ok(*train, "--output", run)
        csv, gguf = self.dir / "in/data.csv", self.dir / "in/model.gguf"
        csv.write_text("prompt,completion\nHi,Hello.\n")
        self.ok("quantize", *model, "--output", gguf)
        axolotl = self.dir / "in/axolotl.yml"
        axolotl.write_text(f"base_model: {TINY}\nlearning_rate: 0.0002\ndatasets:\n  - path: {self.data}\n    type: chat_template\n")
        return {
            "train, the model": ("config.json", [*train, "--output", out()]),
            "train, the weights": ("model.safetensors", [*train, "--output", out()]),
            "train, the tokenizer": ("tokenizer.json", [*train, "--output", out()]),
            "train, the data": ("data.jsonl", [*train, "--output", out()]),
            "train, a device that it finds": ("data.jsonl", [*train[:-2], "--output", out()]),
            "train, a table": ("data.csv", [*train, "--data", csv, "--output", out()]),
            "train, a GGUF file": ("model.gguf", [*train, "--model", gguf, "--output", out()]),
            "train, an adapter": ("adapter_config.json", [*train, "--init-adapter", run, "--output", out()]),
            "train, a checkpoint": ("trainer_state.json", [*train, "--resume", run / "checkpoint-1", "--output", out()]),
            "train, dry": ("data.jsonl", [*train, "--dry-run", "--output", out()]),
            "eval": ("data.jsonl", ["eval", *model, *data, "--device", "cpu"]),
            "generate": ("tokenizer.json", ["generate", *model, "--prompt", "Hi", "--max-new-tokens", 1, "--device", "cpu"]),
            "generate, an adapter": ("adapter_model.safetensors",
                                     ["generate", *model, "--adapter", run, "--prompt", "Hi", "--max-new-tokens", 1, "--device", "cpu"]),
            "chat": ("tokenizer.json", ["chat", *model, "--max-new-tokens", 1, "--device", "cpu"]),
            "init": ("data.jsonl", ["init", *model, *data, "--output", self.dir / "in/run.yaml", "--device", "cpu"]),
            "plan": ("config.json", ["plan", *model]),
            "inspect model": ("config.json", ["inspect", "model", *model]),
            "inspect data": ("data.jsonl", ["inspect", "data", *model, *data]),
            "inspect data, a page": ("data.jsonl", ["inspect", "data", *model, *data, "--html", self.dir / "in/page.html"]),
            "inspect adapter": ("adapter_config.json", ["inspect", "adapter", run]),
            "inspect checkpoint": ("trainer_state.json", ["inspect", "checkpoint", run / "checkpoint-1"]),
            "kernels list": ("config.json", ["kernels", "list", *model, "--target", "sm_80"]),
            "merge": ("adapter_config.json", ["merge", *model, "--adapter", run, "--output", out()]),
            "export": ("adapter_config.json", ["export", *model, "--adapter", run, "--output", out()]),
            "quantize": ("config.json", ["quantize", *model, "--output", self.dir / "in/other.gguf"]),
            "report": ("run.json", ["report", run]),
            "watch": ("run.json", ["watch", run]),
            "verify": ("provenance.json", ["verify", run]),
            "bench": ("config.json", ["bench", *model, "--max-steps", 1, "--device", "cpu"]),
            "config": ("axolotl.yml", ["config", "convert", axolotl]),
        }

    def next(self):
        self.outputs += 1
        return f"{self.outputs}"

    def test_what_a_parsers_fault_tries_is_refused_and_named_and_the_command_goes_on(self):
        """Seen to fail without cli_confine, and with each of --confine off, Landlock and the filter left out."""
        for name, (at, command) in self.commands().items():
            with self.subTest(name):
                tried, done = self.intrude(at, *command, stdin="/exit\n")
                may = {"read"} if name in ("config", "chat") else set()     # they read what a file, or somebody who types, names later
                self.assertEqual({what for what in ALL if tried[what] == "OK"}, may, name)
                self.assertEqual(done.returncode, 0, done.stderr)
                for call in "execve", "socket":
                    self.assertIn(f"refused: {call}", done.stderr.replace("\n", " "), name)

    def test_hone_pull_keeps_its_connections_only(self):
        """Its parsers read what a server sends. Seen to fail with all sockets kept, and with the cache's parent written to."""
        home = self.dir / "hf"
        with Hub({file.name: file.read_bytes() for file in TINY.iterdir()}) as hub:
            tried, done = self.intrude(".incomplete", "pull", NAME, HF_ENDPOINT=hub.url, HF_HOME=str(home), no_proxy="*")
        self.assertEqual({what for what in ALL if tried[what] == "OK"}, {"connect"}, done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)
        for call in "execve", "listen":
            self.assertIn(f"refused: {call}", done.stderr.replace("\n", " "))

    def test_kernels_are_built_without_a_compiler_that_is_started(self):
        """NVRTC is a library; without it the command ends, after it has read the model."""
        tried, done = self.intrude("config.json", "kernels", "build", "--model", TINY, "--target", "sm_80", "--output", self.dir / "kernels",
                                   HONE_NVRTC_LIBRARY="none")
        self.assertEqual({what for what in ALL if tried[what] == "OK"}, set(), done.stderr)
        self.assertEqual(done.returncode, 6, done.stderr)

    def test_without_it_all_of_that_works(self):
        """Or the test above would show nothing."""
        tried, done = self.intrude("data.jsonl", "eval", "--model", TINY, "--data", self.data, "--confine", "off")
        self.assertEqual({what for what in ALL - {"ring"} if tried[what] != "OK"}, set())
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_file_of_options_cannot_switch_it_off(self):
        yaml = self.dir / "in/run.yaml"
        yaml.write_text(f"model: {TINY}\ndata: {self.data}\nconfine: off\n")
        self.assertIn("confine", self.fails(2, "eval", "--config", yaml))

    def test_the_command_of_on_finish_is_run_by_the_helper(self):
        """Seen to fail with process_shell in its place: the confined process cannot start it."""
        out = self.dir / "out"
        self.ok("train", "--model", TINY, "--data", self.data, "--output", out, "--max-steps", 1,
                "--on-finish", f'echo "$HONE_STATUS $TMPDIR" > {self.elsewhere}/said')
        self.assertEqual((self.elsewhere / "said").read_text(), f"finished {os.environ.get('TMPDIR', '')}\n")

    def test_nothing_is_left_of_what_was_made_for_a_refused_run(self):
        """Seen to fail without the helper's removing."""
        temporary = self.dir / "tmp"
        temporary.mkdir()
        done = subprocess.run([HONE, "train", "--model", TINY, "--data", self.dir / "missing.jsonl", "--output", self.dir / "a/b/c"],
                              env={**os.environ, "TMPDIR": str(temporary), "HONE_CACHE": str(self.dir / "new/cache")}, capture_output=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual([p.name for p in self.dir.iterdir() if p.name in ("a", "new")] + list(temporary.iterdir()), [])

    def test_what_is_refused_to_hone_itself_says_so(self):
        """A link to a folder may lead anywhere, and is not followed. Seen to fail without the remedy of file_fail."""
        folder, away = self.dir / "folder", self.dir / "away"
        folder.mkdir()
        away.mkdir()
        (away / "train.jsonl").write_text(json.dumps(CHAT) + "\n")
        (folder / "data").symlink_to(away)
        command = "inspect", "data", "--model", TINY, "--data", folder
        self.fails(3, *command, says=[f"{folder}/data/train.jsonl", "--confine off"])
        self.ok(*command, "--confine", "off")

    def test_files_that_links_in_a_folder_lead_to_are_read(self):
        """As in the Hugging Face cache, and where a disk was full. Seen to fail without confine_allow_links."""
        folder, away = self.dir / "linked", self.dir / "away"
        folder.mkdir()
        away.mkdir()
        for file in TINY.iterdir():
            (away / file.name).write_bytes(file.read_bytes())
            (folder / file.name).symlink_to(f"../away/{file.name}")
        self.ok("eval", "--model", folder, "--data", self.data)

    def test_a_private_file_that_a_link_of_another_name_leads_to_is_not_read(self):
        """It would come into what is made of the model, and be published. Seen to fail with all links followed."""
        folder, private = self.dir / "linked", self.dir / "private"
        private.write_text("a private text")
        shutil.copytree(TINY, folder)
        (folder / "chat_template.jinja").unlink(missing_ok=True)
        (folder / "chat_template.jinja").symlink_to(private)
        self.fails(3, "eval", "--model", folder, "--data", self.data, says=["chat_template.jinja", "--confine off"])

    def test_a_model_in_parts_is_read_from_the_first(self):
        """Seen to fail without allow_parts_of."""
        first = self.dir / "m-00001-of-00002.gguf"
        self.ok("quantize", "--model", TINY, "--output", self.dir / "m.gguf")
        first.write_bytes((self.dir / "m.gguf").read_bytes())
        (self.dir / "m-00002-of-00002.gguf").write_bytes(b"GGUF")
        done = subprocess.run([HONE, "inspect", "model", "--model", first], capture_output=True, text=True)
        self.assertNotIn("--confine off", done.stderr)

    def test_it_costs_less_than_5_milliseconds(self):
        """Of the processor, the helper's included: what the clock shows depends on what else the machine does."""
        def seconds(how):
            before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run([HONE, "inspect", "model", "--model", TINY, "--confine", how], capture_output=True, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.perf_counter() - begin
        both = [(seconds("auto"), seconds("off")) for _ in range(25)]
        cost, clock = (statistics.median(a[i] for a, _ in both) - statistics.median(b[i] for _, b in both) for i in (0, 1))
        print(f"confinement costs {1000 * cost:.2f} ms of the processor, {1000 * clock:.2f} ms by the clock")
        self.assertLess(cost, 0.005)


if __name__ == "__main__":
    main(Confine, Confine)
