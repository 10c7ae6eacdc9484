/* Matching names to modules, and parsing the options that give such names. PEFT matches patterns as regular expressions; hone
 * takes names whose only special character is the dot, which stands for any character. */
#include "format/adapter_match.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/name.h"
#include "format/adapter.h"
#include "format/hf_config.h"

bool adapter_is_plain(const char *name, bool caret)
{
    name += caret && *name == '^';
    const char *at = name;
    while (isascii((unsigned char)*at) && (isalnum((unsigned char)*at) || (*at && strchr("_.-", *at))))
        at++;
    return at > name && !*at;
}

bool adapter_is_all_linear(const char *text)
{
    static const char ALL[] = "all-linear";
    size_t n = 0;
    while (ALL[n] && tolower((unsigned char)text[n]) == ALL[n])
        n++;
    return !ALL[n] && !text[n];
}

/* Compares the first n characters; a dot of the pattern matches any. */
static bool matches(const char *pattern, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (pattern[i] != text[i] && pattern[i] != '.')
            return false;
    return true;
}

/* (.*\.)?(pattern)$ */
static bool pattern_matches(const char *pattern, const char *module)
{
    bool whole = *pattern == '^';
    pattern += whole;
    size_t n = strlen(pattern), length = strlen(module);
    if (n > length || !matches(pattern, module + length - n, n))
        return false;
    return n == length || (!whole && module[length - n - 1] == '.');
}

/* The module's name in the whole model. */
static const char *in_whole(const struct adapter_config *config, char name[static NAME_SIZE], const char *module)
{
    return config->nested ? hf_config_whole_name(name, module) : module;
}

static bool names(const char *target, const char *module)
{
    size_t n = strlen(target), length = strlen(module);
    return name_ends_with(module, target) && (n == length || module[length - n - 1] == '.');
}

bool adapter_names(const struct adapter_config *config, const char *target, const char *module)
{
    char name[NAME_SIZE];
    return names(target, in_whole(config, name, module));
}

/* (^|.*\.)name($|\..*) */
static bool lies_below(const char *name, const char *module)
{
    size_t n = strlen(name), length = strlen(module);
    for (size_t at = 0; at + n <= length; at++)
        if ((at == 0 || module[at - 1] == '.') && (at + n == length || module[at + n] == '.') && matches(name, module + at, n))
            return true;
    return false;
}

bool adapter_targets(const struct adapter_config *config, const char *part, const char *head)
{
    char name[NAME_SIZE];
    const char *module = in_whole(config, name, part);
    for (int64_t i = 0; i < config->saved_count; i++)
        if (lies_below(config->saved[i], module))
            return false;
    if (config->all_linear)
        return strcmp(part, head) != 0;
    if (config->whole)
        return strlen(config->targets[0]) == strlen(module) && matches(config->targets[0], module, strlen(module));
    for (int64_t i = 0; i < config->target_count; i++)
        if (names(config->targets[i], module))
            return true;
    return false;
}

bool adapter_targets_parameter(const struct adapter_config *config, const char *parameter)
{
    for (int64_t i = 0; i < config->parameter_count; i++)
        if (adapter_names(config, config->parameters[i], parameter))
            return true;
    return false;
}

/* Whether the first n characters of a module's name end with one that modules_to_save has. */
static bool saves(const struct adapter_config *config, const char *module, size_t n)
{
    for (int64_t i = 0; i < config->saved_count; i++) {
        size_t length = strlen(config->saved[i]);
        if (length <= n && !memcmp(module + n - length, config->saved[i], length))
            return true;
    }
    return false;
}

bool adapter_saves(const struct adapter_config *config, const char *part)
{
    char name[NAME_SIZE];
    const char *module = in_whole(config, name, part);
    return saves(config, module, strlen(module));
}

bool adapter_saves_weight(const struct adapter_config *config, const char *weight)
{
    char name[NAME_SIZE];
    const char *whole = in_whole(config, name, weight), *dot = whole;
    while ((dot = strchr(dot, '.')) && !saves(config, whole, (size_t)(dot - whole)))
        dot++;
    return dot;
}

bool adapter_saves_by(const struct adapter_config *config, int64_t saved, const char *weight)
{
    struct adapter_config one = *config;
    one.saved += saved;
    one.saved_count = 1;
    return adapter_saves_weight(&one, weight);
}

bool adapter_pattern_names(const struct adapter_config *config, const struct adapter_pattern *pattern, const char *module)
{
    char name[NAME_SIZE];
    return pattern_matches(pattern->module, in_whole(config, name, module));
}

