/* Reading config.json and generation_config.json. What keys mean, and which one wins, follows transformers. */
#include "format/hf_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"

enum { FILE_MAX = 16 << 20 };

static enum status hf_config_read_object(json_t **tree, const char *path, int64_t max_bytes)
{
    TRY(json_parse_file(tree, path, max_bytes));
    if (json_is_object(*tree))
        return OK;
    json_decref(*tree);
    *tree = NULL;
    return fail(ERR_FORMAT, "%s: the file must hold a JSON object", path);
}

static enum status token_id(const json_t *value, int64_t *out, const char *key, const char *path)
{
    int64_t id = json_integer_value(value);
    if (!json_is_integer(value) || id > INT32_MAX)
        return fail(ERR_FORMAT, "%s: \"%s\" is not a token id", path, key);
    *out = id < 0 ? -1 : id; /* some configs say -1 for none */
    return OK;
}

/* One id or a list of them; a missing or empty one leaves the config as it is. */
static enum status read_eos(struct hf_config *config, const json_t *tree, const char *path)
{
    const char *key = "eos_token_id";
    const json_t *value = json_object_get(tree, key);
    size_t n = json_is_array(value) ? json_array_size(value) : value && !json_is_null(value);
    if (n > HF_CONFIG_EOS_MAX)
        return fail(ERR_UNSUPPORTED, "%s: %zu token ids in \"%s\", at most %d are supported", path, n, key, HF_CONFIG_EOS_MAX);
    int64_t ids[HF_CONFIG_EOS_MAX];
    int count = 0;
    for (size_t i = 0; i < n; i++) {
        TRY(token_id(json_is_array(value) ? json_array_get(value, i) : value, &ids[count], key, path));
        count += ids[count] >= 0;
    }
    if (count) {
        memcpy(config->eos, ids, sizeof *ids * (size_t)count);
        config->eos_count = count;
    }
    return OK;
}

static enum status hf_config_read_token(const json_t *tree, const char *key, int64_t *out, const char *path)
{
    const json_t *value = json_object_get(tree, key);
    return !value || json_is_null(value) ? OK : token_id(value, out, key, path);
}

static enum status read_tokens(struct hf_config *config, const json_t *tree, const char *path)
{
    TRY(read_eos(config, tree, path));
    TRY(hf_config_read_token(tree, "bos_token_id", &config->bos, path));
    return hf_config_read_token(tree, "pad_token_id", &config->pad, path);
}

static enum status read_generation(struct hf_config *config, const char *dir)
{
    const char *path = file_join(&config->arena, dir, "generation_config.json");
    if (!path)
        return ERR_MEMORY;
    if (!file_exists(path))
        return OK;
    json_t *tree;
    TRY(hf_config_read_object(&tree, path, HF_GENERATION_BYTES_MAX));
    enum status status = read_tokens(config, tree, path);
    json_decref(tree);
    return status;
}

static enum status hf_config_read_names(struct hf_config *config)
{
    const json_t *tree = config->root ? config->root : config->tree;
    TRY(json_get_text(config->tree, "model_type", &config->model_type, config->path));
    if (!config->model_type)
        return fail(ERR_FORMAT, "%s: \"model_type\" is missing: is this the config.json of a language model? Download it again",
                    config->path);
    const json_t *architectures = json_object_get(tree, "architectures");
    if (json_array_size(architectures)) {
        config->architecture = json_string_value(json_array_get(architectures, 0));
        if (!config->architecture)
            return fail(ERR_FORMAT, "%s: \"architectures\" must be a list of names", config->path);
    } else if (architectures && !json_is_null(architectures) && !json_is_array(architectures))
        return fail(ERR_FORMAT, "%s: \"architectures\" must be a list of names", config->path);
    TRY(json_get_text(config->tree, "dtype", &config->dtype, config->path));
    TRY(json_get_text(tree, "torch_dtype", &config->dtype, config->path));
    TRY(json_get_text(tree, "dtype", &config->dtype, config->path));
    const char *key = "quantization_config";
    config->quantised = json_member(json_member(tree, key) ? tree : config->tree, key);
    if (!config->quantised)
        return OK;
    config->quantization = "";
    return json_get_text(config->quantised, "quant_method", &config->quantization, config->path);
}

