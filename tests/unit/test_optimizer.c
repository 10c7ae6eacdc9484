/* Every row of optimizers.def in a trainer: it learns, the plan knows its state, and a checkpoint holds it. */
#include "test.h"

#include "processor.h"
#include "state/checkpoint.h"
#include "trainer_rig.h"

static const char *const names[] = {
#define OPTIMIZER(name, ...) #name,
#include "config/optimizers.def"
#undef OPTIMIZER
};
enum { NAMES = sizeof names / sizeof names[0], RUNS = NAMES * METHODS * 2 };

/* Each optimizer with pairs and with all weights, in both types. */
static const char *const *settings_of(int run)
{
    return join(run / 2 % METHODS,
                SETTINGS("optim", names[run / 2 / METHODS], "dtype", run % 2 ? "bfloat16" : "float32", "weight_decay", "0.1"));
}

static int next_run(int run)
{
    return run + (processor_has_bf16() ? 1 : 2);
}

static void every_optimizer_learns(void **state)
{
    (void)state;
    for (int run = 0; run < RUNS; run = next_run(run)) {
        struct rig r;
        open_rig(&r, &tied, 0, settings_of(run));
        assert_string_equal(r.t.build.optimizer.kind->name, names[run / 2 / METHODS]);
        double before = step_once(&r.t, 0.005).loss, after = before;
        for (int i = 0; i < 20; i++)
            after = step_once(&r.t, 0.005).loss;
        if (!(after < 0.95 * before))
            fail_msg("%s: the loss was %g and is %g", r.t.build.optimizer.kind->name, before, after);
        close_rig(&r);
    }
}

static void the_plan_has_the_state_of_the_optimizer(void **state)
{
    (void)state;
    for (int run = 0; run < RUNS; run = next_run(run)) {
        struct rig r;
        int64_t bytes[LIFE_COUNT], mapped;
        plan_rig(&r, &tied, NULL, settings_of(run));
        const struct optimizer *o = &r.t.build.optimizer;
        int64_t each = optimizer_state_bytes(o->kind, r.t.build.session.run), arrays = o->states + (run % 2);
        assert_true(o->states > 0);
        assert_int_equal(each, 4 * arrays);
        session_bytes(&r.t.build.session, bytes, &mapped);
        int64_t rest = bytes[LIFE_STATE] - each * o->elements; /* the counts, and what aligns them */
        assert_true(rest >= 8 && rest <= 4096);
        close_rig(&r);
    }
}

static void a_checkpoint_holds_the_state_of_the_optimizer(void **state)
{
    (void)state;
    for (int run = 0; run < RUNS; run = next_run(run)) {
        struct rig saved, loaded;
        open_rig(&saved, &tied, 0, settings_of(run));
        open_rig(&loaded, &tied, 0, settings_of(run));
        for (int i = 0; i < 3; i++)
            step_once(&saved.t, 0.01);
        assert_ok(directory_make(output_dir));
        assert_ok(trainer_save_state(&saved.t, checkpoint_dir));
        assert_ok(trainer_load_state(&loaded.t, checkpoint_dir));
        assert_same_state(&saved.t, &loaded.t);
        struct step a = step_once(&saved.t, 0.01), b = step_once(&loaded.t, 0.01);
        assert_same_step(&a, &b);
        assert_same_state(&saved.t, &loaded.t);
        close_rig(&saved);
        close_rig(&loaded);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_optimizer_learns),
        cmocka_unit_test(the_plan_has_the_state_of_the_optimizer),
        cmocka_unit_test(a_checkpoint_holds_the_state_of_the_optimizer),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
