/* Gradients in buckets. */
#include "tensor/scatter.h"

#include "base/number.h"
#include "tensor/engine.h"

/* --- the array ---------------------------------------------------------------------------------------------------------- */

/* Neighbours of one layer are one bucket. */
static enum status scatter_cut(struct scatter *s, const struct store *store, int64_t *elements)
{
    int64_t last = 0, end = 0;
    s->bucket = memory_alloc(store->count * (int64_t)sizeof *s->bucket);
    s->order = memory_alloc(store->count * (int64_t)sizeof *s->order);
    if (!s->bucket || !s->order)
        return ERR_MEMORY;
    for (int64_t i = 0; i < store->count; i++) {
        const struct tensor *t = store->tensor[i];
        if (!tensor_is_trained(t))
            continue;
        if (!s->bucket_count || tensor_layer(t) != last)
            s->bucket[s->bucket_count++].begin = end;
        last = tensor_layer(t);
        end += tensor_units(t) * TRAINED_UNIT;
        s->bucket[s->bucket_count - 1].end = end;
    }
    *elements = end;
    return OK;
}

static enum status scatter_lay_out(struct engine *e)
{
    struct scatter *s = &e->scatter;
    int64_t count = e->store->count, elements, at = 0;
    TRY(scatter_cut(s, e->store, &elements));
    int64_t kept = divide_up(elements / TRAINED_UNIT, group_size(e->device->group)) * TRAINED_UNIT;
    bool all = s->kind == SCATTER_SUM;
    TRY(store_tensor(&s->sums, e->store, "optimizer.gradients", LIFE_GRADIENTS, DTYPE_F32, 1, all ? &elements : &kept));
    s->sums->assembled = true;
    s->sums->sharded = all ? 0 : elements;
    s->sums->shard = all ? 0 : kept * group_rank(e->device->group);
    for (int64_t i = 0; i < count; i++) {
        const struct tensor *t = e->store->tensor[i];
        if (!tensor_is_trained(t))
            continue;
        t->gradient->whole = s->sums;
        t->gradient->part = (at - s->sums->shard) * dtype_size(DTYPE_F32);
        at += tensor_units(t) * TRAINED_UNIT;
    }
    return OK;
}

/* The bucket that a gradient lies in, and where it begins in the array; -1: it is none. */
static int64_t bucket_of(const struct scatter *s, const struct tensor *t, int64_t *place)
{
    const struct tensor *first = t && t->first ? t->first : t;
    int64_t bucket = 0;
    if (!first || first->lifetime != LIFE_GRADIENTS || first->whole != s->sums)
        return -1;
    *place = first->part / dtype_size(DTYPE_F32) + s->sums->shard;
    while (s->bucket[bucket].end <= *place)
        bucket++;
    return bucket;
}

/* --- a program ---------------------------------------------------------------------------------------------------------- */

struct use {              /* of a bucket in a program */
    struct value *memory; /* NULL: it is not used */
    int64_t first, last;  /* the commands that need it */
};

struct rewriting {
    const struct scatter *s;
    struct lowering *to;
    struct use *uses;
    int64_t commands; /* of the program itself */
    bool overlaps;
    int64_t open; /* the bucket whose reduction was begun last, and is not waited for; -1: none */
    int64_t done; /* buckets that were reduced */
};

/* A root on a gradient becomes a view on its bucket's memory. */
static enum status scatter_move(const struct rewriting *w, struct program *p, struct value *root, int64_t bucket, int64_t place)
{
    const struct scatter_bucket *b = &w->s->bucket[bucket];
    struct use *use = &w->uses[bucket];
    if (!use->memory)
        use->memory = program_scratch(p, DTYPE_F32, 1, (int64_t[]){b->end - b->begin});
    root->base = use->memory;
    root->base_offset = (place - b->begin) * dtype_size(DTYPE_F32);
    return program_status(p);
}

