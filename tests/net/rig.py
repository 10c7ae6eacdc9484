"""Hosts on this machine with a slow network between them, for tests of training on several machines.

    with rig.network(2, delay=0.05, rate=100e6, loss=0.001) as hosts:
        hosts[0].popen(["hone", ...])
        hosts[1].run(["hone", ...])

A host is a network namespace with one interface besides its loopback, a TUN device. What a host sends is slowed to `rate` bits a
second by the kernel (tc tbf), then kept for `delay` seconds and lost with the probability `loss` by a relay in user space, because
not every kernel has netem. Every direction has its own delay: a round trip takes twice as long. It needs root, as in a container of
CI; `missing` says what is not there.
"""
import contextlib
import ctypes
import fcntl
import heapq
import os
import pathlib
import random
import select
import shutil
import signal
import struct
import subprocess
import sys
import time

MTU, PACKETS_MAX = 1500, 20000                          # packets in flight in the relay; what comes then is lost
TUNSETIFF, IFF_TUN, IFF_NO_PI, CLONE_NEWNET = 0x400454ca, 1, 0x1000, 0x40000000


def missing():
    """Why there can be no rig here; None: there can."""
    if os.geteuid():
        return "network namespaces need root"
    for tool in ("ip", "tc"):
        if not shutil.which(tool):
            return f"there is no program {tool}: install iproute2"
    if not os.path.exists("/dev/net/tun"):
        return "there is no /dev/net/tun"
    name = f"hone{os.getpid()}try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return made.stderr.strip() if made.returncode else None


class Host:
    """A namespace. Its processes have its addresses and see no other network."""
    def __init__(self, number):
        self.name, self.address = f"hone{os.getpid()}n{number}", f"10.77.0.{number + 1}"
        self.started = []

    def command(self, words):
        """With a host name of its own: MPI takes processes of one name for neighbours that share memory."""
        return ["ip", "netns", "exec", self.name, "unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', self.name,
                *map(str, words)]

    def run(self, words, **options):
        return subprocess.run(self.command(words), **options)

    def popen(self, words, **options):
        self.started.append(subprocess.Popen(self.command(words), **options))
        return self.started[-1]

    def tell(self, *words):
        done = self.run(words, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")


def open_tun(host):
    """A TUN device inside the namespace; the caller's own namespace is left for good."""
    with open(f"/run/netns/{host.name}") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"entering {host.name}")
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", b"net0", IFF_TUN | IFF_NO_PI))
    return tun


def destination(packet):
    return ".".join(map(str, packet[16:20])) if packet[0] >> 4 == 4 else None


def relay(hosts, delay, loss, ready):
    """Carries packets until it is killed."""
    tuns = {open_tun(host): host for host in hosts}
    to = {host.address: tun for tun, host in tuns.items()}
    in_flight, number, chance = [], 0, random.Random(1)
    os.write(ready, b".")
    while True:
        wait = max(0, in_flight[0][0] - time.monotonic()) if in_flight else None
        for tun in select.select(list(tuns), [], [], wait)[0]:
            for _ in range(64):
                try:
                    packet = os.read(tun, 65536)
                except OSError:                         # no more, or the interface is not up yet
                    break
                out = to.get(destination(packet))
                if out and chance.random() >= loss and len(in_flight) < PACKETS_MAX:
                    number += 1
                    heapq.heappush(in_flight, (time.monotonic() + delay, number, out, packet))
        while in_flight and in_flight[0][0] <= time.monotonic():
            _, _, out, packet = heapq.heappop(in_flight)
            with contextlib.suppress(OSError):          # the host's interface is down, as a cut cable is
                os.write(out, packet)


def start_relay(hosts, delay, loss):
    ready, tell = os.pipe()
    child = os.fork()
    if not child:
        try:
            relay(hosts, delay, loss, tell)
        except BaseException as reason:                 # a fork must not go on as the test
            print(f"relay: {reason}", file=sys.stderr)
        os._exit(1)
    os.close(tell)
    started = os.read(ready, 1)
    os.close(ready)
    if not started:
        os.waitpid(child, 0)
        raise RuntimeError("the relay did not start")
    return child


# What Open MPI's own daemons need to notice that a host is cut off, while they say nothing and while they wait for an answer: it
# takes them many minutes otherwise.
RETRIES = 5                                             # of the system: about 13 seconds
CUT = {"oob_tcp_keepalive_time": 5, "oob_tcp_keepalive_intvl": 1, "oob_tcp_keepalive_probes": 10}


def mpirun(hosts, words, folder, start=None, addresses=None, **options):
    """One rank on each host, started by Open MPI's mpirun on the first; `folder` gets a script in place of ssh. start: how it is
    run there, if not to its end. addresses: of the hosts in a network that MPI is to use instead of this one."""
    agent = pathlib.Path(folder) / "agent"
    used = addresses or [host.address for host in hosts]
    network = used[0].rpartition(".")[0] + ".0/24"
    names = "".join(f"{address}) host={host.name};; " for address, host in zip(used, hosts))
    agent.write_text(f'#!/bin/sh\ncase $1 in {names}*) exit 1;; esac\nshift\n'
                     'exec ip netns exec "$host" unshare --uts sh -c "hostname $host && $*"\n')
    agent.chmod(0o755)
    settings = {"plm_rsh_agent": agent, "oob_tcp_if_include": network, "btl_tcp_if_include": network, "btl": "tcp,self", "pml": "ob1",
                "hwloc_base_binding_policy": "none", "mpi_yield_when_idle": "1", "odls_base_sigkill_timeout": 5, **CUT}
    flags = [word for name, value in settings.items() for word in ("--mca", name, str(value))]
    return (start or hosts[0].run)(["mpirun", "--allow-run-as-root", "-n", len(hosts), "--host", ",".join(used), *flags, *words], **options)


def processes_of(host):
    listed = subprocess.run(["ip", "netns", "pids", host.name], capture_output=True, text=True)
    return [int(word) for word in listed.stdout.split()]


@contextlib.contextmanager
def network(count=2, delay=0.05, rate=100e6, loss=0.0, mtu=MTU):
    """Hosts as above; what still runs in them at the end is killed."""
    hosts, child = [Host(number) for number in range(count)], None
    try:
        for host in hosts:
            subprocess.run(["ip", "netns", "add", host.name], check=True)
        child = start_relay(hosts, delay, loss)
        for host in hosts:
            host.tell("ip", "link", "set", "lo", "up")
            host.tell("sh", "-c", f"echo {RETRIES} > /proc/sys/net/ipv4/tcp_retries2")
            host.tell("ip", "link", "set", "net0", "mtu", str(mtu), "up")
            host.tell("ip", "address", "add", f"{host.address}/24", "dev", "net0")
            if rate:
                host.tell("tc", "qdisc", "add", "dev", "net0", "root", "tbf", "rate", f"{int(rate)}bit", "burst",
                          str(max(int(rate / 8 / 250), 4 * mtu)), "latency", "200ms")
        yield hosts
    finally:
        for host in hosts:
            for process in host.started:                # one that was just started may not have entered the namespace yet
                process.kill()
            for process in processes_of(host):
                if process != child:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        for host in hosts:
            if pathlib.Path(f"/run/netns/{host.name}").exists():
                subprocess.run(["ip", "netns", "del", host.name], capture_output=True)
