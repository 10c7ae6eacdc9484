/* The page. Everything that comes from a file is escaped; colours follow the reader's light or dark setting. */
#include "cli/report/inspect_page.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "cli/report/page.h"
#include "cli/view/escape.h"

enum { BAD_MAX = 200 };

static const char STYLE[] =
    ":root { color-scheme: light dark; --page: #f6f7f9; --card: #fff; --line: #dde1e6; --ink: #1c2127; --soft: #5c6670;\n"
    "  --plain-a: #eef0f3; --plain-b: #e2e6ea; --plain-ink: #59636d; --train-a: #c9efd2; --train-b: #aee3bc; \n"
    "  --train-ink: #0b3d1b;\n"
    "  --special: #9a5b00; --good: #1a7f37; --warn: #9a6700; --bad: #c62828; }\n"
    "@media (prefers-color-scheme: dark) { :root { --page: #101418; --card: #181d23; --line: #2c343d; --ink: #e6eaee;\n"
    "  --soft: #94a0ab; --plain-a: #222932; --plain-b: #2b333d; --plain-ink: #a9b4be; --train-a: #14492a; --train-b: #1b5c35;\n"
    "  --train-ink: #d6f5df; --special: #f0b660; --good: #4cc26b; --warn: #e3b341; --bad: #ff7b72; } }\n"
    "body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }\n"
    "main { max-width: 60rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }\n"
    "h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .7rem; }\n"
    ".sub { color: var(--soft); margin: .2rem 0 1.4rem; overflow-wrap: anywhere; }\n"
    ".sums { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .8rem; }\n"
    ".card { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .8rem 1rem; }\n"
    ".card b { display: block; font-size: 1.45rem; line-height: 1.25; font-variant-numeric: tabular-nums; }\n"
    ".sums span, .note, header span { color: var(--soft); font-size: .88rem; }\n"
    ".verdict { margin: 1rem 0 0; padding: .7rem 1rem; border-radius: .6rem; border: 1px solid currentColor; \n"
    "  font-weight: 600; }\n"
    ".good { color: var(--good); } .warn { color: var(--warn); } .bad { color: var(--bad); }\n"
    "ul { list-style: none; margin: 0; padding: 0; } li { padding: .45rem 0; border-top: 1px solid var(--line); }\n"
    "li:first-child { border-top: 0; } li p { margin: .1rem 0 0 1.6rem; }\n"
    ".mark { display: inline-block; width: 1.6rem; font-weight: 700; } .count { float: right; color: var(--soft); }\n"
    "code { font: .86rem/1.5 ui-monospace, monospace; overflow-wrap: anywhere; }\n"
    ".row { margin: 0 0 1rem; } .row header { margin-bottom: .5rem; }\n"
    ".tokens { font: 13.5px/1.75 ui-monospace, \"DejaVu Sans Mono\", monospace; white-space: pre-wrap; overflow-wrap: anywhere;\n"
    "  max-height: 34rem; overflow: auto; }\n"
    ".tokens span, .legend span { border-radius: 3px; padding: 1px 0; color: var(--plain-ink); background: var(--plain-a); }\n"
    ".tokens span:nth-child(even) { background: var(--plain-b); }\n"
    ".tokens .t, .legend .t { color: var(--train-ink); background: var(--train-a); }\n"
    ".tokens .t:nth-child(even) { background: var(--train-b); }\n"
    ".tokens .s, .legend .s { color: var(--special); font-weight: 600; }\n"
    ".tokens i { opacity: .5; font-style: normal; } .legend span { padding: 2px 8px; margin-right: .4rem; font-size: .85rem; }\n";

/* "train.jsonl:12" */
static enum status put_place(struct buffer *page, const json_t *place)
{
    const char *file = page_text(place, "file"), *slash = strrchr(file, '/');
    TRY(page_put(page, "<code>", slash ? slash + 1 : file, ""));
    return page_format(page, ":%lld</code>", page_number(place, "line"));
}

/* --- parts --------------------------------------------------------------------------------------------------------------- */

