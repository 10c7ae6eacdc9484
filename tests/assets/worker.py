"""Runs the scripts that make models, each in a process of its own that has the large libraries loaded already: they take longer to
load than most models take to make.

A line of JSON in: [SCRIPT, ARGUMENT...]. A line out, when it has ended: [EXIT CODE, what it said].
"""
import json
import os
import runpy
import sys
import tempfile

import torch  # noqa: F401
import transformers.modeling_utils  # noqa: F401
import transformers.tokenization_utils_base  # noqa: F401


def work(script, arguments, said):
    """In the new process."""
    for fd, to in ((0, os.open(os.devnull, os.O_RDONLY)), (1, said), (2, said)):
        os.dup2(to, fd)
    sys.argv = [script, *arguments]
    sys.path.insert(0, os.path.dirname(script))
    runpy.run_path(script, run_name="__main__")


for line in sys.stdin:
    script, *arguments = json.loads(line)
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            work(script, arguments, said.fileno())
            break                           # as a script ends: what it has left to do at its exit is done
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        print(json.dumps([code, said.read().decode(errors="replace")]), flush=True)
