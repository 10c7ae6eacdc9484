/* Kernels of the CUDA device: their code (cuda_code.h) as modules. The cubin is loaded, or with --cuda-code ptx the PTX.
 *
 * Code is made for the device's own target and checked before it is loaded: code of any other target is refused by name,
 * wherever it came from. Only cuModuleLoadData loads modules, and never while the device has work.
 */
#include <stdlib.h>

#include "base/log.h"
#include "device/cuda.h"

enum { ARGUMENTS_MAX = OPERANDS + 1 + 2 * NUMBERS };

enum status cuda_compile_open(struct cuda *c)
{
    return cuda_code_open(&c->code, c->target, NULL, c->name);
}

void cuda_compile_close(struct cuda *c)
{
    for (int64_t i = 0; i < c->variant_count; i++)
        if (c->variants[i].module)
            cu.cuModuleUnload(c->variants[i].module);
    memory_free(c->variants);
}

/* --cuda-code, or $HONE_CUDA_CODE where it says auto: the cubin, unless it asks for the PTX. */
static bool wants_ptx(const struct cuda *c)
{
    const char *otherwise = getenv("HONE_CUDA_CODE");
    if (c->device.options.cuda_code != DEVICE_CODE_AUTO)
        return c->device.options.cuda_code == DEVICE_CODE_PTX;
    return otherwise && !strcmp(otherwise, "ptx");
}

static enum status load_alone(struct cuda *c, const struct kernel *kernel, const struct buffer *entry, struct cuda_variant *v)
{
    bool ptx = wants_ptx(c);
    log_message(LOG_DEBUG, "kernel %s is loaded%s", kernel->name, ptx ? ", and compiled from PTX by the driver" : "");
    TRY(cuda_check_launch(cu.cuModuleLoadData(&v->module, cuda_code_module(entry, ptx)), kernel->name));
    return cuda_check_launch(cu.cuModuleGetFunction(&v->function, v->module, kernel->name), kernel->name);
}

static enum status cuda_compile_load(struct cuda *c, const struct kernel *kernel, const struct buffer *entry,
                                     struct cuda_variant *v)
{
    enum status status = cuda_exclusive_begin(c);
    if (status == OK)
        status = load_alone(c, kernel, entry, v);
    cuda_exclusive_end();
    return status;
}

static void cuda_compile_forget(struct cuda_variant *v)
{
    if (v->module)
        cu.cuModuleUnload(v->module);
    *v = (struct cuda_variant){0};
}

/* Keeps code in the cache once the driver has accepted it. */
static enum status cuda_compile_make(struct cuda *c, const struct kernel *kernel, const char *options, struct cuda_variant *v)
{
    struct buffer entry = {0};
    bool found;
    enum status status = cuda_code_get(&c->code, kernel, options, &entry, &found);
    if (status == OK && !found)
        c->device.counters.compiled++;
    if (status == OK)
        status = cuda_compile_load(c, kernel, &entry, v);
    if (status == OK && found)
        c->device.counters.loaded++;
    if (status == OK && !found)
        cuda_code_keep(&c->code, kernel, options, &entry);
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
    enum status status = cuda_compile_make(c, kernel, options, &v);
    if (status != OK) {
        cuda_compile_forget(&v);
        return status;
    }
    c->variants[c->variant_count++] = v;
    return OK;
}

enum status cuda_warm_up(struct cuda *c)
{
    int64_t zero = 0;
    void *argument[ARGUMENTS_MAX];
    for (int i = 0; i < ARGUMENTS_MAX; i++)
        argument[i] = &zero;
    for (int64_t i = 0; i < c->variant_count; i++) {
        struct cuda_variant *v = &c->variants[i];
        if (v->warm)
            continue;
        c->busy = true;
        TRY(cuda_check_launch(
            cu.cuLaunchKernel(v->function, 1, 1, 1, (unsigned)v->kernel->group, 1, 1, 0, c->stream, argument, NULL),
            v->kernel->name));
        v->warm = true;
    }
    return OK;
}
