#!/usr/bin/env python3
"""Lists every place that can execute, open a library, listen, connect, send a credential or read the environment, and fails for one
that is not in its table here.

    doors.py [ROOT]         the list of the sources below ROOT (the working directory)
    doors.py --self-test    shows on lines of each kind that they are found

A place is a file and what it calls. A new one is a decision: does it go through base/code.h, and does SECURITY.md say so?
"""
import pathlib
import re
import sys

from layers import plain, uncommented


def calls(words):
    return rf"(?<![\w>])({words})\s*\("


# kind: (what is looked for, whether in texts too, {file: words that may stand in it})
C = {
    "execute": (calls(r"exec[lv]p?e?|execvpe|fexecve|execveat|posix_spawnp?|popen|system|v?fork|clone3?|syscall|code_execute"), False, {
        "src/base/code.c": "execv code_execute",            # by the policy of base/code.h
        "src/base/code.h": "code_execute",
        "src/base/process.c": "posix_spawn",                # --on-finish: /bin/sh with the words of the command line
        "src/cli/launch.c": "fork code_execute",            # --nproc: a launcher
        "src/cli/helper.c": "fork syscall",                 # runs --on-finish for a confined run; closes what it does not need
        "src/base/confine.c": "syscall",                    # gives up rights
        "src/base/isa.c": "syscall",                        # arch_prctl, for AMX's registers
    }),
    "library": (calls(r"dlm?open|dlvsym|library_open"), False, {
        "src/base/library.c": "dlopen library_open",        # by the policy of base/code.h; all others call it
        "src/base/library.h": "library_open",
        "src/base/codec.c": "library_open",
        "src/base/minisign.c": "library_open",
        "src/device/cuda_api.c": "library_open",
        "src/device/opencl_gemm.c": "library_open",
        "src/device/opencl_library.c": "library_open",
        "src/dist/mpi.c": "library_open",
        "src/hub/http.c": "library_open",
    }),
    "listen": (calls("bind|listen|accept4?"), False, {
        "src/dist/place.c": "bind listen accept4",          # rank 0, for the other ranks
    }),
    "connect": (calls("socket|socketpair|connect|sendto|sendmsg|getaddrinfo|gethostbyname|curl_easy_perform"), False, {
        "src/dist/place.c": "socket connect getaddrinfo",   # the ranks of a run
        "src/cli/helper.c": "socketpair",                     # the line between a run and its helper
        "src/hub/http.c": "curl_easy_perform",              # hone pull
    }),
    "credential": (r'"[^"\n]*(Authorization|HF_TOKEN|HUGGING_FACE_HUB_TOKEN|HONE_SECRET)', True, {
        "src/commands/command_confine.c": "HF_TOKEN",               # the place of its file stays readable for hone pull
        "src/hub/http.c": "Authorization",                  # to the hub's own host
        "src/hub/endpoint.c": "HF_TOKEN HUGGING_FACE_HUB_TOKEN",
        "src/dist/rank_link.c": "HONE_SECRET",                   # in a message
        "src/dist/tcp.c": "HONE_SECRET",                    # never sent: both sides prove that they know it
    }),
    # A variable that names code is read by code_variable, and what it names is judged by code_trust.
    "names code": (r'(?<!\w)code_variable\s*\(\s*"?([^")]+)', True, {
        "src/base/code.h": "const_char_*name",
        "src/base/code.c": "const_char_*name PATH LD_LIBRARY_PATH",
        "src/base/codec.c": "HONE_SNAPPY_LIBRARY",
        "src/base/minisign.c": "HONE_SODIUM_LIBRARY",
        "src/cli/ranks.c": "HONE_MPIRUN",
        "src/device/cuda_api.c": "CONDA_PREFIX CUDA_HOME CUDA_LAUNCH_BLOCKING CUDA_PATH HOME HONE_CUDA_LIBRARY VIRTUAL_ENV variable",    # and those of NVRTC, cuBLAS, NCCL
        "src/device/opencl_gemm.c": "HONE_CLBLAST_LIBRARY",
        "src/device/opencl_library.c": "HONE_OPENCL_LIBRARY",
        "src/dist/mpi.c": "HONE_MPI_PLUGIN",
        "src/hub/http.c": "HONE_CURL_LIBRARY",
    }),
    "environment": (r'(?<!\w)(?:secure_)?getenv\s*\(\s*"?([^")]+)', True, {
        "src/base/cache_path.c": "HOME HONE_CACHE XDG_CACHE_HOME",   # kernels in it are code: device/kernel_cache.c asks code_trust
        "src/base/clock.c": "SOURCE_DATE_EPOCH",
        "src/base/code.c": "name",
        "src/base/directory.c": "TMPDIR",
        "src/base/isa.c": "HONE_ISA",
        "src/cli/view/terminal.c": "TERM NO_COLOR names[i]",     # LC_ALL, LC_CTYPE, LANG
        "src/commands/command_confine.c": "CUDA_MPS_PIPE_DIRECTORY HF_TOKEN_PATH HOME LD_LIBRARY_PATH XDG_CACHE_HOME *names variable",     # places that stay readable, and caches of drivers
        "src/device/cuda.c": "HONE_TENSOR_CORES",
        "src/device/cuda_capture.c": "CUDA_GRAPH",
        "src/device/cuda_compile.c": "HONE_CUDA_CODE",      # cubin or ptx
        "src/device/opencl_gemm.c": "HONE_CLBLAST_FROM",
        "src/dist/dist.c": "HONE_OVERLAP",
        "src/dist/launcher.c": "name",                      # numbers of ranks, MASTER_ADDR, MASTER_PORT
        "src/dist/tcp.c": "HONE_LISTEN HONE_SECRET HONE_SECRET_FILE",
        "src/dist/watch.c": "HONE_LISTEN",
        "src/hub/hub_cache.c": "variable",                      # HF_HOME, HF_HUB_CACHE, XDG_CACHE_HOME, HOME
        "src/hub/endpoint.c": "variable variables[i] HF_ENDPOINT HF_TOKEN_PATH HF_HUB_DOWNLOAD_TIMEOUT",
        "src/hub/http.c": "variables[i]",                   # files of trusted certificates
        "src/tensor/guard_alloc.c": "HONE_GUARD",
    }),
}
PYTHON = {
    "execute": (r"\b(subprocess|os\.(?:exec\w*|spawn\w*|system|popen|posix_spawn\w*|fork)|(?<!def )eval|exec|pickle)\b(?=[.(])", True, {
        "python/hone/program.py": "os.execv",               # the program in the wheel
    }),
    "library": (r"\b((?:ctypes\.)?\w*DLL|__import__|importlib)\b(?=[.(])", True, {
        "python/hone/__init__.py": "ctypes.CDLL",           # libhone
    }),
    "connect": (r"\b(socket|urllib\w*|http\.\w+|requests)\b(?=[.(])", True, {}),
    "environment": (r'os\.(?:environ(?:\.\w+\(|\[)|getenv\()"?(\w+)', True, {
        "python/hone/__init__.py": "HONE_LIBRARY",          # an absolute path
        "python/hone/program.py": "VIRTUAL_ENV",
    }),
}


