/* Opening the libraries of CUDA: the driver by the system, NVRTC and cuBLAS wherever the system, the CUDA toolkit, conda or pip
 * put them. */
#include "device/cuda_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/code.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/library.h"
#include "base/memory.h"
#include "base/mutex.h"

struct cuda_library cu;

static struct mutex filling = MUTEX_FREE; /* held while functions are put into `cu` */
static int driver_version;

bool cuda_stand_in(void)
{
    return code_variable("HONE_CUDA_LIBRARY") != NULL;
}

bool cuda_is_fault(CUresult code)
{
#define FAULT(name, number)                                                                                                      \
    if (code == (number))                                                                                                        \
        return true;
#include "device/cuda_faults.def"
    return false;
}

static _Thread_local bool faulted;

bool cuda_has_faulted(void)
{
    return faulted;
}

/* The driver runs commands in turn with the host and tells a fault where it happens if it is asked to. */
static const char *advice(CUresult code)
{
    const char *blocking = code_variable("CUDA_LAUNCH_BLOCKING");
    if (!cuda_is_fault(code))
        return "";
    return blocking && strcmp(blocking, "0") != 0
               ? "; the card is lost to this process"
               : "; this command or one before it has faulted, and the card is lost to this process. To learn which kernel "
                 "it was, set CUDA_LAUNCH_BLOCKING=1 and run again with --cuda-graph off";
}

enum status cuda_check(CUresult code, const char *what)
{
    const char *name = NULL, *text = NULL;
    if (code == CUDA_SUCCESS)
        return OK;
    faulted = cuda_is_fault(code);
    if (cu.cuGetErrorName(code, &name) != CUDA_SUCCESS || cu.cuGetErrorString(code, &text) != CUDA_SUCCESS)
        name = text = NULL;
    return fail(code == CUDA_ERROR_OUT_OF_MEMORY ? ERR_MEMORY : ERR_DEVICE, "CUDA: %s: %s (%s, %d)%s", what,
                text ? text : "an error", name ? name : "of unknown name", code, advice(code));
}

enum status cuda_check_launch(CUresult code, const char *kernel)
{
    char what[96];
    if (code == CUDA_SUCCESS)
        return OK;
    snprintf(what, sizeof what, "kernel %s", kernel);
    return cuda_check(code, what);
}

/* --- the driver --------------------------------------------------------------------------------------------------------- */

