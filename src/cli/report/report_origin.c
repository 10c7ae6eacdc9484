/* What determines a run: program, base, data and options, each with its digest; and the processes that worked on it. */
#include <stdio.h>
#include <string.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/hash.h"
#include "cli/report/page.h"
#include "cli/report/report_parts.h"
#include "cli/view/out.h"
#include "config/options.h"

enum { RESULT_BYTES_MAX = 1 << 30, CHECKPOINTS_MAX = 50 };

static enum status report_origin_put_row(struct buffer *page, const char *name, const char *value, const char *digest)
{
    if (!*value && !*digest)
        return OK;
    TRY(page_put(page, "<tr><th>", name, "</th><td>"));
    TRY(page_put(page, "", value, "</td>"));
    return page_put(page, "<td><code>", digest, "</code></td></tr>\n");
}

/* The adapter as it lies there now. */
static enum status put_result(struct buffer *page, const struct history *h)
{
    struct arena arena = {0};
    struct file_map map;
    char digest[HASH_TEXT], size[32];
    const char *path = file_join(&arena, h->dir, "adapter_model.safetensors");
    enum status status = path ? OK : ERR_MEMORY;
    if (status == OK && file_size(path) > 0 && file_size(path) < RESULT_BYTES_MAX && file_map(&map, path) == OK) {
        digest_text(hash_of(map.data, map.size), digest);
        snprintf(size, sizeof size, "%lld bytes", (long long)map.size);
        file_unmap(&map);
        status = report_origin_put_row(page, "adapter_model.safetensors", size, digest);
    }
    arena_free(&arena);
    return status;
}

static enum status put_digests(struct buffer *page, const struct history *h)
{
    const json_t *program = json_object_get(h->run, "program"), *digests = json_object_get(h->run, "digests");
    const json_t *options = json_object_get(h->run, "options");
    char text[256];
    TRY(page_format(page, "<h2>What determines this run</h2>\n<div class=\"card\"><table>"
                          "<tr><th></th><th></th><th>xxh128</th></tr>\n"));
    snprintf(text, sizeof text, "hone %.32s", page_text(h->run, "hone"));
    TRY(report_origin_put_row(page, "program", page_text(h->run, "hone")[0] ? text : "", page_text(program, "xxh128")));
    TRY(report_origin_put_row(page, "base", history_text(h, "model"), page_text(digests, "base")));
    TRY(report_origin_put_row(page, "training data", page_text(options, "dataset_path"), page_text(digests, "data")));
    TRY(report_origin_put_row(page, "validation data", page_text(options, "eval_dataset_path"), page_text(digests, "eval_data")));
    TRY(report_origin_put_row(page, "options that decide", "", page_text(digests, "options")));
    snprintf(text, sizeof text, "%.100s: %.100s", history_text(h, "device"), page_text(h->run, "device_name"));
    TRY(report_origin_put_row(page, "device", page_text(h->run, "device_name")[0] ? text : history_text(h, "device"), ""));
    TRY(report_origin_put_row(page, "type", history_text(h, "dtype"), ""));
    TRY(report_origin_put_row(page, "run", page_text(h->run, "run"), ""));
    TRY(put_result(page, h));
    TRY(page_format(page, "</table>\n"));
    if (digests && !json_object_get(digests, "base"))
        TRY(page_format(page, "<p class=\"soft\">The digests of base and data are made with the first checkpoint, which this run "
                              "has not reached.</p>\n"));
    return page_format(page, "</div>\n");
}

/* Whether a file of options could say the same. The rest is left out: --on-finish, which a shell would run, what is no option
 * of hone train, and values that it would refuse. */
static enum status may_stand(enum option option, const char *value, bool *may)
{
    struct arena arena = {0};
    struct options fresh;
    options_init(&fresh, &arena);
    enum status status = options_set(&fresh, COMMAND_TRAIN, options_name(option), value, "run.json");
    arena_free(&arena);
    *may = status == OK;
    return status == ERR_MEMORY ? status : OK;
}

/* "--learning-rate=0.01": after a blank, a value that begins with dashes could be another option. */
static enum status put_option(struct buffer *page, enum option option, const char *value)
{
    struct buffer word = {0};
    TRY(page_format(page, " --"));
    for (const char *at = options_name(option); *at; at++)
        TRY(page_format(page, "%c", *at == '_' ? '-' : *at));
    enum status status = out_quoted(&word, value);
    if (status == OK)
        status = page_put(page, "=", word.data, "");
    buffer_free(&word);
    return status;
}

