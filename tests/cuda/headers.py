#!/usr/bin/env python3
"""Compares what hone and its simulator say of CUDA, NCCL and OpenCL with the vendors' own headers.

    headers.py COMPILER HEADERS NCCL               HEADERS and NCCL have a folder of NVIDIA's headers for each release; OpenCL's are the system's
    headers.py COMPILER HEADERS NCCL --self-test   every row made wrong, and some faults that were or could have been, must each be found

Every function of the tables must have the vendor's signature, every type the vendor's size, every constant its value. The driver's
functions are those that cuGetProcAddress gives for the version that hone asks for: of the variants in cudaTypedefs.h the newest that
is not above it. Nothing is run: the compiler decides, over a file of static assertions. Exit code 77 (skipped) without the headers.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
NVIDIA = "#include <cuda.h>\n#include <cudaTypedefs.h>\n#include <nvrtc.h>\n#include <cublas_v2.h>\n"
COLLECTIVE = NVIDIA + "#include <stddef.h>\n#define __CUDA_BF16_TYPES_EXIST__\n#include <nccl.h>\n"
KHRONOS = "#define CL_TARGET_OPENCL_VERSION 120\n#include <CL/cl.h>\n"
THEIRS = re.compile(r"\b(?:CU|cu(?!da_)|nvrtc|nccl(?!_)|library|CL_|cl_|MAJOR_VERSION|MINOR_VERSION|PATCH_LEVEL)\w*")   # names of the vendors'

# What hone says: a header with types and constants, and tables whose macros each have the type of the result.
HONE = ("src/device/cuda_api.h", {"src/device/cuda_symbols.def": {
    "ENTRY(name, arguments)": "CUresult", "DRIVER(name, arguments)": "CUresult", "NVRTC(name, arguments)": "nvrtcResult",
    "CUBLAS(name, arguments)": "cublasStatus_t"}})
SIMULATOR = ("tools/cudasim/cublassim.h", {"tools/cudasim/functions.def": {"F(base, version, name, arguments)": "CUresult"},
                                           "tools/cudasim/cublas.def": {"C(result, name, arguments)": "result"}})
NCCL = ("src/dist/nccl_api.h", {"src/dist/nccl_symbols.def": {"NCCL(result, name, arguments)": "result"}})
NCCL_SIMULATOR = ("tools/cudasim/ncclsim.h", {"tools/cudasim/nccl.def": {"C(result, name, arguments)": "result"}})
OPENCL = ("src/device/opencl.h", {"src/device/opencl_symbols.def": {"SYMBOL(result, name, arguments)": "result"}})

FAULT_TABLE = "src/device/cuda_faults.def"
UNPROTOTYPED = {"ncclGroupStart", "ncclGroupEnd"}   # nccl.h declares them as (), which any arguments fit

FAULTS = [  # table or header, what it says, what it could say instead, whose error must be seen
    ("src/device/cuda_symbols.def", "cuGraphInstantiateWithFlags", "cuGraphInstantiate", "cuGraphInstantiate"),
    ("src/device/cuda_symbols.def", "size_t *total", "unsigned *total", "cuMemGetInfo"),
    ("src/device/cuda_symbols.def", "CUstreamCaptureMode mode", "unsigned long mode", "cuStreamBeginCapture"),
    ("src/device/cuda_symbols.def", "(cuEventQuery, (CUevent", "(cuEventQuery, (CUstream", "cuEventQuery"),
    ("src/device/cuda_symbols.def", "(nvrtcVersion", "(nvrtcRelease", "nvrtcRelease"),
    ("src/device/cuda_faults.def", "FAULT(CONTAINED, 226)", "", "CONTAINED"),
    ("src/device/cuda_faults.def", "LAUNCH_FAILED, 719", "LAUNCH_FAILED, 720", "LAUNCH_FAILED"),
    ("src/device/cuda_api.h", "typedef uint64_t CUdeviceptr", "typedef uint32_t CUdeviceptr", "CUdeviceptr"),
    ("src/device/cuda_api.h", "CUBLAS_COMPUTE_32F = 68", "CUBLAS_COMPUTE_32F = 64", "CUBLAS_COMPUTE_32F"),
    ("tools/cudasim/functions.def", "F(cuGraphInstantiateWithFlags, 11040", "F(cuGraphInstantiate, 12000", "cuGraphInstantiate"),
    ("tools/cudasim/functions.def", "cuMemAlloc, 3020", "cuMemAlloc, 2000", "cuMemAlloc"),
    ("tools/cudasim/results.def", "CUDA_ERROR_NO_DEVICE, 100", "CUDA_ERROR_NO_DEVICE, 101", "CUDA_ERROR_NO_DEVICE"),
    ("src/dist/nccl_symbols.def", "int root, ncclComm_t comm", "ncclComm_t comm, int root", "ncclBroadcast"),
    ("src/dist/nccl_api.h", "unsigned magic, version;\n    int blocking", "unsigned version, magic;\n    int blocking", "magic"),
    ("src/dist/nccl_api.h", "0xcafebeef", "0xcafebabe", "NCCL_MAGIC"),
    ("src/dist/nccl_api.h", "ncclBfloat16 = 9", "ncclBfloat16 = 10", "ncclBfloat16"),
    ("src/dist/nccl_api.h", "internal[128]", "internal[64]", "ncclUniqueId"),
    ("src/device/opencl.h", "CL_DEVICE_NAME = 0x102B", "CL_DEVICE_NAME = 0x102C", "CL_DEVICE_NAME"),
    ("src/device/opencl.h", "#define CL_DEVICE_TYPE_ALL 0xFFFFFFFFu", "#define CL_DEVICE_TYPE_ALL 0xFFFFFFFu", "CL_DEVICE_TYPE_ALL"),
]


class Source:
    """A copy of the sources that are read here, in which one text may stand for another."""

    def __init__(self, compiler, folder):
        said = subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout
        self.command = [compiler, "-std=gnu11", "-w", "-ferror-limit=0" if "clang" in said else "-fmax-errors=0", "-x", "c"]
        self.folder = pathlib.Path(folder)
        for part in ("src/base", "src/device", "src/dist", "tools/cudasim"):
            (self.folder / part).mkdir(parents=True)
            for file in [f for f in (ROOT / part).iterdir() if f.suffix in (".h", ".def")]:
                (self.folder / part / file.name).write_text(file.read_text())

    def change(self, name, edit):
        """Returns what it was."""
        path = self.folder / name
        before = path.read_text()
        path.write_text(edit(before))
        if path.read_text() == before:
            sys.exit(f"headers: {name} has no longer what the self-test changes")
        return before

    def compile(self, text, *options):
        command = [*self.command, *options, "-I", self.folder / "src", "-I", self.folder / "tools/cudasim", "-"]
        return subprocess.run(command, input=text, capture_output=True, text=True)

    def preprocessed(self, text):
        return self.compile(text, "-E", "-P").stdout

    def rows(self, table, macros):
        """The words before each row's arguments: (macro, name) or more."""
        defines = "".join(f"#define {head} ROW {head[:-1].split('(')[0]} {' '.join(re.findall(r'base|version|name', head))} END\n"
                          for head in macros)
        return [row.split() for row in re.findall(r"ROW (.*?) END", self.preprocessed(f'{defines}#include "{self.folder / table}"\n'))]

    def names(self, header):
        """Types, constants and all names of the vendor's in a header and what it includes."""
        text = self.preprocessed(f'#include "{self.folder / header}"\n')
        types = re.findall(r"(\w+)(?=\s*[,;])", " ".join(re.findall(r"typedef\b[^;{}]*;|\}\s*\w+;", text)))
        constants = re.findall(r"(\w+)\s*(?==|,|$)", ",".join(re.findall(r"enum\s*\w*\s*\{([^}]*)\}", text)))
        return (sorted({t for t in types if THEIRS.fullmatch(t)}), sorted({c for c in constants if THEIRS.fullmatch(c)}),
                sorted(set(THEIRS.findall(text))))


