/* Matching the names in a directory. */
#include "data/split_files.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/name.h"

enum { WORDS = 5, PARTS_MAX = 4096, FOLDERS_SHOWN = 8, HASH_DIGITS = 16 };

static const struct {
    const char *split, *word[WORDS];
} SPLITS[] = {
    {"train", {"train", "training"}},
    {"valid", {"valid", "validation", "val", "dev"}},
    {"test", {"test", "testing", "eval"}},
};

static const char *const ENDINGS[] = {".jsonl",  ".jsonl.gz", ".jsonl.zst", ".json",   ".json.gz", ".json.zst", ".csv",
                                      ".csv.gz", ".csv.zst",  ".tsv",       ".tsv.gz", ".tsv.zst", ".parquet"};
enum { ENDING_COUNT = sizeof ENDINGS / sizeof *ENDINGS };

struct search {
    struct arena *arena;
    const char **paths;
    int64_t count, capacity;
};

static const char *const *words_of(const char *split)
{
    for (size_t i = 0; i < sizeof SPLITS / sizeof *SPLITS; i++)
        if (strcmp(SPLITS[i].split, split) == 0)
            return SPLITS[i].word;
    return SPLITS[0].word;
}

/* How long a name is without its ending, or -1 if it has none of those of data files. Of .jsonl and .json the longer fits. */
static int64_t stem_length(const char *name)
{
    if (*name == '.') /* macOS puts "._train.jsonl" next to train.jsonl */
        return -1;
    for (int i = 0; i < ENDING_COUNT; i++)
        if (name_ends_with(name, ENDINGS[i]))
            return (int64_t)(strlen(name) - strlen(ENDINGS[i]));
    return -1;
}

/* -00000-of-00002, and with a hash after it as older data sets of the hub have: -00000-of-00002-a09b74b3ef9c3b56 */
struct part {
    long number, of;
};

static bool split_files_read_part(const char *text, int64_t length, struct part *part)
{
    char *end;
    if (length < 6 || text[0] != '-' || text[1] < '0' || text[1] > '9')
        return false;
    part->number = strtol(text + 1, &end, 10);
    if (strncmp(end, "-of-", 4) != 0 || end[4] < '0' || end[4] > '9')
        return false;
    part->of = strtol(end + 4, &end, 10);
    if (*end == '-' && strspn(end + 1, "0123456789abcdef") == HASH_DIGITS)
        end += 1 + HASH_DIGITS;
    return end == text + length && part->of > 0 && part->of <= PARTS_MAX && part->number < part->of;
}

/* Whether a file's name is the word, or a part of it. */
static bool is_of(const char *name, const char *word, struct part *part)
{
    int64_t stem = stem_length(name), length = (int64_t)strlen(word);
    *part = (struct part){0};
    if (stem < length || strncmp(name, word, (size_t)length) != 0)
        return false;
    return stem == length || split_files_read_part(name + length, stem - length, part);
}

static enum status both(const char *one, const char *other)
{
    return other ? fail(ERR_ARGUMENT, "both %s and %s exist; name the one that is meant", one, other) : ERR_MEMORY;
}

/* What was found after the first `before` paths is found twice. */
static enum status check_one_place(const struct search *s, int64_t before)
{
    return before && s->count > before ? both(s->paths[before - 1], s->paths[before]) : OK;
}

static enum status split_files_add_path(struct search *s, const char *dir, const char *name)
{
    TRY(memory_grow(&s->paths, &s->capacity, s->count + 1, (int64_t)sizeof *s->paths));
    s->paths[s->count] = file_join(s->arena, dir, name);
    return s->paths[s->count++] ? OK : ERR_MEMORY;
}

static enum status part_missing(const char *dir, const char *word, int64_t number, long of)
{
    return fail(ERR_ARGUMENT, "%s: part %lld of the %ld of \"%s\" is not there: download it, or name the files that are meant",
                dir, (long long)number, of, word);
}

