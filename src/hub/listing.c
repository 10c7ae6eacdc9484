/* The hub's list of a model's files. Everything in it comes from a server: names, sizes and hashes are checked here once. */
#include "hub/listing.h"

#include <fnmatch.h>
#include <string.h>

#include "base/json.h"
#include "base/map.h"
#include "base/name.h"
#include "hub/hub_cache.h"

/* The small files that hone, transformers and PEFT read. */
static const char *const needed[] = {
    "config.json",         "generation_config.json",
    "tokenizer.json",      "tokenizer_config.json",
    "tokenizer.model",     "vocab.json",
    "merges.txt",          "vocab.txt",
    "added_tokens.json",   "special_tokens_map.json",
    "chat_template.jinja", "chat_template.json",
    "adapter_config.json", HUB_MORE_TEMPLATES,
    "provenance.json",     "provenance.json.minisig",
};

enum { PATTERN_MAX = 256, LISTED_MAX = 6 };

static bool is_hash(const char *text, size_t digits)
{
    return text && strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

static const char *listing_text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static enum status read_file(struct hub_file *file, struct arena *arena, const json_t *entry, const char *where)
{
    const char *name = listing_text_of(entry, "rfilename");
    if (!name || strlen(name) != json_string_length(json_object_get(entry, "rfilename")) || !hub_is_below(name))
        return fail(ERR_FORMAT, "%s: a file's name that could lead out of the model's directory: nothing was downloaded", where);
    const json_t *lfs = json_member(entry, "lfs");
    const char *hash = !lfs                             ? listing_text_of(entry, "blobId")
                       : listing_text_of(lfs, "sha256") ? listing_text_of(lfs, "sha256")
                                                        : listing_text_of(lfs, "oid");
    const json_t *size = json_object_get(lfs ? lfs : entry, "size");
    file->kind = lfs ? SHA_256 : SHA_1;
    file->size = json_is_integer(size) ? (int64_t)json_integer_value(size) : -1;
    if (!is_hash(hash, lfs ? 64 : 40) || file->size < 0)
        return fail(ERR_FORMAT, "%s: no size or no checksum of %s in the server's list; is HF_ENDPOINT a Hugging Face hub?",
                    where, name);
    file->name = arena_text(arena, name, (int64_t)strlen(name));
    file->hash = arena_text(arena, hash, (int64_t)strlen(hash));
    return file->name && file->hash ? OK : ERR_MEMORY;
}

/* Where each name stands. A tree of git has none twice, and the second would be written over the first. */
static enum status map_names(struct map *names, const struct hub_listing *listing, const char *where)
{
    TRY(map_init(names, listing->count));
    for (int64_t i = 0; i < listing->count; i++) {
        const char *name = listing->files[i].name;
        int64_t old;
        TRY(map_put(names, name, (int64_t)strlen(name), i, &old));
        if (old >= 0)
            return fail(ERR_FORMAT, "%s: %.100s is there twice in the server's list: nothing was downloaded", where, name);
    }
    return OK;
}

static enum status listing_read_tree(struct hub_listing *listing, struct arena *arena, const json_t *tree, const char *where)
{
    const json_t *files = json_object_get(tree, "siblings"), *entry;
    const char *commit = listing_text_of(tree, "sha");
    size_t i;
    if (!commit || !hub_is_commit(commit) || !json_is_array(files))
        return fail(ERR_FORMAT, "%s: not the list of a model's files; is HF_ENDPOINT a Hugging Face hub?", where);
    listing->commit = arena_text(arena, commit, (int64_t)strlen(commit));
    listing->files = arena_array(arena, (int64_t)json_array_size(files), sizeof *listing->files);
    if (!listing->commit || !listing->files)
        return ERR_MEMORY;
    json_array_foreach(files, i, entry) TRY(read_file(&listing->files[listing->count++], arena, entry, where));
    return OK;
}

enum status listing_read(struct hub_listing *listing, struct arena *arena, const char *text, int64_t length, const char *where)
{
    json_t *tree;
    *listing = (struct hub_listing){0};
    TRY(json_parse(&tree, text, length, where));
    enum status status = listing_read_tree(listing, arena, tree, where);
    struct map names = {0};
    if (status == OK)
        status = map_names(&names, listing, where);
    map_free(&names);
    json_decref(tree);
    return status;
}

struct hub_file *listing_find(const struct hub_listing *listing, const char *name)
{
    for (int64_t i = 0; i < listing->count; i++)
        if (!strcmp(listing->files[i].name, name))
            return &listing->files[i];
    return NULL;
}

/* --- choosing ----------------------------------------------------------------------------------------------------------- */

static enum status listing_matches(const char *patterns, const char *name, bool *found)
{
    *found = false;
    for (const char *p = hub_is_hidden(name) ? "" : patterns; *p;) {
        char pattern[PATTERN_MAX];
        size_t n = strcspn(p, ",");
        if (n >= sizeof pattern)
            return fail(ERR_ARGUMENT, "--include: a pattern of more than %d bytes", PATTERN_MAX - 1);
        memcpy(pattern, p, n);
        pattern[n] = 0;
        *found |= fnmatch(pattern, name, 0) == 0; /* a star also stands for a slash, as in huggingface_hub */
        p += n + (p[n] == ',');
    }
    return OK;
}

/* The names of files with this ending, for a message. */
static enum status name_files(const struct hub_listing *listing, const char *end, struct buffer *text)
{
    int64_t seen = 0;
    for (int64_t i = 0; i < listing->count; i++)
        if (name_ends_with(listing->files[i].name, end) && seen++ < LISTED_MAX)
            TRY(buffer_format(text, "%s%s (%.2f GB)", seen > 1 ? ", " : "", listing->files[i].name,
                              1e-9 * (double)listing->files[i].size));
    return seen > LISTED_MAX ? buffer_format(text, " and %lld more", (long long)(seen - LISTED_MAX)) : OK;
}

static bool listing_has(const struct hub_listing *listing, const char *end)
{
    for (int64_t i = 0; i < listing->count; i++)
        if (name_ends_with(listing->files[i].name, end))
            return true;
    return false;
}

static enum status listing_fail_no_weights(const struct hub_listing *listing, const char *include, const char *where)
{
    struct buffer text = {0};
    enum status status;
    if (include) {
        status = name_files(listing, listing_has(listing, ".gguf") ? ".gguf" : "", &text);
        if (status == OK)
            status = fail(ERR_ARGUMENT, "%s: no file matches --include '%.100s'%s; it has %s", where, include,
                          hub_is_hidden(include) ? ", and a name with a dot at its beginning is never downloaded" : "",
                          text.data ? text.data : "no files");
    } else if (listing_has(listing, ".gguf")) {
        status = name_files(listing, ".gguf", &text);
        if (status == OK)
            status =
                fail(ERR_ARGUMENT, "%s: only GGUF files: choose one with --include, as in --include '*q4_k_m.gguf'; it has %s",
                     where, text.data);
    } else if (listing_has(listing, ".bin") || listing_has(listing, ".pt") || listing_has(listing, ".pth")) {
        status =
            fail(ERR_UNSUPPORTED,
                 "%s: only pickled weights (pytorch_model.bin), which can run code when they are read: hone takes safetensors "
                 "or GGUF. The hub's own converter makes them: huggingface.co/spaces/safetensors/convert",
                 where);
    } else {
        status = fail(ERR_UNSUPPORTED, "%s: no safetensors and no GGUF files, so not a model that hone reads", where);
    }
    buffer_free(&text);
    return status;
}

static bool is_top(const char *name)
{
    return !strchr(name, '/');
}

static bool is_weights(const char *name)
{
    return name_ends_with(name, ".safetensors") && !hub_is_hidden(name);
}

enum status listing_choose(struct hub_listing *listing, const char *include, const char *where)
{
    bool weights = false, all_gguf = include;
    struct hub_file *index = listing_find(listing, HUB_INDEX), *single = listing_find(listing, "model.safetensors");
    struct hub_file *adapter = listing_find(listing, "adapter_model.safetensors");
    for (int64_t i = 0; i < listing->count; i++) {
        struct hub_file *f = &listing->files[i];
        if (include)
            TRY(listing_matches(include, f->name, &f->wanted));
        else if (index || single || adapter)
            f->wanted = f == (index ? index : single ? single : adapter);
        else
            f->wanted = is_top(f->name) && is_weights(f->name);
        weights |= f->wanted;
        all_gguf &= !f->wanted || name_ends_with(f->name, ".gguf");
    }
    if (!weights)
        return listing_fail_no_weights(listing, include, where);
    for (size_t i = 0; i < sizeof needed / sizeof needed[0] && !all_gguf; i++) {
        struct hub_file *f = listing_find(listing, needed[i]);
        if (f)
            f->wanted = true;
    }
    return OK;
}

/* An index comes from a server too: of all files in the list it may ask for weights only. */
static enum status mark(struct hub_listing *listing, const json_t *weights, const struct map *names, const char *where)
{
    const char *key;
    json_t *value;
    if (!json_is_object(weights))
        return fail(ERR_FORMAT, "%s: no weight_map in it", where);
    json_object_foreach((json_t *)weights, key, value)
    {
        const char *name = json_string_value(value);
        int64_t i = name ? map_get(names, name, (int64_t)json_string_length(value)) : -1;
        if (i < 0)
            return fail(ERR_FORMAT, "%s: the file of %.100s is not in the repository", where, key);
        if (!is_weights(name))
            return fail(ERR_FORMAT,
                        "%s: it names %.100s, and an index may name files that end in .safetensors and do not begin with a dot",
                        where, name);
        listing->files[i].wanted = true;
    }
    return OK;
}

enum status listing_add(struct hub_listing *listing, const char *text, int64_t length, const char *where)
{
    json_t *tree;
    struct map names = {0};
    TRY(json_parse(&tree, text, length, where));
    enum status status = map_names(&names, listing, where);
    if (status == OK)
        status = mark(listing, json_object_get(tree, "weight_map"), &names, where);
    map_free(&names);
    json_decref(tree);
    return status;
}