def variants(folder):
    """What cuGetProcAddress knows: the versions of each name."""
    found = {}
    for name, version in re.findall(r"\(CUDAAPI \*PFN_(\w+)_v(\d+)\)", (folder / "cudaTypedefs.h").read_text()):
        found.setdefault(name, []).append(int(version))
    return found


def newest(versions, limit):
    return max((v for v in versions if v <= limit), default=0)


def same(name, theirs):
    return f'_Static_assert(__builtin_types_compatible_p(row_{name}, __typeof__({theirs})), "{name}: its signature differs");\n'


def driver_rows(rows, known, release, asked):
    """Assertions over the driver's functions, of hone (DRIVER) and of the simulator (F), and what is wrong with their versions."""
    text, wrong, newest_here = "", [], {}
    for macro, *words in rows:
        if macro == "DRIVER":
            name, version = words[0], newest(known.get(words[0], ()), asked)
            if not version:
                wrong.append(f"{name}: cuGetProcAddress knows no such name in CUDA {asked}")
                continue
        else:
            base, version, name = words[0], int(words[1]), words[2]
            newest_here[base] = max(newest_here.get(base, 0), version if version <= asked else 0)
            if version > release:
                continue
            text += same(name, name)
            if version not in known.get(base, ()):
                wrong.append(f"{base}: cuGetProcAddress knows no variant of CUDA {version}, but {known.get(base)}")
                continue
        text += same(name, f"*(PFN_{words[0]}_v{version})0")
    for base, version in newest_here.items():
        if version != newest(known.get(base, ()), asked):
            wrong.append(f"{base}: cuGetProcAddress gives the variant of {newest(known.get(base, ()), asked)}, not of {version}")
    return text, wrong


