/* Batches: where sequences lie in the slots, what each token sees, which losses are asked for, and what is left empty. */
#include "test.h"

#include "run/batch.h"
#include "trainer_rig.h"

enum { SLOTS = 64 };

/* A program for training of SLOTS token slots, and as many losses. */
static const struct net *train_net(const struct rig *r)
{
    for (int64_t i = 0; i < r->t.build.session.net_count; i++) {
        const struct net *n = r->t.build.session.nets[i];
        if (n && n->goal == NET_TRAIN && n->T == SLOTS && n->R == SLOTS)
            return n;
    }
    fail_msg("no such program");
    return NULL;
}

static const int32_t *ints(struct rig *r, const struct value *input)
{
    return engine_input(&r->t.build.session.engine, input);
}

static int32_t id_of(int s, int64_t i)
{
    return (int32_t)((s * 31 + i * 17) % TINY_VOCABULARY);
}

/* Writes these sequences, numbered from 5, into the program's inputs, which held other values. */
static void write_all(struct rig *r, const struct net *n, const int64_t *lengths, int count)
{
    struct engine *e = &r->t.build.session.engine;
    memset(e->staging, 0x55, (size_t)e->blocks[e->life_block[LIFE_INPUTS]].bytes);
    struct writer w = {.e = e, .n = n};
    for (int s = 0; s < count; s++) {
        int32_t ids[SLOTS];
        for (int64_t i = 0; i < lengths[s]; i++)
            ids[i] = id_of(s, i);
        struct sequence sequence = {.ids = ids, .count = lengths[s], .number = 5 + s};
        batch_put(&w, &sequence);
    }
    batch_end(&w);
}

static void each_token_sees_its_own_sequence_up_to_itself(void **state)
{
    (void)state;
    static const int64_t lists[][5] = {{5, 1, 7}, {64}, {1, 1, 1, 1, 60}, {30, 34}};
    static const int counts[] = {3, 1, 5, 2};
    struct rig r;
    open_rig(&r, &tied, 0, methods[0]);
    const struct net *n = train_net(&r);
    for (int k = 0; k < 4; k++) {
        write_all(&r, n, lists[k], counts[k]);
        int64_t slot = 0, row = 0;
        for (int s = 0; s < counts[k]; s++)
            for (int64_t i = 0, begin = slot; i < lists[k][s]; i++, slot++) {
                assert_int_equal(ints(&r, n->ids)[slot], id_of(s, i));
                assert_int_equal(ints(&r, n->positions)[slot], i);
                assert_int_equal(ints(&r, n->first)[slot], begin);
                assert_int_equal(ints(&r, n->last)[slot], slot);
                assert_int_equal(ints(&r, n->until)[slot], begin + lists[k][s] - 1);
                assert_int_equal(ints(&r, n->sequence)[slot], 5 + s);
                if (i == 0)
                    continue;
                assert_int_equal(ints(&r, n->rows)[row], slot - 1); /* the token before predicts it */
                assert_int_equal(ints(&r, n->targets)[row++], id_of(s, i));
            }
        for (; slot < SLOTS; slot++) { /* an empty slot sees itself, and its result is not used */
            assert_int_equal(ints(&r, n->ids)[slot], 0);
            assert_int_equal(ints(&r, n->positions)[slot], 0);
            assert_int_equal(ints(&r, n->first)[slot], slot);
            assert_int_equal(ints(&r, n->last)[slot], slot);
            assert_int_equal(ints(&r, n->until)[slot], slot);
            assert_int_equal(ints(&r, n->sequence)[slot], 0);
        }
        for (; row < SLOTS; row++) {
            assert_int_equal(ints(&r, n->rows)[row], -1);
            assert_int_equal(ints(&r, n->targets)[row], -1);
            assert_true(((const float *)engine_input(&r.t.build.session.engine, n->of_loss.weights))[row] == 0);
        }
    }
    close_rig(&r);
}

/* Targets are the marked tokens, those with a weight, or all; never the first, which nothing predicts. */
static void losses_are_asked_for_where_a_token_is_a_target(void **state)
{
    (void)state;
    enum { COUNT = 6 };
    static const float weights[COUNT] = {9, 0, 2, 0, 0.5f, 1};
    static const float expected[3][COUNT] = {{0, 0, 1, 1, 0, 1}, {0, 0, 2, 0, 0.5f, 1}, {0, 1, 1, 1, 1, 1}};
    const int32_t marked[COUNT] = {7 | TOKEN_MARK, 8, 9 | TOKEN_MARK, 10 | TOKEN_MARK, 11, 12 | TOKEN_MARK};
    static const int32_t plain[COUNT] = {7, 8, 9, 10, 11, 12};
    const struct sequence kinds[3] = {{.ids = marked, .marked = true, .count = COUNT},
                                      {.ids = plain, .weights = weights, .count = COUNT},
                                      {.ids = plain, .count = COUNT}};
    struct rig r;
    open_rig(&r, &tied, 0, methods[0]);
    const struct net *n = train_net(&r);
    for (int k = 0; k < 3; k++) {
        struct writer w = {.e = &r.t.build.session.engine, .n = n, .slot = 3, .row = 2};
        int64_t row = 2;
        batch_put(&w, &kinds[k]);
        for (int i = 0; i < COUNT; i++) {
            assert_true(sequence_weight(&kinds[k], i) == expected[k][i]);
            assert_int_equal(ints(&r, n->ids)[3 + i], 7 + i);
            if (expected[k][i] == 0)
                continue;
            assert_int_equal(ints(&r, n->rows)[row], 3 + i - 1);
            assert_int_equal(ints(&r, n->targets)[row], 7 + i);
            assert_true(((const float *)engine_input(w.e, n->of_loss.weights))[row] == expected[k][i]);
            row++;
        }
        assert_int_equal(w.row, row);
        assert_int_equal(w.slot, 3 + COUNT);
    }
    close_rig(&r);
}