static enum status put_card(struct buffer *page, long long value, const char *says)
{
    TRY(page_format(page, "<div class=\"card\"><b>"));
    TRY(page_count(page, value));
    TRY(page_format(page, "</b>"));
    return page_put(page, "<span>", says, "</span></div>\n");
}

static enum status put_head(struct buffer *page, const json_t *report, const char *model)
{
    size_t i;
    json_t *file;
    TRY(page_begin(page, "data", STYLE));
    TRY(page_put(page, "<h1>Data as ", *model ? model : "the model", " will see it</h1>\n<p class=\"sub\">"));
    json_array_foreach(json_object_get(report, "files"), i, file)
    {
        double weight = json_real_value(json_object_get(file, "weight"));
        TRY(page_put(page, i ? ", " : "", page_text(file, "path"), ""));
        if (weight != 1)
            TRY(page_format(page, " (times %g)", weight));
    }
    return page_format(page, "</p>\n");
}

static enum status inspect_page_put_sums(struct buffer *page, const json_t *report)
{
    const char *kind;
    json_t *value;
    long long tokens = page_number(report, "tokens"), trained = page_number(report, "trained_tokens");
    TRY(page_format(page, "<div class=\"sums\">\n"));
    TRY(put_card(page, page_number(report, "rows"), "rows"));
    TRY(put_card(page, tokens, "tokens"));
    char says[64];
    snprintf(says, sizeof says, "trained tokens (%.1f%%)", tokens ? 100.0 * (double)trained / (double)tokens : 0);
    TRY(put_card(page, trained, says));
    TRY(put_card(page, page_number(json_object_get(report, "longest"), "tokens"), "tokens in the longest row"));
    TRY(page_format(page, "</div>\n<p class=\"note\">"));
    bool first = true;
    json_object_foreach(json_object_get(report, "kinds"), kind, value)
    {
        TRY(page_format(page, "%s%lld ", first ? "Rows by kind: " : ", ", (long long)json_integer_value(value)));
        TRY(page_put(page, "", kind, ""));
        first = false;
    }
    if (json_object_get(json_object_get(report, "kinds"), "preference"))
        TRY(page_format(page, ". Of preference rows the chosen answer is trained"));
    return page_format(page, "%s</p>\n", first ? "" : ".");
}

static enum status put_verdict(struct buffer *page, const json_t *report)
{
    if (page_number(report, "bad_rows"))
        return page_format(page, "<p class=\"verdict bad\">%lld of %lld rows cannot be used</p>\n",
                           page_number(report, "bad_rows"), page_number(report, "rows"));
    if (json_object_get(report, "stops"))
        return page_put(page, "<p class=\"verdict bad\">A run would stop: ", page_text(report, "stops"), "</p>\n");
    return page_format(page, "<p class=\"verdict good\">Every row can be used</p>\n");
}

static enum status put_checks(struct buffer *page, const json_t *report)
{
    size_t i;
    json_t *check;
    TRY(page_format(page, "<h2>Checks</h2>\n<ul class=\"card\">\n"));
    json_array_foreach(json_object_get(report, "checks"), i, check)
    {
        const char *level = page_text(check, "level");
        bool fine = !strcmp(level, "ok"), error = !strcmp(level, "error");
        TRY(page_format(page, "<li><span class=\"mark %s\">%s</span>",
                        fine    ? "good"
                        : error ? "bad"
                                : "warn",
                        fine    ? "\u2713"
                        : error ? "\u2717"
                                : "!"));
        TRY(page_put(page, "", page_text(check, "check"), ""));
        if (fine) {
            TRY(page_format(page, "<span class=\"count\">none</span></li>\n"));
            continue;
        }
        const json_t *first = json_object_get(check, "first");
        long long rows = page_number(check, "rows");
        TRY(page_format(page, "<span class=\"count\">%s%lld row%s, first row %lld ",
                        json_is_true(json_object_get(check, "exact")) ? "" : "about ", rows, rows == 1 ? "" : "s",
                        page_number(first, "row")));
        TRY(put_place(page, first));
        TRY(page_put(page, "</span><p class=\"note\">", page_text(check, "advice"), "</p></li>\n"));
    }
    return page_format(page, "</ul>\n");
}

