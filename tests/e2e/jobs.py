#!/usr/bin/env python3
"""The examples of jobs for clusters, as far as one machine can try them.

    jobs.py HONE ASSETS DATA

The Slurm script runs with a srun and a scontrol of this test; the unit is checked by systemd-analyze, the manifest by what
Kubernetes says a Job is. Their exit codes are those of src/base/status.def, and hone takes their options.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

from case import CHAT, HONE, TINY, Case, main

try:
    import yaml
except ImportError:
    yaml = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
CODES = dict(re.findall(r"STATUS\((\w+), (\d+)", (ROOT / "src/base/status.def").read_text()))
STOPPED, LOST = int(CODES["ERR_STOPPED"]), int(CODES["ERR_RANK"])
FINAL = sorted(int(CODES[name]) for name in ("ERR_ARGUMENT", "ERR_FORMAT", "ERR_UNSUPPORTED", "ERR_DATA"))  # the same would happen again


class Jobs(Case):
    def program(self, name, *lines):
        path = self.dir / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        path.chmod(0o755)

    def slurm(self, code, **variables):
        """The script's exit code and what it told Slurm, where hone ends with this code."""
        told = self.dir / "told"
        told.write_text("")
        self.program("srun", f': > {self.dir}/flags',
                     f'while [ "${{1#-}}" != "$1" ]; do echo "$1" >> {self.dir}/flags; shift; done', 'exec "$@"')
        self.program("scontrol", f'echo "$@" >> {told}')
        self.program("hone", f'echo "$@" > {self.dir}/args', f"exit {code}")
        environment = {**os.environ, "PATH": f"{self.dir}/bin:{os.environ['PATH']}", "SLURM_JOB_ID": "42", "SLURM_CPUS_PER_TASK": "3",
                       "SLURM_SUBMIT_DIR": str(self.dir), **variables}
        done = subprocess.run(["bash", EXAMPLES / "slurm.sh"], env=environment, cwd=self.dir, capture_output=True, text=True)
        self.assertEqual(done.stderr, "")
        return done.returncode, told.read_text().split()

    def test_a_slurm_job_that_was_asked_to_stop_is_put_back_and_no_other(self):
        self.assertEqual(self.slurm(STOPPED), (0, ["requeue", "42"]))
        self.assertEqual(self.slurm(0), (0, []))
        for code in (*FINAL, 1):
            self.assertEqual(self.slurm(code), (code, []))
        for code in LOST, 137, 139:                                         # srun's own of a rank that SIGKILL or SIGSEGV has ended
            for count, lost in ("0", (0, ["requeue", "42"])), ("3", (LOST, [])):
                self.assertEqual(self.slurm(code, SLURM_RESTART_COUNT=count), lost)
        self.assertEqual((self.dir / "args").read_text().split(), ["train", "run.yaml", "--output", str(self.dir / "out"), "--threads", "3"])

    def test_tasks_of_slurm_get_their_processors_and_find_each_other(self):
        """srun takes neither over from sbatch: since 22.05 not --cpus-per-task, and --mpi is none unless a cluster says otherwise. Without
        --ntasks Slurm says how many machines it has found, and the script starts a rank on each."""
        for variables, ranks, mpi in (({"SLURM_NTASKS": "1"}, 1, []), ({"SLURM_NTASKS": "4"}, 4, ["--mpi=pmix"]),
                                      ({"SLURM_NTASKS": "4", "MPI": "pmi2"}, 4, ["--mpi=pmi2"]), ({"SLURM_JOB_NUM_NODES": "1"}, 1, []),
                                      ({"SLURM_JOB_NUM_NODES": "3"}, 3, ["--mpi=pmix"]),
                                      ({"SLURM_NTASKS": "4", "SLURM_JOB_NUM_NODES": "2"}, 4, ["--mpi=pmix"])):
            self.slurm(0, **variables)
            self.assertEqual((self.dir / "flags").read_text().split(), [f"--ntasks={ranks}", "--cpus-per-task=3", "--wait=600", *mpi])
        head = [line for line in (EXAMPLES / "slurm.sh").read_text().splitlines() if line.startswith("#SBATCH")]
        self.assertIn("#SBATCH --gpus-per-node=1", head)
        self.assertFalse([line for line in head if "ntasks" in line])           # it could not be taken back for --nodes=1-4

    def test_the_slurm_script_is_clean(self):
        if not shutil.which("shellcheck"):
            self.skipTest("there is no shellcheck")
        subprocess.run(["shellcheck", EXAMPLES / "slurm.sh"], check=True)

    def takes(self, args):
        """hone accepts the words of an example: it trains one step with them, with this folder in place of theirs."""
        (self.dir / "run.yaml").write_text(f"model: {TINY}\ndata: {self.write('train.jsonl', CHAT)}\nmax_steps: 1\n")
        words = [str(self.dir / pathlib.Path(word).name) if word.startswith("/") else word for word in args]
        done = subprocess.run([HONE, *words, "--device", "cpu"], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        shutil.rmtree(self.dir / "out")

    def test_the_unit_is_valid_and_knows_the_exit_codes(self):
        text = (EXAMPLES / "hone.service").read_text()
        unit = dict(line.split("=", 1) for line in text.splitlines() if re.match(r"[A-Z]\w+=", line))
        self.assertEqual(int(unit["SuccessExitStatus"]), STOPPED)
        self.assertEqual([int(code) for code in unit["RestartPreventExitStatus"].split()], FINAL)
        program, *args = unit["ExecStart"].split()
        self.assertEqual(program, "/usr/bin/hone")
        self.takes(args)
        if not shutil.which("systemd-analyze"):
            self.skipTest("there is no systemd-analyze")
        copy = self.dir / "hone.service"
        copy.write_text(text.replace(program, str(pathlib.Path(HONE).resolve())))
        done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_the_manifest_is_a_job_that_knows_the_exit_codes(self):
        if not yaml:
            self.skipTest("there is no PyYAML")
        jobs = {tree["kind"]: tree for tree in yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text())}
        job = jobs["Job"]
        self.assertEqual(job["apiVersion"], "batch/v1")
        pod, rules = job["spec"]["template"]["spec"], job["spec"]["podFailurePolicy"]["rules"]
        self.assertEqual(pod["restartPolicy"], "Never")                         # podFailurePolicy requires it
        [container] = pod["containers"]
        codes = {rule["action"]: rule["onExitCodes"] for rule in rules if "onExitCodes" in rule}
        self.assertEqual({action: code["values"] for action, code in codes.items()}, {"FailJob": FINAL, "Ignore": [STOPPED]})
        self.assertEqual({code["containerName"] for code in codes.values()}, {container["name"]})
        self.assertEqual({mount["name"] for mount in container["volumeMounts"]}, {volume["name"] for volume in pod["volumes"]})
        self.takes(container["args"])
        replicas = jobs["MPIJob"]["spec"]["mpiReplicaSpecs"]
        [launcher], [worker] = (replicas[role]["template"]["spec"]["containers"] for role in ("Launcher", "Worker"))
        at = launcher["command"].index("-n")
        start, (_, ranks, program, *args) = launcher["command"][0], launcher["command"][at:]
        self.assertEqual((jobs["MPIJob"]["apiVersion"], start, program), ("kubeflow.org/v2beta1", "mpirun", "hone"))
        self.assert_ranks_end_in_time(launcher["command"][:at], replicas)
        self.assertEqual(int(ranks), replicas["Worker"]["replicas"] * jobs["MPIJob"]["spec"]["slotsPerWorker"])
        self.assertEqual(worker["resources"], container["resources"])
        self.takes(args)

    def assert_ranks_end_in_time(self, flags, replicas):
        """mpirun kills ranks a second after SIGTERM, and sshd, the first process of a worker, leaves them none: they are asked before."""
        launcher, worker = (replicas[role]["template"]["spec"] for role in ("Launcher", "Worker"))
        for spec, asks in (launcher, "pkill -USR2 -x mpirun"), (worker, "pkill -USR1 -x hone"):
            self.assertGreaterEqual(spec["terminationGracePeriodSeconds"], 600)
            self.assertIn(asks, spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][-1])
        self.assertIn("--allow-run-as-root", flags)
        for spec in launcher, worker:
            [container] = spec["containers"]
            self.assertEqual(container["image"], "localhost/hone-ranks:latest")
        mounts = {mount["name"] for mount in worker["containers"][0]["volumeMounts"]}
        self.assertEqual(mounts, {volume["name"] for volume in worker["volumes"]})

    def test_the_container_has_what_the_readme_names(self):
        text = (EXAMPLES / "Containerfile").read_text()
        packages = re.search(r"apt-get install ((?:.|\\\n)*?)\n(?!\s)", (ROOT / "README.md").read_text()).group(1)
        for package in packages.replace("\\", " ").split():
            self.assertRegex(text, rf"\b{re.escape(package)}\b")
        self.assertRegex(text, r"FROM alone\nUSER 10001\n$")            # the image that is made if none is named
        ranks = text[text.index("FROM alone AS ranks"):]
        for package in "openmpi-bin", "openssh-server", "procps", "nvidia-nccl-cu12":
            self.assertIn(package, ranks)
        self.assertIn("libopenmpi-dev", text[:text.index("AS alone")])    # without it no plug-in is built
        self.assertRegex((EXAMPLES / "kubernetes.yaml").read_text(), r"runAsUser: 10001\b")


if __name__ == "__main__":
    main(Jobs, Jobs)
