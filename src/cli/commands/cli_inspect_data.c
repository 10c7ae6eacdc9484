/* hone inspect data: a data set as the model will see it, on a terminal in colour, elsewhere with marks. */
#include <string.h>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/report/inspect_page.h"
#include "cli/view/escape.h"
#include "cli/view/out.h"

enum { TOKENS_MAX = 600, BAD_MAX = 10, WIDTH = 100 };

/* Text and background are both set, so that a terminal's own colours do not matter. Neighbouring tokens differ in shade. */
static const char *const SHADES[2][2] = {{"\033[0;38;5;250;48;5;236m", "\033[0;38;5;250;48;5;239m"}, /* not trained */
                                         {"\033[0;38;5;255;48;5;22m", "\033[0;38;5;255;48;5;28m"}};  /* trained */
static const char *const SPECIALS[2][2] = {{"\033[0;38;5;222;48;5;236m", "\033[0;38;5;222;48;5;239m"},
                                           {"\033[0;1;38;5;229;48;5;22m", "\033[0;1;38;5;229;48;5;28m"}};
static const char RESET[] = "\033[0m";

static bool inspect_data_is(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

static long long inspect_data_number(const json_t *object, const char *key)
{
    return (long long)json_integer_value(json_object_get(object, key));
}

static const char *inspect_data_text(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value ? value : "";
}

static void paint(bool colour, const char *code)
{
    if (colour)
        out_paint(stdout, code);
}

static void print_painted(bool colour, const char *code, const char *words)
{
    paint(colour, code);
    out_print("%s", words);
    paint(colour, RESET);
}

/* --- tokens -------------------------------------------------------------------------------------------------------------- */

struct pen {
    bool colour, fresh; /* fresh: at the beginning of a line */
    const char *shade;  /* of the token that is being printed */
};

static void newline(const struct pen *pen)
{
    paint(pen->colour, RESET);
    out_print("\n");
    paint(pen->colour, pen->shade);
}

static enum status print_piece(void *context, const char *piece, int64_t length)
{
    struct pen *pen = context;
    pen->fresh = length == 1 && piece[0] == '\n';
    if (pen->fresh)
        newline(pen);
    else
        out_raw(stdout, piece, (size_t)length); /* escape_token made it */
    return OK;
}

static void inspect_data_print_text(const json_t *tokens, bool colour, size_t max, long long count)
{
    struct pen pen = {.colour = colour, .fresh = true, .shade = ""};
    size_t i;
    bool before = false;
    json_t *token;
    json_array_foreach(tokens, i, token)
    {
        if (i == max)
            break;
        bool trained = inspect_data_is(token, "trained"), special = inspect_data_is(token, "special");
        pen.shade = (special ? SPECIALS : SHADES)[trained][i % 2];
        paint(colour, pen.shade);
        if (!colour)
            out_print("%s", trained && !before ? "\u27e6" : before && !trained ? "\u27e7" : pen.fresh ? "" : "\u2502");
        escape_token(token, print_piece, &pen);
        before = trained;
    }
    paint(colour, RESET);
    out_print("%s", !colour && before ? "\u27e7" : "");
    if (!pen.fresh || (!colour && before))
        out_print("\n");
    long long more = count - (long long)(json_array_size(tokens) < max ? json_array_size(tokens) : max);
    if (more)
        out_print("... and %lld token%s more\n", more, plural(more));
}

static enum status print_cell(void *context, const char *piece, int64_t length)
{
    (void)context;
    if (length != 1 || piece[0] != '\n')
        out_raw(stdout, piece, (size_t)length);
    return OK;
}

static void print_table(const json_t *tokens, bool colour)
{
    size_t i;
    json_t *token;
    out_print("\n%6s %8s  %-7s  %s\n", "token", "id", "trained", "text");
    json_array_foreach(tokens, i, token)
    {
        bool trained = inspect_data_is(token, "trained");
        out_print("%6zu %8lld  %-7s  ", i, inspect_data_number(token, "id"), trained ? "yes" : "");
        paint(colour, (inspect_data_is(token, "special") ? SPECIALS : SHADES)[trained][0]);
        escape_token(token, print_cell, NULL);
        paint(colour, RESET);
        out_print("\n");
    }
}

static void print_row(const json_t *row, bool colour, bool alone)
{
    const json_t *tokens = json_object_get(row, "tokens"), *found = json_object_get(row, "found"), *name;
    size_t i;
    out_print("\n");
    paint(colour, "\033[1m");
    out_print("row %lld", inspect_data_number(row, "row"));
    paint(colour, RESET);
    out_print("  %s:%lld  %s, %lld token%s, %lld trained", cli_base_name(inspect_data_text(row, "file")),
              inspect_data_number(row, "line"), inspect_data_text(row, "kind"), inspect_data_number(row, "count"),
              plural(inspect_data_number(row, "count")), inspect_data_number(row, "trained_tokens"));
    json_array_foreach(found, i, name)
    {
        out_print(", ");
        print_painted(colour, "\033[33m", json_string_value(name));
    }
    out_print("\n");
    inspect_data_print_text(tokens, colour, alone ? json_array_size(tokens) : TOKENS_MAX, inspect_data_number(row, "count"));
    if (alone)
        print_table(tokens, colour);
}

/* --- the summary --------------------------------------------------------------------------------------------------------- */

static void print_sums(const json_t *report)
{
    size_t i;
    const char *kind;
    json_t *value;
    const json_t *longest = json_object_get(report, "longest");
    double tokens = (double)inspect_data_number(report, "tokens"),
           trained = (double)inspect_data_number(report, "trained_tokens");
    json_array_foreach(json_object_get(report, "files"), i, value)
    {
        double weight = json_real_value(json_object_get(value, "weight"));
        out_print("%-12s%s", i ? "" : "data", inspect_data_text(value, "path"));
        out_print(weight != 1 ? "  times %g\n" : "\n", weight);
    }
    out_print("%-12s%lld", "rows", inspect_data_number(report, "rows"));
    const char *between = ": ";
    json_object_foreach(json_object_get(report, "kinds"), kind, value)
    {
        out_print("%s%lld %s", between, (long long)json_integer_value(value), kind);
        between = ", ";
    }
    if (inspect_data_number(report, "bad_rows"))
        out_print("%s%lld that cannot be used", between, inspect_data_number(report, "bad_rows"));
    out_print("\n");
    if (json_integer_value(json_object_get(json_object_get(report, "kinds"), "preference")))
        out_print("%-12sof preference rows the chosen answer is trained\n", "");
    out_print("%-12s%.0f, %.0f of them trained (%.1f%%)", "tokens", tokens, trained, tokens > 0 ? 100 * trained / tokens : 0);
    if (json_is_object(longest))
        out_print("; the longest row has %lld (row %lld)", inspect_data_number(longest, "tokens"),
                  inspect_data_number(longest, "row"));
    out_print("\n");
}

static void inspect_data_print_wrapped(const char *words, int indent)
{
    int column = indent;
    out_print("%*s", indent, "");
    for (bool first = true; *words; first = false) {
        int n = (int)strcspn(words, " ");
        bool wrap = !first && column + 1 + n > WIDTH;
        column = wrap ? indent + n : column + n + !first;
        out_print(wrap ? "\n%*s%.*s" : "%*s%.*s", wrap ? indent : !first, "", n, words);
        words += n + (words[n] == ' ');
    }
    out_print("\n");
}

static void print_checks(const json_t *report, bool colour)
{
    size_t i;
    json_t *check;
    json_array_foreach(json_object_get(report, "checks"), i, check)
    {
        const char *level = inspect_data_text(check, "level");
        bool fine = !strcmp(level, "ok"), error = !strcmp(level, "error");
        const char *code = fine ? "\033[32m" : error ? "\033[1;31m" : "\033[33m";
        out_print("%-12s", i ? "" : "checks");
        print_painted(colour, code, fine ? "\u2713" : error ? "\u2717" : "!");
        out_print("  %-25s ", inspect_data_text(check, "check"));
        if (fine) {
            out_print("none\n");
            continue;
        }
        const json_t *first = json_object_get(check, "first");
        long long rows = inspect_data_number(check, "rows");
        out_print("%s%lld row%s, the first is row %lld (%s:%lld)\n", inspect_data_is(check, "exact") ? "" : "about ", rows,
                  rows == 1 ? "" : "s", inspect_data_number(first, "row"), cli_base_name(inspect_data_text(first, "file")),
                  inspect_data_number(first, "line"));
        inspect_data_print_wrapped(inspect_data_text(check, "advice"), 15);
    }
}

static void print_bad(const json_t *report, bool colour)
{
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(report, "bad"), i, row)
    {
        if (i == BAD_MAX) {
            out_print("%-12s... and %lld more\n", "", inspect_data_number(report, "bad_rows") - BAD_MAX);
            return;
        }
        out_print("%-12s", i ? "" : "bad rows");
        paint(colour, "\033[31m");
        out_print("%s:%lld", cli_base_name(inspect_data_text(row, "file")), inspect_data_number(row, "line"));
        paint(colour, RESET);
        out_print(": %s\n", inspect_data_text(row, "error"));
    }
}