const char *hf_config_whole_name(char name[static NAME_SIZE], const char *of)
{
    static const char plain[] = "model.";
    bool inside = strncmp(of, plain, strlen(plain)) == 0;
    snprintf(name, NAME_SIZE, "%s%s", inside ? HF_CONFIG_TEXT : "", of + (inside ? strlen(plain) : 0));
    return name;
}

/* The text part of a model that has others. Whether the head is the embedding is said of the whole. */
static enum status enter_text(struct hf_config *config)
{
    const char *tied = "tie_word_embeddings";
    json_t *text = json_object_get(config->tree, "text_config");
    if (!json_is_object(text))
        return OK;
    config->root = config->tree;
    config->tree = json_incref(text);
    json_t *whole = json_object_get(config->root, tied);
    return whole && json_object_set(text, tied, whole) ? ERR_MEMORY : OK;
}

static enum status hf_config_read_files(struct hf_config *config, const char *dir)
{
    config->path = file_join(&config->arena, dir, "config.json");
    if (!config->path)
        return ERR_MEMORY;
    if (!file_exists(config->path))
        return fail(ERR_IO, "%s: no such file; it is downloaded with the model, and says what the weights are", config->path);
    TRY(hf_config_read_object(&config->tree, config->path, FILE_MAX));
    TRY(enter_text(config));
    TRY(hf_config_read_names(config));
    TRY(read_tokens(config, config->tree, config->path));
    if (config->root)
        TRY(read_tokens(config, config->root, config->path));
    return read_generation(config, dir);
}

enum status hf_config_open(struct hf_config *config, const char *dir)
{
    *config = (struct hf_config){.bos = -1, .pad = -1};
    enum status status = hf_config_read_files(config, dir);
    if (status != OK)
        hf_config_close(config);
    return status;
}

static enum status hf_config_take_key(struct hf_config *config, const char *path)
{
    config->path = arena_format(&config->arena, "%s", path);
    if (!config->path)
        return ERR_MEMORY;
    TRY(hf_config_read_names(config));
    return read_tokens(config, config->tree, config->path);
}

enum status hf_config_take(struct hf_config *config, json_t *tree, const char *path)
{
    *config = (struct hf_config){.tree = tree, .bos = -1, .pad = -1};
    enum status status = hf_config_take_key(config, path);
    if (status != OK)
        hf_config_close(config);
    return status;
}

void hf_config_close(struct hf_config *config)
{
    json_decref(config->tree);
    json_decref(config->root);
    arena_free(&config->arena);
    *config = (struct hf_config){0};
}

enum status hf_config_int(const struct hf_config *config, const char *key, int64_t *out)
{
    return json_get_int(config->tree, key, out, config->path);
}

enum status hf_config_real(const struct hf_config *config, const char *key, double *out)
{
    return json_get_real(config->tree, key, out, config->path);
}

enum status hf_config_bool(const struct hf_config *config, const char *key, bool *out)
{
    return json_get_bool(config->tree, key, out, config->path);
}

enum status hf_config_text(const struct hf_config *config, const char *key, const char **out)
{
    return json_get_text(config->tree, key, out, config->path);
}

/* On an error *out stays as it was, so that no caller uses a size that was refused. */
static enum status get_size(const json_t *object, const char *key, int64_t *out, const char *path)
{
    int64_t size = 1;
    TRY(json_get_int(object, key, &size, path));
    if (size < 1 || size > INT32_MAX)
        return fail(ERR_FORMAT, "%s: \"%s\" is %lld, it must be from 1 to %d", path, key, (long long)size, INT32_MAX);
    return json_get_int(object, key, out, path);
}

