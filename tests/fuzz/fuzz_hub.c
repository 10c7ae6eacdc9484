/* The input is a hub's list of files, an index of weights and patterns for --include, with zero bytes between them, as hone pull
 * reads them. Whatever a server says, no name of a file leads out of its directory, no hash is anything but digits, no hidden
 * file is downloaded, and an index adds weights of the list and nothing else. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "hub/hub_cache.h"
#include "hub/listing.h"

/* As hub/hub_cache.h says, in other words: it is below a directory if it is joined to one. */
static bool is_below(const char *name)
{
    for (const char *part = name; part; part = strchr(part, '/')) {
        part += part != name;
        size_t n = strcspn(part, "/");
        if (!n || !strncmp(part, ".", n) || !strncmp(part, "..", n))
            return false;
    }
    for (const char *at = name; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f || *at == '\\')
            return false;
    return true;
}

static bool is_hidden(const char *name)
{
    for (const char *at = name; *at; at++)
        if (*at == '.' && (at == name || at[-1] == '/'))
            return true;
    return false;
}

static bool is_weights(const char *name)
{
    static const char end[] = ".safetensors";
    size_t n = strlen(name);
    return n >= sizeof end - 1 && !strcmp(name + n - (sizeof end - 1), end);
}

static void check_list(const struct hub_listing *listing)
{
    PROMISE(hub_is_commit(listing->commit));
    for (int64_t i = 0; i < listing->count; i++) {
        const struct hub_file *f = &listing->files[i];
        PROMISE(is_below(f->name) && f->size >= 0 && strlen(f->hash) == (f->kind == SHA_1 ? 40 : 64) && !f->wanted);
        PROMISE(f->hash[strspn(f->hash, "0123456789abcdef")] == 0);
        PROMISE(listing_find(listing, f->name) == f);
    }
}

/* Marks what these patterns and the index ask for. */
static void choose(struct hub_listing *listing, const char *include, struct fuzz_part index)
{
    for (int64_t i = 0; i < listing->count; i++)
        listing->files[i].wanted = false;
    bool *before = calloc((size_t)listing->count + 1, 1);
    PROMISE(before != NULL);
    bool chosen = listing_choose(listing, include, "list") == OK;
    for (int64_t i = 0; i < listing->count; i++)
        before[i] = listing->files[i].wanted;
    bool added = chosen && listing_add(listing, (const char *)index.data, (int64_t)index.size, "index") == OK;
    for (int64_t i = 0; i < listing->count; i++) {
        const struct hub_file *f = &listing->files[i];
        PROMISE(!f->wanted || !is_hidden(f->name));
        PROMISE(!f->wanted || before[i] || is_weights(f->name));
        PROMISE(f->wanted || !before[i]);
    }
    free(before);
    if (added)
        fuzz_accept();
}

void fuzz_input(const uint8_t *data, size_t size)
{
    struct fuzz_part rest = {data, size}, list = fuzz_next(&rest), index = fuzz_next(&rest), patterns = fuzz_next(&rest);
    struct arena arena = {0};
    struct hub_listing listing;
    if (listing_read(&listing, &arena, (const char *)list.data, (int64_t)list.size, "list") == OK) {
        char *include = calloc(patterns.size + 1, 1);
        PROMISE(include != NULL);
        if (patterns.size)
            memcpy(include, patterns.data, patterns.size);
        check_list(&listing);
        choose(&listing, NULL, index);
        choose(&listing, include, index);
        choose(&listing, "*.gguf,[a-", index);
        free(include);
    }
    arena_free(&arena);
}
