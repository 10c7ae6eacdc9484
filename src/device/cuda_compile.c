/* Kernels of the CUDA device: NVRTC makes cubin and PTX in one compilation, both are kept in one entry of the cache on disk, and
 * one of them is loaded: the cubin, or with --cuda-code ptx the PTX.
 *
 * Code is made for the device's own target, and what is loaded is looked at: code of any other target is refused by name,
 * wherever it came from. Modules are loaded by cuModuleLoadData alone, and never while the device has work.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "device/cuda.h"

enum { LOG_MOST = 1500, ARGUMENTS_MOST = OPERANDS + 1 + 2 * NUMBERS, OPTIONS_MOST = 64, TARGETS_MOST = 128, TARGET_LEAST = 75 };

struct code {                           /* an entry of the cache: this, then the cubin, then the PTX with its zero byte */
    int64_t target, cubin_bytes, ptx_bytes;
};

/* --- targets ------------------------------------------------------------------------------------------------------------ */

/* The CUDA release that first knew a target. */
static const char *release_of(int target)
{
    static const struct {
        int target;
        const char *release;
    } known[] = {{75, "12.0"}, {80, "12.0"}, {86, "12.0"}, {87, "12.0"}, {89, "12.0"}, {90, "12.0"}, {100, "12.8"}, {120, "12.8"},
                 {103, "12.9"}, {121, "12.9"}, {88, "13.0"}, {110, "13.0"}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].target == target)
            return known[i].release;
    return NULL;
}

static enum status knows_target(const struct cuda *c)
{
    int count = 0, targets[TARGETS_MOST];
    if (cu.nvrtcGetNumSupportedArchs(&count) || count < 1 || count > TARGETS_MOST || cu.nvrtcGetSupportedArchs(targets))
        return fail(ERR_DEVICE, "NVRTC %d.%d does not tell for which devices it compiles", c->nvrtc_major, c->nvrtc_minor);
    for (int i = 0; i < count; i++)
        if (targets[i] == c->target)
            return OK;
    const char *release = release_of(c->target);
    char needed[64];
    snprintf(needed, sizeof needed, release ? "of CUDA %s or later" : "that is newer than this one", release);
    return fail(ERR_DEVICE,
                "NVRTC %d.%d cannot compile for %s (sm_%d): one %s is needed, pip install --upgrade nvidia-cuda-nvrtc%s",
                c->nvrtc_major, c->nvrtc_minor, c->name, c->target, needed, release && release[1] == '2' ? "-cu12" : "");
}

/* sm_<n> of PTX or of a cubin, as text; "" if it is neither. */
static void target_of(const void *code, int64_t bytes, char text[32])
{
    const unsigned char *cubin = code;
    *text = 0;
    if (bytes >= 64 && !memcmp(cubin, "\177ELF", 4)) {
        uint32_t flags;                                 /* e_flags; the place of the target in it depends on the ABI's version */
        memcpy(&flags, cubin + 48, sizeof flags);
        snprintf(text, 32, "sm_%u", cubin[8] >= 8 ? flags >> 8 & 0xff : flags & 0xff);
        return;
    }
    const char *ptx = code, *end = memchr(code, 0, (size_t)bytes), *at = end ? strstr(ptx, ".target ") : NULL;
    if (at)
        snprintf(text, 32, "%.*s", (int)strcspn(at + 8, " ,\t\r\n"), at + 8);
}

enum status cuda_check_target(const char *kernel, const void *code, int64_t bytes, int target)
{
    char want[32], have[32];
    snprintf(want, sizeof want, "sm_%d", target);
    target_of(code, bytes, have);
    if (!strcmp(want, have))
        return OK;
    return fail(ERR_DEVICE, "kernel %s is code for %s, the device is %s: not loaded", kernel, *have ? have : "nothing known",
                want);
}

/* --- compiling ---------------------------------------------------------------------------------------------------------- */

enum status cuda_compile_open(struct cuda *c)
{
    TRY(cuda_load_nvrtc(&c->nvrtc_major, &c->nvrtc_minor));
    if (c->target < TARGET_LEAST)
        return fail(ERR_DEVICE, "%s has compute capability %d.%d, hone needs 7.5 or later: use --device cpu", c->name,
                    c->target / 10, c->target % 10);
    TRY(knows_target(c));
    return kernel_cache_open(&c->cache);
}

