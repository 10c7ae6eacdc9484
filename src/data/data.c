/* Opening data sets from the cache or from their text, and splitting them. */
#include "data/data.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/number.h"
#include "base/process.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "data/check.h"
#include "data/cursor.h"
#include "data/encode.h"
#include "data/lengths.h"

#define SPLIT_STREAM UINT64_MAX          /* a stream of the seed that no epoch uses: epochs count from 0 */
#define USED_BYTES_MAX INT64_C(67108864) /* bytes of tokens, after which their pages are released */

enum { SKIPPED_NAMED = 5 };

_Static_assert((int)ROW_KINDS <= (int)TOKEN_KINDS, "the cache counts too few kinds of rows");
_Static_assert((int)CHECKS <= (int)TOKEN_FINDINGS, "the cache counts too few findings");

enum status data_check_ids(const int32_t *ids, int64_t count, int64_t vocabulary)
{
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= vocabulary)
            return fail(ERR_DATA,
                        "token %d is not in the model's vocabulary of %lld: the tokenizer does not belong to this model",
                        (int)ids[i], (long long)vocabulary);
    return OK;
}

const char *data_file_of(const struct data *data, int64_t row)
{
    return data->files[data->rows[row].file].path;
}

/* --- opening ------------------------------------------------------------------------------------------------------------ */

static enum status encode(struct data *data, struct source *source, struct chat **chat, const struct data_limits *limits,
                          struct buffer *skipped)
{
    if (!*chat)
        TRY(chat_open(chat, limits->model_dir));
    if (data->cache.path && !digest_equal(chat_files(*chat), data->cache.chat))
        return fail(ERR_IO, "%s: the tokenizer or the chat template was changed while this command ran; start it again",
                    limits->model_dir);
    chat_set_moment(*chat, limits->moment);
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
    return encode(data, source, chat, limits, skipped);
}

static enum status open_tokens(struct data *data, struct source *source, struct chat **chat, const struct data_limits *limits,
                               struct buffer *skipped)
{
    const struct token_key key = {limits->model_dir, limits->all_tokens, limits->vocabulary, limits->columns, limits->moment};
    if (!limits->cache_dir)
        return encode_without_cache(data, source, chat, limits, skipped);
    enum status status = token_cache_open(&data->cache, source, limits->cache_dir, &key);
    if (status == OK && data->cache.complete)
        return token_cache_skipped(&data->cache, skipped);
    if (status == OK)
        status = encode(data, source, chat, limits, skipped);
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
    struct data_account *a = &data->account;
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
    *a = (struct data_account){.rows = t->rows, .skipped = t->skipped, .longest = t->longest};
    memcpy(a->kinds, t->kinds, sizeof a->kinds);
    if (t->rows) {
        a->longest_file = data->rows[t->longest_row].file;
        a->longest_line = data->rows[t->longest_row].line;
    }
    return OK;
}

/* Sums up the rows. */
static void count_rows(struct data *data)
{
    data->tokens = data->trained = data->longest = data->account.untrained = 0;
    for (struct row_cursor at = row_cursor(data, 0, data->row_count); row_next(&at);) {
        const struct token_row *row = &data->rows[at.row];
        data->tokens += row->count;
        data->trained += row->trained;
        data->account.untrained += !row->trained;
        data->longest = max(row->count, data->longest);
    }
}

static enum status check_content(const struct data *data, const char *paths)
{
    const struct data_account *a = &data->account;
    if (a->skipped && !a->rows)
        return fail(ERR_DATA, "%s: none of the %lld rows can be used; the first: %s", paths, (long long)a->skipped,
                    data->skipped ? data->skipped : "");
    if (!a->rows)
        return fail(ERR_DATA, "%s: no rows; each line should be a JSON object with a list of \"messages\", or a row of a table",
                    paths);
    if (!data->row_count)
        return fail(ERR_DATA,
                    "%s: all %lld rows are longer than --max-length %lld, and --excess-length left none of them: raise it", paths,
                    (long long)a->rows, (long long)data->max_tokens);
    if (!data->trained)
        return fail(ERR_DATA,
                    "%s: no token to train in %lld rows: each answer is empty, or \"train\": false keeps it from being trained",
                    paths, (long long)data->row_count);
    return OK;
}

static enum status check_skipped(const struct data *data, const struct data_limits *limits)
{
    const char *list = data->skipped ? data->skipped : "";
    if (!data->account.skipped)
        return OK;
    if (!limits->skip_bad)
        return fail(ERR_DATA, "%.*s", (int)strcspn(list, "\n"), list);
    log_message(LOG_WARNING, "%lld rows cannot be used and are skipped; the first:", (long long)data->account.skipped);
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
            return fail(ERR_DATA, "%s: %s in %lld of %lld rows (`hone inspect data` shows them): %s", paths, name,
                        (long long)summary.count[c], (long long)summary.rows, advice);
        if (summary.count[c] && c != CHECK_UNTRAINED) /* those are in the account */
            log_message(LOG_WARNING, "%s in %lld of %lld rows (`hone inspect data` shows them): %s", name,
                        (long long)summary.count[c], (long long)summary.rows, advice);
    }
    return OK;
}

