/* hone inspect data: a data set as the model will see it, as JSON.
 *
 * The idea: blocks of rows are encoded and checked on all cores, and only numbers are kept of each row; rows that are shown, or
 * whose error is reported, are encoded again.
 */
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/number.h"
#include "base/parallel.h"
#include "base/record.h"
#include "base/utf8.h"
#include "commands/commands.h"
#include "commands/named_model.h"
#include "data/row_checks.h"
#include "data/source.h"
#include "format/gguf.h"
#include "train/trainer.h"

enum { BLOCK_BYTES = 4 << 20, ROWS_A_TASK = 32, BAD_MAX = 10000, LISTED_MAX = 100000 };

struct result {
    enum status status;
    enum row_kind kind;
    struct check_result check;
};

struct inspection {
    const struct options *options;
    struct chat *chat;
    struct checker *checker;
    struct source *source;
    struct source_block block;
    struct result *results;
    int64_t result_capacity;
    struct check_summary summary;
    int64_t rows, bad, kinds[ROW_KINDS], longest;
    struct check_place longest_at;
    json_t *shown, *errors; /* rows, and messages */
    int64_t listed;         /* tokens of the rows that are shown: as JSON each takes almost a kilobyte */
};

/* The row as it is trained: its first token never is, and with --train-on-inputs all others are. */
static enum status inspect_data_encode(const struct inspection *in, const struct source_row *text, struct chat_row *row,
                                       enum row_kind *kind)
{
    TRY(row_encode(in->chat, text->text, text->length, row, kind));
    chat_row_keep_ids(row);
    row->trained = 0;
    for (int64_t i = 0; i < row->tokens.count; i++) {
        row->mask[i] = i > 0 && (in->options->train_on_inputs || row->mask[i]);
        row->trained += row->mask[i];
    }
    return OK;
}

static void inspect_data_check_rows(void *context, int64_t begin, int64_t end)
{
    struct inspection *in = context;
    struct chat_row row = {0};
    for (int64_t i = begin; i < end; i++) {
        const struct source_row *text = &in->block.rows[i];
        struct result *result = &in->results[i];
        result->status = inspect_data_encode(in, text, &row, &result->kind);
        if (result->status == OK)
            check_row(in->checker, text->text, text->length, result->kind, &row, &result->check);
    }
    chat_row_free(&row);
}

/* --- tokens as JSON ------------------------------------------------------------------------------------------------------ */

static json_t *inspect_data_hex(const struct buffer *bytes)
{
    char text[65];
    int n = 0;
    for (int64_t i = 0; i < bytes->size && n < 64; i++) {
        static const char digits[] = "0123456789abcdef";
        text[n++] = digits[(uint8_t)bytes->data[i] >> 4];
        text[n++] = digits[bytes->data[i] & 15];
    }
    return json_stringn(text, (size_t)n);
}

/* Its text, or its bytes where they are a part of a character. */
static json_t *token_json(const struct inspection *in, const struct chat_row *row, int64_t i, struct buffer *bytes)
{
    int32_t id = row->tokens.id[i];
    bytes->size = 0;
    if (tokenizer_decode_more(chat_tokenizer(in->chat), &id, 1, true, i == 0, bytes) != OK)
        return NULL;
    bool whole = utf8_invalid(bytes->data ? bytes->data : "", bytes->size) < 0;
    return json_pack("{s:i, s:o, s:b, s:b}", "id", (int)id, whole ? "text" : "bytes",
                     whole ? json_stringn(bytes->data ? bytes->data : "", (size_t)bytes->size) : inspect_data_hex(bytes),
                     "trained", (int)row->mask[i], "special", (int)tokenizer_is_special(chat_tokenizer(in->chat), id));
}

static json_t *place_json(const struct inspection *in, const struct check_place *place)
{
    return json_pack("{s:I, s:o, s:I}", "row", (json_int_t)place->row, "file", json_lossy(source_path(in->source, place->file)),
                     "line", (json_int_t)place->line);
}

/* The first tokens of a row, as many as a report has room for. */
static json_t *tokens_json(struct inspection *in, const struct chat_row *row)
{
    json_t *tokens = json_array();
    struct buffer bytes = {0};
    for (int64_t i = 0; i < row->tokens.count && in->listed < LISTED_MAX && tokens; i++, in->listed++)
        if (json_array_append_new(tokens, token_json(in, row, i, &bytes)) != 0) {
            json_decref(tokens);
            tokens = NULL;
        }
    buffer_free(&bytes);
    return tokens;
}

static json_t *found_json(unsigned found)
{
    json_t *list = json_array();
    for (int c = 0; c < CHECKS; c++)
        if (found >> c & 1)
            json_array_append_new(list, json_string(check_name((enum check)c)));
    return list;
}

