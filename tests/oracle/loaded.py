"""Runs a script in a process that has torch, transformers and peft loaded already: loaded.py SCRIPT ARGUMENT...

They take eight seconds of a processor to load, and some thirty tests need them. The first one starts a server, which loads them once;
each script then runs in a process forked from it, with the arguments, environment, folder and output of the one that asks, and its
exit code is this one's. The server uses no library before it forks, so a script finds them as it would have loaded them itself.
The server ends a minute after its last script. If whoever asks is killed, so is the script. HONE_ORACLE_ALONE=1: without a server.
"""
import fcntl
import hashlib
import json
import os
import pathlib
import runpy
import select
import signal
import socket
import stat
import subprocess
import sys
import tempfile

IDLE = 60       # seconds
HEAD = 1 << 20  # of a request


def place():
    """The socket, in a folder of this user's own: another Python, or another version of this file, has another."""
    folder = pathlib.Path(tempfile.gettempdir(), f"hone-oracle-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise OSError(f"{folder} is not this user's")
    key = hashlib.sha256(sys.prefix.encode() + b"\0" + pathlib.Path(__file__).read_bytes()).hexdigest()[:16]
    return folder / key


# The one that asks.

def connect(path):
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        client = socket.socket(socket.AF_UNIX)
        try:
            client.connect(str(path))
            return client
        except OSError:
            path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen(64)
            subprocess.Popen([sys.executable, __file__, "--serve", str(listener.fileno()), str(path)], pass_fds=[listener.fileno()],
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", start_new_session=True)
        client.connect(str(path))
        return client


def ask(arguments):
    """The exit code of the script, or None if no server took it."""
    with connect(place()) as client:
        head = json.dumps([[os.path.abspath(arguments[0]), *arguments[1:]], os.getcwd(), dict(os.environ)]).encode()
        socket.send_fds(client, [len(head).to_bytes(4, "big")], [0, 1, 2])
        client.sendall(head)
        if client.recv(1) != b"+":
            return None
        said = client.recv(4)
        return int.from_bytes(said, "big") if len(said) == 4 else 1


# The server.

def receive(client):
    size, fds, _, _ = socket.recv_fds(client, 4, 3)
    head = b""
    while len(head) < int.from_bytes(size, "big"):
        piece = client.recv(HEAD)
        if not piece:
            raise OSError("a request without its end")
        head += piece
    return json.loads(head), fds


def watch(client, child):
    """Waits for the script; kills it, and what it started, if the one that asked is gone."""
    ended = os.pidfd_open(child)
    if client in select.select([client, ended], [], [])[0]:
        os.killpg(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        client.sendall((code if code >= 0 else 128 - code).to_bytes(4, "big"))
    except OSError:
        pass
    os._exit(0)


def take(client):
    """In a process of its own. Returns in that of the script, with its arguments."""
    (arguments, folder, environment), fds = receive(client)
    client.sendall(b"+")
    child = os.fork()
    if child:
        for fd in fds:
            os.close(fd)
        watch(client, child)
    os.setpgid(0, 0)
    client.close()
    for to, fd in enumerate(fds):
        os.dup2(fd, to)
        os.close(fd)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    return arguments


def reap():
    """How many scripts still run."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return True
        except ChildProcessError:
            return False


def serve(listener, path):
    """Returns in the process of a script, with its arguments."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")                # as in oracle.py: they count when the libraries are loaded
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import peft  # noqa: F401
    import torch  # noqa: F401
    from transformers import AutoModelForCausalLM, AutoTokenizer, get_scheduler  # noqa: F401
    while True:
        busy = reap()
        if not select.select([listener], [], [], 1 if busy else IDLE)[0]:
            if busy:
                continue
            with open(f"{path}.lock", "w") as lock:             # nobody connects meanwhile
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not select.select([listener], [], [], 0)[0]:
                    os.unlink(path)
                    sys.exit()
            continue
        client, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            return take(client)
        client.close()


def main():
    """What is to be run in this process: SCRIPT ARGUMENT..."""
    if sys.argv[1] == "--serve":
        return serve(socket.socket(fileno=int(sys.argv[2])), sys.argv[3])
    if os.environ.get("HONE_ORACLE_ALONE"):
        return sys.argv[1:]
    try:
        code = ask(sys.argv[1:])
    except OSError as error:
        print(f"loaded.py: {error}; without a server", file=sys.stderr)
        code = None
    return sys.argv[1:] if code is None else sys.exit(code)


if __name__ == "__main__":
    sys.argv = main()
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")
