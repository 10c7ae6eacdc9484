/* The account of a data set as JSON. */
#include "data/account.h"

#include <string.h>

static json_t *kinds_json(const struct data_account *a)
{
    json_t *kinds = json_object();
    for (int k = 0; k < ROW_KINDS; k++)
        if (a->kinds[k])
            json_object_set_new(kinds, row_kind_name((enum row_kind)k), json_integer((json_int_t)a->kinds[k]));
    return kinds;
}

/* Each file with its rows; a weight only where it is not 1. */
static json_t *files_json(const struct data *data)
{
    json_t *files = json_array();
    for (int64_t f = 0; f < data->file_count; f++) {
        const struct data_file *file = &data->files[f];
        json_t *one = json_pack("{s:s, s:I}", "path", file->path, "rows", (json_int_t)(file->end - (f ? file[-1].end : 0)));
        if (one && file->weight != 1)
            json_object_set_new(one, "weight", json_real(file->weight));
        json_array_append_new(files, one);
    }
    return files;
}

static json_t *skipped_json(const struct data *data)
{
    json_t *list = json_array();
    for (const char *line = data->skipped; line && *line;) {
        size_t n = strcspn(line, "\n");
        json_array_append_new(list, json_stringn_nocheck(line, n));
        line += n + (line[n] != 0);
    }
    return list;
}

json_t *account_json(const struct data *data)
{
    const struct data_account *a = &data->account;
    json_t *longest = json_pack("{s:I, s:s, s:I}", "tokens", (json_int_t)a->longest, "path", data->files[a->longest_file].path,
                                "line", (json_int_t)a->longest_line);
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "rows",
                     (json_int_t)data->row_count, "tokens", (json_int_t)data->tokens, "trained_tokens", (json_int_t)data->trained,
                     "longest_row", (json_int_t)data->longest, "untrained_rows", (json_int_t)a->untrained, "rows_read",
                     (json_int_t)a->rows, "kinds", kinds_json(a), "files", files_json(data), "longest", longest, "max_length",
                     (json_int_t)data->max_tokens, "long_rows", (json_int_t)a->long_rows, "truncated_rows",
                     (json_int_t)a->truncated, "split_rows", (json_int_t)a->split, "split_windows", (json_int_t)a->windows,
                     "dropped_rows", (json_int_t)a->dropped, "emptied_rows", (json_int_t)a->emptied, "lost_tokens",
                     (json_int_t)a->lost_tokens, "skipped_rows", (json_int_t)a->skipped, "skipped", skipped_json(data));
}

static json_t *packing_json(const struct sampler *s)
{
    int64_t windows = 0;
    for (int64_t i = 0; i < s->share_count; i++)
        windows += s->shares[i].units;
    return json_pack("{s:I, s:I, s:f}", "window", (json_int_t)s->window, "windows", (json_int_t)windows, "full",
                     (double)s->data->tokens / ((double)windows * (double)s->window));
}

json_t *account_run_json(const struct data *data, const struct sampler *sampler, const struct data *eval)
{
    if (!data->row_count)
        return json_object();
    json_t *report = account_json(data);
    if (report && sampler->window)
        json_object_set_new(report, "packing", packing_json(sampler));
    if (report && eval->row_count)
        json_object_set_new(report, "eval", account_json(eval));
    return report;
}