def nccl_config(source, header, folder):
    """hone's and the simulator's ncclConfig_t is the oldest, with which all later ones begin: assertions, and what is wrong besides."""
    text = '_Static_assert(sizeof(own_ncclConfig_t) <= sizeof(ncclConfig_t), "ncclConfig_t: it is smaller");\n'
    text += "".join(f'_Static_assert(offsetof(own_ncclConfig_t, {m}) == offsetof(ncclConfig_t, {m}), "{m}: its place differs");\n'
                    for m in ("size", "magic", "version", "blocking"))
    magic = re.search(r"#define NCCL_MAGIC (0x\w+?)u\b", (source.folder / header).read_text())[1]
    return text, [] if magic in (folder / "nccl.h").read_text() else [f"NCCL_MAGIC: {magic} is not in nccl.h"]


def check(source, what, vendor, folder=None, nccl=None):
    """What is wrong with a header and its tables: the compiler's words, and those about versions."""
    header, tables = what
    types, constants, names = source.names(header)
    numbers = re.findall(r"(?m)^#define (?!NCCL_MAGIC)(\w+) (?:0x[0-9A-Fa-f]+|\d+)u?$", (source.folder / header).read_text())
    text = "".join(f"#define {name} own_{name}\n" for name in names) + f'#include "{source.folder / header}"\n'
    text += "".join(f"#undef {name}\n" for name in names)
    text += "".join(f"enum {{ own_{name} = {name} }};\n#undef {name}\n" for name in numbers) + vendor
    text += "".join(f'_Static_assert(sizeof(own_{t}) == sizeof({t}), "{t}: its size differs");\n' for t in types if t != "ncclConfig_t")
    text += "".join(f'_Static_assert((long long)own_{c} == (long long)({c}), "{c}: its value differs");\n' for c in constants + numbers)
    wrong, count = [], 0
    if nccl:
        more, wrong = nccl_config(source, header, nccl)
        text += more
    for table, macros in tables.items():
        text += "".join(f"#define {head} typedef {result} row_##name arguments;\n" for head, result in macros.items())
        text += f'#include "{source.folder / table}"\n' + "".join(f"#undef {head.split('(')[0]}\n" for head in macros)
        rows = source.rows(table, macros)
        count += len(rows)
        driver = [row for row in rows if row[0] in ("DRIVER", "F")]
        if driver:
            more, words = driver_rows(driver, variants(folder), release_of(folder), asked(source))
            text, wrong = text + more, wrong + words
        text += "".join(same(name, name) for macro, *_, name in rows if macro not in ("DRIVER", "F"))
    options = ("-I", folder, "-D__CUDA_API_VERSION_INTERNAL", *(("-I", nccl) if nccl else ())) if folder else ()
    made = source.compile(text, "-fsyntax-only", *options)
    wrong += re.findall(r"error: (.*)", made.stderr) or ([made.stderr] if made.returncode else [])
    against = f"NCCL {nccl_release(nccl)}" if nccl else folder.name if folder else "OpenCL"
    return [f"{header} against {against}: {w}" for w in wrong], (count, len(types), len(constants + numbers))


def check_faults(source, folder):
    """What is wrong with the table of faults: codes, and results that NVIDIA's header calls the end of the process's use of CUDA."""
    ours = {name: int(code) for name, code in re.findall(r"FAULT\((\w+), (\d+)\)", (source.folder / FAULT_TABLE).read_text())}
    theirs = {name: (int(code), "inconsistent state" in re.sub(r"[\s*]+", " ", words)) for words, name, code in
              re.findall(r"/\*\*((?:(?!\*/).)*)\*/\s*CUDA_ERROR_(\w+)\s*=\s*(\d+)", (folder / "cuda.h").read_text(), re.S)}
    wrong = [f"{name}: its value differs" for name in ours if name in theirs and theirs[name][0] != ours[name]]
    wrong += [f"{name}: a fault that is not there" for name in theirs if theirs[name][1] and name not in ours]
    return [f"{FAULT_TABLE} against {folder.name}: {w}" for w in wrong]


