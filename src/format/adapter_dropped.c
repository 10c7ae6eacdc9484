/* A path that is no adapter: what it is instead, and what to name. */
#include <stdlib.h>
#include <string.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/path_hint.h"
#include "format/adapter.h"

static bool adapter_dropped_has(struct arena *arena, const char *dir, const char *name)
{
    const char *path = file_join(arena, dir, name);
    return path && file_exists(path);
}

/* The newest checkpoint in a run's output that has an adapter, or NULL; *found: there is one of any kind. */
static const char *newest_checkpoint(struct arena *arena, const char *dir, bool *found)
{
    static const char begins[] = "checkpoint-";
    const char **names, *best = NULL;
    int64_t count;
    long step = -1;
    if (directory_list(arena, dir, &names, &count) != OK)
        return NULL;
    for (int64_t i = 0; i < count; i++) {
        if (strncmp(names[i], begins, strlen(begins)) != 0)
            continue;
        const char *path = file_join(arena, dir, names[i]);
        long n = atol(names[i] + strlen(begins));
        *found = true;
        if (path && n > step && adapter_dropped_has(arena, path, ADAPTER_CONFIG)) {
            best = path;
            step = n;
        }
    }
    return best;
}

enum status adapter_lost(struct arena *arena, const char *path)
{
    static const char wanted[] = "name a folder with adapter_config.json and adapter_model.safetensors";
    bool run = false;
    if (!file_exists(path))
        return fail(ERR_IO, "%s: no adapter there: %s; %s", path, path_hint(arena, path, "directory"), wanted);
    if (!file_is_directory(path))
        return fail(ERR_IO, "%s: no adapter there but a file; %s, as the folder that this file is in may be", path, wanted);
    if (adapter_dropped_has(arena, path, "config.json"))
        return fail(ERR_ARGUMENT,
                    "%s: no adapter there but a model, which needs none: give only --model; hone inspect model --model %s "
                    "describes it",
                    path, path);
    const char *checkpoint = newest_checkpoint(arena, path, &run);
    if (checkpoint)
        return fail(
            ERR_IO,
            "%s: no adapter there: its run has not ended. Give the command of the run again to finish it, or name its newest "
            "checkpoint: --adapter %s",
            path, checkpoint);
    if (run || adapter_dropped_has(arena, path, "metrics.jsonl"))
        return fail(ERR_IO, "%s: no adapter there: its run has not ended. Give the command of the run again to finish it", path);
    return fail(ERR_IO, "%s: no adapter there; %s", path, wanted);
}

enum status fail_no_adapter_weights(struct arena *arena, const char *dir)
{
    if (adapter_dropped_has(arena, dir, "adapter_model.bin"))
        return fail(
            ERR_IO,
            "%s: has adapter_model.bin, but no adapter_model.safetensors, which hone reads: PEFT writes it with save_pretrained",
            dir);
    return fail(ERR_IO, "%s: has adapter_config.json, but no adapter_model.safetensors: copy or download that too", dir);
}
