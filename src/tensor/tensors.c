/* The tensors of a process by name. */
#include "tensor/tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

static const char *const lifetimes[LIFE_COUNT] = {"weights",         "trainable", "gradients", "optimizer state",
                                                  "key/value cache", "inputs",    "outputs",   "activations"};

const char *lifetime_name(enum lifetime lifetime)
{
    return lifetimes[lifetime];
}

enum status store_init(struct store *store)
{
    *store = (struct store){0};
    return map_init(&store->names, 64);
}

void store_free(struct store *store)
{
    memory_free(store->tensor);
    map_free(&store->names);
    arena_free(&store->arena);
    *store = (struct store){0};
}

struct tensor *store_find(const struct store *store, const char *name)
{
    int64_t i = map_get(&store->names, name, (int64_t)strlen(name));
    return i < 0 ? NULL : store->tensor[i];
}

static struct tensor *tensors_add(struct store *store, const char *name)
{
    struct tensor **grown = memory_resize(store->tensor, (store->count + 1) * (int64_t)sizeof *grown);
    if (!grown)
        return NULL;
    store->tensor = grown;
    struct tensor *t = arena_alloc(&store->arena, sizeof *t);
    char *copy = arena_text(&store->arena, name, (int64_t)strlen(name));
    if (!t || !copy || map_put(&store->names, copy, (int64_t)strlen(copy), store->count, NULL) != OK)
        return NULL;
    t->name = copy;
    store->tensor[store->count++] = t;
    return t;
}

enum status store_tensor(struct tensor **out, struct store *store, const char *name, enum lifetime lifetime, enum dtype dtype,
                         int rank, const int64_t *shape)
{
    struct tensor *t = store_find(store, name);
    *out = t;
    if (t) {
        bool same = t->dtype == dtype && t->lifetime == lifetime && t->rank == rank;
        same = same && !memcmp(t->shape, shape, (size_t)rank * sizeof *shape);
        return same ? OK : fail(ERR_INTERNAL, "tensor %s is asked for in two shapes", name);
    }
    t = tensors_add(store, name);
    if (!t)
        return ERR_MEMORY;
    t->lifetime = lifetime;
    t->dtype = dtype;
    t->rank = rank;
    memcpy(t->shape, shape, (size_t)rank * sizeof *shape);
    t->place = (struct operand){-1, 0};
    *out = t;
    return OK;
}

enum status store_words(struct tensor **out, struct store *store, const char *name, int64_t number, int64_t bytes)
{
    char whole[64];
    snprintf(whole, sizeof whole, "%s.%lld", name, (long long)number);
    TRY(store_tensor(out, store, whole, LIFE_WEIGHTS, DTYPE_I32, 1, (int64_t[]){bytes / 4}));
    (*out)->assembled = true;
    return OK;
}

int64_t shape_elements(int rank, const int64_t *shape)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= shape[i];
    return n;
}

int64_t tensor_elements(const struct tensor *tensor)
{
    return shape_elements(tensor->rank, tensor->shape);
}

int64_t tensor_whole(const struct tensor *tensor)
{
    return tensor->sharded ? tensor->sharded : tensor_elements(tensor);
}

int64_t tensor_bytes(const struct tensor *tensor)
{
    return tensor_elements(tensor) * dtype_size(tensor->dtype);
}

int64_t align_up(int64_t bytes)
{
    return round_up(bytes, ALIGNMENT);
}

int64_t tensor_layer(const struct tensor *tensor)
{
    static const char mark[] = "layers.";
    const char *at = strstr(tensor->name, mark);
    char *end;
    long long number = at ? strtoll(at + strlen(mark), &end, 10) : -1;
    return at && *end == '.' && number >= 0 && number < INT32_MAX ? number : -1;
}

bool tensor_is_trained(const struct tensor *tensor)
{
    return tensor->lifetime == LIFE_TRAINABLE && !tensor->assembled;
}

int64_t tensor_units(const struct tensor *tensor)
{
    return divide_up(tensor_elements(tensor), TRAINED_UNIT);
}