static enum status add_to(json_t *list, json_t *place, json_t *more)
{
    bool added = place && more && json_object_update(place, more) == 0 && json_array_append(list, place) == 0;
    json_decref(place);
    json_decref(more);
    return added ? OK : fail(ERR_MEMORY, "out of memory while writing a report");
}

static enum status show_row(struct inspection *in, int64_t i, const struct check_place *place)
{
    struct chat_row row = {0};
    enum row_kind kind;
    struct check_result check;
    enum status status = inspect_data_encode(in, &in->block.rows[i], &row, &kind);
    if (status == OK) {
        check_row(in->checker, in->block.rows[i].text, in->block.rows[i].length, kind, &row, &check);
        status = add_to(in->shown, place_json(in, place),
                        json_pack("{s:s, s:I, s:I, s:o, s:o}", "kind", row_kind_name(kind), "count", (json_int_t)row.tokens.count,
                                  "trained_tokens", (json_int_t)row.trained, "tokens", tokens_json(in, &row), "found",
                                  found_json(check.found)));
    }
    chat_row_free(&row);
    return status;
}

static enum status tell_error(struct inspection *in, int64_t i, const struct check_place *place)
{
    struct chat_row row = {0};
    enum row_kind kind;
    enum status status = inspect_data_encode(in, &in->block.rows[i], &row, &kind);
    chat_row_free(&row);
    if (status == OK) /* only memory can fail once and not again */
        return fail(ERR_MEMORY, "out of memory while encoding rows");
    if (status != ERR_DATA && status != ERR_LIMIT)
        return fail_at(status, "%s:%lld: ", source_path(in->source, place->file), (long long)place->line);
    in->bad++;
    return json_array_size(in->errors) < BAD_MAX
               ? add_to(in->errors, place_json(in, place), json_pack("{s:s}", "error", status_message()))
               : OK;
}

/* --- the walk ------------------------------------------------------------------------------------------------------------ */

static enum status take_row(struct inspection *in, int64_t i)
{
    const struct result *result = &in->results[i];
    struct check_place place = {in->rows, in->block.file, in->block.rows[i].line};
    if (result->status != OK)
        return tell_error(in, i, &place);
    in->kinds[result->kind]++;
    if (result->check.tokens > in->longest) {
        in->longest = result->check.tokens;
        in->longest_at = place;
    }
    TRY(check_add(&in->summary, &result->check, &place));
    return in->rows <= in->options->rows || in->options->row ? show_row(in, i, &place) : OK;
}

/* The one row that was asked for: those before it are only counted. */
static enum status inspect_data_find_row(struct inspection *in)
{
    int64_t wanted = in->options->row;
    do {
        TRY(source_read(in->source, &in->block, BLOCK_BYTES));
        if (in->rows + in->block.count >= wanted) {
            int64_t i = wanted - in->rows - 1;
            in->rows = wanted;
            TRY(memory_grow(&in->results, &in->result_capacity, in->block.count, (int64_t)sizeof *in->results));
            inspect_data_check_rows(in, i, i + 1);
            return take_row(in, i);
        }
        in->rows += in->block.count;
    } while (in->block.count);
    return fail(ERR_ARGUMENT, "--row %lld: the data has %lld row%s", (long long)wanted, (long long)in->rows, plural(in->rows));
}

static enum status inspect_data_walk(struct inspection *in)
{
    if (in->options->row)
        return inspect_data_find_row(in);
    do {
        TRY(source_read(in->source, &in->block, BLOCK_BYTES));
        TRY(memory_grow(&in->results, &in->result_capacity, in->block.count, (int64_t)sizeof *in->results));
        parallel_for(in->block.count, ROWS_A_TASK, inspect_data_check_rows, in);
        for (int64_t i = 0; i < in->block.count; i++) {
            in->rows++;
            TRY(take_row(in, i));
        }
    } while (in->block.count);
    return OK;
}

/* --- the report ---------------------------------------------------------------------------------------------------------- */

static json_t *checks_json(const void *record)
{
    const struct inspection *in = record;
    const struct check_summary *s = &in->summary;
    json_t *list = json_array();
    for (int i = 0; i < CHECKS; i++) {
        enum check c = (enum check)i;
        if (c == CHECK_LONG && !s->max_tokens)
            continue;
        const char *level = !s->count[c] ? "ok" : check_stops(s, c) ? "error" : "warning";
        json_t *check = json_pack("{s:s, s:s, s:I, s:b}", "check", check_name(c), "level", level, "rows", (json_int_t)s->count[c],
                                  "exact", (int)check_exact(s, c));
        if (s->count[c]) {
            json_object_set_new(check, "advice", json_string(check_advice(c)));
            json_object_set_new(check, "first", place_json(in, &s->first[c]));
        }
        json_array_append_new(list, check);
    }
    return list;
}

