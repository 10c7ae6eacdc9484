/* Models that bitsandbytes quantised to NF4. For a matrix "name" the files have
 *
 *     name                                    the codes, two in a byte
 *     name.absmax                             of each block: float32, or bytes with double quantisation
 *     name.nested_absmax, .nested_quant_map   then the scale of each group, and the map of bytes
 *     name.quant_map                          the 16 values
 *     name.quant_state.bitsandbytes__nf4      JSON as bytes: shape, sizes of blocks and groups, the mean of absmax
 */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "format/nf4_codes.h"
#include "models/weights_safetensors.h"

static const char state_end[] = ".quant_state.bitsandbytes__nf4";

struct quant_state {
    int64_t rows, columns;
    bool nested;
    float offset;
};

enum status weights_bitsandbytes(struct weights *w, const struct hf_config *hf)
{
    const json_t *config = hf->quantised;
    bool four = false, twice = false;
    const char *type = "fp4";
    TRY(json_get_bool(config, "load_in_4bit", &four, hf->path));
    TRY(json_get_text(config, "bnb_4bit_quant_type", &type, hf->path));
    TRY(json_get_bool(config, "bnb_4bit_use_double_quant", &twice, hf->path));
    if (!four || strcmp(type, "nf4") != 0)
        return fail(ERR_UNSUPPORTED, "%s: weights that bitsandbytes quantised to %s are not supported; to nf4 they are", hf->path,
                    four ? type : "8 bits");
    w->quantise = twice ? WEIGHT_nf4 : WEIGHT_nf4_single;
    return weights_skip(w, hf, "llm_int8_skip_modules");
}

static const struct safetensors_tensor *weights_bitsandbytes_part(const struct safetensors *files, struct arena *arena,
                                                                  const char *name, const char *end)
{
    const char *whole = arena_format(arena, "%s%s", name, end);
    return whole ? safetensors_find(files, whole) : NULL;
}

static enum status weights_bitsandbytes_read_state(struct quant_state *s, const struct safetensors_tensor *t)
{
    json_t *tree = NULL;
    int64_t block = 0, group = NF4_GROUP;
    double offset = 0;
    TRY(json_parse(&tree, (const char *)t->data, t->bytes, t->name));
    const json_t *shape = json_object_get(tree, "shape");
    s->nested = json_member(tree, "nested_offset") != NULL;
    s->rows = json_integer_value(json_array_get(shape, 0));
    s->columns = json_integer_value(json_array_get(shape, 1));
    enum status status = json_need_int(tree, "blocksize", &block, t->name);
    if (status == OK)
        status = json_get_int(tree, "nested_blocksize", &group, t->name);
    if (status == OK)
        status = json_get_real(tree, "nested_offset", &offset, t->name);
    s->offset = (float)offset;
    bool matrix = json_array_size(shape) == 2;
    json_decref(tree);
    TRY(status);
    if (!matrix || s->rows < 1 || s->columns < 1 || s->rows > INT32_MAX || s->columns > INT32_MAX || !isfinite(s->offset))
        return fail(ERR_FORMAT, "%s: the shape or the offset is missing or wrong", t->name);
    if (block != NF4_BLOCK || group != NF4_GROUP)
        return fail(ERR_UNSUPPORTED, "%s: blocks of %lld and groups of %lld; hone reads blocks of %d and groups of %d", t->name,
                    (long long)block, (long long)group, NF4_BLOCK, NF4_GROUP);
    return OK;
}

/* Numbers that must be those of NF4 itself. */
static enum status weights_bitsandbytes_check_numbers(const char *name, const struct safetensors_tensor *t, const float *want,
                                                      int64_t count)
{
    if (t && t->bytes == count * 4 && !memcmp(t->data, want, (size_t)count * 4))
        return OK;
    return fail(ERR_UNSUPPORTED, "%s: its table of values is missing, or not the one of bitsandbytes", name);
}

static enum status weights_bitsandbytes_take(struct stored *stored, int part, const char *what,
                                             const struct safetensors_tensor *t, int64_t bytes)
{
    if (!t || t->bytes != bytes)
        return fail(ERR_FORMAT, "%s: its %s have %lld bytes, a weight (%lld, %lld) in NF4 needs %lld", stored->name, what,
                    t ? (long long)t->bytes : 0LL, (long long)stored->shape[0], (long long)stored->shape[1], (long long)bytes);
    stored->part[part] = (struct stored_part){t->data, t->bytes, t->map, t->offset};
    return OK;
}

