/* What tests of slots share: users with rows of their own, and devices that fail. */
#ifndef TESTS_UNIT_SLOTS_RIG_H
#define TESTS_UNIT_SLOTS_RIG_H

#include "train/slots.h"
#include "trainer_rig.h"

/* The sequences of a user: the others have other ones. A step is two calls. */
static inline void add_half(struct trainer *t, int user, int half)
{
    double sum, weight;
    const struct sequence *list = sequences();
    struct sequence own[2] = {list[2 * half], list[2 * half + 1]};
    own[0].ids += user;
    own[1].ids += user;
    assert_ok(stepper_add(&t->stepper, own, 2, &sum, &weight));
}

static inline struct step step_user(struct trainer *t, int user)
{
    struct step step;
    assert_ok(stepper_step(&t->stepper, user % 2 ? -1 : 0.01 * (user + 1), &step));
    assert_true(step.applied);
    return step;
}

static inline void train_round(struct trainer *t, int user)
{
    add_half(t, user, 0);
    add_half(t, user, 1);
    step_user(t, user);
}

static inline int64_t create(struct trainer *t, int64_t seed, const char *adapter)
{
    int64_t number = -1;
    assert_ok(slots_create(t, &(struct slot_start){seed, adapter}, &number));
    return number;
}

static inline struct slot_facts facts_of(const struct trainer *t, int64_t number)
{
    struct slot_facts facts;
    assert_ok(slots_facts(t, number, &facts));
    return facts;
}

static inline const char *path_in(const char *name)
{
    static char path[4][192];
    static int next;
    char *at = path[next++ % 4];
    snprintf(at, sizeof path[0], "%s/%s", tied.dir, name);
    return at;
}

#endif