/* The command that gives the same options again. A reader may copy it into a shell, and run.json may be from anyone. */
static enum status report_origin_put_command(struct buffer *page, const json_t *options, const json_t *given)
{
    const char *name;
    json_t *source;
    enum option option;
    bool may;
    TRY(page_format(page, "<pre>hone train"));
    json_object_foreach((json_t *)given, name, source)
    {
        if (options_find(name, &option) != OK)
            continue;
        TRY(may_stand(option, page_text(options, name), &may));
        if (may)
            TRY(put_option(page, option, page_text(options, name)));
    }
    TRY(page_format(page, "</pre>\n"));
    if (json_object_get(given, "on_finish"))
        TRY(page_format(page, "<p class=\"soft\">Without --on-finish, whose command run.json does not keep.</p>\n"));
    return OK;
}

static enum status put_options(struct buffer *page, const struct history *h)
{
    json_t *options = json_object_get(h->run, "options"), *given = json_object_get(h->run, "given"), *value;
    const char *name;
    if (!json_object_size(options))
        return OK;
    TRY(page_format(page, "<h2>Options</h2>\n<div class=\"card\">"));
    TRY(report_origin_put_command(page, options, given));
    TRY(page_format(page, "<details><summary>All %zu options, %zu of them given</summary><table>\n", json_object_size(options),
                    json_object_size(given)));
    json_object_foreach(options, name, value)
    {
        const char *source = page_text(given, name);
        TRY(page_put(page, *source ? "<tr class=\"given\"><th>" : "<tr><th>", name, "</th><td>"));
        TRY(page_put(page, "", json_is_string(value) ? json_string_value(value) : "", "</td>"));
        TRY(page_put(page, "<td class=\"soft\">", *source ? source : "default", "</td></tr>\n"));
    }
    return page_format(page, "</table></details></div>\n");
}

static enum status put_pieces(struct buffer *page, const struct history *h)
{
    const json_t *pieces = json_object_get(h->run, "pieces"), *piece;
    size_t i, count = json_array_size(pieces);
    if (!count)
        return OK;
    TRY(page_format(page, "<h2>Processes</h2>\n<div class=\"card wide\"><table><tr><th>began</th><th>from step</th><th>ended</th>"
                          "<th>at step</th><th>how</th><th>on</th><th>threads</th><th>hone</th></tr>\n"));
    json_array_foreach(pieces, i, piece)
    {
        const char *how = page_text(piece, "how");
        TRY(page_put(page, "<tr><td>", page_text(piece, "began"), "</td>"));
        TRY(page_format(page, "<td class=\"n\">%lld</td>", page_number(piece, "from_step")));
        TRY(page_put(page, "<td>", page_text(piece, "ended"), "</td>"));
        if (*how)
            TRY(page_format(page, "<td class=\"n\">%lld</td>", page_number(piece, "step")));
        else
            TRY(page_format(page, "<td></td>"));
        TRY(page_put(page, "<td>", *how ? how : i + 1 == count && h->state == HISTORY_RUNNING ? "running" : "killed", "</td>"));
        TRY(page_put(page, "<td>", page_text(piece, "host"), "</td>"));
        TRY(page_format(page, "<td class=\"n\">%lld</td>", page_number(piece, "threads")));
        TRY(page_put(page, "<td>", page_text(piece, "hone"), "</td></tr>\n"));
    }
    return page_format(page, "</table></div>\n");
}

static enum status list_checkpoints(struct buffer *page, const struct history *h, struct arena *arena)
{
    const char **names;
    int64_t count, shown = 0;
    TRY(directory_list(arena, h->dir, &names, &count));
    for (int64_t i = 0; i < count; i++) {
        if (strncmp(names[i], "checkpoint-", 11) != 0 || strchr(names[i], '.') || shown++ >= CHECKPOINTS_MAX)
            continue;
        TRY(page_put(page, shown == 1 ? "<p class=\"soft\">Checkpoints: <code>" : ", <code>", names[i], "</code>"));
    }
    return shown ? page_format(page, "</p>\n") : OK;
}

enum status report_origin(struct buffer *page, const struct history *h)
{
    struct arena arena = {0};
    TRY(put_digests(page, h));
    TRY(put_options(page, h));
    TRY(put_pieces(page, h));
    enum status status = list_checkpoints(page, h, &arena);
    arena_free(&arena);
    return status;
}
