/* The matrices of experts in MXFP4, as gpt-oss is published. For a tensor "name" of the network, (E, in, out), the files have
 *
 *     name_blocks   (E, out, in / 32, 16)   codes of 32 inputs, two in a byte, the first in its low half
 *     name_scales   (E, out, in / 32)       the exponent of their power of two, plus 127
 *
 * bfloat16 holds code times power exactly, so that the network has the numbers of the files whatever type it runs in. They are
 * expanded as they are loaded.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/parallel.h"
#include "models/weights_safetensors.h"

enum { GROUP = 32, BYTES = GROUP / 2, CODES = 16, POWERS = 256 };

static const char blocks_end[] = "_blocks", scales_end[] = "_scales";

static const float values[CODES] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

struct expansion {
    const uint8_t *blocks, *scales;
    uint16_t *to;
    int64_t outputs, groups;
    uint16_t number[POWERS][CODES];
};

/* Group g of all outputs of an expert, which fill 32 rows of its matrix. */
static void weights_mxfp4_groups(void *context, int64_t begin, int64_t end)
{
    const struct expansion *u = context;
    for (int64_t i = begin; i < end; i++) {
        int64_t e = i / u->groups, g = i % u->groups;
        uint16_t *to = u->to + i * GROUP * u->outputs;
        for (int64_t o = 0; o < u->outputs; o++) {
            int64_t at = (e * u->outputs + o) * u->groups + g;
            const uint16_t *number = u->number[u->scales[at]];
            for (int64_t j = 0; j < BYTES; j++) {
                uint8_t two = u->blocks[at * BYTES + j];
                to[2 * j * u->outputs + o] = number[two & 15];
                to[(2 * j + 1) * u->outputs + o] = number[two >> 4];
            }
        }
    }
}

void weights_expand_mxfp4(const struct stored *from, void *to)
{
    struct expansion u = {.blocks = from->part[0].data,
                          .scales = from->part[1].data,
                          .to = to,
                          .outputs = from->shape[2],
                          .groups = from->shape[1] / GROUP};
    for (int power = 0; power < POWERS; power++)
        for (int code = 0; code < CODES; code++)
            u.number[power][code] = bf16_from_f32(values[code] * ldexpf(1, power - 127));
    parallel_for(from->shape[0] * u.groups, 1, weights_mxfp4_groups, &u);
}

/* The tensor whose name is that of another one with another end; NULL: there is none. */
static const struct safetensors_tensor *weights_mxfp4_sibling(const struct safetensors *files, struct arena *arena,
                                                              const char *name, const char *end, const char *other)
{
    int length = (int)(strlen(name) - strlen(end));
    const char *whole = name_ends_with(name, end) ? arena_format(arena, "%.*s%s", length, name, other) : NULL;
    return whole ? safetensors_find(files, whole) : NULL;
}

static enum status weights_mxfp4_add(struct weights *w, const struct safetensors_tensor *t,
                                     const struct safetensors_tensor *scales)
{
    const int64_t *shape = t->shape;
    char name[NAME_SIZE];
    bool fits = t->dtype == SAFETENSORS_U8 && scales->dtype == SAFETENSORS_U8 && t->rank == 4 && scales->rank == 3 &&
                shape[3] == BYTES && !memcmp(shape, scales->shape, 3 * sizeof *shape) && shape[2] <= INT32_MAX / GROUP;
    if (!fits)
        return fail(ERR_FORMAT, "%s: codes in MXFP4 must be bytes (experts, outputs, groups, 16), with a scale for each group",
                    t->name);
    snprintf(name, sizeof name, "%.*s", (int)(strlen(t->name) - strlen(blocks_end)), t->name);
    struct stored stored = {
        .name = name,
        .kind = "MXFP4",
        .rank = 3,
        .shape = {shape[0], shape[2] * GROUP, shape[1]},
        .type = WEIGHT_DENSE,
        .dtype = DTYPE_BF16,
        .part = {{t->data, t->bytes, t->map, t->offset}, {scales->data, scales->bytes, scales->map, scales->offset}},
        .packed = PACKED_MXFP4};
    return weights_add(w, &stored);
}

enum status weights_list_mxfp4(struct weights *w, const struct safetensors *files)
{
    for (int64_t i = 0; i < safetensors_count(files); i++) {
        const struct safetensors_tensor *t = safetensors_at(files, i);
        const struct safetensors_tensor *scales = weights_mxfp4_sibling(files, &w->arena, t->name, blocks_end, scales_end);
        if (scales)
            TRY(weights_mxfp4_add(w, t, scales));
        else if (!weights_mxfp4_sibling(files, &w->arena, t->name, scales_end, blocks_end))
            TRY(weights_list_tensor(w, t));
    }
    w->listed = true;
    return OK;
}
