/* Trainers on tiny models, from inside, and sequences to train on. */
#ifndef TESTS_UNIT_TRAINER_RIG_H
#define TESTS_UNIT_TRAINER_RIG_H

#include <math.h>
#include <stdlib.h>

#include "tiny_model.h"
#include "train/trainer.h"

enum { ROWS = 12, SEQUENCES = 4 };

static struct tiny_model tied, untied;
static char data_path[128], output_dir[128], checkpoint_dir[128];

/* Where trainers run: on the CPU, or on $HONE_RIG_DEVICE. */
static inline const char *rig_device(void)
{
    const char *device = getenv("HONE_RIG_DEVICE");
    return device ? device : "cpu";
}

/* A trainer with its options, which must outlive it. */
struct rig {
    struct arena arena;
    struct options options;
    struct trainer t;
};

static inline void set_options(struct rig *r, const struct tiny_model *m, const char *const *settings)
{
    const char *const usual[] = {
        "model",  m->dir, "cache_dir",          m->dir, "device",        rig_device(), "dtype", "float32",
        "lora_r", "4",    "micro_batch_tokens", "64",   "learning_rate", "0.01",       NULL};
    const char *const *both[] = {usual, settings};
    *r = (struct rig){.arena = {0}};
    options_init(&r->options, &r->arena);
    for (int i = 0; i < 2; i++)
        for (const char *const *s = both[i]; *s; s += 2)
            assert_ok(options_set(&r->options, COMMAND_TRAIN, s[0], s[1], "test"));
    if (r->options.finetuning_type == CHOICE_finetuning_type_full)
        r->options.source[OPTION_lora_r] = NULL; /* the usual settings are no mistake of this run */
}

static inline void open_rig_for(struct rig *r, const struct tiny_model *m, enum loss_id loss, const char *const *settings)
{
    set_options(r, m, settings);
    assert_ok(trainer_open(&r->t, &r->options, &(struct trainer_uses){.losses = LOSS_BIT(loss)}));
}

static const struct trainer_uses SAMPLES = {.samples = true}, LOGITS = {.logits = true}, LOGPROBS = {.logprobs = true};

/* What the trainer is for besides steps; NULL: nothing. */
static inline void open_rig(struct rig *r, const struct tiny_model *m, const struct trainer_uses *uses,
                            const char *const *settings)
{
    set_options(r, m, settings);
    assert_ok(trainer_open(&r->t, &r->options, uses));
}

static inline void plan_rig(struct rig *r, const struct tiny_model *m, const struct trainer_uses *uses,
                            const char *const *settings)
{
    set_options(r, m, settings);
    assert_ok(trainer_plan(&r->t, &r->options, uses));
}

static inline void close_rig(struct rig *r)
{
    trainer_close(&r->t);
    arena_free(&r->arena);
}

#define SETTINGS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* What most tests use: pairs with dropout, and all weights. */
static const char *const *const methods[] = {SETTINGS("lora_dropout", "0.1"), SETTINGS("finetuning_type", "full")};
enum { METHODS = 2 };

/* The settings of a method and some more. */
static inline const char *const *join(int method, const char *const *more)
{
    static const char *list[32];
    int n = 0;
    for (const char *const *s = methods[method]; *s; s++)
        list[n++] = *s;
    for (; *more; more++)
        list[n++] = *more;
    list[n] = NULL;
    return list;
}

/* --- sequences and arrays ------------------------------------------------------------------------------------------------- */

/* Four sequences that fill 59 slots; the second one with weights. For losses that ask: log-probabilities before that are about a
 * tiny model's, higher or lower by far, and advantages of both signs. */
