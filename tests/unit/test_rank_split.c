/* Which sequences of a step a rank takes. */
#include "test.h"

#include <stdio.h>

#include "base/rng.h"
#include "failing.h"
#include "job/rank_split.h"

enum { MANY = 500, RANKS_MAX = 9 };

static int64_t length_of(int64_t i)
{
    return 1 + philox(11, 0, (uint64_t)i).word[0] % 900;
}

static enum status deal(struct rank_split *s, int rank, int ranks, int64_t count)
{
    TRY(rank_split_open(s, rank, ranks));
    rank_split_begin(s);
    for (int64_t i = 0; i < count; i++)
        TRY(rank_split_add(s, length_of(i)));
    return rank_split_end(s);
}

/* Fails if rank_split_end deals by the rank's own load, or leaves the last sequence out. */
static void every_sequence_is_taken_by_one_rank(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= RANKS_MAX; ranks++)
        for (int64_t count = 1; count <= MANY; count = count * 3 + 1) {
            int taken[MANY] = {0};
            for (int rank = 0; rank < ranks; rank++) {
                struct rank_split s;
                assert_ok(deal(&s, rank, ranks, count));
                for (int64_t i = 0; i < s.count; i++) {
                    assert_true(i == 0 || s.mine[i] > s.mine[i - 1]);
                    taken[s.mine[i]]++;
                }
                rank_split_close(&s);
            }
            for (int64_t i = 0; i < count; i++)
                assert_int_equal(taken[i], 1);
        }
}

/* Fails if sequences are dealt in turn, or shortest first. */
static void ranks_get_about_as_many_tokens(void **state)
{
    (void)state;
    struct rank_split s;
    for (int ranks = 2; ranks <= RANKS_MAX; ranks++) {
        int64_t least = INT64_MAX, most = 0;
        for (int rank = 0; rank < ranks; rank++) {
            int64_t tokens = 0;
            assert_ok(deal(&s, rank, ranks, MANY));
            for (int64_t i = 0; i < s.count; i++)
                tokens += length_of(s.mine[i]);
            least = tokens < least ? tokens : least;
            most = tokens > most ? tokens : most;
            rank_split_close(&s);
        }
        if ((most - least) * 100 > least)
            fail_msg("%d ranks have %lld to %lld tokens", ranks, (long long)least, (long long)most);
    }
}

/* Fails if numbers begin at 0 on every rank. */
static void sequences_keep_their_numbers(void **state)
{
    (void)state;
    struct sequence all[20] = {{0}};
    const struct sequence *mine;
    int64_t count, seen = 0;
    for (int64_t i = 0; i < 20; i++)
        all[i] = (struct sequence){.count = length_of(i)};
    for (int rank = 0; rank < 3; rank++) {
        struct rank_split s;
        assert_ok(rank_split_open(&s, rank, 3));
        assert_ok(rank_split_sequences(&s, all, 20, 100, &mine, &count));
        for (int64_t i = 0; i < count; i++)
            assert_int_equal(mine[i].count, length_of(mine[i].number - 100));
        seen += count;
        rank_split_close(&s);
    }
    assert_int_equal(seen, 20);
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    struct failing f = {0};
    while (failing_next(&f)) {
        struct rank_split s;
        failing_begin(&f);
        enum status status = deal(&s, 1, 2, 40);
        failing_end(&f, status);
        rank_split_close(&s);
    }
    assert_true(f.failed > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sequence_is_taken_by_one_rank),
        cmocka_unit_test(ranks_get_about_as_many_tokens),
        cmocka_unit_test(sequences_keep_their_numbers),
        cmocka_unit_test(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
