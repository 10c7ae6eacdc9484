#!/usr/bin/env python3
"""Who may join ranks that torchrun's variables name, and what somebody between them can do: `hone train` attacked from outside.

    peers.py HONE ASSETS DATA

The handshake is made here a second time, from src/dist/handshake.h. All of these were seen to fail: a secret of one letter was taken and
guessed in 0.04 s, it opened the port at all addresses, without one any user of the machine could join, and what ranks send could be
changed on the way.
"""
import contextlib
import hashlib
import hmac
import os
import pathlib
import socket
import struct
import subprocess
import threading
import time

from case import HONE, TINY, Case, main
from nccl import free_port
from train_chats import chat

SECRET, NOBODY, GUESSES = "sixteen letters or more", 65534, 7
OFFER, ANSWER, WELCOME = 40, 80, 32
PAUSES = sum(0.1 * i for i in range(1, GUESSES))        # promised between so many guesses


def answer_to(offer, secret, rank=1, ranks=2, what=2):
    caller, number = struct.pack("<4i", rank, ranks, what, 0), os.urandom(32)
    return caller + number + hmac.new(secret.encode(), b"caller" + offer + number + caller, hashlib.sha256).digest()


def take(line, count):
    data = b""
    while len(data) < count:
        piece = line.recv(count - len(data))
        if not piece:
            return None
        data += piece
    return data


def handshake(line, secret):
    """Whether rank 0 takes this for a rank of its run."""
    offer = take(line, OFFER)
    if not offer:
        return False
    line.sendall(answer_to(offer, secret))
    welcome = take(line, WELCOME)
    return bool(welcome) and not welcome.startswith(b"refused")


def connect(place):
    line = socket.socket(socket.AF_UNIX if isinstance(place, bytes) else socket.AF_INET)
    line.settimeout(10)
    line.connect(place)
    return line


