/* Looking at a directory that may be a checkpoint. */
#include "format/checkpoint_dir.h"

#include <stdio.h>
#include <string.h>

#include "base/checksums.h"
#include "base/file.h"

enum status checkpoint_dir_find(struct arena *arena, const char *dir, const char **path)
{
    *path = file_join(arena, dir, CHECKPOINT_STATE);
    if (!*path)
        return ERR_MEMORY;
    if (file_exists(*path))
        return OK;
    return fail(ERR_IO,
                "%s is not a checkpoint: it has no " CHECKPOINT_STATE "; --resume takes auto, none, or a folder checkpoint-N",
                dir);
}

const char *checkpoint_dir_run(const json_t *tree)
{
    const char *id = json_string_value(json_object_get(tree, CHECKPOINT_RUN));
    return id && strlen(id) == RUN_ID_SIZE - 1 ? id : NULL;
}

enum status checkpoint_dir_read(const char *dir, json_t **state)
{
    struct arena arena = {0};
    const char *path;
    *state = NULL;
    enum status status = checkpoint_dir_find(&arena, dir, &path);
    if (status == OK)
        status = json_parse_file(state, path, CHECKPOINT_STATE_BYTES_MAX);
    arena_free(&arena);
    return status;
}

enum checkpoint_kind checkpoint_dir_kind(const char *dir, char run[RUN_ID_SIZE])
{
    struct arena arena = {0};
    const char *path;
    json_t *tree = NULL;
    bool place = checkpoint_dir_find(&arena, dir, &path) == OK,
         parsed = place && json_parse_file(&tree, path, CHECKPOINT_STATE_BYTES_MAX) == OK;
    bool known = checkpoint_dir_run(tree) != NULL;
    snprintf(run, RUN_ID_SIZE, "%s", known ? checkpoint_dir_run(tree) : "");
    bool listed = checksums_there(dir);
    json_decref(tree);
    arena_free(&arena);
    if (known && listed)
        return CHECKPOINT_OF_RUN;
    return listed || known || (place && !parsed) ? CHECKPOINT_DAMAGED : CHECKPOINT_FOREIGN;
}

enum status checkpoint_dir_check_above(struct arena *arena, const char *output)
{
    char run[RUN_ID_SIZE], *slash, *there = arena_text(arena, output, (int64_t)strlen(output));
    while (there && !file_exists(there) && (slash = strrchr(there, '/')) && slash != there)
        *slash = 0;
    const char *dir = !there || file_exists(there) ? there : *there == '/' ? "/" : ".";
    for (const char *above; dir; dir = above) {
        if (checkpoint_dir_kind(dir, run) == CHECKPOINT_OF_RUN)
            return fail(ERR_ARGUMENT, "--output %s is in a checkpoint, and would be removed with it: name another one", output);
        above = file_join(arena, dir, "..");
        if (above && (file_same(above, dir) || !file_exists(above)))
            return OK;
    }
    return ERR_MEMORY;
}
