/* train/verify: steps that are computed twice are the same steps, and one that is not computed the same is found. */
#include "test.h"

#include "trainer_rig.h"

enum { MANY = 2 * SEQUENCES }; /* two micro-batches */

static const struct sequence *many(void)
{
    static struct sequence list[MANY];
    for (int i = 0; i < MANY; i++)
        list[i] = sequences()[i % SEQUENCES];
    return list;
}

static struct trainer_step queue_once(struct trainer *t)
{
    struct trainer_step step;
    assert_ok(trainer_queue(t, many(), MANY, -1));
    assert_ok(trainer_report(t, &step));
    return step;
}

/* Seen to fail without optimizer_clear in verify_first, and without micro_start_over there. */
static void a_run_that_verifies_its_steps_gives_the_same_bytes(void **state)
{
    (void)state;
    for (int i = 0; i < METHODS; i++) {
        struct rig plain, verified;
        open_rig(&plain, &tied, 0, methods[i]);
        open_rig(&verified, &tied, 0, join(i, SETTINGS("verify_every", "2")));
        for (int step = 0; step < 4; step++) {
            struct trainer_step a = queue_once(&plain.t), b = queue_once(&verified.t);
            assert_same_step(&a, &b);
            assert_int_equal(a.tokens, b.tokens);
        }
        assert_same_state(&plain.t, &verified.t);
        assert_same_tensor(&plain.t, plain.t.optimizer.count, &verified.t, verified.t.optimizer.count);
        close_rig(&plain);
        close_rig(&verified);
    }
}

/* --- a device that makes an error ----------------------------------------------------------------------------------------- */

static struct trainer *hit;
static const struct device_class *sound;
static int runs_before; /* the error: negative once it was made */

/* One bit of one weight. */
static void flip(void)
{
    struct engine *e = &hit->session.engine;
    const struct tensor *weights = hit->optimizer.weights;
    uint32_t bits;
    assert_ok(engine_download(e, weights, 0, &bits, sizeof bits));
    bits ^= 1u << 12;
    assert_ok(engine_upload_part(e, weights, 0, 1, &bits, DTYPE_F32));
}

static enum status run_unsound(struct device *device, struct prepared *prepared)
{
    if (runs_before-- == 0)
        flip();
    return sound->run(device, prepared);
}

/* A verified step runs both micro-batches, clears, runs both again and then the optimizer's program: an error before the second,
 * the fourth or the fifth of them. A step that is not verified has no message. */
static void a_bit_that_flips_between_the_two_is_found(void **state)
{
    (void)state;
    static const int moments[] = {1, 3, 4};
    for (int i = 0; i < 3 * METHODS; i++) {
        struct rig r;
        open_rig(&r, &tied, 0, join(i / 3, SETTINGS("verify_every", "3")));
        struct device_class unsound = *r.t.session.device->class;
        hit = &r.t;
        sound = r.t.session.device->class;
        unsound.run = run_unsound;
        queue_once(&r.t);
        r.t.session.device->class = &unsound;
        runs_before = 1;
        queue_once(&r.t);
        assert_true(runs_before < 0);
        runs_before = moments[i % 3];
        assert_fails(trainer_queue(&r.t, many(), MANY, -1), ERR_COMPUTE, "step 3 was computed twice, and the gradient of ");
        assert_non_null(strstr(status_message(), ".weight is not the same"));
        assert_true(runs_before < 0);
        r.t.session.device->class = sound;
        trainer_settle(&r.t);
        close_rig(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_that_verifies_its_steps_gives_the_same_bytes),
        cmocka_unit_test(a_bit_that_flips_between_the_two_is_found),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
