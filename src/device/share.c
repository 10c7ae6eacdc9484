/* Shared blocks: the key is the engine's, with where the memory is. */
#include "device/share.h"

struct maker {
    struct device *device;
    int64_t bytes;
};

static struct digest share_key(const struct device *device, struct digest key)
{
    const void *where[] = {device->class, device->class->sharing->where(device)};
    struct hash hash;
    hash_init(&hash);
    hash_add(&hash, where, sizeof where);
    hash_add(&hash, &key, sizeof key);
    return hash_end(&hash);
}

static enum status share_make(void *context, void **thing)
{
    const struct maker *m = context;
    return m->device->class->sharing->make(m->device, m->bytes, thing);
}

/* Ends a hold. */
static void leave(struct device *device, struct shared *shared, int64_t bytes)
{
    void *memory;
    if (shared_give(shared, device, &memory))
        device->class->sharing->free(device, memory, bytes);
}

enum status device_share(struct device *device, struct digest key, int64_t bytes, int32_t *block, struct shared **shared)
{
    struct maker maker = {device, bytes};
    TRY(shared_take(shared, share_key(device, key), device, share_make, &maker));
    enum status status = device->class->sharing->use(device, shared_thing(*shared), block);
    if (status != OK) {
        leave(device, *shared, bytes);
        *shared = NULL;
        return status;
    }
    device->counters.bytes += bytes;
    return OK;
}

void device_unshare(struct device *device, struct shared *shared, int64_t bytes)
{
    device->counters.bytes -= bytes;
    leave(device, shared, bytes);
}

bool device_has_shared(const struct device *device, struct digest key)
{
    return device->class->sharing && shared_has(share_key(device, key));
}

enum status device_fill_shared(struct device *device, struct shared *shared, int32_t block)
{
    char byte;
    if (!shared_fills(shared, device))
        return OK;
    TRY(device_read(device, &byte, (struct operand){block, 0}, sizeof byte)); /* waits */
    shared_filled(shared, device);
    return OK;
}
