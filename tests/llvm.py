"""The tools of LLVM that checks use, of only one release, since releases differ."""
import shutil
import subprocess

RELEASE = "14"


def find(tool):
    """The path of a tool, or None, having said what to install."""
    for name in (f"{tool}-{RELEASE}", tool):
        path = shutil.which(name)
        if path and f"version {RELEASE}." in subprocess.run([path, "--version"], capture_output=True, text=True).stdout:
            return path
    print(f"{tool} {RELEASE} is not installed (Debian: {tool}-{RELEASE})")
    return None