static inline const struct sequence *sequences(void)
{
    static const int64_t lengths[SEQUENCES] = {20, 13, 9, 17};
    static int32_t ids[SEQUENCES][32];
    static float weights[32], old[SEQUENCES][32], advantages[SEQUENCES][32];
    static const float away[] = {0, 0.7f, -0.7f, 0.05f};
    static struct sequence list[SEQUENCES];
    for (int s = 0; s < SEQUENCES; s++) {
        for (int i = 0; i < 32; i++) {
            ids[s][i] = (s * 41 + i * i * 7 + i) % TINY_VOCABULARY;
            old[s][i] = -logf(TINY_VOCABULARY) + away[(i + s) % 4];
            advantages[s][i] = (float)((s + i / 2) % 3 - 1) * 0.5f + 0.1f;
        }
        list[s] = (struct sequence){.ids = ids[s], .count = lengths[s], .old_logprobs = old[s], .advantages = advantages[s]};
    }
    for (int i = 0; i < 32; i++)
        weights[i] = (float)(i % 3) * 0.75f;
    list[1].weights = weights;
    return list;
}

/* Other settings of the loss than its own. */
static inline void loss_settings(struct trainer *t, double first, double second)
{
    t->stepper.loss.setting[0] = first;
    t->stepper.loss.setting[1] = second;
}

/* Adds such sequences as if they were the first of the step, and returns the sum of their losses. */
static inline double add_list(struct trainer *t, const struct sequence *list)
{
    double sum, weight;
    t->stepper.sums.sequences = 0; /* so that dropout draws the same */
    assert_ok(stepper_add(&t->stepper, list, SEQUENCES, &sum, &weight));
    assert_true(isfinite(sum) && weight > 0);
    return sum;
}

static inline double add_all(struct trainer *t)
{
    return add_list(t, sequences());
}

static inline struct step step_once(struct trainer *t, double rate)
{
    struct step step;
    add_all(t);
    assert_ok(stepper_step(&t->stepper, rate, &step));
    return step;
}

/* A float32 tensor's bytes, to be freed with test_free. */
static inline float *download(struct trainer *t, const struct tensor *tensor)
{
    float *values = test_malloc((size_t)tensor_bytes(tensor));
    assert_ok(engine_download(&t->build.session.engine, tensor, 0, values, tensor_bytes(tensor)));
    return values;
}

static inline void assert_same_tensor(struct trainer *a, const struct tensor *x, struct trainer *b, const struct tensor *y)
{
    float *p = download(a, x), *q = download(b, y);
    assert_int_equal(tensor_bytes(x), tensor_bytes(y));
    assert_memory_equal(p, q, (size_t)tensor_bytes(x));
    test_free(p);
    test_free(q);
}

/* Weights, state and masters; the sums of gradients too, which a step clears. */
static inline void assert_same_state(struct trainer *a, struct trainer *b)
{
    const struct optimizer *o = &a->build.optimizer, *p = &b->build.optimizer;
    assert_same_tensor(a, o->weights, b, p->weights);
    assert_same_tensor(a, o->master, b, p->master);
    assert_int_equal(o->states, p->states);
    for (int i = 0; i < o->states; i++)
        assert_same_tensor(a, o->state[i], b, p->state[i]);
    assert_same_tensor(a, o->gradients, b, p->gradients);
}

/* The optimizer's own counts of steps. */
static inline void assert_count(struct trainer *t, int32_t applied, int32_t skipped)
{
    int32_t count[2];
    assert_ok(engine_download(&t->build.session.engine, t->build.optimizer.count, 0, count, sizeof count));
    assert_int_equal(count[0], applied);
    assert_int_equal(count[1], skipped);
}

static inline void assert_same_step(const struct step *a, const struct step *b)
{
    assert_true(a->loss == b->loss && a->norm == b->norm && a->rate == b->rate);
    assert_true(a->applied && b->applied);
}

static inline int make_models(void **state)
{
    (void)state;
    tiny_model_make(&tied, true);
    tiny_model_make(&untied, false);
    tiny_chats(&tied, ROWS);
    snprintf(data_path, sizeof data_path, "%s/chats.jsonl", tied.dir);
    snprintf(output_dir, sizeof output_dir, "%s/out", tied.dir);
    snprintf(checkpoint_dir, sizeof checkpoint_dir, "%s/out/checkpoint-3", tied.dir);
    return 0;
}

static inline int remove_models(void **state)
{
    (void)state;
    tiny_model_remove(&tied);
    tiny_model_remove(&untied);
    return 0;
}

#endif
