/* Comparing what a folder has with the list next to it. */
#include "models/verify_files.h"

#include <string.h>

#include "base/checksums.h"
#include "base/directory.h"
#include "base/name.h"

#define LIST_FILE "checksums.xxh128"
#define INSTEAD "take the checkpoint before it, or copy the folder again; if it was changed on purpose, remove " LIST_FILE

static bool is_state(const char *name)
{
    return !strcmp(name, "state.safetensors") || !strcmp(name, "trainer_state.json");
}

static enum status verify_files_compare(struct arena *arena, const char *dir, const char *name, const struct buffer *list)
{
    char text[HASH_TEXT];
    const char *path = file_join(arena, dir, name), *line = checksums_line(list, name);
    if (!path)
        return ERR_MEMORY;
    if (!line && name_ends_with(name, ".safetensors"))
        return fail(ERR_FORMAT, "%s: " LIST_FILE " next to it does not name it: one of the two is damaged; " INSTEAD, path);
    if (!line) /* it came later, as a chat template may */
        return OK;
    TRY(checksums_file(path, text));
    return !memcmp(line, text, HASH_TEXT - 1)
               ? OK
               : fail(ERR_FORMAT, "%s: is damaged: its bytes are not those that were written; " INSTEAD, path);
}

/* All that the list names is there, as a model without its chat template is another one. A text for readers may go. */
static enum status find_all(struct arena *arena, const char *dir, const struct buffer *list)
{
    const char *line = NULL, *named;
    int64_t size;
    while (checksums_next(list, &line, &named, &size)) {
        const char *name = arena_text(arena, named, size), *path = name ? file_join(arena, dir, name) : NULL;
        if (!path)
            return ERR_MEMORY;
        if (!is_state(name) && !name_ends_with(name, ".md") && file_is_missing(path))
            return fail(ERR_FORMAT, "%s: is missing, but " LIST_FILE " names it; " INSTEAD, path);
    }
    return OK;
}

static enum status verify_files_compare_all(struct arena *arena, const char *dir, struct buffer *list)
{
    const char **names, *path = file_join(arena, dir, LIST_FILE);
    int64_t count;
    if (!path)
        return ERR_MEMORY;
    if (!file_exists(path))
        return OK;
    TRY(checksums_read(list, dir));
    TRY(directory_list(arena, dir, &names, &count));
    for (int64_t i = 0; i < count; i++)
        if (!is_state(names[i]) && !checksums_is_list(names[i]))
            TRY(verify_files_compare(arena, dir, names[i], list));
    return find_all(arena, dir, list);
}

enum status verify_files_check(const char *dir)
{
    struct arena arena = {0};
    struct buffer list = {0};
    enum status status = dir ? verify_files_compare_all(&arena, dir, &list) : OK;
    buffer_free(&list);
    arena_free(&arena);
    return status;
}
