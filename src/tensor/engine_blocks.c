/* Blocks are numbers until engine_prepare allocates them. */
#include "tensor/engine_blocks.h"

#include "tensor/engine_shared.h"

static enum status engine_blocks_add_block(struct engine *e, enum lifetime lifetime, int64_t bytes, const struct tensor *in_file,
                                           int32_t *number)
{
    TRY(memory_grow(&e->blocks, &e->block_capacity, e->block_count + 1, (int64_t)sizeof *e->blocks));
    e->blocks[e->block_count] = (struct engine_block){.lifetime = lifetime,
                                                      .bytes = bytes,
                                                      .in_file = in_file != NULL,
                                                      .mapped = in_file ? in_file->mapped : NULL,
                                                      .block = -1};
    *number = (int32_t)e->block_count++;
    return OK;
}

enum status blocks_add(struct engine *e, enum lifetime lifetime, int64_t bytes, int32_t *number)
{
    return engine_blocks_add_block(e, lifetime, bytes, NULL, number);
}

/* Tensors of one lifetime share as few blocks as the device's largest allocation permits; those that other engines may have the
 * same bytes of are apart from the others. */
enum status blocks_place_tensors(struct engine *e, enum lifetime lifetime, int64_t max_block)
{
    int32_t opened[] = {-1, -1};
    for (int64_t i = 0; i < e->store->count; i++) {
        struct tensor *t = e->store->tensor[i];
        if (t->lifetime != lifetime || t->whole || t->first)
            continue;
        int64_t bytes = tensor_bytes(t);
        if (t->in_file) {
            TRY(engine_blocks_add_block(e, lifetime, bytes, t, &t->place.block));
            continue;
        }
        if (t->in_host) {
            if (!bytes)
                continue;
            TRY(engine_blocks_add_block(e, lifetime, bytes, NULL, &t->place.block));
            t->place.offset = 0;
            e->blocks[t->place.block].in_host = true;
            continue;
        }
        if (align_up(bytes) > max_block)
            return fail(ERR_DEVICE, "tensor %s has %lld bytes, the device allocates at most %lld in one piece", t->name,
                        (long long)bytes, (long long)max_block);
        bool shares = engine_shares(e, t);
        int32_t *open = &opened[shares];
        if (*open < 0 || e->guard || e->blocks[*open].bytes > max_block - align_up(bytes))
            TRY(engine_blocks_add_block(e, lifetime, 0, NULL, open));
        struct engine_block *block = &e->blocks[*open];
        t->place = (struct operand){*open, block->bytes};
        block->shares = shares;
        if (e->guard)
            block->bytes = bytes;
        else if (__builtin_add_overflow(block->bytes, align_up(bytes), &block->bytes))
            return fail(ERR_MEMORY, "out of memory: the tensors are larger than any memory");
    }
    return OK;
}

/* A tensor that is several begins where the first of them does. */
static enum status place_together(struct tensor *t)
{
    struct operand first = t->first->place, last = t->last->place;
    if (first.block != last.block || last.offset + tensor_bytes(t->last) != first.offset + tensor_bytes(t))
        return fail(ERR_INTERNAL, "%s: its parts do not follow each other", t->name);
    t->place = first;
    return OK;
}

void blocks_place_parts(const struct engine *e)
{
    for (int64_t i = 0; i < e->store->count; i++) {
        struct tensor *t = e->store->tensor[i];
        if (t->whole)
            t->place = (struct operand){t->whole->place.block, t->whole->place.offset + t->part};
    }
}

enum status blocks_place(struct engine *e)
{
    struct device_info info;
    device_info(e->device, &info);
    for (int life = 0; life < LIFE_INPUTS; life++)
        TRY(blocks_place_tensors(e, (enum lifetime)life, info.max_block));
    blocks_place_parts(e);
    for (int64_t i = 0; i < e->store->count; i++)
        if (e->store->tensor[i]->first)
            TRY(place_together(e->store->tensor[i]));
    for (int life = LIFE_INPUTS; life < LIFE_COUNT; life++) {
        int64_t bytes = 0;
        for (int64_t i = 0; i < e->program_count; i++)
            if (e->programs[i].bytes[life] > bytes)
                bytes = e->programs[i].bytes[life];
        if (bytes > info.max_block)
            return fail(ERR_DEVICE,
                        "%s take %lld bytes, the device allocates at most %lld in one piece: use fewer tokens at once",
                        lifetime_name((enum lifetime)life), (long long)bytes, (long long)info.max_block);
        TRY(engine_blocks_add_block(e, (enum lifetime)life, bytes, NULL, &e->life_block[life]));
    }
    return OK;
}

struct operand blocks_on_device(const struct engine *e, struct operand place)
{
    return (struct operand){e->blocks[place.block].block, place.offset};
}
