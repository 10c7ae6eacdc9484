/* Opening data sets from the cache or from their text. */
#include <string.h>

#include "base/log.h"
#include "base/number.h"
#include "base/process.h"
#include "base/utf8.h"
#include "data/encode.h"
#include "data/lengths.h"
#include "data/row_checks.h"

enum { SKIPPED_NAMED = 5 };

_Static_assert((int)ROW_KINDS <= (int)TOKEN_KINDS, "the cache counts too few kinds of rows");
_Static_assert((int)CHECKS <= (int)TOKEN_FINDINGS, "the cache counts too few findings");

static enum status data_open_encode(struct data *data, struct source *source, struct chat **chat,
                                    const struct data_limits *limits, struct buffer *skipped)
{
    if (!*chat)
        TRY(chat_open(chat, limits->model_dir));
    if (data->cache.path && !digest_equal(chat_files(*chat), data->cache.chat))
        return fail(ERR_IO, "%s: the tokenizer or the chat template was changed while this command ran; start it again",
                    limits->model_dir);
    chat_set_moment(*chat, limits->moment);
    chat_set_raw(*chat, limits->raw);
    enum status status = encode_rows(&data->cache, source, *chat, limits);
    process_trim(); /* each thread's texts and trees, and a tokenizer's JSON */
    TRY(status);
    TRY(token_cache_skipped(&data->cache, skipped));
    return token_cache_finish(&data->cache);
}

static enum status encode_without_cache(struct data *data, struct source *source, struct chat **chat,
                                        const struct data_limits *limits, struct buffer *skipped)
{
    TRY(token_cache_open_temporary(&data->cache));
    return data_open_encode(data, source, chat, limits, skipped);
}

static enum status open_tokens(struct data *data, struct source *source, struct chat **chat, const struct data_limits *limits,
                               struct buffer *skipped)
{
    const struct token_key key = {limits->model_dir,  limits->all_tokens, limits->raw,
                                  limits->vocabulary, limits->columns,    limits->moment};
    if (!limits->cache_dir)
        return encode_without_cache(data, source, chat, limits, skipped);
    enum status status = token_cache_open(&data->cache, source, limits->cache_dir, &key);
    if (status == OK && data->cache.complete)
        return token_cache_skipped(&data->cache, skipped);
    if (status == OK)
        status = data_open_encode(data, source, chat, limits, skipped);
    if (status == OK || !data->cache.failed)
        return status;
    log_message(LOG_WARNING, "the tokens are not cached, the next run encodes them again: %s", status_message());
    token_cache_close(&data->cache);
    return encode_without_cache(data, source, chat, limits, skipped);
}

/* The list of the cache names files by number. */
static enum status name_skipped(struct data *data, const struct buffer *list)
{
    struct buffer named = {0};
    enum status status = OK;
    const char *line = list->size ? list->data : "";
    for (int i = 0; i < SKIPPED_NAMED && *line && status == OK; i++) {
        const char *end = strchr(line, '\n'), *colon = strchr(line, ':');
        int64_t file = 0;
        for (const char *digit = line; colon && digit < colon && file >= 0 && file < data->file_count; digit++)
            file = 10 * file + (*digit - '0');
        if (!end || !colon || colon > end || file < 0 || file >= data->file_count)
            break;
        int64_t begin = named.size;
        status = buffer_format(&named, "%s%.*s", data->files[file].path, (int)(end - colon), colon);
        if (status == OK) {
            utf8_clean_line(named.data + begin); /* a path may be anything, and the list is for people */
            status = buffer_append(&named, "\n", 1);
        }
        line = end + 1;
    }
    data->skipped = named.data;
    return status;
}

static enum status take_files(struct data *data, const struct source *source)
{
    int64_t count = source_files(source);
    data->files = memory_alloc(count * (int64_t)sizeof *data->files);
    if (!data->files)
        return ERR_MEMORY;
    data->file_count = count;
    for (int64_t f = 0; f < data->file_count; f++) {
        struct buffer path = {0};
        TRY(buffer_format(&path, "%s", source_path(source, f)));
        data->files[f] = (struct data_file){.path = path.data, .weight = source_weight(source, f)};
        data->files[f].hashed = source_digest_known(source, f, &data->files[f].digest);
    }
    return OK;
}

/* The cache's rows are in the order of the files: a binary search finds each file's end. */
static enum status take_rows(struct data *data)
{
    const struct token_totals *t = &data->cache.totals;
    struct data_summary *a = &data->summary;
    data->rows = (const void *)data->cache.row_map.data;
    data->marked = (const void *)data->cache.token_map.data;
    data->row_count = t->rows;
    data->longest = t->longest;
    for (int64_t f = 0; f < data->file_count; f++) {
        int64_t low = f ? data->files[f - 1].end : 0, high = t->rows;
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            if (data->rows[middle].file <= f)
                low = middle + 1;
            else
                high = middle;
        }
        data->files[f].end = low;
    }
    if (data->file_count && data->files[data->file_count - 1].end != t->rows)
        return fail(ERR_INTERNAL, "%s: rows of missing files", data->cache.dir);
    *a = (struct data_summary){
        .rows = t->rows, .skipped = t->skipped, .longest = t->longest, .without_template = t->findings[CHECK_NO_TEMPLATE]};
    memcpy(a->kinds, t->kinds, sizeof a->kinds);
    if (t->rows) {
        a->longest_file = data->rows[t->longest_row].file;
        a->longest_line = data->rows[t->longest_row].line;
    }
    return OK;
}

/* What limits rows, before the number. */
static const char *data_limit_name(const struct data *data)
{
    return data->is_window ? "the model's window of" : "--max-length";
}

