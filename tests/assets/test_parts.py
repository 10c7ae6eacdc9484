#!/usr/bin/env python3
"""The rules of parts.py, on recipes that write a word.

Seen to fail without the stamp's removal in Folder.make: a build that was killed counts as made when its recipe comes back. And
without set_inheritable: the next build writes next to a process that the killed one had started.
"""
import importlib.machinery
import importlib.util
import os
import pathlib
import signal
import sys
import tempfile
import time
import unittest

import parts

HERE = pathlib.Path(__file__).resolve().parent


class Parts(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = parts.Folder(pathlib.Path(self.temporary.name) / "assets")
        self.words = {"one": "a", "two": "b", "three/four": "c"}

    def tearDown(self):
        self.temporary.cleanup()

    def recipes(self, in_place=False):
        """A file each for `one` and `two`, a folder for `three/four`, which is made of `one`."""
        def file(name):
            return lambda path: path.write_text(self.words[name])

        def folder(path):
            path.mkdir()
            (path / "word").write_text(self.words["three/four"] + (self.folder.path / "one").read_text())
        one, two = (parts.Part(name, [self.words[name]], file(name), in_place) for name in ("one", "two"))
        return [one, two, parts.Part("three/four", [self.words["three/four"], one], folder, in_place)]

    def read(self, name):
        return (self.folder.path / name).read_text()

    def test_what_is_fresh_is_left_alone(self):
        self.assertEqual(self.folder.update(self.recipes()), ["one", "two", "three/four"])
        self.assertEqual(self.folder.update(self.recipes()), [])
        self.assertEqual(self.read("three/four/word"), "ca")

    def test_another_recipe_makes_that_part_again_and_no_other(self):
        self.folder.update(self.recipes())
        self.words["two"] = "B"
        self.assertEqual(self.folder.update(self.recipes()), ["two"])
        self.assertEqual(self.read("two"), "B")

    def test_what_is_made_of_a_part_is_made_again_with_it(self):
        self.folder.update(self.recipes())
        self.words["one"] = "A"
        self.assertEqual(self.folder.update(self.recipes()), ["one", "three/four"])
        self.assertEqual(self.read("three/four/word"), "cA")

    def test_what_was_removed_is_made_again(self):
        self.folder.update(self.recipes())
        (self.folder.path / "two").unlink()
        self.assertEqual(self.folder.update(self.recipes()), ["two"])

    def test_what_lies_there_without_a_stamp_does_not_count(self):
        (self.folder.path / "two").write_text("found")
        self.assertEqual(self.folder.update(self.recipes()), ["one", "two", "three/four"])
        self.assertEqual(self.read("two"), "b")

    def test_a_damaged_stamp_does_not_count(self):
        self.folder.update(self.recipes())
        (self.folder.path / "recipes/two").write_bytes(b"\xff\0")
        self.assertEqual(self.folder.update(self.recipes()), ["two"])

    def killed(self, recipes, slow):
        """Updates in another process, which gets SIGKILL when the part `slow` is half-made."""
        part = next(part for part in recipes if part.name == slow)
        ready, begun = os.pipe()

        def stall(path):
            path.mkdir()
            (path / "word").write_text("half")
            os.write(begun, b"!")
            time.sleep(600)
        part.make = stall
        process = os.fork()
        if process == 0:
            self.folder.update(recipes)
            os._exit(0)
        os.close(begun)                                 # so that a child that ends ends the wait
        self.assertEqual(os.read(ready, 1), b"!", "the part was not made at all")
        os.kill(process, signal.SIGKILL)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), -signal.SIGKILL)
        os.close(ready)

    def test_a_build_that_is_killed_is_made_again(self):
        for in_place in (False, True):
            with self.subTest(in_place=in_place):
                self.killed(self.recipes(in_place), "three/four")
                self.assertEqual(self.folder.update(self.recipes(in_place)), ["three/four"])
                self.assertEqual(self.read("three/four/word"), "ca")
                self.words["three/four"] = "C"                  # the old part has a stamp when its successor is killed
                self.killed(self.recipes(in_place), "three/four")
                self.words["three/four"] = "c"                  # and its recipe comes back
                self.assertEqual(self.folder.update(self.recipes(in_place)), ["three/four"])
                self.assertEqual(self.read("three/four/word"), "ca")
                self.assertEqual(self.folder.update(self.recipes(in_place)), [])
                self.folder = parts.Folder(self.folder.path.with_name("other"))

    def test_what_a_killed_build_had_started_is_waited_for(self):
        late = "import os, sys, time; os.write(1, b'!'); time.sleep(0.5); open(sys.argv[1], 'w').write('late')"
        ready, begun = os.pipe()
        recipes = self.recipes(in_place=True)
        recipes[0].make = lambda path: parts.start([sys.executable, "-c", late, path], stdout=begun)
        process = os.fork()
        if process == 0:
            self.folder.update(recipes)
            os._exit(0)
        os.close(begun)
        self.assertEqual(os.read(ready, 1), b"!")
        os.close(ready)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        self.assertEqual(self.folder.update(self.recipes(in_place=True)), ["one", "two", "three/four"])
        time.sleep(1)
        self.assertEqual(self.read("one"), "a")

    def test_one_hash_stands_for_all_recipes(self):
        before = parts.total(self.recipes())
        self.assertEqual(parts.total(self.recipes()), before)
        self.words["two"] = "B"
        self.assertNotEqual(parts.total(self.recipes()), before)


class Recipes(unittest.TestCase):
    """The real recipes, which nothing is made by here."""

    def setUp(self):
        loader = importlib.machinery.SourceFileLoader("get", str(HERE / "get"))
        self.get = importlib.util.module_from_spec(importlib.util.spec_from_loader("get", loader))
        loader.exec_module(self.get)

    def hashes(self):
        return {part.name: part.hash for part in self.get.Recipes(pathlib.Path("/")).parts}

    def changed(self, change):
        before = self.hashes()
        change()
        after = self.hashes()
        return {name for name in after if before.get(name) != after[name]}

    def test_a_family_changes_only_its_model(self):
        self.assertEqual(self.changed(lambda: self.get.FAMILIES["phi3"][1].update(rms_norm_eps=1e-6)), {"models/tiny-phi3"})

    def test_a_package_more_changes_only_the_venv(self):
        pins = self.get.pins
        self.get.pins = lambda *names: pins(*names) + ([] if names else ["another==1.0"])
        before = self.hashes()
        self.get.pins = pins
        self.assertEqual({name for name, key in self.hashes().items() if before[name] != key}, {"venv"})


if __name__ == "__main__":
    unittest.main()
