/* What dropout draws: the numbers of philox, the same for a token wherever it is placed, as many as asked for. */
#include "test.h"

#include "base/parallel.h"
#include "base/rng.h"
#include "ops/ops.h"
#include "tensor/engine.h"

enum { T = 40, C = 150, ID = 4097, STEP = 123456 };

static const uint64_t seed = 0xFEDCBA9876543210u;
static const double probability = 0.3;

/* Which elements dropout keeps, for sequences and positions of T tokens. */
static void kept(bool keep[T][C], const int32_t *sequence, const int32_t *positions)
{
    struct device *device;
    struct store store;
    struct program p;
    struct engine e;
    int64_t index;
    static float y[T][C];
    assert_ok(device_open(&device, "cpu"));
    assert_ok(store_init(&store));
    program_init(&p, ops_table, RUN_FLOAT32);
    struct value *x = program_input(&p, "x", ROLE_ACTIVATION, 2, (int64_t)T, (int64_t)C);
    struct value *s = program_input(&p, "sequence", ROLE_INDEX, 1, (int64_t)T);
    struct value *at = program_input(&p, "positions", ROLE_INDEX, 1, (int64_t)T);
    struct value *draw = program_input(&p, "draw", ROLE_INDEX, 1, (int64_t)4);
    struct value *out = program_output(&p, dropout(&p, x, s, at, draw, probability, ID), "y");
    engine_init(&e, device, &store);
    assert_ok(engine_add(&e, &p, &index));
    assert_ok(engine_place(&e));
    assert_ok(engine_prepare(&e));
    for (int i = 0; i < T * C; i++)
        ((float *)engine_input(&e, x))[i] = 0.7f;
    memcpy(engine_input(&e, s), sequence, T * sizeof *sequence);
    memcpy(engine_input(&e, at), positions, T * sizeof *positions);
    memcpy(engine_input(&e, draw), (uint32_t[]){(uint32_t)seed, (uint32_t)(seed >> 32), STEP, 0}, 16);
    assert_ok(engine_run(&e, index));
    assert_ok(engine_read(&e, out, y));
    for (int t = 0; t < T; t++)
        for (int c = 0; c < C; c++) {
            keep[t][c] = y[t][c] != 0;
            assert_true(!keep[t][c] || (y[t][c] > 0.99999f && y[t][c] < 1.00001f));
        }
    engine_free(&e);
    program_free(&p);
    store_free(&store);
    device_close(device);
}

static void the_draws_are_those_of_philox(void **state)
{
    (void)state;
    static bool keep[T][C];
    int32_t sequence[T], positions[T];
    int count = 0;
    for (int t = 0; t < T; t++) {
        sequence[t] = t < 10 ? 2147483647 - t : t / 7;
        positions[t] = t % 7 * 300000000;
    }
    kept(keep, sequence, positions);
    for (int t = 0; t < T; t++)
        for (int c = 0; c < C; c++) {
            struct philox r = philox(seed + ID * 0x9E3779B97F4A7C15u, (uint64_t)(uint32_t)sequence[t] | (uint64_t)STEP << 32,
                                     (uint64_t)(c / 4) | (uint64_t)(uint32_t)positions[t] << 32);
            assert_int_equal(keep[t][c], (double)philox_uniform(r.word[c % 4]) >= probability);
            count += keep[t][c];
        }
    assert_true(count > 0.67 * T * C && count < 0.73 * T * C);
}

static void a_token_draws_the_same_wherever_it_lies(void **state)
{
    (void)state;
    static bool forwards[T][C], backwards[T][C];
    int32_t sequence[2][T], positions[2][T];
    for (int t = 0; t < T; t++) {
        sequence[0][t] = sequence[1][T - 1 - t] = t / 9;
        positions[0][t] = positions[1][T - 1 - t] = t % 9;
    }
    int threads = parallel_threads();
    kept(forwards, sequence[0], positions[0]);
    parallel_set_threads(threads > 1 ? 1 : 3);
    kept(backwards, sequence[1], positions[1]);
    parallel_set_threads(threads);
    for (int t = 0; t < T; t++)
        assert_memory_equal(forwards[t], backwards[T - 1 - t], sizeof forwards[t]);
    assert_memory_not_equal(forwards[0], forwards[1], sizeof forwards[0]);
    assert_memory_not_equal(forwards[0], forwards[9], sizeof forwards[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_draws_are_those_of_philox),
        cmocka_unit_test(a_token_draws_the_same_wherever_it_lies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
