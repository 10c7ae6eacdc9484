/* A path that is no model: what it is instead, and what to name. */
#include <string.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/path_hint.h"
#include "base/reader.h"
#include "commands/named_model.h"
#include "format/gguf.h"

static const char wanted[] = "--model names a folder with config.json, tokenizer.json and *.safetensors on this machine, or a "
                             "file whose name ends in .gguf";

static bool model_hint_has(struct arena *arena, const char *dir, const char *name)
{
    const char *path = file_join(arena, dir, name);
    return path && file_exists(path);
}

static enum status fail_file(struct arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/'), *dir = slash && slash > path ? arena_text(arena, path, slash - path) : ".";
    bool in_model = dir && model_hint_has(arena, dir, "config.json");
    struct reader reader;
    char magic[4] = "";
    int64_t got = 0;
    if (reader_open(&reader, path) == OK) {
        if (reader_read(&reader, magic, sizeof magic, &got) != OK)
            got = 0;
        reader_close(&reader);
    }
    if (got == sizeof magic && memcmp(magic, "GGUF", sizeof magic) == 0)
        return fail(ERR_IO, "%s: a GGUF file whose name does not end in .gguf: rename it", path);
    if (in_model)
        return fail(ERR_IO, "%s: a file, not a directory: name the one that it is in: --model %s", path, dir);
    return fail(ERR_IO, "%s: a file, not a directory; %s", path, wanted);
}

/* The first entry whose name ends so, or that is a directory with such a file; NULL if there is none. */
static const char *find_entry(struct arena *arena, const char *dir, const char *end, const char *inside)
{
    const char **names;
    int64_t count;
    if (directory_list(arena, dir, &names, &count) != OK)
        return NULL;
    for (int64_t i = 0; i < count; i++) {
        size_t length = strlen(names[i]);
        const char *path = file_join(arena, dir, names[i]);
        if (path && (end ? length > strlen(end) && strcmp(names[i] + length - strlen(end), end) == 0
                         : model_hint_has(arena, path, inside)))
            return path;
    }
    return NULL;
}

static enum status fail_directory(struct arena *arena, const char *dir, enum user_command command)
{
    const char **names, *found;
    int64_t count;
    TRY(directory_list(arena, dir, &names, &count)); /* one that may not be read says so */
    if (model_hint_has(arena, dir, "adapter_config.json"))
        return fail(ERR_ARGUMENT,
                    "%s: an adapter, not a model: name it with --%sadapter, and with --model the model it was made for", dir,
                    options_has(command, OPTION_init_adapter) ? "init-" : "");
    if (count == 0)
        return fail(ERR_IO, "%s: an empty directory; %s", dir, wanted);
    if ((found = find_entry(arena, dir, ".gguf", NULL)))
        return fail(ERR_IO, "%s: has no config.json, but a GGUF file: --model %s", dir, found);
    if (model_hint_has(arena, dir, "metrics.jsonl") || find_entry(arena, dir, NULL, "trainer_state.json"))
        return fail(ERR_IO,
                    "%s: the output of a run that has not ended, not a model: give the command of the run again to finish it",
                    dir);
    if (model_hint_has(arena, dir, "model_index.json"))
        return fail(ERR_UNSUPPORTED, "%s: a model of images, by its model_index.json; hone trains language models", dir);
    if (model_hint_has(arena, dir, "params.json"))
        return fail(
            ERR_UNSUPPORTED,
            "%s: has params.json, a layout of its makers; hone reads that of Hugging Face, with config.json: download that", dir);
    const char *snapshots = file_join(arena, dir, "snapshots");
    if (snapshots && (found = find_entry(arena, snapshots, NULL, "config.json")))
        return fail(ERR_IO, "%s: a cache of Hugging Face: the model is in --model %s", dir, found);
    if ((found = find_entry(arena, dir, NULL, "config.json")))
        return fail(ERR_IO, "%s: has no config.json, but a directory in it has: --model %s", dir, found);
    return fail(ERR_IO, "%s: there is no config.json in this directory; %s", dir, wanted);
}

/* The address of a model's page holds its name. */
static enum status fail_address(const char *path, const char *name)
{
    size_t organisation = strcspn(name, "/"), rest = name[organisation] ? strcspn(name + organisation + 1, "/?#") : 0;
    if (!organisation || !rest)
        return fail(ERR_IO, "%s: an address, not a directory: `hone pull ORG/NAME` downloads a model of the Hugging Face hub",
                    path);
    int length = (int)(organisation + 1 + rest);
    return fail(ERR_IO, "%s: no such directory: `hone pull %.*s` downloads it, then --model %.*s names it", path, length, name,
                length, name);
}

static enum status check_path(struct arena *arena, const char *path, enum user_command command)
{
    const char *config = file_join(arena, path, "config.json"), *tokenizer = file_join(arena, path, "tokenizer.json");
    if (!config || !tokenizer)
        return ERR_MEMORY;
    if (file_exists(config) || file_exists(tokenizer) || (gguf_is_path(path) && file_exists(path) && !file_is_directory(path)))
        return OK;
    if (file_is_directory(path))
        return fail_directory(arena, path, command);
    if (file_exists(path))
        return fail_file(arena, path);
    static const char hub[] = "://huggingface.co/";
    const char *address = strstr(path, hub);
    if (address)
        return fail_address(path, address + strlen(hub));
    return fail(ERR_IO, "%s: %s; %s", path, path_hint(arena, path, gguf_is_path(path) ? "file" : "directory"), wanted);
}

enum status named_model_check(const char *path, enum user_command command)
{
    struct arena arena = {0};
    enum status status = check_path(&arena, path, command);
    arena_free(&arena);
    return status;
}
