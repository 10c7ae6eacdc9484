/* Reading adapter_config.json: every key is looked up in adapter.def, so that nothing that changes the result is ignored. */
#include "format/adapter.h"

#include <ctype.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "format/adapter_match.h"
#include "format/gguf.h"

enum { FILE_MAX = 16 << 20 };

enum rule { OURS, UNSET, FIXED, FREE };

static const struct {
    const char *name;
    enum rule rule;
    const char *written;
} KEYS[] = {
#define KEY(name, rule, written) {#name, rule, written},
#include "format/adapter.def"
#undef KEY
};

static bool is_unset(const json_t *value)
{
    return json_is_null(value) || json_is_false(value) || (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) || (json_is_object(value) && json_object_size(value) == 0);
}

static bool is_text(const json_t *value, const char *quoted)
{
    const char *text = json_string_value(value);
    return text && strlen(text) + 2 == strlen(quoted) && memcmp(text, quoted + 1, strlen(text)) == 0;
}

static enum status check_key(const char *key, const json_t *value, const char *path)
{
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++) {
        if (strcmp(key, KEYS[i].name) != 0)
            continue;
        if (KEYS[i].rule == UNSET && !is_unset(value))
            return fail(ERR_UNSUPPORTED, "%s: an adapter with \"%s\" is not supported", path, key);
        if (KEYS[i].rule == FIXED && !json_is_null(value) && !is_text(value, KEYS[i].written))
            return fail(ERR_UNSUPPORTED, "%s: \"%s\" must be %s, other adapters are not supported", path, key, KEYS[i].written);
        return OK;
    }
    if (!is_unset(value))
        log_message(LOG_WARNING, "%s: \"%s\" is not a key that hone knows: it is ignored", path, key);
    return OK;
}

/* Copies a text of the tree into the arena; refuses one that is empty or has a zero byte inside. */
static enum status keep_name(struct arena *arena, const json_t *value, const char *key, const char *path, const char **out)
{
    size_t n = json_string_length(value);
    if (n == 0 || strlen(json_string_value(value)) != n)
        return fail(ERR_FORMAT, "%s: \"%s\" must hold names", path, key);
    *out = arena_text(arena, json_string_value(value), (int64_t)n);
    return *out ? OK : ERR_MEMORY;
}

static enum status adapter_read_names(struct arena *arena, const json_t *list, const char *key, const char *path,
                                      const char ***names, int64_t *count)
{
    if (!json_is_array(list))
        return fail(ERR_FORMAT, "%s: \"%s\" must be a list of names", path, key);
    int64_t n = (int64_t)json_array_size(list);
    *names = arena_array(arena, n, (int64_t)sizeof **names);
    if (!*names)
        return ERR_MEMORY;
    for (*count = 0; *count < n; ++*count)
        TRY(keep_name(arena, json_array_get(list, (size_t)*count), key, path, &(*names)[*count]));
    return OK;
}

static enum status regular_expression(const char *path, const char *key, const char *text)
{
    return fail(ERR_UNSUPPORTED, "%s: \"%s\": \"%.100s\" is a regular expression, only plain names are supported", path, key,
                text);
}

static enum status read_parameters(struct adapter_config *config, const json_t *tree, const char *path)
{
    const char *key = "target_parameters";
    const json_t *value = json_object_get(tree, key);
    return !value || json_is_null(value)
               ? OK
               : adapter_read_names(&config->arena, value, key, path, &config->parameters, &config->parameter_count);
}

static enum status read_targets(struct adapter_config *config, const json_t *tree, const char *path)
{
    const char *key = "target_modules";
    const json_t *value = json_object_get(tree, key);
    if ((!value || json_is_null(value)) && config->parameter_count)
        return OK;
    if (!value || json_is_null(value))
        return fail(ERR_UNSUPPORTED, "%s: \"%s\" is missing: the names must be listed", path, key);
    if (!json_is_string(value))
        return adapter_read_names(&config->arena, value, key, path, &config->targets, &config->target_count);
    if (adapter_is_all_linear(json_string_value(value))) {
        config->all_linear = true;
        return OK;
    }
    config->whole = true;
    config->target_count = 1;
    config->targets = arena_array(&config->arena, 1, (int64_t)sizeof *config->targets);
    if (!config->targets)
        return ERR_MEMORY;
    TRY(keep_name(&config->arena, value, key, path, &config->targets[0]));
    return adapter_is_plain(config->targets[0], false) ? OK : regular_expression(path, key, config->targets[0]);
}

