/* hone kernels: the kernels of a model's runs, taken from the programs that the runs would prepare. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "commands/commands.h"
#include "commands/named_model.h"
#include "device/cuda.h"
#include "device/kernel_list.h"
#include "job/loss_names.h"
#include "train/trainer.h"

enum { TARGETS_MAX = 32 };

struct wanted {
    struct kernel_list list;
    int target[TARGETS_MAX];
    int targets;
};

/* Prepares the programs on a device that keeps a list. */
static enum status kernels_collect(struct kernel_list *list, const struct options *values, enum choice_dtype dtype)
{
    struct options own = *values;
    struct trainer_uses uses = {0};
    struct trainer t;
    own.device = "kernels";
    own.dtype = dtype;
    TRY(loss_set_by_names(&uses.losses, own.loss));
    TRY(trainer_list_kernels(&t, &own, &uses));
    enum status status = engine_prepare(&t.build.session.engine);
    const struct kernel_list *found = kernel_list_of(t.build.session.device);
    for (int64_t i = 0; i < found->count && status == OK; i++)
        status = kernel_list_add(list, &found->need[i]);
    trainer_close(&t);
    return status;
}

static enum status add_targets(struct wanted *w, const char *text)
{
    for (const char *at = text; at;) {
        int64_t length = (int64_t)strcspn(at, ",");
        if (w->targets == TARGETS_MAX)
            return fail(ERR_ARGUMENT, "--target: more than %d targets", TARGETS_MAX);
        TRY(cuda_code_target(at, length, &w->target[w->targets++]));
        at = at[length] ? at + length + 1 : NULL;
    }
    return OK;
}

/* This machine's card, if it has one. */
static void add_card(struct wanted *w)
{
    struct device *device;
    if (device_open(&device, "cuda") != OK)
        return;
    w->target[w->targets++] = ((struct cuda *)device)->target;
    device_close(device);
}

/* With dtype auto those of every type: the card decides between float32 and bfloat16, and its user may choose float16. */
static enum status kernels_want(struct wanted *w, const struct options *options, enum user_command command)
{
    struct options resolved, *values = &resolved;
    TRY(named_model_find(options, command, values));
    if (values->target)
        TRY(add_targets(w, values->target));
    if (values->dtype != CHOICE_dtype_auto)
        return kernels_collect(&w->list, values, values->dtype);
    TRY(kernels_collect(&w->list, values, CHOICE_dtype_float32));
    TRY(kernels_collect(&w->list, values, CHOICE_dtype_bfloat16));
    return kernels_collect(&w->list, values, CHOICE_dtype_float16);
}

/* Not every target needs every kernel: those with tensor cores have others in place of some. */
static bool needs(int target, const struct kernel_need *need)
{
    return target >= need->from && target < need->until;
}

/* --- list --------------------------------------------------------------------------------------------------------------- */

/* Leaves out what none of the named targets needs. */
static void keep_needed(struct wanted *w)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < w->list.count; i++)
        for (int t = 0; t < w->targets; t++)
            if (needs(w->target[t], &w->list.need[i])) {
                w->list.need[kept++] = w->list.need[i];
                break;
            }
    w->list.count = kept;
}

static enum status mark_cached(const struct wanted *w, const struct options *values, json_t *kernels)
{
    for (int t = 0; t < w->targets; t++) {
        struct cuda_code code;
        char name[16];
        enum status status = OK;
        snprintf(name, sizeof name, "sm_%d", w->target[t]);
        TRY(cuda_code_open(&code, w->target[t], values->output_dir, NULL));
        for (int64_t i = 0; i < w->list.count && status == OK; i++) {
            bool found = false;
            if (!needs(w->target[t], &w->list.need[i]))
                continue;
            status = cuda_code_has(&code, w->list.need[i].kernel, w->list.need[i].options, &found);
            json_object_set_new(json_object_get(json_array_get(kernels, (size_t)i), "cached"), name, json_boolean(found));
        }
        cuda_code_close(&code);
        TRY(status);
    }
    return OK;
}