static void warn_of_lengths(const struct data *data)
{
    const struct data_account *a = &data->account;
    if (a->truncated)
        log_message(LOG_WARNING, "%lld of %lld rows are cut to --max-length %lld: %lld tokens are lost", (long long)a->truncated,
                    (long long)a->rows, (long long)data->max_tokens, (long long)a->lost_tokens);
    if (a->dropped)
        log_message(LOG_WARNING, "%lld of %lld rows are longer than --max-length %lld and left out: %lld tokens are lost",
                    (long long)a->dropped, (long long)a->rows, (long long)data->max_tokens, (long long)a->lost_tokens);
    if (a->emptied)
        log_message(LOG_WARNING, "%lld %s are left out: no token to train was left in them", (long long)a->emptied,
                    a->split ? "windows of split rows" : "cut rows");
}

static enum status open_all(struct data *data, struct source *source, const char *paths, struct chat **chat,
                            const struct data_limits *limits)
{
    struct buffer skipped = {0};
    data->max_tokens = limits->max_tokens;
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
    data->account.untrained = data->cache.totals.untrained;
    if (data->longest > limits->max_tokens) {
        TRY(lengths_apply(data, limits->max_tokens, limits->excess));
        count_rows(data);
    }
    TRY(check_content(data, paths));
    TRY(check_findings(data, paths));
    warn_of_lengths(data);
    return OK;
}

enum status data_open(struct data *data, const char *paths, struct chat **chat, const struct data_limits *limits)
{
    struct source *source;
    *data = (struct data){0};
    TRY(source_open(&source, paths, limits->split ? limits->split : "train", limits->columns));
    enum status status = open_all(data, source, paths, chat, limits);
    source_close(source);
    if (status != OK)
        data_close(data);
    return status;
}

void data_close(struct data *data)
{
    for (int64_t f = 0; f < data->file_count; f++)
        memory_free(data->files[f].path);
    memory_free(data->files);
    memory_free(data->skipped);
    table_close(&data->own_rows);
    table_close(&data->own_tokens);
    token_cache_close(&data->cache);
    *data = (struct data){0};
}

/* --- using -------------------------------------------------------------------------------------------------------------- */

void data_rest(const struct data *data)
{
    file_map_drop(&data->cache.token_map, 0, data->cache.token_map.size);
    file_map_drop(&data->cache.row_map, 0, data->cache.row_map.size);
    table_rest(&data->own_rows);
}

enum status data_check_files(const struct data *data)
{
    TRY(file_map_check(&data->cache.token_map));
    return file_map_check(&data->cache.row_map);
}

enum status data_use(struct data *data, int64_t row)
{
    const struct token_row *r = &data->rows[row];
    if (!token_row_sound(r, data->marked + r->begin)) {
        token_cache_spoil(&data->cache);
        return fail(ERR_DATA, "%s:%lld: the cached tokens of this row are damaged; start again, and they are encoded again",
                    data_file_of(data, row), (long long)r->line);
    }
    data->used += r->count * (int64_t)sizeof *data->marked;
    if (data->used > USED_BYTES_MAX) {
        data_rest(data);
        data->used = 0;
    }
    return OK;
}

/* --- splitting ---------------------------------------------------------------------------------------------------------- */

enum status data_check_split(double size)
{
    if (size > 0 && (size < 1 || floor(size) == size))
        return OK;
    return fail(ERR_ARGUMENT, "--val-set-size %g: give a fraction of the rows, between 0 and 1, or a whole number of rows", size);
}

static enum status split_count(int64_t rows, double size, int64_t *count)
{
    TRY(data_check_split(size));
    double asked = size < 1 ? round(size * (double)rows) : size;
    asked = asked < 1 ? 1 : asked;
    if (asked >= (double)rows)
        return fail(ERR_ARGUMENT,
                    "--val-set-size %g takes all of the %lld rows: nothing is left to train on; lower it, or name other rows "
                    "with --eval-data",
                    size, (long long)rows);
    *count = (int64_t)asked;
    return OK;
}

static enum status copy_files(const struct data *data, struct data *to)
{
    to->files = memory_alloc(data->file_count * (int64_t)sizeof *to->files);
    if (!to->files)
        return ERR_MEMORY;
    to->file_count = data->file_count;
    for (int64_t f = 0; f < data->file_count; f++) {
        struct buffer path = {0};
        TRY(buffer_format(&path, "%s", data->files[f].path));
        to->files[f] = data->files[f];
        to->files[f].path = path.data;
    }
    return OK;
}

