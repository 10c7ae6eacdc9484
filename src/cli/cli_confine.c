/* --confine: a helper keeps what the run gives up, and the library does the rest. */
#include <stdlib.h>
#include <string.h>

#include "base/directory.h"
#include "base/json.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/helper.h"
#include "cli/signals.h"

static const char *option(hone_options *options, const char *key)
{
    const char *value;
    return hone_options_get(options, key, &value) == HONE_OK && *value ? value : NULL;
}

static hone_status start_helper(hone_options *options, bool temporary, struct arena *arena)
{
    const char *folder = NULL, *command = option(options, "on_finish");
    if (temporary && directory_make_temporary(arena, &folder) != OK)
        folder = NULL;
    const char *output = option(options, "output");
    const struct helper_work work = {folder, command, output ? arena_format(arena, "HONE_OUTPUT=%s", output) : NULL};
    enum status status = helper_start(&work);
    if (status == OK && folder)
        setenv("TMPDIR", folder, 1); /* now, for the command of --on-finish has that of the user */
    return (hone_status)status;
}

/* What was made for the command goes again if it turns out to be of no use. */
static void note_made(const char *report)
{
    json_t *tree = NULL, *path;
    size_t i;
    if (!report || json_parse(&tree, report, (int64_t)strlen(report), "report") != OK)
        return;
    json_array_foreach(json_object_get(tree, "made"), i, path) helper_remove_empty(json_string_value(path));
    json_decref(tree);
}

hone_status cli_confine(hone_options *options, int uses)
{
    struct arena arena = {0};
    char *report = NULL;
    const char *asked = option(options, "confine");
    bool alone = hone_ranks() == 1; /* files of ranks are not kept back */
    if (asked && !strcmp(asked, "off"))
        return HONE_OK;
    bool helped = option(options, "on_finish") ? hone_rank() == 0 : alone && (uses & CLI_TEMPORARY || option(options, "output"));
    hone_status status = helped ? start_helper(options, alone && uses & CLI_TEMPORARY, &arena) : HONE_OK;
    if (status == HONE_OK)
        status = hone_confine(options, signals_tell_refusal, &report);
    note_made(report);
    hone_text_destroy(report);
    arena_free(&arena);
    return status;
}