void cuda_compile_close(struct cuda *c)
{
    for (int64_t i = 0; i < c->variant_count; i++)
        if (c->variants[i].module)
            cu.cuModuleUnload(c->variants[i].module);
    memory_free(c->variants);
    kernel_cache_close(&c->cache);
}

/* Options are separated by blanks; `text` is cut into pieces. */
static int split(char *text, const char *options[OPTIONS_MOST])
{
    int count = 0;
    for (char *at = text; *at && count < OPTIONS_MOST;) {
        at += strspn(at, " ");
        size_t length = strcspn(at, " ");
        if (length)
            options[count++] = at;
        at += length;
        if (*at)
            *at++ = 0;
    }
    return count;
}

static enum status compile_failed(nvrtcProgram program, const struct kernel *kernel, int code)
{
    size_t size = 0;
    struct buffer words = {0};
    if (cu.nvrtcGetProgramLogSize(program, &size) == 0 && size && buffer_reserve(&words, (int64_t)size + 1) == OK &&
        cu.nvrtcGetProgramLog(program, words.data) == 0)
        words.data[size] = 0;
    enum status status = fail(ERR_DEVICE, "NVRTC cannot compile kernel %s (%d): %.*s", kernel->name, code, LOG_MOST,
                              words.data ? words.data : "");
    buffer_free(&words);
    return status;
}

static enum status take_code(const struct cuda *c, nvrtcProgram program, const struct kernel *kernel, struct buffer *entry)
{
    size_t cubin = 0, ptx = 0;
    if (cu.nvrtcGetCUBINSize(program, &cubin) || !cubin || cu.nvrtcGetPTXSize(program, &ptx) || !ptx)
        return fail(ERR_DEVICE, "NVRTC made no code of kernel %s", kernel->name);
    struct code head = {c->target, (int64_t)cubin, (int64_t)ptx};
    TRY(buffer_append(entry, &head, (int64_t)sizeof head));
    TRY(buffer_reserve(entry, (int64_t)(cubin + ptx)));
    if (cu.nvrtcGetCUBIN(program, entry->data + entry->size) || cu.nvrtcGetPTX(program, entry->data + entry->size + cubin))
        return fail(ERR_DEVICE, "NVRTC does not give the code of kernel %s", kernel->name);
    entry->size += (int64_t)(cubin + ptx);
    return OK;
}

static enum status compile(struct cuda *c, const struct kernel *kernel, const char *options, struct buffer *entry)
{
    char text[KERNEL_OPTIONS + 64], name[64];
    const char *each[OPTIONS_MOST];
    nvrtcProgram program;
    double start = clock_seconds();
    snprintf(text, sizeof text, "%s", options);
    snprintf(name, sizeof name, "%s.kl", kernel->file);
    if (cu.nvrtcCreateProgram(&program, kernel_text(kernel->file), name, 0, NULL, NULL))
        return fail(ERR_DEVICE, "NVRTC cannot begin with kernel %s", kernel->name);
    int code = cu.nvrtcCompileProgram(program, split(text, each), each);
    enum status status = code ? compile_failed(program, kernel, code) : take_code(c, program, kernel, entry);
    cu.nvrtcDestroyProgram(&program);
    if (status == OK) {
        c->device.counters.compiled++;
        log_message(LOG_DEBUG, "kernel %s compiled in %.2f s: %s", kernel->name, clock_seconds() - start, options);
    }
    return status;
}

/* --- loading ------------------------------------------------------------------------------------------------------------ */

static bool is_entry(const struct buffer *entry, struct code *head)
{
    if (entry->size < (int64_t)sizeof *head)
        return false;
    memcpy(head, entry->data, sizeof *head);
    int64_t left = entry->size - (int64_t)sizeof *head;
    return head->cubin_bytes >= 0 && head->cubin_bytes <= left && head->ptx_bytes == left - head->cubin_bytes;
}

/* In form, and for this device. */
static enum status check_entry(const struct cuda *c, const struct kernel *kernel, const struct buffer *entry)
{
    struct code head;
    if (!is_entry(entry, &head))
        return fail(ERR_DEVICE, "kernel %s: its entry in the cache has another form", kernel->name);
    const char *cubin = entry->data + sizeof head;
    TRY(cuda_check_target(kernel->name, cubin, head.cubin_bytes, c->target));
    return cuda_check_target(kernel->name, cubin + head.cubin_bytes, head.ptx_bytes, c->target);
}