static void the_order_sorts_slots_by_id_and_equal_ones_by_slot(void **state)
{
    (void)state;
    struct rig r;
    open_rig(&r, &tied, 0, methods[1]);
    const struct net *n = train_net(&r);
    for (int64_t length = 1; length <= SLOTS; length++) {
        bool seen[SLOTS] = {false};
        write_all(&r, n, (int64_t[]){length / 2 + 1, length - length / 2 - 1}, length > 2 ? 2 : 1);
        const int32_t *id = ints(&r, n->ids), *order = ints(&r, n->order);
        for (int64_t t = 0; t < SLOTS; t++) {
            assert_in_range(order[t], 0, SLOTS - 1);
            assert_false(seen[order[t]]);
            seen[order[t]] = true;
            assert_true(t == 0 || id[order[t - 1]] < id[order[t]] ||
                        (id[order[t - 1]] == id[order[t]] && order[t - 1] < order[t]));
        }
    }
    close_rig(&r);
}

static void batches_take_the_rows_of_a_file_in_order_while_they_fit(void **state)
{
    (void)state;
    enum { COUNT = 200, TOKENS_MAX = 50 };
    static struct token_row rows[COUNT];
    struct data data = {.rows = rows, .row_count = COUNT};
    for (int i = 0; i < COUNT; i++)
        rows[i] = (struct token_row){.count = 1 + (int32_t)(philox(3, 0, (uint64_t)i).word[0] % TOKENS_MAX), .trained = i % 7};
    for (int64_t slots = TOKENS_MAX; slots < 4 * TOKENS_MAX; slots += 13) {
        int64_t row = 0;
        for (struct batch b = {0}; batch_next(&data, slots, &b);) {
            int64_t tokens = 0, trained = 0;
            assert_int_equal(b.first, row);
            assert_true(b.count > 0);
            for (int64_t i = 0; i < b.count; i++, row++) {
                tokens += rows[row].count;
                trained += rows[row].trained;
            }
            assert_true(tokens <= slots);
            assert_true(row == COUNT || tokens + rows[row].count > slots);
            assert_int_equal(b.tokens, tokens);
            assert_int_equal(b.trained, trained);
        }
        assert_int_equal(row, COUNT);
    }
}

static void the_room_for_losses_is_the_smallest_quarter_that_holds_them(void **state)
{
    (void)state;
    for (int64_t T = 4; T <= 256; T += 4)
        for (int64_t trained = 0; trained <= T; trained++) {
            int64_t R = batch_rows(T, trained);
            assert_true(R >= trained && R % (T / 4) == 0 && R <= T);
            assert_true(R == T / 4 || R - T / 4 < trained);
        }
    assert_int_equal(batch_rows(7, 1), 7);
}

static void put_tokens(struct writer *w, int32_t seed, int64_t count)
{
    int32_t ids[96];
    for (int64_t i = 0; i < count; i++)
        ids[i] = id_of(seed, i);
    struct sequence sequence = {.ids = ids, .count = count};
    batch_place(w, &sequence);
}

/* The logits of a sequence do not depend on its neighbours in the slots. */
static void packed_sequences_do_not_see_each_other(void **state)
{
    (void)state;
    struct session s;
    int64_t index, V = TINY_VOCABULARY;
    struct session_options options = {.dir = untied.dir, .device = "cpu", .run = RUN_FLOAT32, .weights = true};
    assert_ok(session_open(&s, &options));
    assert_ok(session_add(&s, NET_LOGITS, 96, 96, 0, &index));
    assert_ok(session_plan(&s));
    assert_ok(session_prepare(&s));
    const struct net *n = s.nets[index];
    float *alone = test_malloc(sizeof(float) * 96 * TINY_VOCABULARY), *packed = test_malloc(sizeof(float) * 96 * TINY_VOCABULARY);
    for (int t = 0; t < 96; t++)
        ((int32_t *)engine_input(&s.engine, n->rows))[t] = t;
    struct writer one = {.e = &s.engine, .n = n, .row = 96}, three = one;
    put_tokens(&one, 3, 20);
    batch_end(&one);
    assert_ok(engine_run(&s.engine, index));
    assert_ok(engine_read(&s.engine, n->result, alone));
    put_tokens(&three, 9, 41);
    put_tokens(&three, 3, 20);
    put_tokens(&three, 8, 35);
    batch_end(&three);
    assert_ok(engine_run(&s.engine, index));
    assert_ok(engine_read(&s.engine, n->result, packed));
    for (int64_t i = 0; i < 20 * V; i++)
        assert_true(fabsf(alone[i] - packed[41 * V + i]) < 1e-4f);
    test_free(alone);
    test_free(packed);
    session_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_token_sees_its_own_sequence_up_to_itself),
        cmocka_unit_test(losses_are_asked_for_where_a_token_is_a_target),
        cmocka_unit_test(the_order_sorts_slots_by_id_and_equal_ones_by_slot),
        cmocka_unit_test(batches_take_the_rows_of_a_file_in_order_while_they_fit),
        cmocka_unit_test(the_room_for_losses_is_the_smallest_quarter_that_holds_them),
        cmocka_unit_test(packed_sequences_do_not_see_each_other),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