static enum status use(const struct rewriting *w, struct program *p, struct value *v, int64_t command)
{
    struct value *root = value_root(v);
    int64_t place, bucket = root->base ? -1 : bucket_of(w->s, root->tensor, &place);
    if (bucket >= 0 && w->s->kind == SCATTER_KEEP)
        TRY(scatter_move(w, p, root, bucket, place));
    else if (bucket >= 0 && !w->uses[bucket].memory)
        w->uses[bucket].memory = program_rows(p, program_tensor(p, w->s->sums), w->s->bucket[bucket].begin,
                                              w->s->bucket[bucket].end - w->s->bucket[bucket].begin);
    if (v->base && v->base->base) { /* a view on a root that was moved */
        v->base_offset += v->base->base_offset;
        v->base = v->base->base;
    }
    for (int64_t i = 0; bucket < 0 && v->base && i < w->s->bucket_count; i++)
        if (w->uses[i].memory == v->base)
            bucket = i;
    if (bucket < 0)
        return program_status(p);
    if (w->uses[bucket].first < 0)
        w->uses[bucket].first = command;
    w->uses[bucket].last = command;
    return program_status(p);
}

static enum status find_uses(const struct rewriting *w, const struct lowering *l)
{
    for (int64_t i = 0; i < w->s->bucket_count; i++)
        w->uses[i].first = -1;
    for (int64_t i = 0; i < l->count; i++)
        for (int o = 0; o < l->list[i].values; o++)
            if (l->list[i].value[o])
                TRY(use(w, l->program, l->list[i].value[o], i));
    return OK;
}

/* Tickets of two buckets in turn, and one for all that is waited for at the end. */
static int scatter_ticket_of(const struct rewriting *w)
{
    return !w->overlaps ? 0 : w->s->kind == SCATTER_SUM ? 1 : 1 + (int)(w->done % 2);
}

/* The part of a bucket that a rank keeps; the number of its elements. */
static int64_t scatter_piece_of(const struct scatter *s, int64_t bucket, int64_t rank, int64_t *begin)
{
    int64_t kept = tensor_elements(s->sums);
    *begin = max(s->bucket[bucket].begin, rank * kept);
    return max(min(s->bucket[bucket].end, (rank + 1) * kept) - *begin, 0);
}

/* sums += piece, by this rank. */
static enum status scatter_keep(struct rewriting *w, int64_t bucket)
{
    struct program *p = w->to->program;
    const struct tensor *sums = w->s->sums;
    const struct op *add = p->ops[PROGRAM_ADD];
    int64_t begin, count = scatter_piece_of(w->s, bucket, sums->shard / tensor_elements(sums), &begin);
    if (!count)
        return OK;
    struct value *piece = program_rows(p, w->uses[bucket].memory, begin - w->s->bucket[bucket].begin, count);
    struct value *kept = program_rows(p, program_tensor(p, (struct tensor *)sums), begin - sums->shard, count);
    struct node *n = arena_alloc(&p->arena, sizeof *n);
    if (!kept || !piece || !n)
        return n ? program_status(p) : ERR_MEMORY;
    *n = (struct node){.op = add, .in = {kept, piece}, .out = {kept}, .in_count = 2, .out_count = 1, .rows = count};
    w->to->node = n;
    return lower_launch(w->to, &add->kernel, 3, (struct value *[]){kept, piece, kept}, n->size, n->number, n->rows, add->block);
}

/* Ends the reduction that was begun last; `ticket` is its. */
static enum status close_open(struct rewriting *w, int ticket)
{
    int64_t bucket = w->open;
    w->open = -1;
    if (bucket < 0)
        return OK;
    if (ticket)
        TRY(lower_wait(w->to, ticket, w->uses[bucket].memory));
    return scatter_keep(w, bucket);
}

static enum status reduce_to_keepers(struct rewriting *w, int64_t bucket)
{
    int64_t kept = tensor_elements(w->s->sums), begin, count;
    int ticket = scatter_ticket_of(w), before = ticket ? 3 - ticket : 0;
    for (int64_t rank = w->s->bucket[bucket].begin / kept; (count = scatter_piece_of(w->s, bucket, rank, &begin)) > 0; rank++) {
        struct value *piece = program_rows(w->to->program, w->uses[bucket].memory, begin - w->s->bucket[bucket].begin, count);
        if (!piece)
            return program_status(w->to->program);
        struct collective c = {COLLECTIVE_REDUCE, DTYPE_F32, count, (int)rank, ticket, true};
        TRY(lower_collective(w->to, &c, piece, piece));
    }
    w->done++;
    TRY(close_open(w, before));
    w->open = bucket;
    return w->overlaps ? OK : close_open(w, 0);
}