enum status hf_config_size(const struct hf_config *config, const char *key, int64_t *out)
{
    return get_size(config->tree, key, out, config->path);
}

static enum status need(const json_t *object, const char *key, const char *path)
{
    const json_t *value = json_object_get(object, key);
    return value && !json_is_null(value) ? OK : fail(ERR_FORMAT, "%s: \"%s\" is missing: download the file again", path, key);
}

enum status hf_config_need_size(const struct hf_config *config, const char *key, int64_t *out)
{
    TRY(need(config->tree, key, config->path));
    return hf_config_size(config, key, out);
}

enum status hf_config_need_real(const struct hf_config *config, const char *key, double *out)
{
    TRY(need(config->tree, key, config->path));
    return hf_config_real(config, key, out);
}

static enum status need_positive(const json_t *object, const char *key, double *out, const char *path)
{
    TRY(need(object, key, path));
    TRY(json_get_real(object, key, out, path));
    return *out > 0 && isfinite(*out) ? OK : fail(ERR_FORMAT, "%s: \"%s\" must be above 0", path, key);
}

/* The object with the rotary parameters, empty where there is none. transformers lets rope_scaling win where both are there. */
static enum status rope_object(const struct hf_config *config, const json_t **out)
{
    static const char *const KEYS[] = {"rope_scaling", "rope_parameters"};
    *out = NULL;
    for (int i = 0; i < 2; i++) {
        const json_t *value = json_object_get(config->tree, KEYS[i]);
        if (!value || json_is_null(value))
            continue;
        if (!json_is_object(value))
            return fail(ERR_FORMAT, "%s: \"%s\" must be an object", config->path, KEYS[i]);
        const char *key;
        json_t *member;
        json_object_foreach((json_t *)value, key, member) if (json_is_object(member)) return fail(
            ERR_UNSUPPORTED, "%s: rotary parameters per layer type (\"%s\") are not supported", config->path, key);
        if (!*out && json_object_size(value))
            *out = value;
    }
    return OK;
}

static const struct {
    const char *name;
    enum rope_kind kind;
} kinds[] = {{"default", ROPE_DEFAULT},
             {"linear", ROPE_LINEAR},
             {"llama3", ROPE_LLAMA3},
             {"yarn", ROPE_YARN},
             {"longrope", ROPE_LONG},
             {"su", ROPE_LONG},
             {"proportional", ROPE_PROPORTIONAL}};

const char *rope_kind_name(enum rope_kind kind)
{
    int i = 0;
    while (kinds[i].kind != kind)
        i++;
    return kinds[i].name;
}

static enum status rope_kind(const json_t *object, enum rope_kind *kind, const char *path)
{
    const char *type = "default";
    TRY(json_get_text(object, "type", &type, path));
    TRY(json_get_text(object, "rope_type", &type, path));
    for (int i = 0; i < (int)(sizeof kinds / sizeof *kinds); i++)
        if (strcmp(type, kinds[i].name) == 0) {
            *kind = kinds[i].kind;
            return OK;
        }
    return fail(
        ERR_UNSUPPORTED,
        "%s: rotary embedding of type \"%s\" is not supported (default, linear, llama3, yarn, longrope and proportional are)",
        path, type);
}

static enum status rope_original(const struct hf_config *config, const json_t *object, struct rope_config *rope)
{
    const char *original = "original_max_position_embeddings", *path = config->path;
    TRY(get_size(config->tree, "max_position_embeddings", &rope->original_max_position, path));
    TRY(get_size(object, original, &rope->original_max_position, path));
    TRY(get_size(config->tree, original, &rope->original_max_position, path));
    return rope->original_max_position ? OK : need(object, original, path);
}

static enum status rope_llama3(const struct hf_config *config, const json_t *object, struct rope_config *rope)
{
    const char *path = config->path;
    TRY(need_positive(object, "low_freq_factor", &rope->low_freq_factor, path));
    TRY(need_positive(object, "high_freq_factor", &rope->high_freq_factor, path));
    if (rope->low_freq_factor >= rope->high_freq_factor)
        return fail(ERR_FORMAT, "%s: \"low_freq_factor\" must be below \"high_freq_factor\"", path);
    return rope_original(config, object, rope);
}

