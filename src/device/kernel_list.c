/* Blocks are numbers without memory. */
#include "device/kernel_list.h"

#include <limits.h>
#include <stdio.h>

#include "base/number.h"

struct lister {
    struct device device;
    struct kernel_list list;
    struct gpu_spec card;
    bool is_card;
    int32_t blocks;
};

static const struct lister *lister_of(const struct device *device)
{
    return (const struct lister *)device;
}

const struct kernel_list *kernel_list_of(const struct device *device)
{
    return &lister_of(device)->list;
}

const struct gpu_spec *kernel_list_card(const struct device *device)
{
    return device->class == &device_kernels && lister_of(device)->is_card ? &lister_of(device)->card : NULL;
}

static enum status kernel_list_widen(struct kernel_need *known, const struct kernel_need *need)
{
    known->from = (int)min(known->from, need->from);
    known->until = (int)max(known->until, need->until);
    return OK;
}

enum status kernel_list_add(struct kernel_list *list, const struct kernel_need *need)
{
    for (int64_t i = 0; i < list->count; i++)
        if (!strcmp(list->need[i].kernel->file, need->kernel->file) && !strcmp(list->need[i].options, need->options))
            return kernel_list_widen(&list->need[i], need);
    TRY(memory_grow(&list->need, &list->capacity, list->count + 1, (int64_t)sizeof *list->need));
    char *options = arena_text(&list->arena, need->options, (int64_t)strlen(need->options));
    if (!options)
        return ERR_MEMORY;
    list->need[list->count] = *need;
    list->need[list->count++].options = options;
    return OK;
}

void kernel_list_free(struct kernel_list *list)
{
    memory_free(list->need);
    arena_free(&list->arena);
    *list = (struct kernel_list){0};
}

static enum status open_lister(struct device **out, int number)
{
    (void)number;
    struct lister *l = memory_alloc(sizeof *l);
    if (!l)
        return ERR_MEMORY;
    l->device.class = &device_kernels;
    l->device.tensor_cores = true;
    *out = &l->device;
    return OK;
}

static enum status open_card(struct device **out, const char *name)
{
    struct gpu_spec card;
    TRY(gpu_spec_open(&card, name));
    TRY(open_lister(out, 0));
    struct lister *l = (struct lister *)*out;
    l->card = card;
    l->is_card = true;
    l->device.tensor_cores = card.target >= DEVICE_MMA;
    return OK;
}

static void close_lister(struct device *device)
{
    kernel_list_free(&((struct lister *)device)->list);
    memory_free(device);
}

/* All memory of a card is taken to be free; without one there is no limit. */
static void info(struct device *device, struct device_info *out)
{
    const struct gpu_spec *card = kernel_list_card(device);
    *out = (struct device_info){.name = "no device", .max_block = INT64_MAX, .bf16 = true};
    if (!card)
        return;
    snprintf(out->name, sizeof out->name, "%s", card->words);
    out->memory = card->memory; /* max_block: a plan says by how much a run does not fit */
    out->bf16 = card->bf16;
    out->threads = card->units;
}

static void costs(struct device *device, int64_t kernels, int64_t commands, struct device_costs *out)
{
    const struct gpu_spec *card = kernel_list_card(device);
    if (card)
        card_costs(card->target, true, device->options.cuda_graph != DEVICE_GRAPH_OFF, kernels, commands, out);
}

static enum status alloc(struct device *device, int64_t bytes, int32_t *block)
{
    (void)bytes;
    *block = ((struct lister *)device)->blocks++;
    return OK;
}

static void release(struct device *device, int32_t block)
{
    (void)device;
    (void)block;
}

/* As where a library multiplies: its kernels are listed too. */
static enum status gemm_query(struct device *device, const struct gemm *gemm, int64_t *workspace)
{
    (void)device;
    *workspace = kernel_bias_workspace(gemm);
    return OK;
}

static enum status add_launch(struct kernel_list *list, const struct command *launch)
{
    char options[KERNEL_OPTIONS];
    const struct kernel *kernel = launch->launch.kernel;
    if (!kernel->file || !kernel_text(kernel->file))
        return fail(ERR_UNSUPPORTED, "kernel %s has no text that could be compiled", kernel->name);
    kernel_options(options, launch);
    TRY(kernel_list_add(list, &(struct kernel_need){kernel, options, kernel->plain ? DEVICE_MMA : 0, INT_MAX}));
    if (!kernel->plain)
        return OK;
    struct command plain = *launch;
    plain.launch.kernel = kernel->plain;
    kernel_options(options, &plain);
    return kernel_list_add(list, &(struct kernel_need){kernel->plain, options, 0, DEVICE_MMA});
}

/* The tiled kernel, and what follows a library's product. */
static enum status add_gemm(struct kernel_list *list, const struct command *gemm, int tile)
{
    struct command launch, product;
    kernel_of_gemm(&launch, gemm, tile, false);
    TRY(add_launch(list, &launch));
    if (!gemm->gemm.bias)
        return OK;
    kernel_of_bias(&launch, &product, gemm);
    return add_launch(list, &launch);
}

static enum status prepare(struct device *device, const struct command *commands, int64_t count, struct prepared **out)
{
    struct kernel_list *list = &((struct lister *)device)->list;
    for (int64_t i = 0; i < count; i++) {
        if (commands[i].kind == COMMAND_LAUNCH)
            TRY(add_launch(list, &commands[i]));
        if (commands[i].kind == COMMAND_GEMM)
            TRY(add_gemm(list, &commands[i], device->gemm_tile));
    }
    *out = NULL;
    return OK;
}

static enum status nothing_runs(void)
{
    return fail(ERR_INTERNAL, "a device that only lists kernels was asked to compute");
}

static enum status write_nowhere(struct device *device, struct operand to, enum dtype to_type, const void *from,
                                 enum dtype from_type, int64_t count)
{
    (void)device, (void)to, (void)to_type, (void)from, (void)from_type, (void)count;
    return nothing_runs();
}

static enum status read_nothing(struct device *device, void *to, struct operand from, int64_t bytes)
{
    (void)device, (void)to, (void)from, (void)bytes;
    return nothing_runs();
}

static enum status run(struct device *device, struct prepared *prepared)
{
    (void)device, (void)prepared;
    return nothing_runs();
}

static void discard(struct device *device, struct prepared *prepared)
{
    (void)device, (void)prepared;
}

const struct device_class device_kernels = {
    .name = "kernels",
    .compiles = true,
    .open = open_lister,
    .open_named = open_card,
    .close = close_lister,
    .info = info,
    .costs = costs,
    .alloc = alloc,
    .alloc_host = alloc,
    .release = release,
    .write = write_nowhere,
    .read = read_nothing,
    .gemm_query = gemm_query,
    .prepare = prepare,
    .run = run,
    .discard = discard,
};
