/* One program on one device: inputs written, run, results read. */
#ifndef TESTS_UNIT_PROGRAM_RIG_H
#define TESTS_UNIT_PROGRAM_RIG_H

#include "base/memory.h"
#include "base/rng.h"
#include "ops/ops.h"
#include "tensor/engine.h"
#include "test.h"

static inline float *random_numbers(uint64_t seed, int64_t count, float scale)
{
    float *x = test_malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++) {
        float pair[2];
        struct philox r = philox(seed, 0, (uint64_t)i);
        philox_normal(r.word[0], r.word[1], pair);
        x[i] = scale * pair[0];
    }
    return x;
}

struct run {
    struct device *device;
    struct store store;
    struct program program;
    struct engine engine;
    int64_t index;
};

static inline void run_init(struct run *r, const char *device, enum run_type type)
{
    memset(r, 0, sizeof *r);
    assert_ok(device_open(&r->device, device));
    assert_ok(store_init(&r->store));
    program_init(&r->program, ops_table, type);
}

static inline void run_prepare(struct run *r)
{
    engine_init(&r->engine, r->device, &r->store);
    assert_ok(engine_add(&r->engine, &r->program, &r->index));
    assert_ok(engine_place(&r->engine));
    assert_ok(engine_prepare(&r->engine));
}

static inline void run_free(struct run *r)
{
    engine_free(&r->engine);
    program_free(&r->program);
    store_free(&r->store);
    device_close(r->device);
}

/* What the value holds, as bytes. */
static inline void *read_value(struct run *r, const struct value *v)
{
    void *out = test_malloc((size_t)value_bytes(v));
    assert_ok(engine_read(&r->engine, v, out));
    return out;
}

static inline void put(struct run *r, const struct value *v, const void *from)
{
    memcpy(engine_input(&r->engine, v), from, (size_t)value_bytes(v));
}

#endif