static double yarn_scale(double factor, double scale)
{
    return factor <= 1 ? 1 : 0.1 * scale * log(factor) + 1;
}

static enum status rope_yarn(const struct hf_config *config, const json_t *object, struct rope_config *rope)
{
    const char *path = config->path;
    double scale = 0, all = 0, fast = 0, slow = 0;
    TRY(rope_original(config, object, rope));
    TRY(json_get_real(object, "mscale", &scale, path));
    TRY(json_get_real(object, "mscale_all_dim", &all, path));
    rope->attention_factor =
        scale != 0 && all != 0 ? yarn_scale(rope->factor, scale) / yarn_scale(rope->factor, all) : yarn_scale(rope->factor, 1);
    TRY(json_get_real(object, "attention_factor", &rope->attention_factor, path));
    TRY(json_get_real(object, "beta_fast", &fast, path));
    TRY(json_get_real(object, "beta_slow", &slow, path));
    rope->beta_fast = fast > 0 ? fast : 32;
    rope->beta_slow = slow > 0 ? slow : 1;
    rope->truncate = true;
    return json_get_bool(object, "truncate", &rope->truncate, path);
}

static enum status rope_factors(const json_t *object, const char *key, struct rope_config *rope, float *to, const char *path)
{
    const json_t *list = json_object_get(object, key);
    int64_t count = json_is_array(list) ? (int64_t)json_array_size(list) : 0;
    if (count < 1 || count > ROPE_PAIRS_MAX || (rope->pairs && rope->pairs != count))
        return fail(ERR_FORMAT, "%s: \"%s\" must be a list with a number for each pair of channels that turns", path, key);
    rope->pairs = count;
    for (int64_t i = 0; i < count; i++) {
        to[i] = (float)json_number_value(json_array_get(list, (size_t)i));
        if (!(to[i] > 0) || !isfinite(to[i]))
            return fail(ERR_FORMAT, "%s: number %lld of \"%s\" must be above 0", path, (long long)i, key);
    }
    return OK;
}

static enum status rope_long(const struct hf_config *config, const json_t *object, struct rope_config *rope)
{
    const char *path = config->path;
    TRY(rope_original(config, object, rope));
    int64_t window = rope->original_max_position;
    TRY(get_size(config->tree, "max_position_embeddings", &window, path));
    double factor = (double)window / (double)rope->original_max_position;
    TRY(json_get_real(object, "factor", &factor, path));
    if (factor > 1 && rope->original_max_position > 1)
        rope->attention_factor = sqrt(1 + log(factor) / log((double)rope->original_max_position));
    TRY(json_get_real(object, "attention_factor", &rope->attention_factor, path));
    TRY(rope_factors(object, "short_factor", rope, rope->factors[0], path));
    return rope_factors(object, "long_factor", rope, rope->factors[1], path);
}

/* The part of a head is here one of its pairs: all are there, and those beyond it stand still. */
static enum status rope_proportional(const struct hf_config *config, const json_t *object, struct rope_config *rope)
{
    rope->turning = rope->part;
    rope->part = rope->factor = 1;
    TRY(json_get_real(object, "factor", &rope->factor, config->path));
    return rope->factor > 0 ? OK : fail(ERR_FORMAT, "%s: \"factor\" must be above 0", config->path);
}

static enum status rope_by_kind(const struct hf_config *config, const json_t *object, struct rope_config *rope)
{
    switch (rope->kind) {
    case ROPE_DEFAULT:
    case ROPE_LINEAR: return OK;
    case ROPE_LLAMA3: return rope_llama3(config, object, rope);
    case ROPE_YARN: return rope_yarn(config, object, rope);
    case ROPE_LONG: return rope_long(config, object, rope);
    case ROPE_PROPORTIONAL: return rope_proportional(config, object, rope);
    }
    return OK;
}