def nccl_release(folder):
    return ".".join(re.findall(r"#define NCCL_(?:MAJOR|MINOR|PATCH) (\d+)", (folder / "nccl.h").read_text()))


def release_of(folder):
    return int(re.search(r"#define CUDA_VERSION (\d+)", (folder / "cuda.h").read_text())[1])


def asked(source):
    """The version that hone asks cuGetProcAddress for."""
    return int(re.search(r"DRIVER_VERSION_MIN = (\d+)", (source.folder / HONE[0]).read_text())[1])


def subjects(folders, nccl):
    """What is compared with what: the arguments of check after the first."""
    return ([(w, NVIDIA, f) for f in folders for w in (HONE, SIMULATOR)] + [(OPENCL, KHRONOS)] +
            [(w, COLLECTIVE, folders[-1], n) for n in nccl for w in (NCCL, NCCL_SIMULATOR)])


def check_all(source, folders, nccl):
    wrong, counts = [], [0, 0, 0]
    for subject in subjects(folders, nccl):
        more, count = check(source, *subject)
        wrong, counts = wrong + more, [a + b for a, b in zip(counts, count)]
    wrong += [words for folder in folders for words in check_faults(source, folder)]
    return wrong, counts


def self_test(source, folders, nccl):
    """Rows are made wrong all at once, faults one by one."""
    missed, seen = [], 0
    for subject in ((HONE, NVIDIA, folders[0]), (SIMULATOR, NVIDIA, folders[-1]), (OPENCL, KHRONOS),
                    (NCCL, COLLECTIVE, folders[-1], nccl[0]), (NCCL_SIMULATOR, COLLECTIVE, folders[-1], nccl[-1])):
        for table, macros in subject[0][1].items():
            rows = {row[-1] for row in source.rows(table, macros)} - UNPROTOTYPED
            before = source.change(table, lambda text: re.sub(r"(?m)^([A-Z]+\([^()]*, *\n? *)\((?:void\))?", r"\1(struct wrong *, ", text)
                                   .replace("(struct wrong *, )", "(struct wrong *))"))
            words = "\n".join(check(source, *subject)[0])
            missed += [f"{table}: {row} with another argument" for row in rows if f'"{row}: its signature differs"' not in words]
            seen += len(rows)
            (source.folder / table).write_text(before)
    for name, old, new, symbol in FAULTS:
        before = source.change(name, lambda text: text.replace(old, new, 1))
        if not any(re.search(rf"\b{symbol}\b", words) for words in check_all(source, folders[-1:], nccl[-1:])[0]):
            missed.append(f"{name}: {new}")
        (source.folder / name).write_text(before)
    for line in missed:
        print("NOT SEEN", line)
    print(f"headers: {seen} wrong rows and {len(FAULTS)} other faults, {len(missed)} of them not seen")
    return 1 if missed else 0


def main(compiler, headers, nccl_headers, *more):
    nccl = sorted(f for f in pathlib.Path(nccl_headers).glob("*") if (f / "nccl.h").exists())
    nccl += pathlib.Path(nccl_headers).parent.glob("venv/lib/python3*/site-packages/nvidia/nccl/include")   # torch brings one along
    folders = sorted(f for f in pathlib.Path(headers).glob("*") if (f / "cuda.h").exists())
    if {f.name.split(".")[0] for f in folders} != {"12", "13"}:
        print(f"headers: {headers} has not the headers of CUDA 12 and 13: tests/assets/get makes them")
        return 77
    if not nccl:
        print(f"headers: {nccl_headers} has no headers of NCCL: tests/assets/get makes them")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        source = Source(compiler, folder)
        if source.compile(KHRONOS, "-fsyntax-only").returncode:
            print("headers: OpenCL's are missing (Debian: opencl-c-headers)")
            return 77
        if more == ("--self-test",):
            return self_test(source, folders, nccl)
        wrong, counts = check_all(source, folders, nccl)
    for line in wrong:
        print("WRONG", line)
    print("headers: {} functions, {} types and {} constants".format(*counts), f"compared, {len(wrong)} wrong, with CUDA",
          ", ".join(f.name for f in folders), "NCCL", ", ".join(map(nccl_release, nccl)), "and OpenCL")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