def try_as(user, place, secret=""):
    """The exit code of another user's process that shakes hands: 0 let in, 1 not, 2 nobody there."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 2
    with contextlib.suppress(OSError):
        os.setuid(user)
        line = connect(place)
        code = 1
        code = 0 if handshake(line, secret) else 1
    os._exit(code)


def listens(pid):
    """Where a process waits: addresses of TCP, and names of Unix sockets."""
    inodes = set()
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(entry).removeprefix("socket:[").rstrip("]"))
    found = set()
    for name, family in ("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6):
        for line in pathlib.Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                words = bytes.fromhex(fields[1].split(":")[0])
                found.add(socket.inet_ntop(family, b"".join(words[i:i + 4][::-1] for i in range(0, len(words), 4))))
    for line in pathlib.Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "00010000" and fields[6] in inodes:
            found.add(fields[7])
    return found


class Between:
    """Carries what two ends say, and does something to what the caller says on its first connection after the handshake."""
    def __init__(self, at, to, change):
        self.server, self.to, self.change = socket.create_server(at), to, change
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        first = True
        with contextlib.suppress(OSError):
            while True:
                caller = self.server.accept()[0]
                listener = socket.create_connection(self.to)
                threading.Thread(target=self.carry, args=(listener, caller, None), daemon=True).start()
                threading.Thread(target=self.carry, args=(caller, listener, self.change if first else None), daemon=True).start()
                first = False

    @staticmethod
    def carry(source, sink, change):
        with contextlib.suppress(OSError):
            if change:
                sink.sendall(take(source, ANSWER))
                head = take(source, 48)                     # the first message: kind, length, MAC
                body = take(source, struct.unpack("<q", head[8:16])[0] + 32)
                for message in change(head + body):
                    sink.sendall(message)
            while data := source.recv(1 << 16):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def flip(message):
    changed = bytearray(message)
    changed[60] ^= 1                                    # in its payload
    return [bytes(changed)]


class Peers(Case):
    def setUp(self):
        super().setUp()
        self.data, self.started = self.write("chats.jsonl", *map(chat, range(4))), []

    def tearDown(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        super().tearDown()

    def start(self, rank, port, secret="", address="127.0.0.1", **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith("HONE_SECRET")}
        env |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": address, "MASTER_PORT": str(port), **more}
        words = [HONE, "train", "--model", TINY, "--data", self.data, "--output", self.dir / f"out-{rank}", "--device", "cpu"]
        self.started.append(subprocess.Popen([*map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                             env=env | ({"HONE_SECRET": secret} if secret else {})))
        return self.started[-1]

    def wait_for_door(self, process):
        while not (found := listens(process.pid)):
            self.assertIsNone(process.poll(), process.poll() is not None and process.communicate())
            time.sleep(0.02)
        return found

    def test_a_secret_that_can_be_guessed_is_refused_on_the_loopback_too(self):
        for secret in "a", "fifteen letters":
            process = self.start(0, free_port(), secret)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
            self.assertEqual(process.poll(), 2)
            self.assertIn(f"the secret of the ranks has {len(secret)} characters: take 16 or more", process.stderr.read())

    def test_rank_0_listens_at_master_addr_and_nowhere_else(self):
        port = free_port()
        for address, secret, where in (("127.0.0.1", SECRET, "127.0.0.1"), ("127.0.0.2", SECRET, "127.0.0.2"),
                                       ("127.0.0.1", "", f"@hone-{os.geteuid()}-{port}")):
            process = self.start(0, port, secret, address)
            self.assertEqual(self.wait_for_door(process), {where})
            process.kill()
            process.wait()
        process = self.start(0, port, SECRET, "198.51.100.7")
        self.assertEqual(process.wait(timeout=30), 2)
        self.assertIn("its machine has no such address", process.stderr.read())

    def test_another_user_cannot_join_without_a_secret(self):
        if os.geteuid():
            self.skipTest("another user can be only by root")
        port = free_port()
        process = self.start(0, port)
        self.wait_for_door(process)
        name = f"\0hone-0-{port}".encode()
        self.assertEqual(try_as(NOBODY, ("127.0.0.1", port)), 2)
        self.assertEqual(try_as(NOBODY, name), 1)
        self.assertEqual(try_as(0, name), 0)                # who can, is taken for rank 1
        process.kill()
        self.assertIn(f"it is of user {NOBODY} of this machine", process.communicate()[1])

    def test_a_false_rank_0_of_another_user_is_not_called(self):
        if os.geteuid():
            self.skipTest("another user can be only by root")
        port, ready = free_port(), os.pipe()
        child = os.fork()
        if not child:
            os.setuid(NOBODY)
            server = socket.socket(socket.AF_UNIX)
            server.bind(f"\0hone-0-{port}".encode())
            server.listen()
            os.write(ready[1], b".")
            line = server.accept()[0]
            with contextlib.suppress(OSError):
                line.sendall(b"hone-3\n\0" + bytes(32))
                os._exit(3 if take(line, ANSWER) else 0)    # it would have learned who calls
            os._exit(0)
        os.read(ready[0], 1)
        self.start(1, port)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)

    def test_guesses_are_slowed_and_a_rank_still_joins(self):
        process = self.start(0, port := free_port(), SECRET)
        self.wait_for_door(process)
        begun = time.monotonic()
        for i in range(GUESSES):
            self.assertFalse(handshake(connect(("127.0.0.1", port)), f"guess {i} at the secret"))
        took = time.monotonic() - begun
        print(f"{GUESSES} guesses took {took:.1f} s, {PAUSES:.1f} are promised")
        self.assertGreater(took, PAUSES)
        hasty = [connect(("127.0.0.1", port)) for _ in range(5)]                # and who does not wait for an answer gains nothing
        for line in hasty:
            line.sendall(answer_to(take(line, OFFER), "another guess at it"))
            line.setblocking(False)
        time.sleep(0.2)
        for line in hasty:
            with self.assertRaises(BlockingIOError):
                line.recv(1)
            line.close()
        begun = time.monotonic()
        self.assertTrue(handshake(connect(("127.0.0.1", port)), SECRET))
        self.assertLess(time.monotonic() - begun, 3)

    def test_what_somebody_between_ranks_does_is_noticed(self):
        for what, change in ("changed", flip), ("repeated", lambda m: [m, m]):      # what is left out, in unit-wire
            with self.subTest(what):
                port = free_port()
                ranks = [self.start(0, port, SECRET)]
                self.wait_for_door(ranks[0])
                Between(("127.0.0.2", port), ("127.0.0.1", port), change)
                ranks.append(self.start(1, port, SECRET, "127.0.0.2"))
                said = [p.communicate(timeout=60)[1] for p in ranks]
                self.assertEqual(ranks[0].returncode, 12, said)
                self.assertIn("on the connection of rank 1 a message was changed, repeated or left out on the way: its MAC is wrong", said[0])
                self.assertNotEqual(ranks[1].returncode, 0)


if __name__ == "__main__":
    main(Peers, Peers)
