/* Models on devices. */
#include "run/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/isa.h"
#include "base/log.h"
#include "base/number.h"
#include "base/process.h"
#include "models/verify_files.h"
#include "tensor/engine_shared.h"

enum { RUN_BYTES = 7 << 18 };  /* what the first steps and saves add: pages of libraries, stacks, buffers. An estimate */
enum { HOST_SPARE = 1 << 30 }; /* host memory that a rank does not pin */

static enum status choose_run(struct session *s, int run)
{
    enum dtype in_files;
    TRY(model_dtype(&s->model, &in_files));
    enum run_type best = in_files == DTYPE_BF16 && s->info.bf16 ? RUN_BFLOAT16 : RUN_FLOAT32;
    s->run = run == RUN_AUTO ? best : (enum run_type)run;
    s->model.weights.narrow = s->run == RUN_FLOAT32 && in_files == DTYPE_BF16 && s->info.widens && s->info.host_memory;
    if (s->run == RUN_BFLOAT16 && s->info.instructions && isa() < ISA_avx512)
        return fail(ERR_UNSUPPORTED, "--dtype bfloat16: there are no matmuls of bfloat16 with %s: use --dtype float32",
                    s->info.instructions);
    if (s->run == RUN_FLOAT16 && !s->device->class->compiles)
        return fail(ERR_UNSUPPORTED, "--dtype float16 is for GPUs: use --dtype bfloat16 or float32 with --device %s",
                    s->device->class->name);
    return OK;
}

static void look_at_device(struct session *s)
{
    device_info(s->device, &s->info);
    if (s->info.host_memory)
        limits_memory(&s->room, "");
}

static enum status session_quantise(struct session *s, const struct session_options *options)
{
    if (options->load_in_4bit && options->load_in_fp8)
        return fail(ERR_ARGUMENT, "--load-in-fp8 stores weights in 8 bits, --load-in-4bit and qlora in 4: take one of them");
    if (options->load_in_fp8)
        return model_quantise(&s->model, WEIGHT_fp8);
    if (options->load_in_4bit)
        return model_quantise(&s->model, options->double_quant ? WEIGHT_nf4 : WEIGHT_nf4_single);
    return OK;
}

/* What --resident-layers and --activation-offloading say. */
static enum status read_places(struct session *s, const struct session_options *o)
{
    struct staged *streamed = &s->engine.streamed;
    const char *words = o->resident_layers;
    bool copies = device_copies(s->device);
    char *end;
    s->engine.offload.wanted = o->offload_activations;
    if (o->offload_activations && !copies)
        return fail(ERR_UNSUPPORTED,
                    "--activation-offloading on: activations are copied to host memory only from CUDA cards; leave it out with "
                    "--device %s",
                    s->device->class->name);
    if (!words || !strcmp(words, "all"))
        return OK;
    *streamed = (struct staged){.wanted = copies && !o->shard_weights, .resident = RESIDENT_AUTO};
    if (!strcmp(words, "auto"))
        return OK;
    long long count = strtoll(words, &end, 10);
    if (!*words || *end || count < 0 || count > INT32_MAX)
        return fail(ERR_ARGUMENT, "--resident-layers cannot be '%s': it takes auto, all or a number of layers", words);
    if (!copies)
        return fail(
            ERR_UNSUPPORTED,
            "--resident-layers %s: layers are copied out of host memory only to CUDA cards; leave it out with --device %s", words,
            s->device->class->name);
    if (o->shard_weights)
        return fail(ERR_UNSUPPORTED, "--resident-layers and --shard weights exclude each other: ranks gather all layers");
    streamed->resident = count;
    return OK;
}

enum status session_open(struct session *s, const struct session_options *options)
{
    *s = (struct session){0};
    if (options->weights && !options->compared) {
        TRY(verify_files_check(options->dir));
        TRY(verify_files_check(options->adapter));
    }
    TRY(device_open(&s->device, options->device));
    if (!strcmp(options->device, DEVICE_BEST))
        device_tell_best(s->device, options->tells_device ? LOG_INFO : LOG_DEBUG);
    s->device->options = options->on_device;
    s->tuning.tf32 = options->tf32;
    look_at_device(s);
    enum status status = model_open(&s->model, options->dir, options->adapter, options->weights);
    if (status == OK) {
        s->opened = true;
        s->tuning.lora = s->model.adapted ? &s->model.adapter : NULL;
        if (options->adapter && options->weights && !options->compared)
            s->base = (struct base_asked){options->dir, options->hub_name, options->any_base};
        engine_init(&s->engine, s->device, &s->model.store);
        s->engine.gather.wanted = options->shard_weights;
        s->info.host_memory &= !options->shard_weights; /* what is kept in parts is copied */
        status = read_places(s, options);
        if (device_copies(s->device))
            limits_memory(&s->host, "");
        if (status == OK)
            status = choose_run(s, options->run);
        s->tuning.copied = status == OK && !s->info.host_memory && !options->shard_weights; /* gathered one by one */
        if (status == OK)
            status = session_quantise(s, options);
    }
    if (status != OK)
        session_close(s);
    return status;
}

