/* Frozen weights that the engines of a process share (device/share.h).
 *
 * Tensors that are marked (struct tensor: shares) lie in blocks of their own, whose key follows from the keys of the tensors and
 * from where they lie: an engine with the same tensors at the same places, on the same device, has the same block. One of them
 * uploads into it, the others leave out what they would upload and wait.
 */
#ifndef TENSOR_ENGINE_SHARED_H
#define TENSOR_ENGINE_SHARED_H

#include "tensor/engine.h"

/* Whether a tensor goes into a shared block; after engine_shared_mark. In guard mode each has a block of its own; what ranks
 * gather, and what is copied out of host memory, has places of its own. */
static inline bool engine_shares(const struct engine *e, const struct tensor *t)
{
    return t->shares && t->lifetime == LIFE_WEIGHTS && !t->kept && !t->in_file && !e->guard && !e->gather.wanted;
}

/* For engine_place: marks tensors whose parts share; gives blocks their keys once tensors have their places. */
void engine_shared_mark(const struct engine *e);
void engine_shared_keys(struct engine *e);

/* For engine_prepare and engine_free: takes a block, and gives it back. */
enum status engine_shared_alloc(struct engine *e, struct engine_block *b);
void engine_shared_release(struct engine *e, struct engine_block *b);

/* The bytes that all shared blocks take; after engine_place. */
int64_t engine_shared_bytes(const struct engine *e);

/* How many of them the process has already. */
int64_t engine_shared_there(const struct engine *e);

/* Whether a tensor is to be uploaded by this engine. */
bool engine_uploads(const struct engine *e, const struct tensor *t);

/* After all that is to be uploaded was: waits for what other engines upload. *again: one of them has failed, and now it is this
 * one's to upload, before it waits for any other. */
enum status engine_shared_finish(struct engine *e, bool *again);

#endif
