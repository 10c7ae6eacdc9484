/* Room for what a run saves: estimates against what was written, and how many checkpoints there can be at once. */
#include "test.h"

#include "processor.h"
#include "state/checkpoint.h"
#include "state/disk_budget.h"
#include "trainer_rig.h"

static int64_t directory_bytes(const char *dir)
{
    struct arena arena = {0};
    const char **names;
    int64_t count, bytes = 0;
    assert_ok(directory_list(&arena, dir, &names, &count));
    for (int64_t i = 0; i < count; i++)
        bytes += file_size(file_join(&arena, dir, names[i]));
    arena_free(&arena);
    return bytes;
}

/* Fails if a kind of tensor, of state or of file is left out, or counted twice: each has more bytes than the margin. */
static void a_checkpoint_takes_what_was_estimated(void **state)
{
    (void)state;
    static const char *const dtypes[] = {"float32", "bfloat16"};
    const int64_t margin = 160 << 10;
    bool bf16 = processor_has_bf16();
    for (int i = 0; i < METHODS * 2; i += bf16 ? 1 : 2) {
        struct rig r;
        int64_t result;
        open_rig(&r, &tied, 0, join(i / 2, SETTINGS("dtype", dtypes[i % 2], "lora_r", "128", "data", data_path)));
        assert_ok(directory_remove(output_dir));
        assert_ok(trainer_save_state(&r.t, checkpoint_dir));
        int64_t estimate = disk_budget_checkpoint(&r.t.snap, &result), written = directory_bytes(checkpoint_dir);
        assert_in_range(estimate - written, 0, margin);
        assert_ok(directory_remove(output_dir));
        assert_ok(checkpoint_save_result(&r.t.snap, output_dir));
        written = directory_bytes(output_dir);
        assert_in_range(result - written, 0, margin);
        assert_ok(directory_remove(output_dir));
        close_rig(&r);
    }
}

static void as_many_checkpoints_are_counted_as_can_be_there_at_once(void **state)
{
    (void)state;
    static const struct {
        int64_t step, steps, save, limit, existing;
        bool validates;
        int64_t eval, count;
    } cases[] = {
        {0, 10, 0, 2, 0, false, 0, 1},   /* the last one */
        {0, 10, 5, 2, 0, false, 0, 2},   /* no more than are saved */
        {0, 11, 5, 2, 0, false, 0, 3},   /* two are kept while the third is written */
        {0, 1000, 5, 2, 0, false, 0, 3}, /* and never more */
        {0, 1000, 5, 2, 0, true, 5, 4},  /* the best one is kept too */
        {50, 1000, 5, 2, 2, false, 0, 1},  {50, 1000, 5, 2, 9, false, 0, 1}, {990, 1000, 10, 5, 1, false, 0, 1},
        {1000, 1000, 5, 2, 2, true, 5, 0}, {0, 1000, 0, 2, 0, true, 100, 4},
    };
    struct rig r;
    open_rig(&r, &tied, 0, SETTINGS("data", data_path));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        r.t.snap.state.step = cases[i].step;
        r.t.rows.steps = cases[i].steps;
        r.t.rows.eval_data.row_count = cases[i].validates;
        r.options.save_steps = cases[i].save;
        r.options.eval_steps = cases[i].eval;
        r.options.save_total_limit = cases[i].limit;
        if (disk_budget_count(&r.t.snap, cases[i].existing) != cases[i].count)
            fail_msg("case %zu: %lld checkpoints", i, (long long)disk_budget_count(&r.t.snap, cases[i].existing));
    }
    r.t.rows.eval_data.row_count = 0;
    close_rig(&r);
}

static void a_run_that_does_not_fit_on_the_disk_is_refused(void **state)
{
    (void)state;
    struct rig r;
    open_rig(&r, &tied, 0, SETTINGS("data", data_path, "output", output_dir, "save_steps", "1"));
    assert_ok(disk_budget_check(&r.t.snap));
    r.t.rows.steps = r.options.save_total_limit = INT64_C(1) << 40;
    assert_fails(disk_budget_check(&r.t.snap), ERR_IO, "GB are free");
    r.t.rows.steps = r.options.save_total_limit = INT64_MAX;
    assert_fails(disk_budget_check(&r.t.snap), ERR_IO, "GB are free");
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_checkpoint_takes_what_was_estimated),
        cmocka_unit_test(as_many_checkpoints_are_counted_as_can_be_there_at_once),
        cmocka_unit_test(a_run_that_does_not_fit_on_the_disk_is_refused),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
