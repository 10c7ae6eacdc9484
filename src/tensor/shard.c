/* Pieces of sharded tensors, over the group's own channel. */
#include "tensor/shard.h"

#include <string.h>

#include "base/number.h"
#include "tensor/engine_blocks.h"

enum { PIECE = 1 << 18 }; /* bytes */

struct request { /* bytes [begin, end) of a whole array; end 0: there are no more requests */
    int64_t tensor, begin, end;
};

static bool has_shards(const struct engine *e)
{
    for (int64_t i = 0; i < e->store->count; i++)
        if (e->store->tensor[i]->sharded)
            return true;
    return false;
}

enum status shard_upload(struct engine *e, const struct tensor *tensor, int64_t first, int64_t count, const void *from,
                         enum dtype from_type)
{
    const struct tensor *array = tensor->whole ? tensor->whole : tensor;
    int64_t size = dtype_size(tensor->dtype), at = first + (tensor->whole ? tensor->part / size : -tensor->shard);
    int64_t skipped = at < 0 ? -at : 0;
    struct operand to = blocks_on_device(e, array->place);
    count = min(at + count, tensor_elements(array)) - at - skipped;
    if (count <= 0)
        return OK;
    to.offset += (at + skipped) * size;
    return device_write(e->device, to, tensor->dtype, (const char *)from + skipped * dtype_size(from_type), from_type, count);
}

/* What this rank keeps of a piece, at its place in it. */
static enum status read_kept(struct engine *e, const struct request *r, char *piece)
{
    const struct tensor *t = e->store->tensor[r->tensor];
    int64_t size = dtype_size(t->dtype), begin = max(r->begin, t->shard * size);
    int64_t end = min(r->end, t->shard * size + tensor_bytes(t));
    struct operand from = blocks_on_device(e, t->place);
    from.offset += begin - t->shard * size;
    return end > begin ? device_read(e->device, piece + (begin - r->begin), from, end - begin) : OK;
}

/* Rank 0 asks, and what it asks for is to be there and to fit. */
static enum status shard_check(const struct engine *e, const struct request *r)
{
    bool known = r->tensor >= 0 && r->tensor < e->store->count && e->store->tensor[r->tensor]->sharded;
    if (!known || r->begin < 0 || r->begin >= r->end || r->end - r->begin > PIECE ||
        r->end > tensor_whole(e->store->tensor[r->tensor]) * dtype_size(e->store->tensor[r->tensor]->dtype))
        return fail(ERR_RANK, "rank 0 asks for bytes %lld to %lld of tensor %lld, which are not divided among the ranks here",
                    (long long)r->begin, (long long)r->end, (long long)r->tensor);
    return OK;
}

/* All ranks: a piece, put together. */
static enum status shard_gather(struct engine *e, const struct request *r, char *mine, char *all)
{
    TRY(shard_check(e, r));
    const struct tensor *t = e->store->tensor[r->tensor];
    int64_t kept = tensor_bytes(t), bytes = r->end - r->begin;
    memset(mine, 0, (size_t)bytes);
    TRY(read_kept(e, r, mine));
    TRY(group_share(e->device->group, mine, all, bytes));
    for (int64_t at = r->begin; at < r->end;) { /* each byte from the rank that keeps it */
        int64_t rank = at / kept, until = min((rank + 1) * kept, r->end);
        memcpy(mine + (at - r->begin), all + rank * bytes + (at - r->begin), (size_t)(until - at));
        at = until;
    }
    return OK;
}

static enum status shard_ask(struct engine *e, const struct request *r, char *buffer, char *to)
{
    struct request said = *r;
    TRY(group_tell(e->device->group, &said, (int64_t)sizeof said));
    if (!r->end)
        return OK;
    TRY(shard_gather(e, r, buffer, buffer + PIECE));
    memcpy(to, buffer, (size_t)(r->end - r->begin));
    return OK;
}

static char *open_buffer(const struct engine *e)
{
    return memory_alloc((int64_t)PIECE * (group_size(e->device->group) + 1));
}

enum status shard_download(struct engine *e, const struct tensor *tensor, int64_t offset, void *to, int64_t bytes)
{
    const struct tensor *array = tensor->whole ? tensor->whole : tensor;
    int64_t index = 0, begin = offset + (tensor->whole ? tensor->part + array->shard * dtype_size(array->dtype) : 0);
    while (e->store->tensor[index] != array)
        index++;
    char *buffer = open_buffer(e);
    enum status status = buffer ? OK : ERR_MEMORY;
    for (int64_t at = 0; at < bytes && status == OK; at += PIECE) {
        struct request r = {index, begin + at, begin + min(at + PIECE, bytes)};
        status = shard_ask(e, &r, buffer, (char *)to + at);
    }
    memory_free(buffer);
    return status;
}

enum status shard_end(struct engine *e)
{
    return has_shards(e) ? shard_ask(e, &(struct request){0}, NULL, NULL) : OK;
}

enum status shard_serve(struct engine *e)
{
    if (!has_shards(e))
        return OK;
    char *buffer = open_buffer(e);
    enum status status = buffer ? OK : ERR_MEMORY;
    for (struct request r = {0}; status == OK;) { /* all ranks send one, though only rank 0's counts */
        status = group_tell(e->device->group, &r, (int64_t)sizeof r);
        if (status == OK && !r.end)
            break;
        if (status == OK)
            status = shard_gather(e, &r, buffer, buffer + PIECE);
    }
    memory_free(buffer);
    return status;
}

static enum status spread_pieces(struct engine *e, const struct tensor *tensor, const char *from, char *piece)
{
    int64_t size = dtype_size(tensor->dtype), bytes = tensor_whole(tensor) * size;
    for (int64_t at = 0; at < bytes; at += PIECE) {
        int64_t some = min(bytes - at, PIECE);
        if (group_rank(e->device->group) == 0)
            memcpy(piece, from + at, (size_t)some);
        TRY(group_tell(e->device->group, piece, some));
        TRY(shard_upload(e, tensor, at / size, some / size, piece, tensor->dtype));
    }
    return OK;
}

enum status shard_spread(struct engine *e, const struct tensor *tensor, const void *from)
{
    char *piece = memory_alloc(PIECE);
    enum status status = piece ? spread_pieces(e, tensor, from, piece) : ERR_MEMORY;
    memory_free(piece);
    return status;
}