static json_t *inspect_data_files_json(const void *record)
{
    const struct inspection *in = record;
    json_t *files = json_array();
    for (int64_t i = 0; i < source_files(in->source); i++)
        json_array_append_new(files, json_pack("{s:o, s:f}", "path", json_lossy(source_path(in->source, i)), "weight",
                                               source_weight(in->source, i)));
    return files;
}

static json_t *inspect_data_kinds_json(const void *record)
{
    return row_kinds_json(((const struct inspection *)record)->kinds);
}

static json_t *inspect_data_longest_json(const void *record)
{
    const struct inspection *in = record;
    json_t *longest = in->longest ? place_json(in, &in->longest_at) : json_null();
    if (in->longest)
        json_object_set_new(longest, "tokens", json_integer(in->longest));
    return longest;
}

static json_t *bad_rows_json(const void *record)
{
    return json_incref(((const struct inspection *)record)->errors);
}

static json_t *shown_json(const void *record)
{
    return json_incref(((const struct inspection *)record)->shown);
}

/* A report on a single row leaves out those before it. */
static json_t *rows_json(const void *record)
{
    const struct inspection *in = record;
    return json_integer(in->options->row ? 1 : (json_int_t)in->rows);
}

static enum status make_report(struct inspection *in, json_t **report)
{
    static const struct record_field fields[] = {
        RECORD_MADE("files", inspect_data_files_json),
        RECORD_MADE("rows", rows_json),
        RECORD_AS("bad_rows", struct inspection, bad),
        RECORD_AS("tokens", struct inspection, summary.tokens),
        RECORD_AS("trained_tokens", struct inspection, summary.trained),
        RECORD_MADE("kinds", inspect_data_kinds_json),
        RECORD_MADE("longest", inspect_data_longest_json),
        RECORD_MADE("bad", bad_rows_json),
        RECORD_MADE("checks", checks_json),
        RECORD_MADE("shown", shown_json),
        {0},
    };
    json_t *tree = record_json(fields, in);
    if (tree && !in->bad && check_verdict(&in->summary) != OK)
        json_object_set_new(tree, "stops", json_string(status_message()));
    *report = tree;
    return OK;
}

/* The limit that a run would have. A directory may have a tokenizer and no model. */
static enum status find_limit(struct inspection *in)
{
    struct arena arena = {0};
    struct model model;
    struct data_limits limits;
    const char *dir = in->options->model_name_or_path, *config = file_join(&arena, dir, "config.json");
    bool there = config && (file_exists(config) || gguf_is_path(dir));
    enum status status = !config ? ERR_MEMORY : there ? model_open(&model, dir, NULL, false) : OK;
    if (there && status == OK) {
        status = rows_limits(&limits, in->options, model.config.window, model.config.vocabulary, &arena);
        in->summary.max_tokens = limits.max_tokens;
        in->summary.long_stops = limits.excess == EXCESS_ERROR;
        model_close(&model);
    } else if (there && status != ERR_MEMORY) {
        log_message(LOG_WARNING, "whether rows are too long is not checked: %s", status_message());
        status = OK;
    }
    arena_free(&arena);
    return status;
}

static enum status inspect_data_inspect(struct inspection *in, json_t **report)
{
    in->shown = json_array();
    in->errors = json_array();
    if (!in->shown || !in->errors)
        return fail(ERR_MEMORY, "out of memory while writing a report");
    TRY(source_open(&in->source, in->options->dataset_path, "train", in->options->column_mapping));
    TRY(chat_open(&in->chat, in->options->model_name_or_path));
    chat_set_raw(in->chat, in->options->raw);
    TRY(checker_open(&in->checker, in->chat));
    TRY(find_limit(in));
    TRY(inspect_data_walk(in));
    return make_report(in, report);
}

enum status command_inspect_data(const struct options *options, enum user_command command, json_t **report)
{
    struct options values;
    struct inspection in = {.options = &values};
    enum status status = named_model_find(options, command, &values);
    if (status == OK)
        status = options_need(options, command, OPTION_dataset_path);
    if (status == OK)
        status = inspect_data_inspect(&in, report);
    json_decref(in.shown);
    json_decref(in.errors);
    check_free(&in.summary);
    memory_free(in.results);
    source_block_free(&in.block);
    source_close(in.source);
    checker_close(in.checker);
    chat_close(in.chat);
    return status;
}