enum { PACKED, CODES, SCALES, MAP };

/* The parts that stand in the files otherwise: the mean and the scales in one array, and the map. */
static enum status take_nested(struct weights *w, struct stored *stored, const struct safetensors *files,
                               const struct quant_state *state, int64_t count)
{
    int64_t groups = nf4_scales(count) - 1;
    const struct safetensors_tensor *scales = weights_bitsandbytes_part(files, &w->arena, stored->name, ".nested_absmax");
    float *all = arena_alloc(&w->arena, nf4_scales(count) * 4), *map = arena_alloc(&w->arena, NF4_MAP * 4);
    if (!all || !map)
        return ERR_MEMORY;
    nf4_map(map);
    TRY(weights_bitsandbytes_check_numbers(
        stored->name, weights_bitsandbytes_part(files, &w->arena, stored->name, ".nested_quant_map"), map, NF4_MAP));
    TRY(weights_bitsandbytes_take(stored, CODES, "absmax", weights_bitsandbytes_part(files, &w->arena, stored->name, ".absmax"),
                                  nf4_blocks(count)));
    TRY(weights_bitsandbytes_take(stored, SCALES, "nested absmax", scales, groups * 4));
    all[0] = state->offset;
    memcpy(all + 1, scales->data, (size_t)groups * 4);
    stored->part[SCALES] = (struct stored_part){.data = all, .bytes = nf4_scales(count) * 4};
    stored->part[MAP] = (struct stored_part){.data = map, .bytes = NF4_MAP * 4};
    return OK;
}

static enum status weights_bitsandbytes_add(struct weights *w, const struct safetensors *files,
                                            const struct safetensors_tensor *t, const struct safetensors_tensor *of_state)
{
    struct quant_state state;
    TRY(weights_bitsandbytes_read_state(&state, of_state));
    int64_t count = state.rows * state.columns;
    struct stored stored = {.name = t->name, .kind = "NF4", .rank = 2, .shape = {state.rows, state.columns}, .dtype = -1};
    stored.type = state.nested ? WEIGHT_nf4 : WEIGHT_nf4_single;
    TRY(weights_bitsandbytes_check_numbers(t->name, weights_bitsandbytes_part(files, &w->arena, t->name, ".quant_map"),
                                           nf4_values, NF4_VALUES));
    TRY(weights_bitsandbytes_take(&stored, PACKED, "codes", t, (count + 1) / 2));
    TRY(state.nested
            ? take_nested(w, &stored, files, &state, count)
            : weights_bitsandbytes_take(&stored, 1, "absmax", weights_bitsandbytes_part(files, &w->arena, t->name, ".absmax"),
                                        nf4_blocks(count) * 4));
    return weights_add(w, &stored);
}

/* Whether a tensor belongs to another one: "name.absmax" where "name" has a state. */
static bool weights_bitsandbytes_belongs(const struct safetensors *files, struct arena *arena, const char *name)
{
    static const char *const ends[] = {".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map", state_end};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        size_t length = strlen(name), end = strlen(ends[i]);
        if (length <= end || strcmp(name + length - end, ends[i]) != 0)
            continue;
        const char *owner = arena_text(arena, name, (int64_t)(length - end));
        return owner && weights_bitsandbytes_part(files, arena, owner, state_end);
    }
    return false;
}

enum status weights_list_bitsandbytes(struct weights *w, const struct safetensors *files)
{
    for (int64_t i = 0; i < safetensors_count(files); i++) {
        const struct safetensors_tensor *t = safetensors_at(files, i),
                                        *state = weights_bitsandbytes_part(files, &w->arena, t->name, state_end);
        if (state)
            TRY(weights_bitsandbytes_add(w, files, t, state));
        else if (!weights_bitsandbytes_belongs(files, &w->arena, t->name))
            TRY(weights_list_tensor(w, t));
    }
    w->listed = true;
    w->quantise = WEIGHT_DENSE; /* the files say themselves what is quantised */
    return OK;
}