static enum status reduce_all(struct rewriting *w, int64_t bucket)
{
    struct value *memory = w->uses[bucket].memory;
    struct collective c = {COLLECTIVE_ALL_REDUCE, DTYPE_F32, value_elements(memory), 0, scatter_ticket_of(w), true};
    w->done++;
    TRY(lower_collective(w->to, &c, memory, memory));
    w->to->list[w->to->count - 1].ending = true;
    return OK;
}

static enum status wait_at_end(struct rewriting *w)
{
    if (w->s->kind == SCATTER_KEEP)
        return close_open(w, w->overlaps ? 1 + (int)((w->done + 1) % 2) : 0);
    TRY(lower_wait(w->to, 1, program_tensor(w->to->program, w->s->sums)));
    w->to->list[w->to->count - 1].ending = true;
    return OK;
}

/* A bucket that is an activation begins as zeros. */
static enum status scatter_before(void *rewriting, struct lowering *to, int64_t command)
{
    const struct rewriting *w = rewriting;
    for (int64_t b = 0; b < w->s->bucket_count; b++)
        if (w->uses[b].first == command && w->s->kind == SCATTER_KEEP)
            TRY(lower_fill(to, w->uses[b].memory));
    return OK;
}

static enum status scatter_after(void *rewriting, struct lowering *to, int64_t command)
{
    struct rewriting *w = rewriting;
    w->to = to;
    for (int64_t b = 0; b < w->s->bucket_count; b++)
        if (w->uses[b].first >= 0 && w->uses[b].last == command)
            TRY(w->s->kind == SCATTER_KEEP ? reduce_to_keepers(w, b) : reduce_all(w, b));
    return command == w->commands - 1 ? wait_at_end(w) : OK;
}

/* The order of the first program is that of all. */
static enum status scatter_check_order(struct scatter *s, const struct use *uses, int64_t commands)
{
    int64_t count = 0;
    bool first = !s->order_count;
    for (int64_t i = 0; i < commands; i++)
        for (int64_t b = 0; b < s->bucket_count; b++) {
            if (uses[b].first < 0 || uses[b].last != i)
                continue;
            if (!first && (count >= s->order_count || s->order[count] != b))
                return fail(ERR_INTERNAL, "two programs of training complete their gradients in another order");
            s->order[count++] = b;
        }
    s->order_count = count;
    return OK;
}

static bool has_gradients(const struct lowering *l)
{
    for (int64_t i = 0; i < l->count; i++)
        for (int o = 0; o < l->list[i].values; o++) {
            const struct tensor *t = l->list[i].value[o] ? value_root(l->list[i].value[o])->tensor : NULL;
            if (t && t->lifetime == LIFE_GRADIENTS && (!t->assembled || t->first))
                return true;
        }
    return false;
}

static enum status put_in(struct engine *e, struct lowering *l, struct use *uses)
{
    struct rewriting w = {&e->scatter, NULL, uses, l->count, device_overlaps(e->device), -1, 0};
    TRY(find_uses(&w, l));
    TRY(scatter_check_order(&e->scatter, uses, l->count));
    return lower_rewrite(l, scatter_before, scatter_after, &w);
}

enum status scatter_lower(struct engine *e, struct lowering *l)
{
    struct scatter *s = &e->scatter;
    if (s->kind == SCATTER_NONE || !has_gradients(l))
        return OK;
    if (!s->sums)
        TRY(scatter_lay_out(e));
    struct use *uses = memory_alloc(s->bucket_count * (int64_t)sizeof *uses);
    enum status status = uses ? put_in(e, l, uses) : ERR_MEMORY;
    memory_free(uses);
    return status;
}

void scatter_free(struct scatter *s)
{
    memory_free(s->bucket);
    memory_free(s->order);
    *s = (struct scatter){0};
}
