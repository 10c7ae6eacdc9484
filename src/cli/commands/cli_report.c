/* hone report: a page about a run, from the files in its output directory. */
#include <string.h>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/report/report_page.h"
#include "cli/view/out.h"
#include "cli/view/summary.h"

static bool is_page(const char *path)
{
    const char *dot = strrchr(cli_base_name(path), '.');
    return dot && (!strcasecmp(dot, ".html") || !strcasecmp(dot, ".htm"));
}

static enum status report_write(hone_options *options, const char *dir, const char *output, struct arena *arena)
{
    struct history h;
    const char *path = *output ? output : file_join(arena, dir, "report.html");
    if (!path)
        return ERR_MEMORY;
    if (*output && !file_is_directory(output) && !is_page(output))
        return fail(ERR_ARGUMENT,
                    "--output %s: the report is a page of HTML, and its name ends in .html: give one that does, or a directory "
                    "that is there",
                    output);
    if (file_is_directory(path))
        path = file_join(arena, path, "report.html");
    TRY(path ? OK : ERR_MEMORY);
    TRY(history_open(&h, dir));
    enum status status = report_page_write(&h, path);
    json_t *tree = status == OK && cli_flag(options, "json") ? summary_json(&h) : NULL;
    history_close(&h);
    if (tree) {
        json_object_set_new(tree, "page", json_string(path));
        return (enum status)cli_print_json(tree);
    }
    if (status == OK)
        out_print("%s\n", path);
    return status;
}

hone_status cli_report_run(hone_options *options)
{
    const char *dir, *output;
    struct arena arena = {0};
    hone_status status = hone_options_get(options, "run_dir", &dir);
    if (status == HONE_OK)
        status = hone_options_get(options, "output", &output);
    if (status == HONE_OK && !*dir)
        status =
            (hone_status)fail(ERR_ARGUMENT, "hone report needs the directory of a run: hone report OUT, where OUT is what hone "
                                            "train was given as --output");
    if (status == HONE_OK)
        status = (hone_status)report_write(options, dir, output, &arena);
    arena_free(&arena);
    return status;
}
