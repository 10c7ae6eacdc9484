/* Shared blocks of an engine. */
#include "tensor/engine_shared.h"

#include "device/share.h"

void engine_shared_mark(const struct engine *e)
{
    const struct store *store = e->store;
    for (int64_t i = 0; i < store->count; i++)
        if (store->tensor[i]->whole)
            store->tensor[i]->whole->shares = true;
    for (int64_t i = 0; i < store->count; i++)
        if (store->tensor[i]->whole && !engine_shares(e, store->tensor[i]))
            store->tensor[i]->whole->shares = false;
}

static bool engine_shared_has_key(struct digest key)
{
    return key.low || key.high;
}

/* A sum of hashes: it does not matter in which order programs asked for the tensors. */
static void add_tensor(struct engine_block *b, const struct tensor *t)
{
    struct hash hash;
    int64_t bytes = tensor_bytes(t);
    hash_init(&hash);
    hash_add(&hash, &t->place.offset, sizeof t->place.offset);
    hash_add(&hash, &bytes, sizeof bytes);
    hash_add(&hash, &t->key, sizeof t->key);
    struct digest one = hash_end(&hash);
    b->key.low += one.low;
    b->key.high += one.high;
}

void engine_shared_keys(struct engine *e)
{
    bool known = e->device->class->sharing != NULL;
    for (int64_t i = 0; i < e->store->count; i++) {
        const struct tensor *t = e->store->tensor[i];
        if (!engine_shares(e, t) || t->assembled)
            continue;
        known = known && engine_shared_has_key(t->key);
        add_tensor(&e->blocks[t->place.block], t);
    }
    for (int64_t i = 0; i < e->block_count && !known; i++)
        e->blocks[i].key = (struct digest){0};
}

enum status engine_shared_alloc(struct engine *e, struct engine_block *b)
{
    return engine_shared_has_key(b->key) && b->bytes > 0 ? device_share(e->device, b->key, b->bytes, &b->block, &b->shared)
                                                         : device_alloc(e->device, b->bytes, &b->block);
}

void engine_shared_release(struct engine *e, struct engine_block *b)
{
    if (b->shared)
        device_unshare(e->device, b->shared, b->bytes);
    b->shared = NULL;
}

int64_t engine_shared_bytes(const struct engine *e)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < e->block_count; i++)
        bytes += e->blocks[i].shares ? e->blocks[i].bytes : 0;
    return bytes;
}

int64_t engine_shared_there(const struct engine *e)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < e->block_count; i++)
        if (engine_shared_has_key(e->blocks[i].key) && device_has_shared(e->device, e->blocks[i].key))
            bytes += e->blocks[i].bytes;
    return bytes;
}

bool engine_uploads(const struct engine *e, const struct tensor *t)
{
    const struct engine_block *b = t->place.block < 0 ? NULL : &e->blocks[t->place.block];
    return !b || !b->shared || shared_fills(b->shared, e->device);
}

enum status engine_shared_finish(struct engine *e, bool *again)
{
    *again = false;
    for (int64_t i = 0; i < e->block_count; i++)
        if (e->blocks[i].shared)
            TRY(device_fill_shared(e->device, e->blocks[i].shared, e->blocks[i].block));
    for (int64_t i = 0; i < e->block_count && !*again; i++)
        if (e->blocks[i].shared)
            *again = !shared_await(e->blocks[i].shared, e->device);
    return OK;
}
