/* Models whose linear layers are stored in FP8. For a matrix "name" the files have
 *
 *     name                                 bytes of e4m3 (rows, columns)
 *     name + "_scale_inv" or "_scale"      what they are multiplied by, in spite of the first one's name: one number, one for
 * each row, or one for each 128 x 128 tile
 *
 * The shape of the scales says which. One number is that of every row. Scales of activations are passed over: hone multiplies in
 * the run's type. The network has experts in one dense tensor: their matrices are expanded as they are loaded.
 */
#include <string.h>

#include "base/json.h"
#include "base/number.h"
#include "format/fp8_matrix.h"
#include "models/weights_safetensors.h"

static const char *const scale_ends[] = {"_scale_inv", "_scale"};
static const char *const passed_over[] = {".input_scale", ".activation_scale", ".k_scale",
                                          ".v_scale",     ".q_scale",          ".input_scale_ub"};
enum { SCALE_ENDS = sizeof scale_ends / sizeof scale_ends[0], PASSED_OVER = sizeof passed_over / sizeof passed_over[0] };

bool weights_is_fp8(const char *method)
{
    return !strcmp(method, "fp8") || !strcmp(method, "fbgemm_fp8") || !strcmp(method, "compressed-tensors");
}

/* NULL, as plain fp8 has it for one scale in all, or [128, 128]. */
static enum status read_block(const json_t *block, enum weight_id *type, const char *path)
{
    *type = json_array_size(block) ? WEIGHT_fp8_block : WEIGHT_fp8;
    for (size_t i = 0; i < json_array_size(block); i++)
        if (json_array_size(block) != 2 || json_integer_value(json_array_get(block, i)) != FP8_TILE)
            return fail(ERR_UNSUPPORTED, "%s: FP8 with scales of other blocks than %d x %d is not supported", path, FP8_TILE,
                        FP8_TILE);
    return OK;
}

/* compressed-tensors has many formats; a group of modules has one. */
static enum status read_group(const json_t *group, const char *name, enum weight_id *type, const char *path)
{
    const json_t *weights = json_member(group, "weights");
    const char *kind = "", *strategy = "";
    TRY(json_get_text(weights, "type", &kind, path));
    TRY(json_get_text(weights, "strategy", &strategy, path));
    bool eight = !strcmp(kind, "float") && json_integer_value(json_member(weights, "num_bits")) == 8;
    if (eight && !strcmp(strategy, "block"))
        return read_block(json_member(weights, "block_structure"), type, path);
    *type = WEIGHT_fp8;
    if (eight && (!strcmp(strategy, "tensor") || !strcmp(strategy, "channel")))
        return OK;
    return fail(ERR_UNSUPPORTED, "%s: of compressed-tensors' formats hone reads FP8 by tensor, channel or block; %s has another",
                path, name);
}

static enum status read_groups(const json_t *groups, enum weight_id *type, const char *path)
{
    const char *name;
    json_t *group;
    if (!json_object_size(groups))
        return read_group(NULL, "the configuration", type, path);
    json_object_foreach((json_t *)groups, name, group) TRY(read_group(group, name, type, path));
    return OK;
}

/* What compressed-tensors may do to numbers besides storing them in 8 bits. */
static enum status check_rest(const struct hf_config *hf)
{
    const char *format = "dense";
    const json_t *sparsity = json_member(hf->quantised, "sparsity_config");
    if (json_object_size(json_object_get(json_member(hf->quantised, "transform_config"), "config_groups")))
        return fail(ERR_UNSUPPORTED, "%s: \"transform_config\" turns the weights or their inputs, which is not supported",
                    hf->path);
    TRY(json_get_text(sparsity, "format", &format, hf->path));
    return !strcmp(format, "dense") ? OK : fail(ERR_UNSUPPORTED, "%s: sparse weights (%s) are not supported", hf->path, format);
}

enum status weights_fp8(struct weights *w, const struct hf_config *hf)
{
    enum weight_id type = WEIGHT_fp8;
    const char *format = "e4m3";
    TRY(json_get_text(hf->quantised, "fmt", &format, hf->path));
    if (strcmp(format, "e4m3") != 0)
        return fail(ERR_UNSUPPORTED, "%s: weights in FP8 of format %s are not supported; in e4m3 they are", hf->path, format);
    if (!strcmp(hf->quantization, "fp8"))
        TRY(read_block(json_member(hf->quantised, "weight_block_size"), &type, hf->path));
    else if (!strcmp(hf->quantization, "compressed-tensors")) {
        TRY(check_rest(hf));
        TRY(read_groups(json_member(hf->quantised, "config_groups"), &type, hf->path));
    }
    w->quantise = (int)type;
    return weights_skip(w, hf, !strcmp(hf->quantization, "compressed-tensors") ? "ignore" : "modules_to_not_convert");
}

