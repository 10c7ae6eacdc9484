/* The blocks of an engine: which tensors and lifetimes of values share one, and where in it each tensor lies. What the engine's
 * other files stand on: these functions call none of them. */
#ifndef TENSOR_ENGINE_BLOCKS_H
#define TENSOR_ENGINE_BLOCKS_H

#include "tensor/engine.h"

/* One more block, of which nothing is allocated yet. */
enum status blocks_add(struct engine *e, enum lifetime lifetime, int64_t bytes, int32_t *number);

/* Gives every tensor of a lifetime its block, as far as it is none of several others. */
enum status blocks_place_tensors(struct engine *e, enum lifetime lifetime, int64_t max_block);

/* Those that are parts of others, after these. */
void blocks_place_parts(const struct engine *e);

/* Gives every tensor and every lifetime of values its block. */
enum status blocks_place(struct engine *e);

/* A place in one of the engine's blocks, as the device knows it; after engine_prepare has allocated them. */
struct operand blocks_on_device(const struct engine *e, struct operand place);

#endif