static enum status read_saved(struct adapter_config *config, const json_t *tree, const char *path)
{
    const char *key = "modules_to_save";
    const json_t *value = json_object_get(tree, key);
    if (!value || json_is_null(value))
        return OK;
    TRY(adapter_read_names(&config->arena, value, key, path, &config->saved, &config->saved_count));
    if (config->saved_count > ADAPTER_SAVED_MAX)
        return fail(ERR_LIMIT, "%s: \"%s\" has %lld names, at most %d are supported", path, key, (long long)config->saved_count,
                    ADAPTER_SAVED_MAX);
    for (int64_t i = 0; i < config->saved_count; i++)
        if (!adapter_is_plain(config->saved[i], false))
            return regular_expression(path, key, config->saved[i]);
    return OK;
}

static enum status read_patterns(struct arena *arena, const json_t *tree, const char *key, const char *path,
                                 struct adapter_pattern **patterns, int64_t *count)
{
    json_t *object = json_object_get(tree, key);
    if (!object || json_is_null(object))
        return OK;
    if (!json_is_object(object))
        return fail(ERR_FORMAT, "%s: \"%s\" must be an object of numbers", path, key);
    *patterns = arena_array(arena, (int64_t)json_object_size(object), (int64_t)sizeof **patterns);
    if (!*patterns)
        return ERR_MEMORY;
    for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at)) {
        const char *name = json_object_iter_key(at);
        const json_t *value = json_object_iter_value(at);
        if (!adapter_is_plain(name, true))
            return regular_expression(path, key, name);
        if (!json_is_number(value))
            return fail(ERR_FORMAT, "%s: \"%s\": \"%s\" must be a number", path, key, name);
        struct adapter_pattern *pattern = &(*patterns)[*count];
        pattern->module = arena_text(arena, name, (int64_t)strlen(name));
        if (!pattern->module)
            return ERR_MEMORY;
        pattern->value = json_number_value(value);
        ++*count;
    }
    return OK;
}

/* The initialisations that also change the base model's weights, at every loading. */
static enum status check_init(const json_t *tree, const char *path)
{
    static const char *const CHANGING[] = {"pissa", "corda", "olora", "loftq"};
    const char *init = json_string_value(json_object_get(tree, "init_lora_weights"));
    for (size_t i = 0; init && i < sizeof CHANGING / sizeof *CHANGING; i++) {
        size_t n = 0;
        while (CHANGING[i][n] && tolower((unsigned char)init[n]) == CHANGING[i][n])
            n++;
        if (!CHANGING[i][n])
            return fail(ERR_UNSUPPORTED,
                        "%s: \"init_lora_weights\" is \"%.100s\", which changes the base model's weights: convert the adapter "
                        "with path_initial_model_for_weight_conversion of PEFT's save_pretrained",
                        path, init);
    }
    return OK;
}

static enum status adapter_read_tree(struct adapter_config *config, json_t *tree, const char *path)
{
    if (!json_is_object(tree))
        return fail(ERR_FORMAT, "%s: the file must hold a JSON object", path);
    if (!json_is_string(json_object_get(tree, "peft_type")))
        return fail(ERR_FORMAT, "%s: \"peft_type\" is missing, so this is not a PEFT adapter", path);
    for (void *at = json_object_iter(tree); at; at = json_object_iter_next(tree, at))
        TRY(check_key(json_object_iter_key(at), json_object_iter_value(at), path));
    TRY(check_init(tree, path));
    const char *base = NULL;
    TRY(json_get_text(tree, "base_model_name_or_path", &base, path));
    if (base) {
        config->base_model = arena_text(&config->arena, base, (int64_t)strlen(base));
        if (!config->base_model)
            return ERR_MEMORY;
    }
    TRY(json_get_int(tree, "r", &config->rank, path));
    TRY(json_get_real(tree, "lora_alpha", &config->alpha, path));
    TRY(json_get_real(tree, "lora_dropout", &config->dropout, path));
    TRY(json_get_bool(tree, "use_rslora", &config->rslora, path));
    TRY(read_parameters(config, tree, path));
    TRY(read_targets(config, tree, path));
    TRY(read_saved(config, tree, path));
    TRY(read_patterns(&config->arena, tree, "rank_pattern", path, &config->rank_pattern, &config->rank_patterns));
    TRY(read_patterns(&config->arena, tree, "alpha_pattern", path, &config->alpha_pattern, &config->alpha_patterns));
    return adapter_config_check(config, ERR_FORMAT, path);
}