static enum status data_open_check_content(const struct data *data, const char *paths)
{
    const struct data_summary *a = &data->summary;
    if (a->skipped && !a->rows)
        return fail(ERR_DATA, "%s: of %lld row%s none can be used; the first: %s", paths, (long long)a->skipped,
                    plural(a->skipped), data->skipped ? data->skipped : "");
    if (!a->rows)
        return fail(ERR_DATA, "%s: no rows; each line should be a JSON object with a list of \"messages\", or a row of a table",
                    paths);
    if (!data->row_count)
        return fail(ERR_DATA, "%s: %lld row%s %s longer than %s %lld, which is all, and --excess-length left none of them%s",
                    paths, (long long)a->rows, plural(a->rows), is_or_are(a->rows), data_limit_name(data),
                    (long long)data->max_tokens, data->is_window ? "" : ": raise it");
    if (!data->trained)
        return fail(ERR_DATA,
                    "%s: no token to train in %lld row%s: each answer is empty, or \"train\": false keeps it from being trained",
                    paths, (long long)data->row_count, plural(data->row_count));
    return OK;
}

static enum status check_skipped(const struct data *data, const struct data_limits *limits)
{
    const char *list = data->skipped ? data->skipped : "";
    if (!data->summary.skipped)
        return OK;
    if (!limits->skip_bad)
        return fail(ERR_DATA, "%.*s", (int)strcspn(list, "\n"), list);
    log_message(LOG_WARNING, "%lld row%s cannot be used and %s skipped; the first:", (long long)data->summary.skipped,
                plural(data->summary.skipped), is_or_are(data->summary.skipped));
    for (; *list; list += strcspn(list, "\n"), list += *list == '\n')
        log_message(LOG_WARNING, "%.*s", (int)strcspn(list, "\n"), list);
    return OK;
}

/* What the checks found stops the run, or is worth a warning. */
static enum status check_findings(const struct data *data, const char *paths)
{
    struct check_summary summary = {.rows = data->cache.totals.rows};
    for (int c = 0; c < CHECKS; c++)
        summary.count[c] = data->cache.totals.findings[c];
    for (int c = 0; c < CHECKS; c++) {
        const char *name = check_name((enum check)c), *advice = check_advice((enum check)c);
        if (check_stops(&summary, (enum check)c))
            return fail(ERR_DATA, "%s: %s in %lld of %lld row%s (`hone inspect data` shows them): %s", paths, name,
                        (long long)summary.count[c], (long long)summary.rows, plural(summary.rows), advice);
        if (summary.count[c] && c != CHECK_UNTRAINED) /* those are in the data's summary */
            log_message(LOG_WARNING, "%s in %lld of %lld row%s (`hone inspect data` shows them): %s", name,
                        (long long)summary.count[c], (long long)summary.rows, plural(summary.rows), advice);
    }
    return OK;
}

static void warn_of_lengths(const struct data *data)
{
    const struct data_summary *a = &data->summary;
    if (a->truncated)
        log_message(LOG_WARNING, "%lld of %lld row%s %s cut to %s %lld: %lld token%s %s lost", (long long)a->truncated,
                    (long long)a->rows, plural(a->rows), is_or_are(a->truncated), data_limit_name(data),
                    (long long)data->max_tokens, (long long)a->lost_tokens, plural(a->lost_tokens), is_or_are(a->lost_tokens));
    if (a->dropped)
        log_message(LOG_WARNING, "%lld of %lld row%s %s longer than %s %lld and left out: %lld token%s %s lost",
                    (long long)a->dropped, (long long)a->rows, plural(a->rows), is_or_are(a->dropped), data_limit_name(data),
                    (long long)data->max_tokens, (long long)a->lost_tokens, plural(a->lost_tokens), is_or_are(a->lost_tokens));
    if (a->emptied)
        log_message(LOG_WARNING, "%lld %s%s%s %s left out: no token to train was left", (long long)a->emptied,
                    a->split ? "window" : "cut row", plural(a->emptied), a->split ? " of split rows" : "", is_or_are(a->emptied));
}

static enum status data_open_all(struct data *data, struct source *source, const char *paths, struct chat **chat,
                                 const struct data_limits *limits)
{
    struct buffer skipped = {0};
    data->max_tokens = limits->max_tokens;
    data->is_window = limits->is_window;
    TRY(take_files(data, source));
    enum status status = open_tokens(data, source, chat, limits, &skipped);
    if (status == OK)
        status = name_skipped(data, &skipped);
    buffer_free(&skipped);
    TRY(status);
    data->table_dir = data->cache.path ? data->cache.tokens_dir : NULL;
    TRY(take_rows(data));
    TRY(check_skipped(data, limits));
    data->tokens = data->cache.totals.tokens;
    data->trained = data->cache.totals.trained;
    data->summary.untrained = data->cache.totals.untrained;
    if (data->longest > limits->max_tokens) {
        TRY(lengths_apply(data, limits->max_tokens, limits->excess));
        lengths_count(data);
    }
    TRY(data_open_check_content(data, paths));
    TRY(check_findings(data, paths));
    warn_of_lengths(data);
    return OK;
}

enum status data_open(struct data *data, const char *paths, struct chat **chat, const struct data_limits *limits)
{
    struct source *source;
    *data = (struct data){0};
    TRY(source_open(&source, paths, limits->split ? limits->split : "train", limits->columns));
    enum status status = data_open_all(data, source, paths, chat, limits);
    source_close(source);
    if (status != OK)
        data_close(data);
    return status;
}
