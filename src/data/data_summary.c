/* The summary of a data set as JSON. */
#include "data/data_summary.h"

#include <string.h>

#include "base/record.h"

static json_t *data_summary_kinds_json(const void *record)
{
    return row_kinds_json(((const struct data *)record)->summary.kinds);
}

/* Each file with its rows; a weight only where it is not 1. */
static json_t *data_summary_files_json(const void *record)
{
    const struct data *data = record;
    json_t *files = json_array();
    for (int64_t f = 0; f < data->file_count; f++) {
        const struct data_file *file = &data->files[f];
        json_t *one =
            json_pack("{s:o, s:I}", "path", json_lossy(file->path), "rows", (json_int_t)(file->end - (f ? file[-1].end : 0)));
        if (one && file->weight != 1)
            json_object_set_new(one, "weight", json_real(file->weight));
        json_array_append_new(files, one);
    }
    return files;
}

static json_t *skipped_json(const void *record)
{
    const struct data *data = record;
    json_t *list = json_array();
    for (const char *line = data->skipped; line && *line;) {
        size_t n = strcspn(line, "\n");
        json_array_append_new(list, json_stringn_nocheck(line, n));
        line += n + (line[n] != 0);
    }
    return list;
}

static json_t *data_summary_longest_json(const void *record)
{
    const struct data *data = record;
    const struct data_summary *a = &data->summary;
    return json_pack("{s:I, s:o, s:I}", "tokens", (json_int_t)a->longest, "path", json_lossy(data->files[a->longest_file].path),
                     "line", (json_int_t)a->longest_line);
}

/* Of rows that were held back only what they are themselves: what was read, cut and left out is said of the whole. */
static json_t *held_json(const struct data *data)
{
    static const struct record_field fields[] = {
        RECORD_AS("rows", struct data, row_count),
        RECORD(struct data, tokens),
        RECORD_AS("trained_tokens", struct data, trained),
        RECORD_AS("longest_row", struct data, longest),
        RECORD_AS("max_length", struct data, max_tokens),
        RECORD(struct data, held_back),
        {0},
    };
    return record_json(fields, data);
}

json_t *data_summary_json(const struct data *data)
{
    static const struct record_field fields[] = {
        RECORD_AS("rows", struct data, row_count),
        RECORD(struct data, tokens),
        RECORD_AS("trained_tokens", struct data, trained),
        RECORD_AS("longest_row", struct data, longest),
        RECORD_AS("untrained_rows", struct data, summary.untrained),
        RECORD_AS("rows_without_template", struct data, summary.without_template),
        RECORD_AS("rows_read", struct data, summary.rows),
        RECORD_MADE("kinds", data_summary_kinds_json),
        RECORD_MADE("files", data_summary_files_json),
        RECORD_MADE("longest", data_summary_longest_json),
        RECORD_AS("max_length", struct data, max_tokens),
        RECORD_AS("long_rows", struct data, summary.long_rows),
        RECORD_AS("truncated_rows", struct data, summary.truncated),
        RECORD_AS("split_rows", struct data, summary.split),
        RECORD_AS("split_windows", struct data, summary.windows),
        RECORD_AS("dropped_rows", struct data, summary.dropped),
        RECORD_AS("emptied_rows", struct data, summary.emptied),
        RECORD_AS("lost_tokens", struct data, summary.lost_tokens),
        RECORD_AS("skipped_rows", struct data, summary.skipped),
        RECORD_MADE("skipped", skipped_json),
        {0},
    };
    return data->held_back ? held_json(data) : record_json(fields, data);
}

static json_t *packing_json(const struct sampler *s)
{
    int64_t windows = 0;
    for (int64_t i = 0; i < s->share_count; i++)
        windows += s->shares[i].units;
    return json_pack("{s:I, s:I, s:f}", "window", (json_int_t)s->window, "windows", (json_int_t)windows, "full",
                     (double)s->data->tokens / ((double)windows * (double)s->window));
}

json_t *data_summary_run_json(const struct data *data, const struct sampler *sampler, const struct data *eval)
{
    if (!data->row_count)
        return json_object();
    json_t *report = data_summary_json(data);
    if (report && sampler->window)
        json_object_set_new(report, "packing", packing_json(sampler));
    if (report && eval->row_count)
        json_object_set_new(report, "eval", data_summary_json(eval));
    return report;
}
