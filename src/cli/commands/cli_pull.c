/* hone pull: progress while it downloads, then where the model is and how to use it. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/signals.h"
#include "cli/view/out.h"
#include "cli/view/progress.h"

enum { MEGABYTE = 1000000 };

/* The speed is that of this process: what was here before does not count. */
struct download {
    double start;
    int64_t begun; /* bytes that were done at the first report; -1 before it */
};

static int pull_show(void *context, const char *file, int64_t done, int64_t bytes)
{
    struct download *d = context;
    (void)file;
    double seconds = clock_seconds() - d->start;
    if (d->begun < 0 && bytes)
        d->begun = done;
    if (bytes && seconds > 1 && progress_due(seconds)) { /* of what takes no second nothing is said */
        double speed = (double)(done - d->begun) / seconds;
        struct screen screen = {.what = "MB",
                                .done = done / MEGABYTE,
                                .total = bytes / MEGABYTE,
                                .epoch = NAN,
                                .loss = NAN,
                                .eval_loss = NAN,
                                .seconds = seconds,
                                .left = speed > 0 ? (double)(bytes - done) / speed : NAN,
                                .activity = "downloading"};
        progress_tell(&screen);
    }
    return signals_stopped();
}

static int pull_asked_to_stop(void *context)
{
    (void)context;
    return signals_stopped();
}

static void pull_print_report(const json_t *report, bool in_cache)
{
    char bytes[32], new[32];
    const char *path = json_string_value(json_object_get(report, "path"));
    const char *model = json_string_value(json_object_get(report, "model"));
    bool main = !strcmp(json_string_value(json_object_get(report, "revision")), "main");
    bool dry = json_is_true(json_object_get(report, "dry_run"));
    out_print("model       %s, commit %.12s: %zu files, %s, of which %s %s\n", model,
              json_string_value(json_object_get(report, "commit")), json_array_size(json_object_get(report, "files")),
              cli_bytes(bytes, json_number_value(json_object_get(report, "bytes"))),
              cli_bytes(new, json_number_value(json_object_get(report, dry ? "missing_bytes" : "downloaded_bytes"))),
              dry ? "would be downloaded" : "were downloaded");
    out_print("path        %s\n", path);
    if (dry) {
        size_t i;
        const json_t *file;
        json_array_foreach(json_object_get(report, "files"), i, file)
            out_print("  %-12s %s\n", cli_bytes(bytes, json_number_value(json_object_get(file, "bytes"))),
                      json_string_value(json_object_get(file, "name")));
        out_print("dry run     nothing was downloaded or written; without --dry-run the same command begins\n");
        return;
    }
    out_print("next        hone init --model ");
    out_word(in_cache && main ? model : path);
    out_print(" --data FILE\n");
}

hone_status cli_pull(hone_options *options)
{
    struct download download = {clock_seconds(), -1};
    char *json = NULL;
    json_t *report = NULL;
    const char *output;
    hone_status status = signals_watch();
    if (status == HONE_OK)
        status = hone_options_get(options, "output", &output);
    if (status != HONE_OK)
        return status;
    signals_survive();
    signals_stop("stopping; what was downloaded stays, and the same command goes on from there", "ended at once");
    hone_set_stop(pull_asked_to_stop, NULL);
    status = hone_pull(options, pull_show, &download, &json);
    progress_clear();
    if (status == HONE_OK && cli_flag(options, "json"))
        out_json(json);
    else if (status == HONE_OK)
        status = (hone_status)json_parse(&report, json, (int64_t)strlen(json), "report");
    if (report)
        pull_print_report(report, !*output);
    json_decref(report);
    hone_text_destroy(json);
    return status;
}
