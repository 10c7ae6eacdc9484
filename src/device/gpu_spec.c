/* Cards by name, and their rates. */
#include "device/gpu_spec.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/number.h"

/* A matmul is cut into tiles of so many rows and columns, a tile for each multiprocessor at a time. Where there are fewer tiles
 * than multiprocessors, k is cut too, into pieces of at least so many terms. Narrow matrices have narrow tiles. */
enum { TILE = 128, TILE_NARROW = 32, SPLIT = 512 };

/* Assumed: 1.3 µs for an empty kernel of a replayed graph; 4 µs for the host to launch one (NVIDIA's blog "Getting Started with
 * CUDA Graphs" measures 3.4 and 3.8 µs for kernels that take 2.9 µs, others 4 to 6 µs a launch). */
static const double gap = 1.3e-6, issue = 4e-6;

const struct work_kind work_kinds[] = {
#define WORK(kind, words, rate, share, source) {#kind, words, CARD_##rate, 1e-3 * (share), source},
#include "device/work.def"
#undef WORK
};

struct row {
    const char *name, *words;
    int target, memory, units, lanes;
    double bf16, f16, tf32, f32, bandwidth, link, matmul;
    const char *source, *matmul_source;
};

static const struct row rows[] = {
#define CARD(name, words, target, memory, units, lanes, bf16, f16, tf32, f32, bandwidth, link, matmul, source, matmul_source)    \
    {#name, words, target, memory, units, lanes, bf16, f16, tf32, f32, bandwidth, link, matmul, source, matmul_source},
#include "device/cards.def"
#undef CARD
};

enum { ROWS = sizeof rows / sizeof rows[0] };

bool gpu_spec_at(int index, struct gpu_spec *card)
{
    if (index < 0 || index >= ROWS)
        return false;
    const struct row *r = &rows[index];
    *card = (struct gpu_spec){
        .target = r->target,
        .bf16 = r->bf16 > 0,
        .memory = (int64_t)r->memory << 20,
        .units = r->units,
        .lanes = r->lanes,
        .peak = {r->bf16 * 1e12, r->f16 * 1e12, r->tf32 * 1e12, r->f32 * 1e12, 0, r->f32 * 1e12 * 32 / r->lanes},
        .bandwidth = r->bandwidth * 1e9,
        .link = r->link * 1e9,
        .matmul = r->matmul * 1e-2,
        .gap = gap,
        .issue = issue,
        .source = r->source,
        .matmul_source = r->matmul_source};
    snprintf(card->name, sizeof card->name, "%s", r->name);
    snprintf(card->words, sizeof card->words, "%s", r->words);
    return true;
}

static enum status gpu_spec_unknown(const char *name)
{
    char names[1024] = "";
    int at = 0;
    for (int i = 0; i < ROWS; i++)
        at += snprintf(names + at, sizeof names - (size_t)at, "%s%s", i ? ", " : "", rows[i].name);
    return fail(ERR_ARGUMENT, "there is no card '%s': use one of %s, or a file that hone bench --calibrate wrote", name, names);
}

enum status gpu_spec_open(struct gpu_spec *card, const char *name)
{
    for (int i = 0; i < ROWS; i++)
        if (!strcmp(rows[i].name, name))
            return gpu_spec_at(i, card) ? OK : ERR_INTERNAL;
    return file_exists(name) && !file_is_directory(name) ? gpu_spec_read(card, name) : gpu_spec_unknown(name);
}

/* --- rates -------------------------------------------------------------------------------------------------------------- */

static enum gpu_spec_rate rate_of(enum work work, enum dtype dtype)
{
    enum gpu_spec_rate rate = work_kinds[work].rate;
    return rate != CARD_TENSOR ? rate : dtype == DTYPE_BF16 ? CARD_BF16 : dtype == DTYPE_F16 ? CARD_F16 : CARD_TF32;
}

/* A type that the tensor cores do not have is multiplied by the ordinary ones. */
double gpu_spec_peak(const struct gpu_spec *c, enum work work, enum dtype dtype)
{
    enum gpu_spec_rate rate = rate_of(work, dtype);
    if (rate >= CARD_BYTES)
        return 0;
    return c->peak[rate] > 0 ? c->peak[rate] : c->peak[CARD_F32];
}

double gpu_spec_flops(const struct gpu_spec *c, enum work work, enum dtype dtype)
{
    if (c->measured)
        return work_moves(work) ? 0 : c->rate[work];
    return gpu_spec_peak(c, work, dtype) * (work_kinds[work].share > 0 ? work_kinds[work].share : c->matmul);
}

double gpu_spec_bytes(const struct gpu_spec *c, enum work work)
{
    if (work_kinds[work].rate == CARD_LINK)
        return c->link * work_kinds[work].share;
    if (c->measured)
        return work_moves(work) ? c->rate[work] : 0;
    const struct work_kind *kind = &work_kinds[work_moves(work) ? work : WORK_memory];
    return c->bandwidth * kind->share;
}

double gpu_spec_filled(const struct gpu_spec *c, const struct gemm *g)
{
    if (c->measured || g->m < 1 || g->n < 1)
        return 1;
    int64_t rows_of = min(round_up(g->m, TILE_NARROW), TILE), columns_of = min(round_up(g->n, TILE_NARROW), TILE);
    int64_t down = divide_up(g->m, rows_of), across = divide_up(g->n, columns_of), tiles = down * across;
    double used = (double)g->m * (double)g->n / ((double)(down * rows_of) * (double)(across * columns_of));
    if (tiles < c->units)
        tiles = min(tiles * max((g->k + g->k2) / SPLIT, 1), c->units);
    return used * (double)tiles / (double)round_up(tiles, c->units);
}

/* --- files -------------------------------------------------------------------------------------------------------------- */

enum { FILE_MAX = 1 << 20 };
static const char format_name[] = "hone calibration 1";

json_t *gpu_spec_json(const struct gpu_spec *c)
{
    json_t *rates = json_object();
    for (int i = 0; i < WORK_COUNT; i++)
        if (c->rate[i] > 0)
            json_object_set_new(rates, work_kinds[i].id, json_real(c->rate[i]));
    return json_pack("{s:s, s:s, s:b, s:i, s:b, s:I, s:i, s:f, s:o}", "format", format_name, "name", c->words, "stand_in",
                     (int)c->stand_in, "target", c->target, "bfloat16", (int)c->bf16, "memory_bytes", (json_int_t)c->memory,
                     "units", c->units, "gap_seconds", c->gap, "rates", rates);
}

static enum status read_rates(struct gpu_spec *c, const json_t *rates, const char *path)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)rates, key, value)
    {
        int i = 0;
        while (i < WORK_COUNT && strcmp(work_kinds[i].id, key))
            i++;
        if (i == WORK_COUNT || !json_is_number(value) || !(json_number_value(value) > 0))
            return fail(ERR_FORMAT, "%s: \"rates\": \"%s\" is not a kind of work with a rate above 0", path, key);
        c->rate[i] = json_number_value(value);
    }
    return OK;
}

