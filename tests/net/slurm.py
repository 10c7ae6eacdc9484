#!/usr/bin/env python3
"""The drill of examples/slurm.sh under a real Slurm: two machines with a rank on each, and what can happen to a job.

    slurm.py HONE ASSETS DATA [CASE...]

Each machine is a namespace (rig.py) with munged and slurmd of its own, Debian's; slurmctld is on the first. The script is submitted as
it is, with what it reads from the environment. Shown of every job that Slurm puts back into its queue:

    it goes on from its last checkpoint, and ends by itself with exit code 0
    with as many ranks as before it ends with the bytes of a run that was never disturbed
    with those that are left it ends with the bytes of one process that goes on from the same checkpoint

Counted are the steps that are computed again. A job that is cancelled ends and stays away. With HONE_RECORD the figures go to
tests/RESULTS.md. Debian: slurm-wlm, munge. Seen to fail: where a rank is killed, with a script that knows only hone's own code, as srun
ends with 137.
"""
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import rig

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import figures

HONE, ASSETS, DATA = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "examples/slurm.sh"
DAEMONS = "munged", "slurmctld", "slurmd", "sbatch", "mpirun"
STEPS, SAVES = 120, 10
AGAIN = 10              # seconds until a job that was put back may start; Slurm's own default is 120
TIME = 80               # seconds of steps: Slurm looks at the time twice a minute, and gives notice 60 to 90 seconds before the end
WAIT_MAX = 900          # no figure: others may have the processors
ENDED = "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"
CONFIGURATION = """ClusterName=drill
SlurmctldHost={first.name}({first.address})
AuthInfo=socket={home}/munge,cred_expire={again}
SlurmUser=root
StateSaveLocation={work}/state
SlurmdSpoolDir={work}/%n/spool
SlurmctldPidFile={work}/slurmctld.pid
SlurmdPidFile={home}/slurmd.pid
TmpFS={home}/tmp
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SlurmdTimeout=10
ReturnToService=2
GresTypes=gpu
MailProg=/bin/true
DebugFlags=NO_CONF_HASH
SchedulerParameters=sched_interval=1,sched_min_interval=0
{nodes}
PartitionName=all Nodes=ALL Default=YES
"""


def missing():
    for tool in DAEMONS:
        if not shutil.which(tool):
            return f"there is no program {tool}: install slurm-wlm, munge and openmpi-bin"
    return rig.missing()