static enum status put_bad(struct buffer *page, const json_t *report)
{
    size_t i;
    json_t *row;
    const json_t *bad = json_object_get(report, "bad");
    if (!json_array_size(bad))
        return OK;
    TRY(page_format(page, "<h2>Rows that cannot be used</h2>\n<ul class=\"card\">\n"));
    json_array_foreach(bad, i, row)
    {
        if (i == BAD_MAX)
            break;
        TRY(page_format(page, "<li><span class=\"bad\">"));
        TRY(put_place(page, row));
        TRY(page_put(page, "</span> ", page_text(row, "error"), "</li>\n"));
    }
    if (page_number(report, "bad_rows") > BAD_MAX)
        TRY(page_format(page, "<li>and %lld more</li>\n", page_number(report, "bad_rows") - BAD_MAX));
    return page_format(page, "</ul>\n");
}

static enum status put_piece(void *context, const char *piece, int64_t length)
{
    struct buffer *page = context;
    bool sign = length == 3 && !memcmp(piece, "\u23ce", 3);
    if (sign)
        return page_format(page, "<i>\u23ce</i>");
    return page_escaped(page, piece, length);
}

static enum status inspect_page_put_row(struct buffer *page, const json_t *row)
{
    size_t i;
    json_t *token, *name;
    const json_t *tokens = json_object_get(row, "tokens");
    TRY(page_format(page, "<section class=\"card row\"><header><strong>Row %lld</strong> <span>", page_number(row, "row")));
    TRY(put_place(page, row));
    TRY(page_put(page, " ", page_text(row, "kind"), ""));
    TRY(page_format(page, ", %lld tokens, %lld trained</span>", page_number(row, "count"), page_number(row, "trained_tokens")));
    json_array_foreach(json_object_get(row, "found"), i, name)
        TRY(page_put(page, " <span class=\"warn\">", json_string_value(name), "</span>"));
    TRY(page_format(page, "</header>\n<div class=\"tokens\">"));
    json_array_foreach(tokens, i, token)
    {
        bool trained = json_is_true(json_object_get(token, "trained")), special = json_is_true(json_object_get(token, "special"));
        TRY(page_format(page,
                        trained || special ? "<span class=\"%s\" title=\"token %zu, id %lld%s\">"
                                           : "<span%s title=\"token %zu, id %lld%s\">",
                        trained && special ? "t s"
                        : trained          ? "t"
                        : special          ? "s"
                                           : "",
                        i, page_number(token, "id"), trained ? ", trained" : ""));
        TRY(escape_token(token, put_piece, page));
        TRY(page_format(page, "</span>"));
    }
    TRY(page_format(page, "</div>"));
    long long more = page_number(row, "count") - (long long)json_array_size(tokens);
    if (more)
        TRY(page_format(page, "<p class=\"note\">... and %lld tokens more</p>", more));
    return page_format(page, "</section>\n");
}

static enum status inspect_page_put(struct buffer *page, const json_t *report, const char *model)
{
    size_t i;
    json_t *row;
    const json_t *shown = json_object_get(report, "shown");
    TRY(put_head(page, report, model));
    TRY(inspect_page_put_sums(page, report));
    TRY(put_verdict(page, report));
    TRY(put_checks(page, report));
    TRY(put_bad(page, report));
    if (json_array_size(shown))
        TRY(page_format(page,
                        "<h2>Rows</h2>\n<p class=\"legend\"><span class=\"t\">trained</span><span>not trained</span>"
                        "<span class=\"s\">special token</span><small class=\"note\">A token's number and id appear when the "
                        "pointer rests on it.</small></p>\n"));
    json_array_foreach(shown, i, row) TRY(inspect_page_put_row(page, row));
    return page_format(page, "</main>\n</html>\n");
}

enum status inspect_page_write(const json_t *report, const char *model, const char *path)
{
    struct buffer page = {0};
    enum status status = inspect_page_put(&page, report, model);
    if (status == OK)
        status = file_replace(path, page.data, page.size);
    buffer_free(&page);
    return status;
}
