/* The table that a run opens with: what was used of its data, and what was not. */
#include "cli/view/data_table.h"
#include "cli/view/quantities.h"

#include <string.h>

static long long data_table_number(const json_t *report, const char *key)
{
    return (long long)json_integer_value(json_object_get(report, key));
}

static void say_kinds(const json_t *report, cli_say *say)
{
    char text[256] = "";
    size_t used = 0;
    const char *kind;
    json_t *rows;
    json_object_foreach(json_object_get(report, "kinds"), kind, rows)
    {
        int n = snprintf(text + used, sizeof text - used, ", %s %lld", kind, (long long)json_integer_value(rows));
        used += n > 0 && (size_t)n < sizeof text - used ? (size_t)n : 0;
    }
    say("  read      %lld row%s%s", data_table_number(report, "rows_read"), plural(data_table_number(report, "rows_read")), text);
    if (json_object_get(json_object_get(report, "kinds"), "preference"))
        say("            of preference rows the chosen answer is trained");
}

static void say_files(const json_t *report, cli_say *say)
{
    const json_t *files = json_object_get(report, "files"), *file;
    size_t i;
    if (json_array_size(files) < 2)
        return;
    json_array_foreach(files, i, file)
    {
        const json_t *weight = json_object_get(file, "weight");
        say("  file      %s: %lld row%s, weight %g", json_string_value(json_object_get(file, "path")),
            data_table_number(file, "rows"), plural(data_table_number(file, "rows")), weight ? json_number_value(weight) : 1.0);
    }
}

static void say_lengths(const json_t *report, cli_say *say)
{
    const json_t *longest = json_object_get(report, "longest");
    say("  longest   %lld tokens in %s:%lld; the limit is %lld", data_table_number(longest, "tokens"),
        json_string_value(json_object_get(longest, "path")), data_table_number(longest, "line"),
        data_table_number(report, "max_length"));
    if (data_table_number(report, "truncated_rows"))
        say("  truncated %lld row%s, %lld tokens lost", data_table_number(report, "truncated_rows"),
            plural(data_table_number(report, "truncated_rows")), data_table_number(report, "lost_tokens"));
    if (data_table_number(report, "split_rows"))
        say("  split     %lld row%s into %lld windows", data_table_number(report, "split_rows"),
            plural(data_table_number(report, "split_rows")), data_table_number(report, "split_windows"));
    if (data_table_number(report, "dropped_rows"))
        say("  dropped   %lld row%s, %lld tokens lost", data_table_number(report, "dropped_rows"),
            plural(data_table_number(report, "dropped_rows")), data_table_number(report, "lost_tokens"));
    if (data_table_number(report, "emptied_rows"))
        say("  left out  %lld cut rows or windows, which have no token to train", data_table_number(report, "emptied_rows"));
}

static void say_rest(const json_t *report, cli_say *say)
{
    if (data_table_number(report, "untrained_rows"))
        say("  untrained %lld row%s without a token to train", data_table_number(report, "untrained_rows"),
            plural(data_table_number(report, "untrained_rows")));
    if (data_table_number(report, "skipped_rows"))
        say("  skipped   %lld row%s, which cannot be used", data_table_number(report, "skipped_rows"),
            plural(data_table_number(report, "skipped_rows")));
}

void cli_data_table(const char *name, const json_t *report, cli_say *say)
{
    if (!json_object_get(report, "rows"))
        return;
    say("%-11s %lld row%s, %lld tokens, %lld trained; the longest row has %lld", name, data_table_number(report, "rows"),
        plural(data_table_number(report, "rows")), data_table_number(report, "tokens"),
        data_table_number(report, "trained_tokens"), data_table_number(report, "longest_row"));
    if (json_is_true(json_object_get(report, "held_back"))) {
        say("            held back from the data above");
        return;
    }
    say_kinds(report, say);
    say_files(report, say);
    say_lengths(report, say);
    say_rest(report, say);
    const json_t *packing = json_object_get(report, "packing");
    if (packing)
        say("  packed    %lld windows of %lld tokens, %.1f%% full", data_table_number(packing, "windows"),
            data_table_number(packing, "window"), 100 * json_number_value(json_object_get(packing, "full")));
    if (json_object_get(report, "eval"))
        cli_data_table("validation", json_object_get(report, "eval"), say);
}