/* --cuda-code, or $HONE_CUDA_CODE where it says auto: the cubin, unless it asks for the PTX. */
static bool wants_ptx(const struct cuda *c)
{
    const char *choice = c->device.options.cuda_code, *otherwise = getenv("HONE_CUDA_CODE");
    if (!choice || !strcmp(choice, "auto"))
        choice = otherwise ? otherwise : "";
    return !strcmp(choice, "ptx");
}

static enum status load(struct cuda *c, const struct kernel *kernel, const struct buffer *entry, struct cuda_variant *v)
{
    struct code head;
    TRY(check_entry(c, kernel, entry));
    memcpy(&head, entry->data, sizeof head);
    const char *cubin = entry->data + sizeof head, *ptx = cubin + head.cubin_bytes;
    TRY(cuda_wait(c));
    TRY(cuda_check(cu.cuModuleLoadData(&v->module, wants_ptx(c) ? ptx : cubin), kernel->name));
    return cuda_check(cu.cuModuleGetFunction(&v->function, v->module, kernel->name), kernel->name);
}

static void forget(struct cuda_variant *v)
{
    if (v->module)
        cu.cuModuleUnload(v->module);
    *v = (struct cuda_variant){0};
}

static enum status make(struct cuda *c, const struct kernel *kernel, const char *options, struct cuda_variant *v)
{
    char all[KERNEL_OPTIONS + 64], target[16], version[32];
    struct buffer entry = {0};
    bool found = false;
    snprintf(target, sizeof target, "sm_%d", c->target);
    snprintf(all, sizeof all, "%s --gpu-architecture=%s", options, target);
    snprintf(version, sizeof version, "%d.%d", c->nvrtc_major, c->nvrtc_minor);
    struct digest key = kernel_cache_key((const char *[]){"cuda", kernel_text(kernel->file), all, target, version}, 5);
    enum status status = kernel_cache_read(&c->cache, key, &entry, &found);
    if (status == OK && found && check_entry(c, kernel, &entry) != OK) {
        log_message(LOG_WARNING, "%s; it is compiled again", status_message());
        found = false;
    }
    if (status == OK && !found) {
        entry.size = 0;
        status = compile(c, kernel, all, &entry);
    }
    if (status == OK)
        status = load(c, kernel, &entry, v);
    if (status == OK && found)
        c->device.counters.loaded++;
    if (status == OK && !found)
        kernel_cache_write(&c->cache, key, entry.data, entry.size);
    buffer_free(&entry);
    return status;
}

enum status cuda_variant(struct cuda *c, const struct command *command, int64_t *index)
{
    const struct kernel *kernel = command->launch.kernel;
    char options[KERNEL_OPTIONS];
    if (!kernel->file || !kernel_text(kernel->file))
        return fail(ERR_UNSUPPORTED, "kernel %s has no text that CUDA could compile: use --device cpu", kernel->name);
    kernel_options(options, command);
    struct digest key = kernel_cache_key((const char *[]){kernel->file, options}, 2);
    for (*index = 0; *index < c->variant_count; ++*index)
        if (digest_equal(c->variants[*index].key, key))
            return OK;
    if (c->device.sealed)
        return fail(ERR_INTERNAL, "kernel %s would be compiled in the middle of a run: it was not prepared (%s)", kernel->name,
                    options);
    TRY(memory_grow(&c->variants, &c->variant_capacity, c->variant_count + 1, (int64_t)sizeof *c->variants));
    struct cuda_variant v = {.key = key, .kernel = kernel};
    enum status status = make(c, kernel, options, &v);
    if (status != OK) {
        forget(&v);
        return status;
    }
    c->variants[c->variant_count++] = v;
    return OK;
}

enum status cuda_warm_up(struct cuda *c)
{
    int64_t zero = 0;
    void *argument[ARGUMENTS_MOST];
    for (int i = 0; i < ARGUMENTS_MOST; i++)
        argument[i] = &zero;
    for (int64_t i = 0; i < c->variant_count; i++) {
        struct cuda_variant *v = &c->variants[i];
        if (v->warm)
            continue;
        c->busy = true;
        TRY(cuda_check(cu.cuLaunchKernel(v->function, 1, 1, 1, (unsigned)v->kernel->group, 1, 1, 0, c->stream, argument, NULL),
                       v->kernel->name));
        v->warm = true;
    }
    return OK;
}