/* The published figures of a card whose name is in the name of the device. */
static void gpu_spec_look_up(struct gpu_spec *c)
{
    struct gpu_spec known;
    for (int i = 0; gpu_spec_at(i, &known); i++)
        if (strstr(c->words, known.words)) {
            memcpy(c->peak, known.peak, sizeof c->peak);
            c->bandwidth = known.bandwidth;
            c->link = known.link;
            c->lanes = known.lanes;
            c->source = known.source;
        }
}

static enum status read_card(struct gpu_spec *c, const json_t *tree, const char *path)
{
    const char *format = NULL, *name = NULL;
    int64_t target = 0, units = 0;
    *c = (struct gpu_spec){.measured = true, .source = "", .matmul_source = ""};
    TRY(json_get_text(tree, "format", &format, path));
    if (!format || strcmp(format, format_name))
        return fail(ERR_FORMAT, "%s: not a file that hone bench --calibrate wrote", path);
    TRY(json_get_text(tree, "name", &name, path));
    TRY(json_get_bool(tree, "stand_in", &c->stand_in, path));
    TRY(json_get_bool(tree, "bfloat16", &c->bf16, path));
    TRY(json_get_int(tree, "target", &target, path));
    TRY(json_get_int(tree, "units", &units, path));
    TRY(json_need_int(tree, "memory_bytes", &c->memory, path));
    TRY(json_get_real(tree, "gap_seconds", &c->gap, path));
    if (target < 0 || target > 9999 || units < 0 || units > 1 << 20 || c->memory < 1 || !(c->gap >= 0))
        return fail(ERR_FORMAT, "%s: numbers that no device can have", path);
    c->target = (int)target;
    c->units = (int)units;
    snprintf(c->name, sizeof c->name, "%s", "measured");
    snprintf(c->words, sizeof c->words, "%s", name ? name : "an unnamed device");
    gpu_spec_look_up(c);
    return read_rates(c, json_object_get(tree, "rates"), path);
}

enum status gpu_spec_read(struct gpu_spec *c, const char *path)
{
    json_t *tree;
    enum status status = json_parse_file(&tree, path, FILE_MAX);
    if (status == ERR_FORMAT)
        return fail(ERR_FORMAT,
                    "%s: neither a card that hone knows (hone plan --gpu all lists them) nor a file of hone bench --calibrate",
                    path);
    TRY(status);
    status = read_card(c, tree, path);
    json_decref(tree);
    return status;
}

/* --- what CUDA takes ---------------------------------------------------------------------------------------------------- */

int64_t card_workspace(int target)
{
    return (int64_t)(target >= 90 ? 32 : 4) << 20;
}

void card_costs(int target, bool cublas, bool graphs, int64_t kernels, int64_t commands, struct device_costs *out)
{
    enum { CONTEXT = 384 << 20, CUBLAS = 64 << 20, KERNEL = 64 << 10, NODE = 2 << 10 };
    *out = (struct device_costs){
        .context = CONTEXT,
        .workspace = cublas ? card_workspace(target) : 0,
        .modules = kernels * KERNEL + (cublas ? CUBLAS : 0),
        .graphs = graphs ? commands * NODE : 0,
    };
}