static enum status fill_driver(void)
{
    static bool loaded;
    const char *own = code_variable("HONE_CUDA_LIBRARY"), *why = "";
    const char *const names[] = {own ? own : "libcuda.so.1", NULL};
    if (loaded)
        return OK;
    void *library = library_open(names, &why);
    if (!library)
        return fail(ERR_DEVICE, "there is no CUDA driver on this machine (%s): install NVIDIA's driver, or use --device cpu",
                    why);
#define ENTRY(name, arguments)                                                                                                   \
    *(void **)&cu.name = library_symbol(library, #name);                                                                         \
    if (!cu.name)                                                                                                                \
        return fail(ERR_DEVICE, "%s is older than CUDA 12.0: install a newer driver (525 or later)", names[0]);
#define DRIVER(name, arguments)                                                                                                  \
    if (cu.cuGetProcAddress_v2(#name, (void **)&cu.name, DRIVER_VERSION_MIN, 0, NULL) != CUDA_SUCCESS || !cu.name)               \
        return fail(ERR_DEVICE, "%s has no " #name " of CUDA 12.0: install a newer driver (525 or later)", names[0]);
#include "device/cuda_symbols.def"
    TRY(cuda_check(cu.cuDriverGetVersion(&driver_version), "asking for the driver's version"));
    if (driver_version < DRIVER_VERSION_MIN)
        return fail(ERR_DEVICE, "the driver knows CUDA %d.%d, hone needs 12.0: install a newer driver (525 or later)",
                    driver_version / 1000, driver_version % 1000 / 10);
    loaded = true;
    return OK;
}

static enum status load_driver(void)
{
    mutex_take(&filling);
    enum status status = fill_driver();
    mutex_give(&filling);
    return status;
}

enum status cuda_load_driver(int *count)
{
    bool asked = code_variable("HONE_CUDA_LIBRARY") != NULL;
    *count = 0;
    enum status status = load_driver();
    if (status != OK) /* a library that the user named must work */
        return asked || file_exists("/dev/nvidiactl") ? status : OK;
    CUresult code = cu.cuInit(0);
    if (code == CUDA_SUCCESS)
        code = cu.cuDeviceGetCount(count);
    if (code == CUDA_ERROR_NO_DEVICE || code == CUDA_ERROR_STUB_LIBRARY || (code == CUDA_SUCCESS && !*count)) {
        *count = 0;
        fail(ERR_DEVICE, "CUDA's driver is here, but no card that it could use: check `nvidia-smi`, or use --device cpu");
        return OK;
    }
    return cuda_check(code, "starting the driver (check `nvidia-smi`)");
}

/* --- where libraries are ------------------------------------------------------------------------------------------------ */

struct search {
    struct arena arena;
    const char **path;
    int64_t count, capacity;
};

static enum status cuda_api_add_path(struct search *s, const char *path)
{
    TRY(memory_grow(&s->path, &s->capacity, s->count + 2, (int64_t)sizeof *s->path));
    s->path[s->count++] = path;
    s->path[s->count] = NULL;
    return path ? OK : ERR_MEMORY;
}

/* dir/below/name, if it is there. */
static enum status add_below(struct search *s, const char *dir, const char *below, const char *name)
{
    if (!dir)
        return OK;
    const char *path = arena_format(&s->arena, "%s%s/%s", dir, below, name);
    return path && !file_exists(path) ? OK : cuda_api_add_path(s, path);
}

/* packages/nvidia/<each>/lib/name: pip's wheels have a folder each, or share cu13. */
static enum status add_wheels(struct search *s, const char *packages, const char *name)
{
    const char **entries, *nvidia = arena_format(&s->arena, "%s/nvidia", packages);
    int64_t count;
    if (!nvidia)
        return ERR_MEMORY;
    if (!file_is_directory(nvidia))
        return OK;
    TRY(directory_list(&s->arena, nvidia, &entries, &count));
    for (int64_t i = count - 1; i >= 0; i--)
        TRY(add_below(s, nvidia, "/", arena_format(&s->arena, "%s/lib/%s", entries[i], name)));
    return OK;
}

/* What the Pythons below a prefix have installed. */
static enum status add_python(struct search *s, const char *prefix, const char *name)
{
    const char **entries, *lib = prefix ? arena_format(&s->arena, "%s/lib", prefix) : NULL;
    int64_t count;
    if (!lib)
        return prefix ? ERR_MEMORY : OK;
    if (!file_is_directory(lib))
        return OK;
    TRY(directory_list(&s->arena, lib, &entries, &count));
    for (int64_t i = 0; i < count; i++) {
        if (strncmp(entries[i], "python3", 7))
            continue;
        const char *site = arena_format(&s->arena, "%s/%s/site-packages", lib, entries[i]);
        const char *debian = arena_format(&s->arena, "%s/%s/dist-packages", lib, entries[i]);
        if (!site || !debian)
            return ERR_MEMORY;
        TRY(add_wheels(s, site, name));
        TRY(add_wheels(s, debian, name));
    }
    return OK;
}

/* The prefix of the python3 that a shell would start, or NULL. */
static const char *python_prefix(struct arena *arena)
{
    const char *python;
    if (code_find_program(arena, "python3", &python) != OK)
        return NULL;
    return arena_format(arena, "%.*s/..", (int)(strrchr(python, '/') - python), python);
}

static enum status add_places(struct search *s, const char *name)
{
    const char *home = code_variable("HOME"), *toolkit = code_variable("CUDA_HOME"), *conda = code_variable("CONDA_PREFIX");
    TRY(cuda_api_add_path(s, name)); /* the system knows it */
    TRY(add_below(s, toolkit, "/lib64", name));
    TRY(add_below(s, code_variable("CUDA_PATH"), "/lib64", name));
    TRY(add_below(s, "/usr/local/cuda", "/lib64", name));
    TRY(add_below(s, conda, "/lib", name));
    TRY(add_python(s, code_variable("VIRTUAL_ENV"), name));
    TRY(add_python(s, conda, name));
    TRY(add_python(s, python_prefix(&s->arena), name));
    TRY(add_python(s, home ? arena_format(&s->arena, "%s/.local", home) : NULL, name));
    TRY(add_python(s, "/usr/local", name));
    return add_python(s, "/usr", name);
}

enum status cuda_open_library(void **library, const char *variable, const char *const *names)
{
    struct search s = {0};
    const char *own = code_variable(variable), *why = "";
    *library = NULL;
    if (own && !strcmp(own, "none"))
        return OK;
    enum status status = own ? cuda_api_add_path(&s, own) : OK;
    for (; *names && !own && status == OK; names++)
        status = add_places(&s, *names);
    if (status == OK)
        *library = library_open(s.path, &why);
    if (status == OK && !*library && own)
        status = fail(ERR_DEVICE, "$%s cannot be opened: %s", variable, why);
    arena_free(&s.arena);
    memory_free(s.path);
    return status;
}

/* A library of CUDA 12 or 13, the driver's own version first, then an older one, then a newer one, which cuda_check_release
 * refuses by name. Without a driver the older one comes first: all drivers take what it makes. */
static enum status open_release(void **library, const char *variable, const char *of_12, const char *of_13)
{
    bool newer = driver_version >= 13000;
    return cuda_open_library(library, variable, (const char *const[]){newer ? of_13 : of_12, newer ? of_12 : of_13, NULL});
}

/* --- the compiler and the matrix products ------------------------------------------------------------------------------- */

const char *cuda_wheel_end(void)
{
    return driver_version >= 13000 ? "" : "-cu12";
}

enum status cuda_check_release(const char *what, const char *file, int major, int minor, const char *wheel)
{
    if (!driver_version || major <= driver_version / 1000)
        return OK;
    return fail(
        ERR_DEVICE,
        "%s (%s) is of version %d.%d, and this machine's driver, which knows CUDA %d.%d, refuses what a newer major makes: "
        "pip install %s%s, or install a newer driver%s",
        what, file ? file : "of unknown path", major, minor, driver_version / 1000, driver_version % 1000 / 10, wheel,
        cuda_wheel_end(), major == 13 ? " (580 or later)" : "");
}

/* NVRTC opens libnvrtc-builtins by its bare name. NVRTC 13.0 does not tell the loader to look next to itself, so that it is found
 * only where the loader's cache has it. A library that is open already is found by its name: it is opened here, by its path. */
static enum status open_builtins(int major, int minor)
{
    const char *file = library_file(*(void **)&cu.nvrtcVersion), *end = file ? strrchr(file, '/') : NULL, *why = NULL;
    struct arena arena = {0};
    if (!end)
        return OK;
    const char *path = arena_format(&arena, "%.*s/libnvrtc-builtins.so.%d.%d", (int)(end - file), file, major, minor);
    if (path)
        library_open((const char *const[]){path, NULL}, &why); /* if it is not there, NVRTC says so itself */
    arena_free(&arena);
    return path ? OK : ERR_MEMORY;
}

static enum status find_nvrtc(void)
{
    void *library;
    TRY(open_release(&library, "HONE_NVRTC_LIBRARY", "libnvrtc.so.12", "libnvrtc.so.13"));
    if (!library)
        return fail(ERR_DEVICE,
                    "NVRTC, which compiles hone's kernels for the card, was not found in the system, $CUDA_HOME, conda or "
                    "pip's packages: pip install nvidia-cuda-nvrtc%s",
                    cuda_wheel_end());
#define NVRTC(name, arguments)                                                                                                   \
    *(void **)&cu.name = library_symbol(library, #name);                                                                         \
    if (!cu.name)                                                                                                                \
        return fail(ERR_DEVICE, "NVRTC has no " #name ": pip install nvidia-cuda-nvrtc%s", cuda_wheel_end());
#include "device/cuda_symbols.def"
    return OK;
}

static enum status fill_nvrtc(int *major, int *minor)
{
    bool first = !cu.nvrtcGetPTX;
    if (first)
        TRY(find_nvrtc());
    if (cu.nvrtcVersion(major, minor))
        return fail(ERR_DEVICE, "NVRTC does not report its version: pip install nvidia-cuda-nvrtc%s", cuda_wheel_end());
    if (first)
        TRY(open_builtins(*major, *minor));
    return cuda_check_release("NVRTC", library_file(*(void **)&cu.nvrtcVersion), *major, *minor, "nvidia-cuda-nvrtc");
}

enum status cuda_load_nvrtc(int *major, int *minor)
{
    mutex_take(&filling);
    enum status status = fill_nvrtc(major, minor);
    mutex_give(&filling);
    return status;
}

static enum status find_cublas(void)
{
    void *library;
    TRY(open_release(&library, "HONE_CUBLAS_LIBRARY", "libcublas.so.12", "libcublas.so.13"));
    if (!library) {
        fail(ERR_DEVICE, "cuBLAS was not found in the system, $CUDA_HOME, conda or pip's packages: pip install nvidia-cublas%s",
             cuda_wheel_end());
        return OK;
    }
#define CUBLAS(name, arguments)                                                                                                  \
    *(void **)&cu.name = library_symbol(library, #name);                                                                         \
    if (!cu.name)                                                                                                                \
        return fail(ERR_DEVICE, "cuBLAS has no " #name ": pip install nvidia-cublas%s", cuda_wheel_end());
#include "device/cuda_symbols.def"
    return OK;
}

static enum status fill_cublas(bool *found)
{
    int major = 0, minor = 0;
    *found = false;
    if (!cu.cublasGemmEx)
        TRY(find_cublas());
    if (!cu.cublasGemmEx)
        return OK;
    if (cu.cublasGetProperty(MAJOR_VERSION, &major) || cu.cublasGetProperty(MINOR_VERSION, &minor))
        return fail(ERR_DEVICE, "cuBLAS does not report its version: pip install nvidia-cublas%s", cuda_wheel_end());
    *found = cuda_check_release("cuBLAS", library_file(*(void **)&cu.cublasGetProperty), major, minor, "nvidia-cublas") == OK;
    return OK;
}

enum status cuda_load_cublas(bool *found)
{
    mutex_take(&filling);
    enum status status = fill_cublas(found);
    mutex_give(&filling);
    return status;
}
