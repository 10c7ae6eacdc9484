"""The tarball and the wheel of packaging/bundle.py: packages.py HONE ASSETS DATA [--large], built next to HONE's folder.

Both need nothing but glibc. With --large: the same sources give the same bytes, in another folder too.
"""
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import venv

from case import ASSETS, HONE, TINY, Case, main

ROOT = pathlib.Path(__file__).resolve().parents[2]
GLIBC = re.compile(r"(linux-vdso|/lib64/ld-linux|libc|libm)\b")


class Packages(Case):
    def make(self, *command, **options):
        result = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, timeout=1200, **options)
        self.assertEqual(result.returncode, 0, f"{command}\n{result.stdout[-2000:]}{result.stderr[-2000:]}")
        return result.stdout

    def bundle(self, build, name):
        self.make("cmake", "-G", "Ninja", "-S", ROOT, "-B", build, "-DCMAKE_BUILD_TYPE=Release", "-DHONE_PORTABLE=ON",
                  "-DCMAKE_INSTALL_LIBDIR=lib", "-DCMAKE_C_COMPILER=gcc")
        self.make("cmake", "--build", build)
        self.make(sys.executable, ROOT / "packaging/bundle.py", build, self.dir / name)
        tarball, wheel = sorted((self.dir / name).iterdir(), key=lambda path: path.suffix)
        return tarball, wheel

    def test_packages(self):
        folder = pathlib.Path(HONE).resolve().parents[1]       # as deep as HONE's: a cache of objects has those of this build
        tarball, wheel = self.bundle(folder / "portable", "made")
        for one, again in zip((tarball, wheel), self.bundle(folder / "elsewhere/portable", "again") if "--large" in sys.argv else ()):
            self.assertEqual(one.read_bytes(), again.read_bytes(), f"{one.name}: another folder gives other bytes")
        with tarfile.open(tarball) as file:
            file.extractall(self.dir)
        program = self.dir / tarball.name.removesuffix(".tar.gz") / "bin/hone"
        for line in self.make("ldd", program).splitlines():
            self.assertTrue(GLIBC.search(line) or f"{self.dir}/" in line, line)
        self.assertTrue(list(program.parents[1].glob("share/doc/hone/licences/libdnnl*")))
        venv.create(self.dir / "venv", with_pip=True)
        python = self.dir / "venv/bin/python"
        self.make(python, "-m", "pip", "-q", "install", "--no-index", wheel)
        self.assertIn("Name: libhone\n", self.make(python, "-m", "pip", "show", "libhone"))      # the hone of PyPI is another project
        self.assertEqual(self.make(self.dir / "venv/bin/hone", "--version"), self.make(program, "--version"))
        said = self.make(python, ROOT / "examples/embed.py", TINY, self.dir / "adapter", cwd=self.dir)
        self.assertIn("step 30: loss", said)
        self.assertTrue((self.dir / "adapter/adapter_model.safetensors").exists())
        self.losses_with_only_the_header_and_the_wheel(program.parents[1] / "include", next((self.dir / "venv/lib").glob("python*/site-packages")))

    def losses_with_only_the_header_and_the_wheel(self, include, site):
        """From C and from Python, against PyTorch. Breaks with another sign of the advantage in clipped_ratio.c."""
        library = next((site / "hone/lib").glob("libhone.so.*"))
        self.make("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{include}", ROOT / "tests/oracle/losses.c", library,
                  f"-Wl,-rpath,{library.parent}", f"-Wl,-rpath-link,{library.parent}", "-o", self.dir / "losses")
        own = {name: value for name, value in os.environ.items() if not name.startswith("HONE_")}
        said = self.make(ASSETS / "venv/bin/python", ROOT / "tests/oracle/losses.py", TINY, self.dir / "losses", cwd=self.dir,
                         env={**own, "PYTHONPATH": str(site)})
        self.assertIn(", 0 failed", said)


main(Packages, Packages)