static enum status open_side(const struct data *data, struct data *side, int64_t rows)
{
    *side = (struct data){.marked = data->marked,
                          .max_tokens = data->max_tokens,
                          .account = data->account,
                          .cache.path = data->cache.path, /* all that data_use needs of it */
                          .table_dir = data->table_dir};
    TRY(copy_files(data, side));
    TRY(table_open(&side->own_rows, data->table_dir, rows, (int64_t)sizeof *data->rows));
    side->rows = side->own_rows.data;
    return OK;
}

/* Divides the rows between both sides; taken has a bit for each. */
static void deal_rows(const struct data *data, const uint8_t *taken, struct data *kept, struct data *held)
{
    struct row_cursor at = row_cursor(data, 0, data->row_count);
    at.beside[0] = &kept->own_rows;
    at.beside[1] = &held->own_rows;
    while (row_next(&at)) {
        const struct token_row *row = &data->rows[at.row];
        struct data *side = taken[at.row / 8] >> (at.row % 8) & 1 ? held : kept;
        ((struct token_row *)side->own_rows.data)[side->row_count++] = *row;
        side->files[row->file].end = side->row_count;
    }
    for (int64_t f = 1; f < data->file_count; f++) { /* a file without rows ends where the previous one does */
        struct data_file *k = &kept->files[f], *h = &held->files[f];
        k->end = max(k->end, k[-1].end);
        h->end = max(h->end, h[-1].end);
    }
}

static enum status split_rows(const struct data *data, struct data *kept, struct data *held, int64_t count, double size,
                              uint64_t seed)
{
    int64_t n = data->row_count;
    struct table taken;
    TRY(open_side(data, kept, n - count));
    TRY(open_side(data, held, count));
    TRY(table_open(&taken, data->table_dir, n / 8 + 1, 1));
    for (int64_t i = 0; i < count; i++) {
        int64_t row = permute(i, n, seed, SPLIT_STREAM);
        ((uint8_t *)taken.data)[row / 8] |= (uint8_t)(1 << row % 8);
    }
    deal_rows(data, taken.data, kept, held);
    table_close(&taken);
    count_rows(held);
    count_rows(kept);
    if (held->trained && kept->trained)
        return OK;
    return fail(ERR_DATA, "--val-set-size %g leaves no token to %s: choose another size or seed", size,
                kept->trained ? "evaluate" : "train");
}

/* Puts in place of the whole what was kept of it. */
static void take_over(struct data *data, struct data *kept)
{
    kept->cache = data->cache;
    kept->skipped = data->skipped;
    data->cache = (struct token_cache){0};
    data->skipped = NULL;
    data_close(data);
    *data = *kept;
}

enum status data_split(struct data *data, struct data *held, double size, uint64_t seed)
{
    int64_t count = 0;
    struct data kept = {0};
    *held = (struct data){0};
    TRY(split_count(data->row_count, size, &count));
    enum status status = split_rows(data, &kept, held, count, size, seed);
    if (status != OK) {
        data_close(&kept);
        data_close(held);
        return status;
    }
    take_over(data, &kept);
    held->held_back = true;
    return OK;
}

static int64_t file_begin(const struct data *data, int64_t file)
{
    return file ? data->files[file - 1].end : 0;
}

static enum status keep_first(const struct data *data, struct data *kept, struct data *rest, int64_t rows, int64_t count)
{
    struct table taken;
    TRY(open_side(data, kept, count));
    TRY(open_side(data, rest, data->row_count - count));
    TRY(table_open(&taken, data->table_dir, data->row_count / 8 + 1, 1));
    for (int64_t f = 0; f < data->file_count; f++)
        for (int64_t row = file_begin(data, f) + rows; row < data->files[f].end; row++)
            ((uint8_t *)taken.data)[row / 8] |= (uint8_t)(1 << row % 8);
    deal_rows(data, taken.data, kept, rest);
    table_close(&taken);
    count_rows(kept);
    return kept->trained ? OK : fail(ERR_DATA, "--max-samples %lld leaves no token to train", (long long)rows);
}

enum status data_head(struct data *data, int64_t rows)
{
    int64_t count = 0;
    struct data kept = {0}, rest = {0};
    rows = min(rows, data->row_count);
    for (int64_t f = 0; f < data->file_count; f++)
        count += min(rows, data->files[f].end - file_begin(data, f));
    if (count == data->row_count)
        return OK;
    enum status status = keep_first(data, &kept, &rest, rows, count);
    data_close(&rest);
    if (status == OK)
        take_over(data, &kept);
    else
        data_close(&kept);
    return status;
}
