#!/usr/bin/env python3
"""The rig does what it is asked for: round trips, rates and losses measured with real traffic.

    test_rig.py
"""
import subprocess
import sys
import unittest

import rig

ECHO = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("0.0.0.0", 7000))
print("ready", flush=True)
while True:
    data, sender = s.recvfrom(2048)
    s.sendto(data, sender)
"""
ASK = """
import socket, sys, time
host, count = sys.argv[1], int(sys.argv[2])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(2)
times, lost = [], 0
for i in range(20):
    start = time.monotonic()
    s.sendto(b"%d" % i, (host, 7000))
    try:
        s.recv(2048)
        times.append(time.monotonic() - start)
    except TimeoutError:
        lost += 1
s.setblocking(False)
back = 0
for i in range(count + 1000):               # what comes back is taken at once: a socket keeps some hundred packets
    if i < count:
        s.sendto(b"x" * 100, (host, 7000))
    time.sleep(0.0005)
    try:
        while s.recv(2048):
            back += 1
    except BlockingIOError:
        pass
print(sorted(times)[len(times) // 2], back / count if count else 1)
"""
SINK = """
import socket, sys, time
s = socket.create_server(("0.0.0.0", 7001))
print("ready", flush=True)
peer, _ = s.accept()
size, start = 0, None
while True:
    data = peer.recv(1 << 20)
    if not data:
        break
    start = start or time.monotonic()
    size += len(data)
print(size * 8 / (time.monotonic() - start), flush=True)
"""
POUR = """
import socket, sys
s = socket.create_connection((sys.argv[1], 7001))
s.sendall(bytes(int(sys.argv[2])))
s.close()
"""


def start(host, code):
    process = host.popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def ask(hosts, count):
    echo = start(hosts[1], ECHO)
    answer = hosts[0].run([sys.executable, "-c", ASK, hosts[1].address, count], stdout=subprocess.PIPE, text=True, timeout=60)
    echo.kill()
    echo.wait()
    echo.stdout.close()
    return map(float, answer.stdout.split())


def pour(hosts, size):
    sink = start(hosts[1], SINK)
    hosts[0].run([sys.executable, "-c", POUR, hosts[1].address, size], check=True, timeout=120)
    rate = float(sink.communicate(timeout=60)[0])
    return rate


class Rig(unittest.TestCase):
    def test_a_round_trip_takes_twice_the_delay(self):
        with rig.network(2, delay=0.05, rate=100e6) as hosts:
            seconds, back = ask(hosts, 0)
        print(f"a round trip of 2 x 50 ms: {seconds * 1e3:.1f} ms")
        self.assertGreaterEqual(seconds, 0.1)
        self.assertLess(seconds, 0.13)

    def test_a_stream_has_the_rate_and_no_more(self):
        with rig.network(2, delay=0.005, rate=20e6) as hosts:
            rate = pour(hosts, 8 << 20)
        print(f"a stream over 20 Mbit/s: {rate / 1e6:.1f} Mbit/s")
        self.assertLess(rate, 20.5e6)
        self.assertGreater(rate, 14e6)

    def test_packets_are_lost_as_often_as_asked(self):
        with rig.network(2, delay=0.001, rate=100e6, loss=0.1) as hosts:
            _, back = ask(hosts, 2000)                                      # both ways: 0.9 x 0.9 come back
        print(f"with a loss of 10% each way {100 * back:.1f}% come back")
        self.assertAlmostEqual(back, 0.81, delta=0.04)

    def test_nothing_is_left_when_it_ends(self):
        with rig.network(2) as hosts:
            names, left = [host.name for host in hosts], hosts[0].popen(["sleep", "100"])
        self.assertIsNotNone(left.wait(5))
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        for name in names:
            self.assertNotIn(name, listed)


if __name__ == "__main__":
    reason = rig.missing()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main(verbosity=2)