static void print_legend(bool colour)
{
    out_print(colour ? "\n" : "\n\u27e6trained\u27e7, \u2502 between tokens\n");
    if (!colour)
        return;
    print_painted(true, SHADES[1][0], " trained ");
    out_print(" ");
    print_painted(true, SHADES[0][0], " not trained ");
    out_print(" ");
    print_painted(true, SPECIALS[0][0], " special ");
    out_print("\n");
}

static void inspect_data_print_report(const json_t *report, bool colour, bool alone)
{
    size_t i;
    json_t *row;
    if (!alone) {
        print_sums(report);
        print_checks(report, colour);
    }
    print_bad(report, colour);
    if (json_array_size(json_object_get(report, "shown")))
        print_legend(colour);
    json_array_foreach(json_object_get(report, "shown"), i, row) print_row(row, colour, alone);
}

/* The report is complete, but what it says may be an error. */
static enum status inspect_data_verdict(const json_t *report)
{
    const json_t *bad = json_array_get(json_object_get(report, "bad"), 0);
    if (bad && inspect_data_number(report, "bad_rows") > 1)
        return fail(ERR_DATA, "%lld of %lld rows cannot be used, the first of them at %s:%lld: %s",
                    inspect_data_number(report, "bad_rows"), inspect_data_number(report, "rows"), inspect_data_text(bad, "file"),
                    inspect_data_number(bad, "line"), inspect_data_text(bad, "error"));
    if (bad)
        return fail(ERR_DATA, "%s:%lld: %s", inspect_data_text(bad, "file"), inspect_data_number(bad, "line"),
                    inspect_data_text(bad, "error"));
    return json_object_get(report, "stops") ? fail(ERR_DATA, "the data would stop a run: %s", inspect_data_text(report, "stops"))
                                            : OK;
}

hone_status cli_inspect_data(hone_options *options)
{
    char *json = NULL;
    const char *page, *row, *model;
    json_t *report = NULL;
    hone_status status = cli_no_directory(options);
    if (status == HONE_OK)
        status = hone_options_get(options, "html", &page);
    if (status == HONE_OK)
        status = hone_options_get(options, "row", &row);
    if (status == HONE_OK)
        status = hone_options_get(options, "model", &model);
    if (status == HONE_OK)
        status = hone_inspect_data(options, &json);
    if (status != HONE_OK)
        return status;
    if (cli_flag(options, "json"))
        out_json(json);
    enum status done = json_parse(&report, json, (int64_t)strlen(json), "report");
    if (done == OK && !cli_flag(options, "json"))
        inspect_data_print_report(report, cli_colour(stdout), strcmp(row, "0") != 0);
    if (done == OK && *page)
        done = inspect_page_write(report, cli_base_name(model), page);
    if (done == OK && *page && !cli_flag(options, "json"))
        out_print("page: %s\n", page);
    if (done == OK)
        done = inspect_data_verdict(report);
    json_decref(report);
    hone_text_destroy(json);
    return (hone_status)done;
}
