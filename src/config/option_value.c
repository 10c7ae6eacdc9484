/* How one value gets from its text into struct options, and back. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "config/foreign/foreign.h"

void table_takes(const struct option_row *row, char words[static WORDS_SIZE])
{
    if (row->words) {
        words[0] = 0;
        for (const char *const *word = row->words; *word; word++) {
            const char *between = word == row->words ? "" : word[1] ? ", " : " or ";
            size_t used = strlen(words);
            snprintf(words + used, WORDS_SIZE - used, "%s%s", between, *word);
        }
        return;
    }
    switch (row->kind) {
    case KIND_CHOICE: /* has words */
    case KIND_TEXT: snprintf(words, WORDS_SIZE, "any text"); break;
    case KIND_PATH: snprintf(words, WORDS_SIZE, "a path"); break;
    case KIND_BOOL: snprintf(words, WORDS_SIZE, "true or false"); break;
    case KIND_INT:
    case KIND_REAL: {
        int n = snprintf(words, WORDS_SIZE, "%s",
                         row->kind == KIND_INT ? "a whole number"
                         : row->or_auto        ? "auto or a number"
                                               : "a number");
        char *to = words + n;
        size_t room = WORDS_SIZE - (size_t)n;
        if (row->bounded_above && row->below)
            snprintf(to, room, " from %.15g to below %.15g", row->min, row->max);
        else if (row->bounded_above)
            snprintf(to, room, row->above ? " above %.15g, up to %.15g" : " from %.15g to %.15g", row->min, row->max);
        else if (row->bounded_below)
            snprintf(to, room, row->above ? " above %.15g" : " of at least %.15g", row->min);
        break;
    }
    }
}

static bool in_bounds(const struct option_row *row, double x)
{
    if (row->bounded_below && (row->above ? x <= row->min : x < row->min))
        return false;
    return !row->bounded_above || (row->below ? x < row->max : x <= row->max);
}

static bool option_value_read_int(const struct option_row *row, const char *text, int64_t *out)
{
    const char *digits = text + (*text == '-' || *text == '+');
    if (!*digits || digits[strspn(digits, "0123456789")])
        return false;
    errno = 0;
    *out = strtoll(text, NULL, 10);
    return errno == 0 && in_bounds(row, (double)*out);
}

static bool option_value_read_real(const struct option_row *row, const char *text, double *out)
{
    /* On its own strtod would also take blanks, hexadecimal digits, "inf" and "nan". */
    if (!*text || text[strspn(text, "0123456789+-.eE")])
        return false;
    char *end;
    *out = strtod(text, &end);
    return !*end && isfinite(*out) && in_bounds(row, *out);
}

const char *table_truth(const char *text)
{
    static const char *const yes[] = {"true", "yes", "on", "1"}, *const no[] = {"false", "no", "off", "0"};
    for (int i = 0; i < 4; i++)
        if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0)
            return strcasecmp(text, yes[i]) == 0 ? yes[0] : no[0];
    return text;
}

static bool read_bool(const char *text, bool *out)
{
    const char *truth = table_truth(text);
    *out = strcmp(truth, "true") == 0;
    return *out || strcmp(truth, "false") == 0;
}

int table_choice(const struct options *options, const struct option_row *row)
{
    int choice;
    memcpy(&choice, (const char *)options + row->offset, sizeof choice);
    return choice;
}

enum status table_fail_value(const char *source, const char *name, const char *value, const char *right)
{
    if (source[0] == '-')
        return fail(ERR_ARGUMENT, "%s cannot be '%.100s': %s", source, value, right);
    return fail(ERR_ARGUMENT, "%s: %s cannot be '%.100s': %s", source, name, value, right);
}

enum status table_store(struct options *options, const struct option_row *row, const char *value, const char *source,
                        bool check_only)
{
    int64_t integer = 0;
    double real = 0;
    bool boolean = false, good = true;
    int choice = 0;
    const char *answer = NULL, *said = NULL, *typed = value;
    value = synonym_value(row, value, &answer, &said);
    if (said && !check_only)
        log_message(LOG_INFO, "%s %.40s is %s: %s", source, typed, value, said);
    if (answer)
        return table_fail_value(source, row->name, value, answer);
    switch (row->kind) {
    case KIND_TEXT: break;
    case KIND_PATH: good = *value; break;
    case KIND_INT: good = option_value_read_int(row, value, &integer); break;
    case KIND_REAL:
        real = NAN;
        good = (row->or_auto && !strcmp(value, "auto")) || option_value_read_real(row, value, &real);
        break;
    case KIND_BOOL: good = read_bool(value, &boolean); break;
    case KIND_CHOICE:
        choice = options_choice(table_option(row), value);
        good = choice >= 0;
        break;
    }
    if (!good) {
        char takes[WORDS_SIZE], right[WORDS_SIZE + 16];
        table_takes(row, takes);
        snprintf(right, sizeof right, "it takes %s", takes);
        return table_fail_value(source, row->name, value, right);
    }
    if (check_only)
        return OK;
    const char *given = arena_text(options->arena, source, (int64_t)strlen(source));
    const char *text = arena_text(options->arena, value, (int64_t)strlen(value));
    if (!given || !text)
        return ERR_MEMORY;
    char *field = (char *)options + row->offset;
    switch (row->kind) {
    case KIND_TEXT:
    case KIND_PATH: memcpy(field, &text, sizeof text); break;
    case KIND_CHOICE: memcpy(field, &choice, sizeof choice); break;
    case KIND_INT: memcpy(field, &integer, sizeof integer); break;
    case KIND_REAL: memcpy(field, &real, sizeof real); break;
    case KIND_BOOL: memcpy(field, &boolean, sizeof boolean); break;
    }
    options->source[table_option(row)] = given;
    return OK;
}

enum status options_get(const struct options *options, enum option option, struct buffer *text)
{
    const struct option_row *row = &option_table[option];
    const char *field = (const char *)options + row->offset;
    if (row->kind == KIND_INT)
        return buffer_format(text, "%lld", (long long)*(const int64_t *)field);
    if (row->kind == KIND_REAL && isnan(*(const double *)field))
        return buffer_format(text, "auto");
    if (row->kind == KIND_REAL) { /* the fewest digits that give the same number back */
        char digits[32];
        int count = 15;
        do
            snprintf(digits, sizeof digits, "%.*g", count, *(const double *)field);
        while (count++ < 17 && strtod(digits, NULL) != *(const double *)field);
        return buffer_format(text, "%s", digits);
    }
    if (row->kind == KIND_BOOL)
        return buffer_format(text, "%s", *(const bool *)field ? "true" : "false");
    if (row->kind == KIND_CHOICE)
        return buffer_format(text, "%s", row->words[table_choice(options, row)]);
    const char *value = *(const char *const *)field;
    return value ? buffer_format(text, "%s", value) : OK;
}