void session_close(struct session *s)
{
    if (s->opened) {
        engine_free(&s->engine);
        model_close(&s->model);
    }
    for (int64_t i = 0; i < s->net_count; i++)
        if (s->nets[i]) {
            net_free(s->nets[i]);
            memory_free(s->nets[i]);
        }
    memory_free(s->nets);
    device_close(s->device);
    *s = (struct session){0};
}

/* Without its pairs a base runs the programs that it has on its own, to the same digits: a factor of 0 would be one more input of
 * every layer with a pair, and would compute the pairs for nothing. */
static enum status session_build(struct session *s, struct net *n, enum net_goal goal, enum loss_id loss, int64_t T, int64_t R,
                                 int64_t S)
{
    s->bare = (struct tuning){.tf32 = s->tuning.tf32, .copied = s->tuning.copied};
    return net_build(n, &s->model.store, &s->model.weights, s->model.family, &s->model.config,
                     goal == NET_BASE_LOSS ? &s->bare : &s->tuning, s->run, goal, loss, T, R, S);
}

/* Nets are numbered as the engine does. */
static enum status add_program(struct session *s, struct net *n, struct program *p, int64_t *index)
{
    struct net **nets = memory_resize(s->nets, (s->net_count + 1) * (int64_t)sizeof *nets);
    if (!nets)
        return ERR_MEMORY;
    s->nets = nets;
    TRY(engine_add(&s->engine, p, index));
    s->nets[s->net_count++] = n;
    return OK;
}

static enum status session_add_key(struct session *s, enum net_goal goal, enum loss_id loss, int64_t T, int64_t R, int64_t S,
                                   int64_t *index)
{
    for (int64_t i = 0; i < s->net_count; i++) {
        const struct net *n = s->nets[i];
        if (n && n->goal == goal && n->loss == loss && n->T == T && n->R == R && n->S == S) {
            *index = i;
            return OK;
        }
    }
    struct net *n = memory_alloc(sizeof *n);
    if (!n)
        return ERR_MEMORY;
    enum status status = session_build(s, n, goal, loss, T, R, S);
    if (status == OK)
        status = add_program(s, n, &n->program, index);
    if (status != OK) {
        net_free(n);
        memory_free(n);
    }
    return status;
}

enum status session_add(struct session *s, enum net_goal goal, int64_t T, int64_t R, int64_t S, int64_t *index)
{
    return session_add_key(s, goal, LOSS_cross_entropy, T, R, S, index);
}

enum status session_add_training(struct session *s, enum loss_id loss, int64_t T, int64_t R, int64_t *index)
{
    return session_add_key(s, NET_TRAIN, loss, T, R, 0, index);
}

void session_drop(struct session *s)
{
    engine_drop(&s->engine);
    net_free(s->nets[--s->net_count]);
    memory_free(s->nets[s->net_count]);
}

enum status session_add_within(struct session *s, enum loss_id loss, int64_t T, int64_t R, int64_t largest, int64_t *index)
{
    const struct engine_program *programs;
    int64_t before = s->net_count;
    TRY(session_add_training(s, loss, T, R, index));
    programs = s->engine.programs;
    if (s->net_count == before || programs[*index].bytes[LIFE_ACTIVATIONS] <= programs[largest].bytes[LIFE_ACTIVATIONS])
        return OK;
    session_drop(s);
    *index = -1;
    return OK;
}

enum status session_add_program(struct session *s, struct program *p, int64_t *index)
{
    return add_program(s, NULL, p, index);
}

enum status session_saves(const struct session *s, int64_t *bytes)
{
    const struct staged *streamed = &s->engine.streamed;
    int64_t layers;
    *bytes = 0;
    if (streamed->wanted)
        TRY(staged_saves(&s->model.store, max(streamed->resident, 0), &layers, bytes));
    *bytes = max(*bytes, 0);
    return OK;
}

/* As many as fit, and leave the driver what it takes besides them, by estimate: it rounds allocations up, to 2 MB each, and the
 * card has page tables of what is pinned, 8 bytes for each 4 KB. With none at all the run may still not fit: session_prepare says
 * so. */
