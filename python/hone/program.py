"""The command `hone` of the wheel: the program inside it, with the libraries of this Python's environment."""
import os
import pathlib
import sys


def main():
    program = pathlib.Path(__file__).parent / "bin" / "hone"
    if sys.prefix != sys.base_prefix:
        os.environ.setdefault("VIRTUAL_ENV", sys.prefix)        # where hone looks for NVIDIA's libraries
    os.execv(program, ["hone", *sys.argv[1:]])
