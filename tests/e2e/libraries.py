#!/usr/bin/env python3
"""Which of CUDA's libraries are taken, by the driver's version.

    libraries.py HONE ASSETS DATA STAND-INS

The driver and cuBLAS are the simulator's, which have the versions that the environment says. STAND-INS has libraries in place of
NVRTC (tests/device/nvrtc.c): 12.99 and 13.99, which no loader's cache has.
"""
import os
import pathlib
import sys

from case import Case, main, run

STAND_INS = pathlib.Path(sys.argv[4])
NVRTC_12, NVRTC_13 = STAND_INS / "libnvrtc.so.12", STAND_INS / "libnvrtc.so.13"


class Libraries(Case):
    def devices(self, **environment):
        """The line about CUDA, and what was said besides it."""
        result = run("devices", env={**os.environ, "CUDASIM_QUIET": "1", "HONE_OPENCL_LIBRARY": "/nowhere",
                                     **{k: str(v) for k, v in environment.items()}})
        self.assertEqual(result.returncode, 0, result.stderr)
        return next(line for line in result.stdout.splitlines() if line.startswith("cuda")), result.stderr

    def says(self, text, *words):
        for word in words:
            self.assertIn(word, text)

    def test_an_nvrtc_of_a_newer_major_than_the_driver_is_refused_by_name(self):
        """Seen to fail without cuda_check_release in cuda_load_nvrtc."""
        line, _ = self.devices(CUDASIM_DRIVER=12080, HONE_NVRTC_LIBRARY=NVRTC_13)
        self.says(line, "not usable", f"NVRTC ({NVRTC_13})", "13.99", "CUDA 12.8", "pip install nvidia-cuda-nvrtc-cu12", "580 or later")
        for driver, nvrtc in (13000, NVRTC_13), (13000, NVRTC_12), (12080, NVRTC_12), (12000, NVRTC_12):
            line, words = self.devices(CUDASIM_DRIVER=driver, HONE_NVRTC_LIBRARY=nvrtc)
            self.says(line, "cudasim 8.9")
            self.assertEqual(words, "")

    def test_of_two_releases_the_one_of_the_driver_is_taken(self):
        """Seen to fail with `first` set to 1, and to 0, in open_library. A target that neither knows tells which one it was."""
        (self.dir / "lib64").symlink_to(STAND_INS)
        for driver, major in (12080, 12), (13000, 13):
            line, _ = self.devices(CUDASIM_DRIVER=driver, CUDASIM_CC="9.9", CUDA_HOME=self.dir)
            self.assertRegex(line, rf"NVRTC {major}\.\d+ cannot compile")

    def test_kernels_that_a_newer_nvrtc_made_ahead_are_refused_by_name(self):
        """Seen to fail without cuda_check_release in cuda_code_open."""
        (self.dir / "kernels").mkdir()
        (self.dir / "kernels/sm_89.nvrtc").write_text("13.0\n")
        line, _ = self.devices(CUDASIM_DRIVER=12080, HONE_NVRTC_LIBRARY="none", HONE_CACHE=self.dir)
        self.says(line, "not usable", "made the cache's kernels", str(self.dir), "13.0", "nvidia-cuda-nvrtc-cu12")
        line, _ = self.devices(CUDASIM_DRIVER=13000, HONE_NVRTC_LIBRARY="none", HONE_CACHE=self.dir)
        self.says(line, "cudasim 8.9")

    def test_a_cublas_of_a_newer_major_than_the_driver_is_named_and_done_without(self):
        """Seen to fail without cuda_check_release in cuda_load_cublas: the words are then those of one that does not start."""
        line, words = self.devices(CUDASIM_DRIVER=12080, CUDASIM_CUBLAS=130100, HONE_NVRTC_LIBRARY=NVRTC_12)
        self.says(line, "cudasim 8.9")
        self.says(words, "cuBLAS (", "13.1", "CUDA 12.8", "pip install nvidia-cublas-cu12", "hone's own kernels")
        _, words = self.devices(CUDASIM_DRIVER=13000, CUDASIM_CUBLAS=130100, HONE_NVRTC_LIBRARY=NVRTC_12)
        self.assertEqual(words, "")

    def test_a_cublas_that_does_not_start_is_named_and_done_without(self):
        """Seen to fail with the status of start() returned by cuda_gemm_open."""
        line, words = self.devices(CUDASIM_DRIVER=13000, CUDASIM_CUBLAS_STARTS=0, HONE_NVRTC_LIBRARY=NVRTC_12)
        self.says(line, "cudasim 8.9")
        self.says(words, "cuBLAS: starting: error 1", "hone's own kernels")
        self.assertEqual(words.count("\n"), 1)

    def test_nvrtc_finds_its_other_library_next_to_itself_whatever_the_loader_knows(self):
        """Seen to fail without open_builtins."""
        line, _ = self.devices(CUDASIM_DRIVER=13000, HONE_NVRTC_LIBRARY=NVRTC_13)
        self.says(line, "cudasim 8.9")
        (self.dir / "libnvrtc.so.13").symlink_to(NVRTC_13)
        line, _ = self.devices(CUDASIM_DRIVER=13000, HONE_NVRTC_LIBRARY=self.dir / "libnvrtc.so.13")
        self.says(line, "not usable", "does not report which devices it compiles for", "pip install --upgrade nvidia-cuda-nvrtc")


if __name__ == "__main__":
    main(Libraries, Libraries)