static enum status adapter_parse(struct arena *arena, const char *dir, const char **path, json_t **tree)
{
    *tree = NULL;
    *path = file_join(arena, dir, ADAPTER_CONFIG);
    if (!*path)
        return ERR_MEMORY;
    if (gguf_is_path(dir))
        return fail(ERR_ARGUMENT,
                    "%s: hone reads no GGUF adapters; name the folder with adapter_config.json that it was made from", dir);
    return file_exists(*path) ? json_parse_file(tree, *path, FILE_MAX) : adapter_lost(arena, dir);
}

enum status adapter_read_base(struct arena *arena, const char *dir, const char **base)
{
    json_t *tree;
    const char *path, *text = NULL;
    *base = NULL;
    TRY(adapter_parse(arena, dir, &path, &tree));
    enum status status = json_get_text(tree, "base_model_name_or_path", &text, path);
    if (status == OK && text && *text && !(*base = arena_text(arena, text, (int64_t)strlen(text))))
        status = ERR_MEMORY;
    json_decref(tree);
    return status;
}

enum status adapter_config_open(struct adapter_config *config, const char *dir)
{
    *config = (struct adapter_config){.rank = 8, .alpha = 8}; /* PEFT's defaults */
    const char *path;
    json_t *tree;
    enum status status = adapter_parse(&config->arena, dir, &path, &tree);
    if (status == OK)
        status = adapter_read_tree(config, tree, path);
    json_decref(tree);
    if (status != OK)
        adapter_config_free(config);
    return status;
}

void adapter_config_free(struct adapter_config *config)
{
    arena_free(&config->arena);
    *config = (struct adapter_config){0};
}

static enum status check_rank(double rank, const char *module, enum status code, const char *where)
{
    if (rank >= 1 && rank <= ADAPTER_RANK_MAX && rank == floor(rank))
        return OK;
    return fail(code, "%s: a rank of %g%s%s, it must be a whole number from 1 to %d", where, rank, module ? " for " : "",
                module ? module : "", ADAPTER_RANK_MAX);
}

/* It multiplies float32. */
static enum status check_alpha(double alpha, const char *module, enum status code, const char *where)
{
    if (fabs(alpha) <= FLT_MAX)
        return OK;
    return fail(code, "%s: an alpha of %g%s%s, it must be a finite number of float32, up to 3.4e38", where, alpha,
                module ? " for " : "", module ? module : "");
}

enum status adapter_config_check(const struct adapter_config *config, enum status code, const char *where)
{
    TRY(check_rank((double)config->rank, NULL, code, where));
    for (int64_t i = 0; i < config->rank_patterns; i++)
        TRY(check_rank(config->rank_pattern[i].value, config->rank_pattern[i].module, code, where));
    TRY(check_alpha(config->alpha, NULL, code, where));
    for (int64_t i = 0; i < config->alpha_patterns; i++)
        TRY(check_alpha(config->alpha_pattern[i].value, config->alpha_pattern[i].module, code, where));
    if (!(config->dropout >= 0 && config->dropout < 1))
        return fail(code, "%s: a dropout of %g, it must be from 0 to below 1", where, config->dropout);
    if (config->dropout > 0 && config->parameter_count)
        return fail(code, "%s: a dropout of %g and parameters of experts: PEFT cannot apply it to them, so it must be 0", where,
                    config->dropout);
    if (!config->all_linear && config->target_count < 1 && config->parameter_count < 1)
        return fail(code, "%s: no module is targeted", where);
    return OK;
}

bool adapter_is_file(const char *name)
{
    return !strcmp(name, ADAPTER_CONFIG) || !strcmp(name, ADAPTER_WEIGHTS);
}
