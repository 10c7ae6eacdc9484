/* Sharded tensors: arrays of which every rank keeps a part. Rank 0 reads them as if it had all of it, piece by piece, and the
 * others hand over what they keep:
 *
 *     rank 0:       { engine_download … } → shard_end
 *     the others:   shard_serve, which returns after shard_end
 *
 * Without a sharded tensor in the store, none of them says anything.
 */
#ifndef TENSOR_SHARD_H
#define TENSOR_SHARD_H

#include "tensor/engine.h"

/* Writes what this rank keeps of `count` elements from `first` on; the host has them all. */
enum status shard_upload(struct engine *e, const struct tensor *tensor, int64_t first, int64_t count, const void *from,
                         enum dtype from_type);

/* Bytes of a whole array, or of a tensor that is a part of one; only on rank 0. */
enum status shard_download(struct engine *e, const struct tensor *tensor, int64_t offset, void *to, int64_t bytes);
enum status shard_end(struct engine *e);
enum status shard_serve(struct engine *e);

/* Fills a sharded tensor from the bytes that rank 0 has, `from`; all ranks call it. */
enum status shard_spread(struct engine *e, const struct tensor *tensor, const void *from);

#endif
