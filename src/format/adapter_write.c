/* Writing adapter_config.json in the layout of Python's json.dumps(..., indent=2, sort_keys=True), except that patterns are not
 * sorted: their order decides which one matches. */
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "format/adapter.h"

/* Takes ownership of `value`; NULL means text that is not UTF-8, or no memory. */
static enum status put_json(struct buffer *out, json_t *value, size_t flags)
{
    if (!value && !json_refused())
        return fail(ERR_ARGUMENT, "a name cannot be written: it is not UTF-8");
    char *text = json_write(value, flags | JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    enum status status = text ? buffer_append(out, text, (int64_t)strlen(text)) : ERR_MEMORY;
    json_text_free(text);
    json_decref(value);
    return status;
}

static enum status adapter_write_put_text(struct buffer *out, const char *text)
{
    return put_json(out, json_string(text), 0);
}

/* Jansson writes and reads a decimal point in every locale. */
static bool is_exact(double number, size_t digits)
{
    json_t *value = json_real(number);
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits));
    json_t *back = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
    bool same = json_is_real(back) && json_real_value(back) == number;
    json_decref(back);
    json_text_free(text);
    json_decref(value);
    return same;
}

static enum status adapter_write_put_real(struct buffer *out, double number)
{
    size_t digits = 1;
    while (digits < 17 && !is_exact(number, digits))
        digits++;
    return put_json(out, json_real(number), JSON_REAL_PRECISION(digits));
}

/* A whole number without a fraction, as PEFT writes it. */
static enum status adapter_write_put_number(struct buffer *out, double number)
{
    return number == floor(number) && fabs(number) < 1e15 ? buffer_format(out, "%lld", (long long)number)
                                                          : adapter_write_put_real(out, number);
}

static enum status put_names(struct buffer *out, const char *const *names, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        TRY(buffer_format(out, i ? ",\n    " : "[\n    "));
        TRY(adapter_write_put_text(out, names[i]));
    }
    return buffer_format(out, count ? "\n  ]" : "[]");
}

static enum status put_patterns(struct buffer *out, const struct adapter_pattern *patterns, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        TRY(buffer_format(out, i ? ",\n    " : "{\n    "));
        TRY(adapter_write_put_text(out, patterns[i].module));
        TRY(buffer_format(out, ": "));
        TRY(adapter_write_put_number(out, patterns[i].value));
    }
    return buffer_format(out, count ? "\n  }" : "{}");
}

static enum status put_targets(struct buffer *out, const struct adapter_config *config)
{
    if (config->all_linear || config->whole)
        return adapter_write_put_text(out, config->all_linear ? "all-linear" : config->targets[0]);
    return put_names(out, config->targets, config->target_count);
}

static enum status put_ours(struct buffer *out, const struct adapter_config *config, const char *key)
{
    if (strcmp(key, "alpha_pattern") == 0)
        return put_patterns(out, config->alpha_pattern, config->alpha_patterns);
    if (strcmp(key, "base_model_name_or_path") == 0)
        return config->base_model ? put_json(out, json_lossy(config->base_model), 0) : buffer_format(out, "null");
    if (strcmp(key, "init_lora_weights") == 0)
        return buffer_format(out, "true");
    if (strcmp(key, "lora_alpha") == 0)
        return adapter_write_put_number(out, config->alpha);
    if (strcmp(key, "lora_dropout") == 0)
        return adapter_write_put_real(out, config->dropout);
    if (strcmp(key, "modules_to_save") == 0)
        return config->saved_count ? put_names(out, config->saved, config->saved_count) : buffer_format(out, "null");
    if (strcmp(key, "r") == 0)
        return buffer_format(out, "%lld", (long long)config->rank);
    if (strcmp(key, "rank_pattern") == 0)
        return put_patterns(out, config->rank_pattern, config->rank_patterns);
    if (strcmp(key, "target_modules") == 0)
        return put_targets(out, config);
    if (strcmp(key, "target_parameters") == 0)
        return put_names(out, config->parameters, config->parameter_count);
    if (strcmp(key, "use_rslora") == 0)
        return buffer_format(out, config->rslora ? "true" : "false");
    return fail(ERR_INTERNAL, "adapter_config.json: nothing writes \"%s\"", key);
}

static enum status put_config(struct buffer *out, const struct adapter_config *config)
{
    static const struct {
        const char *name;
        enum { OURS, UNSET, FIXED, FREE } rule;
        const char *written;
    } KEYS[] = {
#define KEY(name, rule, written) {#name, rule, written},
#include "format/adapter.def"
#undef KEY
    };
    const char *before = "{\n  ";
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++) {
        bool later = strcmp(KEYS[i].name, "target_parameters") == 0 && !config->parameter_count; /* than PEFT 0.10 */
        if ((KEYS[i].rule != OURS && !KEYS[i].written) || later)
            continue;
        TRY(buffer_format(out, "%s\"%s\": ", before, KEYS[i].name));
        TRY(KEYS[i].rule == OURS ? put_ours(out, config, KEYS[i].name) : buffer_format(out, "%s", KEYS[i].written));
        before = ",\n  ";
    }
    return buffer_format(out, "\n}\n");
}

static enum status write_config(const struct adapter_config *config, const char *path, struct buffer *out)
{
    TRY(adapter_config_check(config, ERR_ARGUMENT, path));
    enum status status = put_config(out, config);
    return status == OK ? file_replace(path, out->data, out->size) : fail_at(status, "%s: ", path);
}

enum status adapter_config_write(const struct adapter_config *config, const char *dir)
{
    struct arena arena = {0};
    struct buffer out = {0};
    const char *path = file_join(&arena, dir, ADAPTER_CONFIG);
    enum status status = path ? write_config(config, path, &out) : ERR_MEMORY;
    buffer_free(&out);
    arena_free(&arena);
    return status;
}