/* A kernel's row: `from` and `below` are the targets that need it, where not all do. */
static json_t *need_json(const struct kernel_need *need)
{
    char from[16], below[16];
    snprintf(from, sizeof from, "sm_%d", need->from);
    snprintf(below, sizeof below, "sm_%d", need->until);
    return json_pack("{s:s, s:s, s:s, s:{}, s:s*, s:s*}", "kernel", need->kernel->name, "file", need->kernel->file, "defines",
                     need->options, "cached", "from", need->from ? from : NULL, "below", need->until != INT_MAX ? below : NULL);
}

static json_t *list_json(const struct kernel_list *list)
{
    json_t *kernels = json_array();
    for (int64_t i = 0; i < list->count && kernels; i++)
        if (json_array_append_new(kernels, need_json(&list->need[i]))) {
            json_decref(kernels);
            kernels = NULL;
        }
    return kernels;
}

enum status command_kernels_list(const struct options *options, enum user_command command, json_t **report)
{
    struct wanted w = {0};
    enum status status = kernels_want(&w, options, command);
    if (status == OK && !w.targets)
        add_card(&w);
    if (w.targets)
        keep_needed(&w);
    json_t *kernels = status == OK ? list_json(&w.list) : NULL;
    if (status == OK)
        status = kernels ? mark_cached(&w, options, kernels) : ERR_MEMORY;
    if (status == OK)
        *report = json_pack("{s:O}", "kernels", kernels);
    json_decref(kernels);
    kernel_list_free(&w.list);
    return status;
}

/* --- build -------------------------------------------------------------------------------------------------------------- */

static enum status build_kernel(struct cuda_code *code, const struct kernel_need *need, int64_t *compiled)
{
    struct buffer entry = {0};
    bool found;
    enum status status = cuda_code_get(code, need->kernel, need->options, &entry, &found);
    if (status == OK && !found) {
        cuda_code_keep(code, need->kernel, need->options, &entry);
        ++*compiled;
        status = cuda_code_has(code, need->kernel, need->options, &found);
        if (status == OK && !found)
            status = fail(ERR_IO, "%s: kernel %s cannot be kept there", code->place[CODE_CACHE].cache.dir, need->kernel->name);
    }
    buffer_free(&entry);
    return status;
}

/* The note comes last: a run that finds it finds all kernels. */
static enum status build_target(const struct wanted *w, int target, const char *dir, json_t *rows)
{
    struct cuda_code code;
    char name[16], version[32];
    int64_t compiled = 0, count = 0;
    TRY(cuda_code_open(&code, target, dir, NULL));
    enum status status = OK;
    for (int64_t i = 0; i < w->list.count && status == OK; i++)
        if (needs(target, &w->list.need[i])) {
            status = build_kernel(&code, &w->list.need[i], &compiled);
            count++;
        }
    if (status == OK && code.compiles)
        status = cuda_code_note(&code);
    snprintf(name, sizeof name, "sm_%d", target);
    snprintf(version, sizeof version, "%d.%d", code.major, code.minor);
    if (status == OK)
        json_array_append_new(rows, json_pack("{s:s, s:s, s:I, s:I}", "target", name, "nvrtc", version, "kernels",
                                              (json_int_t)count, "compiled", (json_int_t)compiled));
    cuda_code_close(&code);
    return status;
}

enum status command_kernels_build(const struct options *options, enum user_command command, json_t **report)
{
    struct wanted w = {0};
    enum status status = options_need(options, command, OPTION_output_dir);
    if (status == OK)
        status = options_need(options, command, OPTION_target);
    if (status == OK)
        status = kernels_want(&w, options, command);
    json_t *rows = json_array();
    for (int t = 0; t < w.targets && status == OK; t++)
        status = build_target(&w, w.target[t], options->output_dir, rows);
    if (status == OK)
        *report = json_pack("{s:o, s:O}", "output", json_lossy(options->output_dir), "targets", rows);
    json_decref(rows);
    kernel_list_free(&w.list);
    return status;
}
