/* Writing and comparing checksums. Whole files are read, not mapped: a sector that cannot be read is an error then, not a signal.
 */
#include "base/checksums.h"

#include <string.h>

#include "base/directory.h"
#include "base/reader.h"

#define LIST_FILE "checksums.xxh128"

enum { LIST_BYTES_MAX = 1 << 20, PIECE = 64 << 10, CHUNK = 256 << 10, DIGITS = HASH_TEXT - 1, NAME_AT = DIGITS + 2 };

void checksums_add(struct hash *hash, const struct file_map *map, int64_t offset, int64_t bytes)
{
    for (int64_t at = 0; at < bytes; at += PIECE) {
        int64_t some = bytes - at < PIECE ? bytes - at : PIECE;
        hash_add(hash, map->data + offset + at, some);
        int64_t back = at ? PIECE : 0; /* the page that this piece shares with the one before */
        file_map_drop(map, offset + at - back, some + back);
    }
}

bool checksums_is_list(const char *name)
{
    return !strcmp(name, LIST_FILE);
}

enum status checksums_digest(const char *path, struct digest *digest)
{
    struct reader reader;
    struct hash hash;
    int64_t got = CHUNK;
    hash_init(&hash);
    TRY(file_check_holes(path));
    TRY(reader_open(&reader, path));
    char *chunk = memory_alloc(CHUNK);
    enum status status = chunk ? OK : ERR_MEMORY;
    while (status == OK && got == CHUNK) {
        status = reader_read(&reader, chunk, CHUNK, &got);
        if (status == OK)
            hash_add(&hash, chunk, got);
    }
    memory_free(chunk);
    reader_close(&reader);
    *digest = hash_end(&hash);
    return status;
}

enum status checksums_file(const char *path, char text[HASH_TEXT])
{
    struct digest digest;
    TRY(checksums_digest(path, &digest));
    digest_text(digest, text);
    return OK;
}

static enum status checksums_list_files(struct arena *arena, const char *dir, struct buffer *list)
{
    const char **names;
    int64_t count;
    TRY(directory_list(arena, dir, &names, &count));
    for (int64_t i = 0; i < count; i++) {
        char text[HASH_TEXT];
        const char *path = file_join(arena, dir, names[i]);
        if (!path)
            return ERR_MEMORY;
        if (checksums_is_list(names[i]))
            continue;
        TRY(checksums_file(path, text));
        TRY(buffer_format(list, "%s  %s\n", text, names[i]));
    }
    return OK;
}

enum status checksums_write(const char *dir)
{
    struct arena arena = {0};
    struct buffer list = {0};
    const char *path = file_join(&arena, dir, LIST_FILE);
    enum status status = path ? checksums_list_files(&arena, dir, &list) : ERR_MEMORY;
    if (status == OK)
        status = file_replace(path, list.data ? list.data : "", list.size);
    buffer_free(&list);
    arena_free(&arena);
    return status;
}

bool checksums_there(const char *dir)
{
    struct arena arena = {0};
    const char *path = file_join(&arena, dir, LIST_FILE);
    bool there = path && file_exists(path);
    arena_free(&arena);
    return there;
}

enum status checksums_read(struct buffer *list, const char *dir)
{
    struct arena arena = {0};
    const char *path = file_join(&arena, dir, LIST_FILE);
    enum status status = path ? file_read(list, path, LIST_BYTES_MAX) : ERR_MEMORY;
    arena_free(&arena);
    return status;
}

bool checksums_next(const struct buffer *list, const char **line, const char **name, int64_t *size)
{
    const char *from = *line ? strchr(*line, '\n') + 1 : list->size ? list->data : "", *end = strchr(from, '\n');
    for (; end && end - from <= NAME_AT; end = strchr(from, '\n'))
        from = end + 1;
    if (!end)
        return false;
    *line = from;
    *name = from + NAME_AT;
    *size = end - *name;
    return true;
}

const char *checksums_line(const struct buffer *list, const char *name)
{
    const char *line = NULL, *at;
    int64_t size, wanted = (int64_t)strlen(name);
    while (checksums_next(list, &line, &at, &size))
        if (size == wanted && !memcmp(at, name, (size_t)size))
            return line;
    return NULL;
}

/* Compares the file of one line, which is cut into its parts. Names ascend: a list that names a large file many times would take
 * hours to compare. */
static enum status check_line(struct arena *arena, const char *dir, const char *list, char *line, const char **name)
{
    char text[HASH_TEXT];
    if (strspn(line, "0123456789abcdef") != DIGITS || strncmp(line + DIGITS, "  ", 2) != 0 || strchr(line, '/'))
        return fail(ERR_FORMAT, "%s: is damaged: one of its lines is not a checksum and a name", list);
    if (strcmp(line + NAME_AT, *name) <= 0)
        return fail(ERR_FORMAT, "%s: is damaged: its names are not in order, or one is there twice", list);
    line[DIGITS] = 0;
    *name = line + NAME_AT;
    const char *path = file_join(arena, dir, *name);
    if (!path)
        return ERR_MEMORY;
    if (file_is_missing(path))
        return fail(ERR_FORMAT, "%s: is missing, but " LIST_FILE " names it", path);
    TRY(checksums_file(path, text));
    return !strcmp(text, line) ? OK : fail(ERR_FORMAT, "%s: is damaged: its bytes are not those that were written", path);
}

static enum status check_lines(struct arena *arena, const char *dir, const char *path, struct buffer *list)
{
    if (list->size == 0 || list->data[list->size - 1] != '\n' || (int64_t)strlen(list->data) != list->size)
        return fail(ERR_FORMAT, "%s: is damaged: it does not end with a whole line", path);
    const char *name = "";
    for (char *line = list->data, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        *end = 0;
        TRY(check_line(arena, dir, path, line, &name));
    }
    return OK;
}

enum status checksums_check(const char *dir)
{
    struct arena arena = {0};
    struct buffer list = {0};
    const char *path = file_join(&arena, dir, LIST_FILE);
    enum status status = !path ? ERR_MEMORY
                         : file_is_missing(path)
                             ? fail(ERR_FORMAT, "%s: is missing: nothing tells whether the files next to it are whole", path)
                             : file_read(&list, path, LIST_BYTES_MAX);
    if (status == OK)
        status = check_lines(&arena, dir, path, &list);
    buffer_free(&list);
    arena_free(&arena);
    return status;
}