def find(path, text):
    """{(kind, word): line} of one file."""
    python = path.endswith(".py")
    found = {}
    for kind, (pattern, in_texts, _) in (PYTHON if python else C).items():
        code = text if python else uncommented(text) if in_texts else plain(text)
        for m in re.finditer(pattern, code):
            found.setdefault((kind, m[1].strip().replace(" ", "_")), code.count("\n", 0, m.start(1)) + 1)
    return found


def allowed(path):
    return {(kind, word) for kind, (_, _, places) in (PYTHON if path.endswith(".py") else C).items() for word in places.get(path, "").split()}


def self_test():
    lines = {"execute": 'x = execve("/bin/sh", a, b);', "library": 'void *l = dlopen(name, RTLD_NOW);', "listen": "listen(fd, 1);",
             "connect": "int fd = socket(AF_INET, SOCK_STREAM, 0);", "credential": 'add_line("Authorization: Bearer ", token);',
             "names code": 'p = code_variable("HONE_NEW_LIBRARY");', "environment": 'getenv("HONE_NEW");'}
    for kind, line in lines.items():
        assert [k for k, _ in find("src/ops/a.c", line)] == [kind], (kind, find("src/ops/a.c", line))
        assert not find("src/ops/a.c", f"/* {line} */"), kind
    assert find("src/ops/a.c", 'curl.curl_easy_perform(h);') and not find("src/ops/a.c", "static int reconnect(int x);")
    python = {"execute": "subprocess.run(x)", "library": "ctypes.CDLL(x)", "connect": "socket.create_connection(x)",
              "environment": 'os.environ["HONE_NEW"]'}
    for kind, line in python.items():
        assert [k for k, _ in find("python/hone/a.py", line)] == [kind], kind
    print("every kind is found")


def main(root):
    sources = sorted([*root.glob("src/**/*.[ch]"), *root.glob("src/**/*.def"), *root.glob("python/**/*.py")])
    wrong, count = [], 0
    for source in sources:
        path = source.relative_to(root).as_posix()
        found, may = find(path, source.read_text()), allowed(path)
        for (kind, word), line in sorted(found.items(), key=lambda item: item[1]):
            print(f"{kind:11} {path}:{line}: {word}")
            count += 1
        wrong += [f"{path}:{found[key]}: {key[1]} ({key[0]}) is a door that tests/doors.py does not have: is it one that hone should have?"
                  for key in found.keys() - may]
        wrong += [f"{path}: {word} ({kind}) is in the table of tests/doors.py and not here any more" for kind, word in may - found.keys()]
    names = {source.relative_to(root).as_posix() for source in sources}
    wrong += [f"{path} is in the table of tests/doors.py and not in the tree" for table in (C, PYTHON)
              for _, _, places in table.values() for path in places if path not in names]
    print(f"{count} doors in {len(sources)} files")
    print(*sorted(wrong), sep="\n")
    return bool(wrong) or not count


if __name__ == "__main__":
    sys.exit(self_test() if "--self-test" in sys.argv else main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