class Cluster:
    """slurmd on each host, with a processor and a card that is none; rig.py ends all of it with the network."""
    def __init__(self, hosts, work):
        self.hosts, self.work, self.env = hosts, work, {}
        (work / "state").mkdir()
        (work / "munge.key").write_bytes(os.urandom(1024))
        (work / "munge.key").chmod(0o600)
        nodes = "\n".join(f"NodeName={host.name} NodeAddr={host.address} Sockets=1 CoresPerSocket=1 Gres=gpu:1" for host in hosts)
        for host in hosts:
            home = work / host.name
            for folder in "", "spool", "tmp":
                (home / folder).mkdir()
            (home / "slurm.conf").write_text(CONFIGURATION.format(first=hosts[0], home=home, work=work, again=AGAIN, nodes=nodes))
            (home / "gres.conf").write_text("Name=gpu File=/dev/null\n")
            (home / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")      # none of its parts is asked for
            self.env[host] = {**os.environ, "SLURM_CONF": str(home / "slurm.conf"), "PATH": f"{HONE.parent}:{os.environ['PATH']}"}
            self.start(host, "munged", "--foreground", "--origin=127.0.0.1", f"--socket={home}/munge", f"--key-file={work}/munge.key",
                       f"--pid-file={home}/munge.pid", f"--seed-file={home}/seed", f"--log-file={home}/munge.log")
        until(lambda: all((work / host.name / "munge").exists() for host in hosts), "munged")
        self.start(hosts[0], "slurmctld", "-D")
        for host in hosts:
            self.start(host, "slurmd", "-D", "-N", host.name)
        until(lambda: self.idle() == len(hosts), "the nodes")

    def start(self, host, *words):
        with open(self.work / f"{words[0]}-{host.name}.log", "w", encoding="utf-8") as out:
            host.popen(words, stdout=out, stderr=subprocess.STDOUT, env=self.env[host])

    def ask(self, *words, **variables):
        done = self.hosts[0].run(words, env={**self.env[self.hosts[0]], **variables}, capture_output=True, text=True, timeout=60)
        assert not done.returncode, f"{' '.join(map(str, words))}: {done.stderr}"
        return done.stdout

    def idle(self):
        done = self.hosts[0].run(["sinfo", "-N", "-h", "-o", "%T"], env=self.env[self.hosts[0]], capture_output=True, text=True, timeout=60)
        return done.stdout.split().count("idle")

    def tell_node(self, host, state):
        self.ask("scontrol", "update", f"NodeName={host.name}", f"State={state}", "Reason=drill")

    def repair(self):
        """Both nodes as they were, without a job."""
        self.ask("scancel", "--me")
        for host in self.hosts:
            host.tell("ip", "link", "set", "net0", "up")
            if "drain" in self.ask("sinfo", "-N", "-h", "-n", host.name, "-o", "%T"):
                self.tell_node(host, "resume")
        until(lambda: self.idle() == len(self.hosts), "the nodes")


class Job:
    """The script as a job, in a folder of its own."""
    def __init__(self, cluster, folder, *flags, steps=STEPS, **variables):
        self.cluster, self.folder, self.out = cluster, folder, folder / "out"
        folder.mkdir()
        (folder / "run.yaml").write_text(json.dumps({
            "model": str(ASSETS / "models/tiny-llama"), "data": str(DATA / "train.jsonl"), "max_steps": steps, "save_steps": SAVES,
            "per_device_train_batch_size": 4, "max_samples": 200, "max_length": 64, "excess_length": "truncate",
            "micro_batch_tokens": 256, "learning_rate": 0.001, "device": "cpu", "cache_dir": str(folder.parent / "cache")}))
        said = cluster.ask("sbatch", "--parsable", "--chdir", folder, "--nodes=1-2", "--cpus-per-task=1", *flags, SCRIPT,
                           OUTPUT=str(self.out), CONFIG=str(folder / "run.yaml"),
                           OMPI_MCA_pml="ob1", OMPI_MCA_btl="tcp,self", OMPI_MCA_mpi_yield_when_idle="1", **variables)
        self.number = said.strip()

    def state(self):
        text = self.cluster.ask("scontrol", "show", "job", self.number)
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def step(self):
        return max((o["step"] for o in self.lines() if "loss" in o), default=0)

    def lines(self):
        path = self.out / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")] if path.exists() else []

    def said(self):
        path = self.folder / f"hone-{self.number}.log"
        return path.read_text() if path.exists() else ""

    def wait_for_step(self, step):
        until(lambda: self.step() >= step or self.state()["JobState"] in ENDED, lambda: f"step {step}: {self.state()}, {self.said()}")
        assert self.step() >= step, self.said()

    def wait_until_ended(self):
        until(lambda: self.state()["JobState"] in ENDED, lambda: f"the end: {self.state()}, {self.said()}")
        return self.state()

    def lost(self):
        """Steps that were computed again."""
        return sum(map(int, re.findall(r"(\d+) steps? that an earlier process made after the checkpoint", self.said())))

    def ranks(self):
        """Of each process that has begun."""
        return [o["ranks"] for o in self.lines() if o.get("event") in ("start", "resume")]

    def result(self):
        return result_of(self.out)


def result_of(out):
    return {p.name: p.read_bytes() for p in out.glob("*.safetensors")}


def until(done, what):
    begun = time.monotonic()
    while not done():
        assert time.monotonic() - begun < WAIT_MAX, f"waited {WAIT_MAX} s for {what() if callable(what) else what}"
        time.sleep(0.1)


def kill_a_rank(job, draw):
    host = draw.choice(job.cluster.hosts)
    ranks = [pid for pid in rig.processes_of(host) if os.path.realpath(f"/proc/{pid}/exe") == str(HONE)]
    assert len(ranks) == 1, ranks
    os.kill(ranks[0], signal.SIGKILL)


def requeue(job, _):
    job.cluster.ask("scontrol", "requeue", job.number)


def drain(job, _):
    job.cluster.tell_node(job.cluster.hosts[1], "drain")
    requeue(job, _)


def cut(job, _):
    job.cluster.hosts[1].tell("ip", "link", "set", "net0", "down")


def wait_for_time(job, _):
    """Slurm sends USR1 by itself."""


# What is done to a job, how many ranks go on, the maximum number of steps that are lost (the save of the newest checkpoint may be cut
# off), and what the job has in place of the script's settings.
CASES = {
    "a rank is killed": (kill_a_rank, 2, 2 * SAVES, [], {}),
    "a rank of MPICH is killed": (kill_a_rank, 2, 2 * SAVES, [], {"MPI": "pmi2"}),
    "`scontrol requeue`": (requeue, 2, 0, [], {}),
    "its time is up": (wait_for_time, 2, 0, ["--time=2", "--signal=USR1@60"], {}),
    "a node is drained": (drain, 1, 0, [], {}),
    "a node is cut off": (cut, 1, 2 * SAVES, [], {}),
}
CANCELLED = "`scancel`"


def alone(job, copy):
    """What one process makes of a copy of a job's folder."""
    subprocess.run([HONE, "train", job.folder / "run.yaml", "--output", copy, "--threads", "1"], check=True, capture_output=True)
    return result_of(copy)


def whole(cluster, work, wholes, steps):
    """What a run that is never disturbed makes in so many steps, and the seconds of its steps."""
    if steps not in wholes:
        job = Job(cluster, work / f"whole-{steps}", steps=steps)
        assert job.wait_until_ended()["ExitCode"] == "0:0", job.said()
        assert job.ranks() == [2] and job.result(), job.said()
        wholes[steps] = job.result(), sum(o["step_seconds"] for o in job.lines() if "loss" in o)
    return wholes[steps]


def trial(cluster, work, name, wholes, draw):
    strike, ranks, lost_max, flags, settings = CASES[name]
    folder, steps = work / name.strip("`").replace(" ", "-"), STEPS
    if strike is wait_for_time:
        steps = max(steps, int(steps * TIME / whole(cluster, work, wholes, steps)[1]))
    want = whole(cluster, work, wholes, steps)[0]
    job = Job(cluster, folder, *flags, steps=steps, **settings)
    job.wait_for_step(draw.randrange(3 * SAVES, STEPS // 2))
    begun = time.monotonic()
    strike(job, draw)
    until(lambda: job.state()["JobState"] in ("PENDING", *ENDED), lambda: f"the queue: {job.state()}, {job.said()}")
    shutil.copytree(job.out, folder / "copy")
    state = job.wait_until_ended()
    seconds = time.monotonic() - begun
    assert (state["JobState"], state["ExitCode"]) == ("COMPLETED", "0:0"), f"{state}, {job.said()}"
    assert job.ranks()[0] == 2 and set(job.ranks()[1:]) == {ranks}, f"ranks {job.ranks()}: {job.said()}"
    assert job.result() == (want if ranks == 2 else alone(job, folder / "copy")), f"other bytes: {job.said()}"
    assert job.lost() <= lost_max, f"{job.lost()} steps lost: {job.said()}"
    print(f"{name}: ranks {job.ranks()}, {job.lost()} steps lost, ended after {seconds:.1f} s", flush=True)
    figures.record("Slurm", name, ranks=", then ".join(map(str, job.ranks())), steps=steps, saved_every=SAVES, steps_lost=job.lost(),
                   same_bytes="yes")


def check_cancelled(cluster, work):
    """Its ranks end with the code of a request to stop, or by a signal: it must not be put back all the same."""
    job = Job(cluster, work / "cancelled")
    job.wait_for_step(SAVES)
    cluster.ask("scancel", job.number)
    until(lambda: cluster.idle() == len(cluster.hosts), "the nodes")
    time.sleep(AGAIN + 5)
    state = job.state()
    assert (state["JobState"], state["Restarts"], len(job.ranks())) == ("CANCELLED", "0", 1), f"{state}, {job.said()}"
    print(f"{CANCELLED}: it has not come back", flush=True)


def main():
    reason = missing()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    chosen, wholes, failed, draw = sys.argv[4:] or [*CASES, CANCELLED], {}, 0, random.Random(16)
    with tempfile.TemporaryDirectory() as name, rig.network(2, delay=0, rate=0) as hosts:
        work = pathlib.Path(name)
        work.chmod(0o755)                               # munged wants its clients to reach its socket
        cluster = Cluster(hosts, work)
        for case in chosen:
            try:
                check_cancelled(cluster, work) if case == CANCELLED else trial(cluster, work, case, wholes, draw)
            except AssertionError as why:
                failed += 1
                print(f"FAILED {case}: {why}", flush=True)
            cluster.repair()
    sys.exit(f"{failed} of {len(chosen)} cases failed" if failed else 0)


if __name__ == "__main__":
    main()
