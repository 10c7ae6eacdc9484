"""Talks to the program built from tokenize.c: frames of 32-bit lengths and bytes."""

import struct
import subprocess


class Failed(str):
    """What hone says instead of a result."""


def run(tool, mode, path, frames):
    """One result for each frame: bytes, or Failed."""
    data = b"".join([struct.pack("=i", len(frame)) + frame for frame in frames])
    process = subprocess.run([tool, mode, path], input=data, capture_output=True)
    if process.returncode:
        raise SystemExit(f"{path}: {tool} ended with {process.returncode}: {process.stderr.decode()}")
    out, at, results = process.stdout, 0, []
    while at < len(out):
        length = struct.unpack_from("=i", out, at)[0]
        at += 4
        if length >= 0:
            results.append(out[at:at + length])
            at += length
        else:
            length = struct.unpack_from("=i", out, at)[0]
            results.append(Failed(out[at + 4:at + 4 + length].decode()))
            at += 4 + length
    assert len(results) == len(frames)
    return results


def encode(tool, path, texts, mode="ids"):
    """The ids of each text, as bytes of 32 bits each; what failed stays Failed."""
    return run(tool, mode, path, [text.encode() for text in texts])


def numbers(data):
    return list(struct.unpack(f"={len(data) // 4}i", data))


def pack(ids):
    return struct.pack(f"={len(ids)}i", *ids)


def triples(data):
    flat = numbers(data)
    return list(zip(flat[0::3], flat[1::3], flat[2::3]))