/* From the object with the parameters; theta has its default already. */
static enum status read_rope(const struct hf_config *config, const json_t *object, struct rope_config *rope)
{
    const char *path = config->path;
    const json_t *tree = config->tree;
    TRY(json_get_real(object, "rope_theta", &rope->theta, path));
    if (!(rope->theta > 0) || !isfinite(rope->theta))
        return fail(ERR_FORMAT, "%s: \"rope_theta\" must be above 0", path);
    TRY(json_get_real(tree, "partial_rotary_factor", &rope->part, path));
    TRY(json_get_real(object, "partial_rotary_factor", &rope->part, path));
    if (!(rope->part > 0 && rope->part <= 1))
        return fail(ERR_FORMAT, "%s: \"partial_rotary_factor\" is %g, it must be above 0 and at most 1", path, rope->part);
    TRY(rope_kind(object, &rope->kind, path));
    if (rope->kind == ROPE_LINEAR || rope->kind == ROPE_LLAMA3 || rope->kind == ROPE_YARN)
        TRY(need_positive(object, "factor", &rope->factor, path));
    TRY(rope_by_kind(config, object, rope));
    return rope->attention_factor > 0 && isfinite(rope->attention_factor)
               ? OK
               : fail(ERR_FORMAT, "%s: the factor of rotations by \"attention_factor\" or \"mscale\" is %g, it must be above 0",
                      path, rope->attention_factor);
}

enum status hf_config_rope(const struct hf_config *config, double default_theta, struct rope_config *rope)
{
    const json_t *object;
    *rope = (struct rope_config){.theta = default_theta, .part = 1, .attention_factor = 1};
    TRY(rope_object(config, &object));
    TRY(json_get_real(config->tree, "rope_theta", &rope->theta, config->path));
    return read_rope(config, object, rope);
}

/* "rope_parameters" by type of layers; a flat one would say of one type only, and not of which. */
static enum status check_by_type(const struct hf_config *config, const json_t *parameters, bool scaled)
{
    bool by_type = json_object_size(parameters) == 0;
    const char *key;
    json_t *member;
    json_object_foreach((json_t *)parameters, key, member) by_type |= json_is_object(member);
    if (!by_type)
        return fail(ERR_UNSUPPORTED, "%s: \"rope_parameters\" of a %s must have an object for each type of layers", config->path,
                    config->model_type);
    return scaled && json_object_size(parameters) && json_object_size(json_object_get(config->tree, "rope_scaling"))
               ? fail(ERR_UNSUPPORTED, "%s: has \"rope_parameters\" and \"rope_scaling\": leave one of them out", config->path)
               : OK;
}

enum status hf_config_rope_of(const struct hf_config *config, const char *layer_type, const char *theta_key, bool scaled,
                              double default_theta, struct rope_config *rope)
{
    const json_t *parameters = json_object_get(config->tree, "rope_parameters"),
                 *object = json_object_get(parameters, layer_type);
    TRY(check_by_type(config, parameters, scaled));
    if (!json_is_object(object))
        object = scaled ? json_object_get(config->tree, "rope_scaling") : NULL;
    *rope = (struct rope_config){.theta = default_theta, .part = 1, .attention_factor = 1};
    if (theta_key)
        TRY(json_get_real(config->tree, theta_key, &rope->theta, config->path));
    TRY(read_rope(config, json_is_object(object) ? object : NULL, rope));
    return rope->kind == ROPE_LONG ? fail(ERR_UNSUPPORTED,
                                          "%s: rotary embedding of type \"%s\" for one type of layers is not "
                                          "supported",
                                          config->path, rope_kind_name(rope->kind))
                                   : OK;
}

enum status hf_config_rope_real(const struct hf_config *config, const char *key, double *out)
{
    const json_t *object;
    TRY(rope_object(config, &object));
    return json_get_real(object, key, out, config->path);
}