static double by_pattern(const struct adapter_pattern *patterns, int64_t count, const char *module, double otherwise)
{
    for (int64_t i = 0; i < count; i++)
        if (pattern_matches(patterns[i].module, module))
            return patterns[i].value;
    return otherwise;
}

int64_t adapter_rank(const struct adapter_config *config, const char *module)
{
    char name[NAME_SIZE];
    return (int64_t)by_pattern(config->rank_pattern, config->rank_patterns, in_whole(config, name, module), (double)config->rank);
}

double adapter_scale(const struct adapter_config *config, const char *module)
{
    char name[NAME_SIZE];
    double alpha = by_pattern(config->alpha_pattern, config->alpha_patterns, in_whole(config, name, module), config->alpha);
    double rank = (double)adapter_rank(config, module);
    return alpha / (config->rslora ? sqrt(rank) : rank);
}

static int64_t count_pieces(const char *text)
{
    int64_t n = 1;
    for (; *text; text++)
        n += *text == ',';
    return n;
}

/* Copies the piece up to the next comma, without the spaces around it; *text moves past the comma, or becomes NULL. */
static char *next_piece(struct arena *arena, const char **text)
{
    const char *begin = *text, *end = strchr(begin, ',');
    *text = end ? end + 1 : NULL;
    if (!end)
        end = begin + strlen(begin);
    while (begin < end && *begin == ' ')
        begin++;
    while (end > begin && end[-1] == ' ')
        end--;
    return arena_text(arena, begin, end - begin);
}

static enum status parse_pattern(char *piece, const char *option, struct adapter_pattern *pattern)
{
    char *equals = strrchr(piece, '='), *end = NULL;
    double value = equals ? strtod(equals + 1, &end) : 0;
    if (!equals || end == equals + 1 || *end || !isfinite(value))
        return fail(ERR_ARGUMENT, "%s: \"%s\" must be a module's name, '=' and a number, as in q_proj=8", option, piece);
    *equals = 0;
    if (!adapter_is_plain(piece, true))
        return fail(ERR_ARGUMENT, "%s: \"%s\" is not a module's name or the end of one", option, piece);
    *pattern = (struct adapter_pattern){piece, value};
    return OK;
}

enum status adapter_parse_patterns(struct arena *arena, const char *text, const char *option, struct adapter_pattern **out,
                                   int64_t *count)
{
    *count = 0;
    *out = arena_array(arena, count_pieces(text), (int64_t)sizeof **out);
    if (!*out)
        return ERR_MEMORY;
    for (text = *text ? text : NULL; text;) {
        char *piece = next_piece(arena, &text);
        if (!piece)
            return ERR_MEMORY;
        struct adapter_pattern *pattern = &(*out)[*count];
        TRY(parse_pattern(piece, option, pattern));
        for (int64_t i = 0; i < *count; i++)
            if (strcmp((*out)[i].module, pattern->module) == 0)
                return fail(ERR_ARGUMENT, "%s: \"%s\" is there twice", option, pattern->module);
        ++*count;
    }
    return OK;
}

static enum status parse_names(struct arena *arena, const char *text, const char *option, const char *hint, const char ***names,
                               int64_t *count)
{
    *count = 0;
    *names = arena_array(arena, count_pieces(text), (int64_t)sizeof **names);
    if (!*names)
        return ERR_MEMORY;
    while (text) {
        const char *piece = next_piece(arena, &text);
        if (!piece)
            return ERR_MEMORY;
        if (!adapter_is_plain(piece, false))
            return fail(ERR_ARGUMENT, "%s: \"%s\" is not a module's name: give %s", option, piece, hint);
        (*names)[(*count)++] = piece;
    }
    return OK;
}

enum status adapter_parse_targets(struct adapter_config *config, const char *text, const char *option)
{
    config->all_linear = adapter_is_all_linear(text);
    config->whole = false;
    config->target_count = 0;
    if (config->all_linear)
        return OK;
    return parse_names(&config->arena, text, option, "all-linear, or names as in q_proj,v_proj", &config->targets,
                       &config->target_count);
}

enum status adapter_parse_parameters(struct adapter_config *config, const char *text, const char *option)
{
    config->parameter_count = 0;
    if (!*text)
        return OK;
    return parse_names(&config->arena, text, option, "names as in mlp.experts.gate_up_proj", &config->parameters,
                       &config->parameter_count);
}