static enum status fit_layers(struct session *s, int64_t layers)
{
    enum {
        COMMANDS = 4,
        ROUNDED = 64,
        TABLES = 512
    }; /* commands of a layer that is copied, in the forward and the backward pass */
    struct staged *streamed = &s->engine.streamed;
    struct device_costs costs, one;
    session_costs(s, &costs);
    int64_t needs = engine_needs(&s->engine) - engine_held(&s->engine, s->info.max_block), room = session_room(s, needs, &costs),
            saved = 0;
    device_costs(s->device, 0, COMMANDS * s->engine.program_count, &one);
    streamed->wanted = room < 0;
    for (streamed->resident = layers; streamed->wanted && streamed->resident > 0;) {
        TRY(staged_saves(&s->model.store, --streamed->resident, &layers, &saved));
        int64_t spare = (needs - saved) / ROUNDED + saved / TABLES;
        if (room + saved - (layers - streamed->resident) * one.graphs - spare >= 0)
            break;
    }
    return OK;
}

static enum status choose_layers(struct session *s)
{
    struct staged *streamed = &s->engine.streamed;
    int64_t layers, saved;
    if (!streamed->wanted)
        return OK;
    TRY(staged_saves(&s->model.store, max(streamed->resident, 0), &layers, &saved));
    if (streamed->resident == RESIDENT_AUTO)
        return fit_layers(s, layers);
    streamed->wanted = streamed->resident < layers;
    return !streamed->wanted || saved > 0
               ? OK
               : fail(
                     ERR_ARGUMENT,
                     "--resident-layers %lld saves no memory: the model has %lld layers, and two of those that are copied are on "
                     "the card at a time. Give a smaller number, or all",
                     (long long)streamed->resident, (long long)layers);
}

enum status session_plan(struct session *s)
{
    TRY(model_attach(&s->model, &s->info));
    if (s->base.model)
        TRY(adapter_base_check(&s->model, &s->base));
    TRY(choose_layers(s));
    return engine_place(&s->engine);
}

int64_t session_bytes(const struct session *s, int64_t bytes[LIFE_COUNT], int64_t *mapped)
{
    engine_bytes(&s->engine, bytes, mapped);
    int64_t total = *mapped;
    for (int life = 0; life < LIFE_COUNT; life++)
        total += bytes[life];
    return total;
}

int64_t session_shared(const struct session *s)
{
    int64_t bytes[LIFE_COUNT], mapped;
    engine_bytes(&s->engine, bytes, &mapped);
    return mapped + engine_shared_bytes(&s->engine);
}

static int64_t count_kernels(const struct session *s)
{
    enum { KERNELS_MAX = 256 };
    const struct kernel *seen[KERNELS_MAX];
    const struct kernel *last = NULL; /* panels of one weight launch the same one in a row */
    int64_t count = 0;
    for (int64_t i = 0; i < s->engine.program_count; i++) {
        const struct lowering *l = &s->engine.programs[i].lowering;
        for (int64_t k = 0; k < l->count; k++) {
            const struct kernel *kernel = l->list[k].command.kind == COMMAND_LAUNCH ? l->list[k].command.launch.kernel : NULL;
            int64_t at = 0;
            if (!kernel || kernel == last)
                continue;
            while (at < count && seen[at] != kernel)
                at++;
            if (at == count && count < KERNELS_MAX)
                seen[count++] = kernel;
            last = kernel;
        }
    }
    return count;
}

void session_costs(const struct session *s, struct device_costs *costs)
{
    int64_t commands = 0;
    for (int64_t i = 0; i < s->engine.program_count; i++)
        commands += s->engine.programs[i].lowering.count;
    device_costs(s->device, count_kernels(s), commands, costs);
}

/* Of the memory that blocks are in. */
static int64_t owners_part(const struct session *s)
{
    return s->room.allocate ? s->owner_bytes : 0;
}

int64_t session_room(const struct session *s, int64_t bytes, const struct device_costs *costs)
{
    const struct device_info *i = &s->info;
    int64_t to_come = bytes + costs->modules + costs->graphs + owners_part(s);
    if (s->room.limit[0] && s->room.addresses != INT64_MAX && !s->model.weights.listed)
        return min(i->memory_free, s->room.addresses - s->model.weights_mapped.bytes) - to_come;
    if (i->memory_free)
        return i->memory_free - to_come;
    return i->memory ? i->memory - to_come - costs->context - costs->workspace : INT64_MAX;
}

int64_t session_cache(const struct session *s, int64_t bytes, const struct device_costs *costs)
{
    if (!s->room.limit[0] || s->room.resident == INT64_MAX)
        return INT64_MAX;
    int64_t left = s->room.resident - bytes - costs->modules - costs->graphs;
    return max(left, 0) * max(s->neighbours, 1); /* ranks of one machine map the same files: what all of them leave is for each */
}

int64_t session_shrink(struct session *s)
{
    int64_t now, peak;
    engine_shrink(&s->engine);
    process_trim();
    process_memory(&now, &peak);
    return now + RUN_BYTES + s->owner_bytes;
}

