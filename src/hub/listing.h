/* The files of a model on the hub: its own list, read, checked, and cut down to what hone needs. */
#ifndef HUB_LISTING_H
#define HUB_LISTING_H

#include "base/memory.h"
#include "base/sha.h"

struct hub_file {
    const char *name; /* its path in the repository: below the model's directory, whatever the server says */
    int64_t size;
    enum sha_kind kind; /* SHA_256 of the bytes (Git LFS), or SHA_1 of the git object */
    const char *hash;   /* lower-case digits */
    bool wanted;
    bool there; /* it is in its place already */
};

struct hub_listing {
    const char *commit; /* 40 digits */
    struct hub_file *files;
    int64_t count;
};

/* Reads the answer of /api/models/NAME/revision/REVISION?blobs=true. All texts are in the arena. ERR_FORMAT names what is wrong;
 * of a file's name also: one that would leave the directory, or is there twice, is refused, wanted or not. */
enum status listing_read(struct hub_listing *listing, struct arena *arena, const char *text, int64_t length, const char *where);

/* Marks what hone needs: the configuration, the tokenizer, the chat template, and the weights: the index of model.safetensors if
 * there is one (whose files follow by listing_add), else model.safetensors, else all safetensors files. With `include`, patterns
 * separated by commas as a shell's, the weights are the files that match; of GGUF files nothing else is needed. A hidden file
 * (hub/hub_cache.h) is never wanted. */
enum status listing_choose(struct hub_listing *listing, const char *include, const char *where);

/* Marks the files that an index names; *text is that of model.safetensors.index.json. ERR_FORMAT if one of them is hidden, or not
 * a safetensors file, or not in the list. */
enum status listing_add(struct hub_listing *listing, const char *text, int64_t length, const char *where);

/* The file of this name, or NULL. */
struct hub_file *listing_find(const struct hub_listing *listing, const char *name);

#define HUB_INDEX "model.safetensors.index.json"
#define HUB_MORE_TEMPLATES "additional_chat_templates/tool_use.jinja"

#endif