/* The files of a word in one folder: one file, or all of its parts, which are sorted by their numbers. */
static enum status add_word(struct search *s, const char *dir, const char *const *names, int64_t count, const char *word)
{
    const char *last = NULL;
    struct part part, first = {0};
    int64_t parts = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!is_of(names[i], word, &part))
            continue;
        if (!last)
            first = part;
        else if (!part.of || part.of != first.of || part.number < parts ||
                 strcmp(names[i] + stem_length(names[i]), last + stem_length(last)) != 0)
            return both(s->paths[s->count - 1], file_join(s->arena, dir, names[i]));
        if (part.of && part.number != parts)
            return part_missing(dir, word, parts, first.of);
        last = names[i];
        parts++;
        TRY(split_files_add_path(s, dir, names[i]));
    }
    return parts < first.of ? part_missing(dir, word, parts, first.of) : OK;
}

/* All data files of a folder that is called by the word. */
static enum status add_folder(struct search *s, const char *dir)
{
    const char **names;
    int64_t count;
    TRY(directory_list(s->arena, dir, &names, &count));
    for (int64_t i = 0; i < count; i++)
        if (stem_length(names[i]) >= 0 && strcmp(names[i], "dataset_info.json") != 0 && strcmp(names[i], "state.json") != 0)
            TRY(split_files_add_path(s, dir, names[i])); /* those two are what the library datasets says of its own files */
    return OK;
}

static enum status search_in(struct search *s, const char *dir, const char *const *words)
{
    const char **names;
    int64_t count;
    TRY(directory_list(s->arena, dir, &names, &count));
    for (int w = 0; w < WORDS && words[w]; w++) {
        int64_t before = s->count;
        const char *folder = file_join(s->arena, dir, words[w]);
        if (!folder)
            return ERR_MEMORY;
        TRY(add_word(s, dir, names, count, words[w]));
        TRY(check_one_place(s, before));
        before = s->count;
        if (file_is_directory(folder))
            TRY(add_folder(s, folder));
        TRY(check_one_place(s, before));
    }
    return OK;
}

static enum status split_files_search(struct search *s, const char *dir, const char *const *words)
{
    TRY(search_in(s, dir, words));
    int64_t before = s->count;
    const char *folder = file_join(s->arena, dir, "data");
    if (!folder)
        return ERR_MEMORY;
    if (file_is_directory(folder))
        TRY(search_in(s, folder, words));
    return check_one_place(s, before);
}

enum status split_find(struct arena *arena, const char *dir, const char *split, const char ***paths, int64_t *count)
{
    struct search s = {.arena = arena};
    *count = 0;
    *paths = NULL;
    enum status status = split_files_search(&s, dir, words_of(split));
    if (status == OK && s.count && !(*paths = arena_array(arena, s.count, (int64_t)sizeof **paths)))
        status = ERR_MEMORY;
    if (status == OK && s.count) {
        memcpy(*paths, s.paths, (size_t)s.count * sizeof **paths);
        *count = s.count;
    }
    memory_free(s.paths);
    return status;
}

/* Folders in it that have the split: the configurations of a data set. */
static enum status list_folders(struct arena *arena, const char *dir, const char *split, struct buffer *text)
{
    const char **names, **paths;
    int64_t count, files, shown = 0;
    TRY(directory_list(arena, dir, &names, &count));
    for (int64_t i = 0; i < count && shown < FOLDERS_SHOWN; i++) {
        const char *path = file_join(arena, dir, names[i]);
        if (!path)
            return ERR_MEMORY;
        if (names[i][0] == '.' || !file_is_directory(path) || split_find(arena, path, split, &paths, &files) != OK || !files)
            continue;
        TRY(buffer_format(text, "%s%s", shown++ ? " or " : "; folders in it have one: name ", path));
    }
    return OK;
}

enum status split_has(struct arena *arena, const char *path, const char *split, bool *has)
{
    const char **paths;
    int64_t count = 0;
    if (file_is_directory(path))
        TRY(split_find(arena, path, split, &paths, &count));
    *has = count > 0;
    return OK;
}

enum status split_missing(const char *dir, const char *split)
{
    struct arena arena = {0};
    struct buffer folders = {0};
    enum status status = list_folders(&arena, dir, split, &folders);
    if (status == OK)
        status =
            fail(ERR_IO,
                 "%s: there is no %s.jsonl in this directory (nor .json, .csv, .tsv or .parquet, in parts or packed as .gz or "
                 ".zst, there or in its folder data)%s; name the file itself if it has another name",
                 dir, split, folders.data ? folders.data : "");
    buffer_free(&folders);
    arena_free(&arena);
    return status;
}
