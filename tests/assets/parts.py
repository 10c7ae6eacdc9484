"""Parts of a folder, each keyed by the hash of its recipe.

A part is a file or folder below DIR and the texts that decide what is in it. Its hash stands in DIR/recipes/NAME, the stamp, written
when the part is whole. The same hash: nothing is done. Another, or none: only the part is made again, aside, and takes its place
when it is done; so nothing half-made counts as made, whenever a build is killed.
"""
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess


class Part:
    """`make(path)` makes what then lies at DIR/name. `recipe` holds all that decides the result: parameters, versions, the text of
    the program that makes it, and other parts, whose hashes count. `in_place`: for what cannot be moved once it is made."""

    def __init__(self, name, recipe, make, in_place=False):
        self.name, self.make, self.in_place = name, make, in_place
        digest = hashlib.sha256(name.encode())
        for item in recipe:
            text = item.hash if isinstance(item, Part) else item
            digest.update(b"\0" + (text if isinstance(text, bytes) else text.encode()))
        self.hash = digest.hexdigest()


def remove(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def start(command, **options):
    """subprocess.run, by a process that has the lock too: one that outlives its parent keeps others out until it ends."""
    return subprocess.run([str(word) for word in command], close_fds=False, **options)


class Folder:
    def __init__(self, path):
        self.path = pathlib.Path(path).absolute()
        self.path.mkdir(parents=True, exist_ok=True)

    def stamp(self, part):
        return self.path / "recipes" / part.name

    def fresh(self, part):
        stamp = self.stamp(part)
        return stamp.is_file() and stamp.read_bytes() == part.hash.encode() + b"\n" and (self.path / part.name).exists()

    def write_stamp(self, part):
        stamp = self.stamp(part)
        stamp.parent.mkdir(parents=True, exist_ok=True)
        fresh = stamp.with_name(stamp.name + ".part")
        fresh.write_text(part.hash + "\n")
        fresh.replace(stamp)

    def make(self, part):
        path = self.path / part.name
        aside = path if part.in_place else path.with_name(path.name + ".part")
        self.stamp(part).unlink(missing_ok=True)
        remove(aside)
        aside.parent.mkdir(parents=True, exist_ok=True)
        part.make(aside)
        if not part.in_place:
            remove(path)
            aside.rename(path)
        self.write_stamp(part)

    def update(self, parts):
        """Makes the parts that are not fresh, in their order, and returns their names. One process at a time: another waits."""
        made = []
        with open(self.path / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.set_inheritable(lock.fileno(), True)
            for part in parts:
                if not self.fresh(part):
                    self.make(part)
                    made.append(part.name)
        return made


def total(parts):
    """One hash of all recipes: the key of a cache that keeps the whole folder."""
    return hashlib.sha256("\n".join(part.hash for part in parts).encode()).hexdigest()
