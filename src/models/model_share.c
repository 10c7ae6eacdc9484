/* A file is mapped once in a process (base/mapped.h), and as long as it was not changed: so an address says which bytes of which
 * file a weight is made from, and holds as long as one of its models is open. */
#include "models/model_share.h"

#include <string.h>

#include "base/hash.h"
#include "format/adapter.h"
#include "models/lora.h"

static void add_number(struct hash *hash, int64_t number)
{
    hash_add(hash, &number, sizeof number);
}

/* Where a stored weight is, and how it is read. What is in no file is hashed itself: it is small. */
static void add_stored(struct hash *hash, const struct stored *f)
{
    add_number(hash, f->type);
    add_number(hash, f->dtype);
    add_number(hash, f->heads);
    add_number(hash, f->packed);
    hash_add(hash, &f->add, sizeof f->add);
    add_number(hash, f->rank);
    hash_add(hash, f->shape, f->rank * (int64_t)sizeof f->shape[0]);
    for (int i = 0; i < WEIGHT_PARTS; i++) {
        const struct stored_part *part = &f->part[i];
        add_number(hash, part->bytes);
        if (part->map)
            hash_add(hash, &part->data, sizeof part->data);
        else if (part->data)
            hash_add(hash, part->data, part->bytes);
    }
}

/* What it becomes: `part` of a weight type, or a dense tensor. */
static void model_share_begin(struct hash *hash, const struct tensor *t, int type, int part)
{
    hash_init(hash);
    add_number(hash, t->dtype);
    add_number(hash, type);
    add_number(hash, part);
    add_number(hash, tensor_bytes(t));
}

/* The stored weight or weights that a dense tensor is made of; false: an adapter brings one of them. */
static bool add_dense(struct hash *hash, const struct model *m, const struct tensor *t)
{
    char name[NAME_SIZE];
    const struct stacked *row = model_pieces(m, t);
    int64_t count = row ? stacked_count(row, t) : 1;
    for (int64_t i = 0; i < count; i++) {
        const struct stored *f = row ? weights_find(&m->weights, stacked_name(row, t, i, name)) : model_source(m, t);
        if (!f || f->adapter)
            return false;
        add_stored(hash, f);
    }
    return true;
}

static bool brought(const struct model *m, const char *name)
{
    return m->adapted && adapter_saves_weight(&m->adapter, name);
}

static void share_dense(const struct model *m, struct tensor *t)
{
    struct hash hash;
    t->shares = t->lifetime == LIFE_WEIGHTS && t->rank > 1 && !t->in_file && !lora_owns(t) && !brought(m, t->name);
    if (!t->shares || !m->weights.listed)
        return;
    model_share_begin(&hash, t, WEIGHT_DENSE, 0);
    t->shares = add_dense(&hash, m, t);
    t->key = hash_end(&hash);
}

static void share_parted(const struct model *m, const struct parted *p)
{
    const struct stored *f = weights_find(&m->weights, p->name);
    for (int i = 0; i < weight_parts(p->type); i++) {
        struct tensor *t = p->part[i];
        struct hash hash;
        t->shares = !weight_types[p->type]->part[i].shared && !t->in_file && !brought(m, p->name);
        if (!t->shares || !m->weights.listed)
            continue;
        model_share_begin(&hash, t, (int)p->type, i);
        add_stored(&hash, f);
        t->key = hash_end(&hash);
    }
}

void model_share(struct model *m)
{
    for (int64_t i = 0; i < m->store.count; i++)
        if (model_is_weight(m->store.tensor[i]))
            share_dense(m, m->store.tensor[i]);
    for (int64_t i = 0; i < m->weights.parted_count; i++)
        share_parted(m, &m->weights.parted[i]);
}
