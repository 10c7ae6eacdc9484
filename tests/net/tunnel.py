#!/usr/bin/env python3
"""What somebody on the network between two hosts can read of ranks, without a tunnel and with one of WireGuard's.

    tunnel.py HONE ASSETS DATA

Two ranks on two hosts (rig.py), over MPI, and two by torchrun's variables, which meet and then end, as a CPU has no NCCL. All packets
between the hosts are recorded. Shown:

    without a tunnel the names of the hosts and the words of the hello are in them
    with it they are not, nor anything but WireGuard's own packets, and the ranks train to the same bytes

The tunnel is wireguard-go's, in user space, as not every kernel has WireGuard (Debian: wireguard-go, wireguard-tools).
"""
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import rig

HONE, ASSETS, DATA = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
PORT, WORD, SECRET = 51820, b"hone-3\n", "a secret of the two ranks"
TRAIN = ["--model", ASSETS / "models/tiny-llama", "--data", DATA / "train.jsonl", "--max-steps", 3, "--per-device-train-batch-size", 4,
         "--max-samples", 50, "--max-length", 128, "--excess-length", "truncate", "--device", "cpu", "--threads", 1, "--save-steps", 0]
RECORD = """
import socket, struct, sys
line = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
line.bind(("net0", 3))
line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
with open(sys.argv[1], "wb", buffering=0) as out:
    print("ready", flush=True)
    while True:
        packet = line.recv(65536)
        out.write(struct.pack("<I", len(packet)) + packet)
"""


def missing():
    for tool in "wg", "wireguard-go", "mpirun":
        if not shutil.which(tool):
            return f"there is no program {tool}: install wireguard-go, wireguard-tools and openmpi-bin"
    return rig.missing()


@contextlib.contextmanager
def recorded(host, path):
    """All that is sent and received at a host, as packets, once it is over."""
    recorder, packets = host.popen([sys.executable, "-c", RECORD, path], stdout=subprocess.PIPE, text=True), []
    assert recorder.stdout.readline() == "ready\n"
    yield packets
    time.sleep(0.3)
    recorder.kill()
    recorder.wait()
    data, at = path.read_bytes(), 0
    while at + 4 <= len(data):
        size = int.from_bytes(data[at:at + 4], "little")
        packets.append(data[at + 4:at + 4 + size])
        at += 4 + size


def is_tunnel(packet):
    header = 4 * (packet[0] & 15)
    ports = int.from_bytes(packet[header:header + 2], "big"), int.from_bytes(packet[header + 2:header + 4], "big")
    return packet[9] == 17 and PORT in ports


def open_tunnel(hosts, folder):
    """An interface wgN on each host; returns their addresses in the tunnel."""
    keys = []
    for number, host in enumerate(hosts):
        key = subprocess.run(["wg", "genkey"], capture_output=True, check=True).stdout
        path = folder / f"key{number}"
        path.touch(mode=0o600)
        path.write_bytes(key)
        keys.append((path, subprocess.run(["wg", "pubkey"], input=key, capture_output=True, check=True).stdout.decode().strip()))
        host.popen(["wireguard-go", "-f", name_of(number)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                   env={**os.environ, "WG_PROCESS_FOREGROUND": "1"})
    for number, host in enumerate(hosts):
        other, name = 1 - number, name_of(number)
        while host.run(["wg", "show", name], capture_output=True).returncode:
            time.sleep(0.05)
        host.tell("wg", "set", name, "listen-port", str(PORT), "private-key", str(keys[number][0]), "peer", keys[other][1], "allowed-ips",
                  f"10.9.0.{other + 1}/32", "endpoint", f"{hosts[other].address}:{PORT}")
        host.tell("ip", "address", "add", f"10.9.0.{number + 1}/24", "dev", name)
        host.tell("ip", "link", "set", name, "mtu", "1380", "up")
    return [f"10.9.0.{number + 1}" for number in range(2)]


def name_of(number):
    return f"wghone{number}"        # wireguard-go's own socket lies in a folder that both hosts see


def train(hosts, folder, addresses, listen):
    out = folder / "out"
    words = ["-x", f"HONE_LISTEN={listen}", HONE] if listen else [HONE]
    r = rig.mpirun(hosts, [*words, "train", *TRAIN, "--output", out, "--cache-dir", folder / "cache"], folder, addresses=addresses,
                   capture_output=True, text=True, timeout=120)
    assert r.returncode == 0, r.stdout + r.stderr
    return (out / "adapter_model.safetensors").read_bytes()


def meet(hosts, folder, address):
    """Two ranks by torchrun's variables: they say hello, share their badges and what device they have, and end with code 7."""
    ranks = []
    for number, host in enumerate(hosts):
        env = {**os.environ, "RANK": str(number), "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": address, "MASTER_PORT": "29500",
               "HONE_SECRET": SECRET}
        ranks.append(host.popen([HONE, "train", *TRAIN, "--output", folder / "met", "--cache-dir", folder / "cache"], env=env,
                                stderr=subprocess.PIPE, text=True))
    said = [rank.communicate(timeout=60)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [7, 7], said


def main():
    reason = missing()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    results = {}
    with tempfile.TemporaryDirectory() as work, rig.network(2, delay=0.001, rate=0) as hosts:
        words = [host.name.encode() for host in hosts] + [WORD]
        for kind in "open", "tunnel":
            folder = pathlib.Path(work) / kind
            folder.mkdir()
            addresses = [host.address for host in hosts] if kind == "open" else open_tunnel(hosts, folder)
            with recorded(hosts[0], folder / "packets") as packets:
                meet(hosts, folder, addresses[0])
                met = len((folder / "packets").read_bytes())
                results[kind] = train(hosts, folder, addresses, addresses[0] if kind == "tunnel" else None)
            stream = b"".join(packets)
            seen = {word.decode().strip(): stream.count(word) for word in words}
            print(f"{kind}: {len(packets)} packets, {len(stream)} bytes, of which {met} before MPI; readable in them: {seen}", flush=True)
            if kind == "open":
                assert all(seen.values()), seen
            else:
                assert not any(seen.values()), seen
                strange = [packet for packet in packets if packet[0] >> 4 == 4 and not is_tunnel(packet)]
                assert not strange, f"{len(strange)} packets outside the tunnel, as {strange[0][:60]}"
                assert len(stream) > 100000, "the ranks have not spoken here"
        for host in hosts:
            for process in host.started:                    # wireguard-go removes its own socket then
                process.terminate()
                process.wait(10)
    assert results["open"] == results["tunnel"], "the ranks have not trained to the same bytes"
    print("the ranks have trained to the same bytes")


if __name__ == "__main__":
    main()