int64_t session_offloaded(const struct session *s)
{
    return s->engine.offload.host ? tensor_bytes(s->engine.offload.host) : 0;
}

/* Pinned memory cannot be swapped out. Of what is free the driver, the libraries and the page cache need a part: where all of it
 * is pinned, the system kills the process. */
static enum status check_host(const struct session *s)
{
    const struct staged *streamed = &s->engine.streamed;
    const struct memory_room *room = &s->host;
    int64_t activations = session_offloaded(s), bytes = streamed->bytes + activations;
    char what[80];
    if (!bytes || !room->allocate || bytes <= room->allocate - HOST_SPARE)
        return OK;
    if (activations)
        snprintf(what, sizeof what, "%.2f GB of activations and %.2f GB of weights", (double)activations * 1e-9,
                 (double)streamed->bytes * 1e-9);
    else
        snprintf(what, sizeof what, "the weights of %lld layers, %.2f GB,", (long long)streamed->count,
                 (double)streamed->bytes * 1e-9);
    return fail(
        ERR_MEMORY,
        "out of memory: %s are to lie in host memory, where %.2f GB are free%s by %s; %.2f GB of that stay for the driver "
        "and the system. Try %s",
        what, (double)room->allocate * 1e-9, s->neighbours > 1 ? " for each rank of this machine" : "", room->limit,
        HOST_SPARE * 1e-9, activations ? "fewer tokens at once" : "--load-in-4bit, or a smaller model");
}

enum status session_prepare(struct session *s)
{
    int64_t bytes[LIFE_COUNT], mapped, total = session_bytes(s, bytes, &mapped) - mapped;
    struct device_costs costs;
    if (s->neighbours < 2 || !s->room.allocate) /* else a rank's part holds that was read before any of them took some */
        look_at_device(s);
    session_costs(s, &costs);
    int64_t to_come = total - engine_held(&s->engine, s->info.max_block);
    int64_t room = session_room(s, to_come, &costs), driver = costs.modules + costs.graphs;
    int64_t needed = to_come + driver + owners_part(s);
    if (room < 0)
        return fail(
            ERR_MEMORY, "out of memory: %.2f GB are needed%s, %.2f GB are %s on %s%s%s%s; `hone plan` shows for what. Try %s",
            (double)needed * 1e-9, driver ? ", kernels and graphs among them by estimate" : "", (double)(needed + room) * 1e-9,
            s->info.memory_free ? "free" : "there", s->device->class->name,
            s->neighbours > 1 && s->room.allocate ? " for each rank of this machine" : "", s->room.limit[0] ? " by " : "",
            s->room.limit,
            s->run == RUN_FLOAT32 && device_multiplies(s->device, DTYPE_BF16) ? "--dtype bfloat16"
                                                                              : "fewer tokens at once, or a smaller model");
    TRY(check_host(s));
    int64_t cache = session_cache(s, total, &costs);
    if (mapped > cache)
        log_message(
            LOG_WARNING,
            "%.2f GB of weights stay in their files and need as much page cache, but %.2f GB are left for it: they will be "
            "read from disk in every step",
            (double)mapped * 1e-9, (double)cache * 1e-9);
    const struct staged *streamed = &s->engine.streamed;
    if (streamed->count)
        log_message(
            LOG_INFO,
            "%lld of %lld layers stay on the device; the weights of the others, %.2f GB, lie in host memory and are copied "
            "in every run of a program (--resident-layers)",
            (long long)(streamed->layers - streamed->count), (long long)streamed->layers, (double)streamed->bytes * 1e-9);
    if (session_offloaded(s))
        log_message(
            LOG_INFO,
            "%.2f GB of activations wait in host memory for the backward pass of each micro-batch (--activation-offloading)",
            (double)session_offloaded(s) * 1e-9);
    double start = clock_seconds();
    TRY(engine_prepare(&s->engine));
    weights_drop_files(&s->model.weights); /* they count as mapped, not as the process's own */
    s->process_bytes = session_shrink(s);
    double prepared = clock_seconds();
    const struct device_counters *counters = &s->device->counters;
    if (counters->compiled + counters->loaded)
        log_message(LOG_INFO, "%lld kernels ready in %.1f s: %lld compiled, %lld from the cache",
                    (long long)(counters->compiled + counters->loaded), prepared - start, (long long)counters->compiled,
                    (long long)counters->loaded);
    for (bool again = true; again;) {
        TRY(model_upload(&s->model, &s->engine));
        TRY(engine_shared_finish(&s->engine, &again));
    }
    log_message(LOG_DEBUG, "%lld programs prepared in %.3f s, weights uploaded in %.3f s", (long long)s->net_count,
                prepared - start, clock_seconds() - prepared);
    return OK;
}

const char *session_dtype(const struct session *s)
{
    return dtype_name(run_types[s->run][ROLE_WEIGHT]);
}