/* The scales of a matrix; NULL: it has none. */
static const struct safetensors_tensor *weights_fp8_scales_of(const struct safetensors *files, struct arena *arena,
                                                              const char *name)
{
    for (int i = 0; i < SCALE_ENDS; i++) {
        const char *whole = arena_format(arena, "%s%s", name, scale_ends[i]);
        const struct safetensors_tensor *t = whole ? safetensors_find(files, whole) : NULL;
        if (t)
            return t;
    }
    return NULL;
}

static enum status take_scales(struct weights *w, struct stored *stored, const struct safetensors_tensor *t)
{
    int64_t rows = stored->shape[0], across = divide_up(stored->shape[1], FP8_TILE), count = shape_elements(t->rank, t->shape);
    bool by_row = count == rows && t->shape[0] == rows;
    bool by_tile = t->rank == 2 && t->shape[0] == divide_up(rows, FP8_TILE) && t->shape[1] == across;
    int dtype = weights_dtype(t);
    if (dtype < 0 || (count != 1 && !by_row && !by_tile))
        return fail(ERR_UNSUPPORTED, "%s: scales must be one number, one for each of %lld rows, or %lld x %lld, in F32 or BF16",
                    t->name, (long long)rows, (long long)divide_up(rows, FP8_TILE), (long long)across);
    bool one = count == 1;
    stored->type = one || by_row ? WEIGHT_fp8 : WEIGHT_fp8_block;
    int64_t numbers = one ? rows : count;
    float *scales = arena_array(&w->arena, numbers, sizeof *scales);
    if (!scales)
        return ERR_MEMORY;
    dtype_convert(scales, DTYPE_F32, t->data, (enum dtype)dtype, count);
    for (int64_t i = 1; one && i < numbers; i++)
        scales[i] = scales[0];
    stored->part[1] = (struct stored_part){.data = scales, .bytes = numbers * (int64_t)sizeof *scales};
    return OK;
}

static enum status weights_fp8_add(struct weights *w, const struct safetensors *files, const struct safetensors_tensor *t)
{
    const struct safetensors_tensor *scales = weights_fp8_scales_of(files, &w->arena, t->name);
    if (!scales || t->rank != 2 || t->shape[0] < 1 || t->shape[1] < 1)
        return fail(ERR_FORMAT, "%s: a weight in FP8 must be a matrix with a tensor %s%s or %s%s next to it", t->name, t->name,
                    scale_ends[0], t->name, scale_ends[1]);
    struct stored stored = {.name = t->name,
                            .kind = safetensors_dtype_name(t->dtype),
                            .rank = 2,
                            .shape = {t->shape[0], t->shape[1]},
                            .dtype = -1,
                            .part = {{t->data, t->bytes, t->map, t->offset}},
                            .in_place = true};
    TRY(take_scales(w, &stored, scales));
    if (strstr(t->name, ".experts.")) {
        stored.packed = stored.type == WEIGHT_fp8 ? PACKED_FP8 : PACKED_FP8_BLOCK;
        stored.type = WEIGHT_DENSE;
        stored.dtype = DTYPE_F32;
        stored.in_place = false;
    }
    return weights_add(w, &stored);
}

void weights_expand_fp8(const struct stored *from, void *to)
{
    bool rows = from->packed == PACKED_FP8;
    fp8_dequantise(from->part[0].data, from->part[1].data, from->shape[0], from->shape[1], rows ? 1 : FP8_TILE,
                   rows ? FP8_ROW : FP8_TILE, to);
}

/* Whether a tensor is the scale of another one, or of activations. */
static bool weights_fp8_belongs(const struct safetensors *files, struct arena *arena, const char *name)
{
    for (int i = 0; i < PASSED_OVER; i++)
        if (name_ends_with(name, passed_over[i]))
            return true;
    for (int i = 0; i < SCALE_ENDS; i++) {
        const char *owner =
            name_ends_with(name, scale_ends[i]) ? arena_text(arena, name, (int64_t)(strlen(name) - strlen(scale_ends[i]))) : NULL;
        if (owner && safetensors_find(files, owner))
            return true;
    }
    return false;
}

enum status weights_list_fp8(struct weights *w, const struct safetensors *files)
{
    for (int64_t i = 0; i < safetensors_count(files); i++) {
        const struct safetensors_tensor *t = safetensors_at(files, i);
        if (t->dtype == SAFETENSORS_F8_E4M3)
            TRY(weights_fp8_add(w, files, t));
        else if (!weights_fp8_belongs(files, &w->arena, t->name))
            TRY(weights_list_tensor(w, t));
    }
    w->listed = true;
    w->quantise = WEIGHT_DENSE; /* the files say themselves what is quantised */
    return OK;
}
