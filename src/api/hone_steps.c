/* hone.h: gradients, steps, and what they have made of the trained tensors. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "api/datum.h"
#include "api/handles.h"
#include "base/number.h"
#include "job/loss_names.h"
#include "state/ranks_agree.h"
#include "state/trained.h"

/* --- gradients ---------------------------------------------------------------------------------------------------------- */

/* What a call adds: with a loss of hone's, or the caller's. */
struct adding {
    struct loss_use loss;
    float *const *logprobs; /* of all data of the call; NULL: not wanted */
    hone_logits_gradient own;
    void *context;
    int64_t first; /* of the data, in the piece that is added */
};

static bool steps_ask(void *context, int64_t sequence, int64_t first, int64_t rows, int64_t vocabulary, const float *logits,
                      float *gradient, double *loss)
{
    const struct adding *a = context;
    return a->own(a->context, a->first + sequence, first, rows, vocabulary, logits, gradient, loss) == 0;
}

/* What was added before a failure counts too. */
static enum status add_piece(struct stepper *st, struct adding *a, const struct sequence *piece, int64_t count,
                             hone_loss_sum *filled)
{
    double sum, weight;
    int64_t before = st->sums.tokens;
    enum status status =
        a->own ? stepper_add_with(st, piece, count, steps_ask, a, &sum, &weight)
               : stepper_add_for(st, &a->loss, piece, count, a->logprobs ? a->logprobs + a->first : NULL, &sum, &weight);
    filled->sum += sum;
    filled->weight += weight;
    filled->tokens += st->sums.tokens - before;
    a->first += count;
    return status;
}

static enum status check_exchange(const struct stepper *st, const char *call)
{
    return st->diloco.on ? fail(ERR_UNSUPPORTED,
                                "%s: with sync_every above 1 ranks exchange their weights in hone_train only: open the trainer "
                                "without it",
                                call)
                         : OK;
}

/* All of the data are checked before the first is added. Where programs have collectives, a rank that has no more data, or was
 * stopped, makes the calls of the others with none. */
static enum status add_data(struct trainer *t, struct adding *a, const hone_datum *const *data, int64_t count,
                            hone_loss_sum *filled, const char *call)
{
    const struct datum_rules rules = {.call = call,
                                      .vocabulary = t->build.session.model.config.vocabulary,
                                      .min = 1,
                                      .max = t->build.slots,
                                      .place = "a micro-batch (option micro_batch_tokens) holds",
                                      .loss = a->own ? NULL : loss_of(a->loss.id),
                                      .plain = a->own};
    struct sequence piece[DATA_AT_ONCE];
    int64_t calls = divide_up(count, DATA_AT_ONCE);
    bool together = engine_in_step(&t->build.session.engine);
    enum status status = OK;
    TRY(check_exchange(&t->stepper, call));
    TRY(stepper_join(&t->stepper, datum_check_each(data, count, &rules), &calls));
    for (; calls > 0 && (status == OK || (together && status == ERR_STOPPED)); calls--) {
        int64_t n = status == OK ? min(count - a->first, DATA_AT_ONCE) : 0;
        for (int64_t i = 0; i < n; i++)
            TRY(datum_take(&piece[i], data, a->first + i, &rules));
        enum status added = add_piece(&t->stepper, a, piece, n, filled);
        status = status == OK ? added : status;
    }
    return status;
}

static hone_status forward_backward(hone_trainer *t, struct adding *a, const hone_datum *const *data, int64_t count,
                                    hone_loss_sum *sum, const char *call)
{
    hone_loss_sum filled = {0};
    CHECK(check_struct(sum, "sum", call));
    CHECK(datum_check_all(data, count, call));
    CHECK(trainer_enter(&t, call));
    enum status status = add_data(&t->trainer, a, data, count, &filled, call);
    hand_over(sum, &filled, sizeof filled);
    return trainer_leave(t, status);
}

static enum status take_loss(struct loss_use *use, const hone_loss *given, const char *call)
{
    hone_loss loss = {0};
    enum loss_id id = LOSS_cross_entropy;
    if (given) {
        TRY(check_filled(given, sizeof *given, "loss", call));
        take_over(&loss, sizeof loss, given);
    }
    if (loss.name)
        TRY(loss_by_name(&id, loss.name, (int64_t)strlen(loss.name)));
    *use = loss_by_default(id);
    TRY(check_count(loss.settings, loss.count, "settings", call));
    for (int64_t i = 0; i < loss.count; i++) {
        TRY(check_given(loss.settings[i].name, "the name of a setting", call));
        if (loss.settings[i].text)
            return fail(ERR_UNSUPPORTED, "%s: the setting %s has a text: those of this libhone are numbers", call,
                        loss.settings[i].name);
        TRY(loss_set(use, loss.settings[i].name, loss.settings[i].value));
    }
    return OK;
}

hone_status hone_trainer_forward_backward(hone_trainer *t, const hone_datum *const *data, int64_t count, const hone_loss *loss,
                                          float *const *logprobs, hone_loss_sum *sum)
{
    struct adding adding = {.logprobs = logprobs};
    CHECK(take_loss(&adding.loss, loss, __func__));
    return forward_backward(t, &adding, data, count, sum, __func__);
}

hone_status hone_trainer_forward_backward_with(hone_trainer *t, const hone_datum *const *data, int64_t count,
                                               hone_logits_gradient gradient, void *context, hone_loss_sum *sum)
{
    struct adding adding = {.own = gradient, .context = context};
    if (!gradient)
        return (hone_status)fail(ERR_ARGUMENT, "%s: gradient is NULL: it is the function that gives the gradient of the loss",
                                 __func__);
    return forward_backward(t, &adding, data, count, sum, __func__);
}

/* --- steps -------------------------------------------------------------------------------------------------------------- */

hone_step public_step(const struct step *s)
{
    return (hone_step){.size = sizeof(hone_step),
                       .step = s->step,
                       .epoch = s->epoch,
                       .loss = s->loss,
                       .grad_norm = s->norm,
                       .learning_rate = s->rate,
                       .tokens = s->tokens,
                       .trained_tokens = s->targets,
                       .seconds = s->seconds,
                       .applied = s->applied,
                       .engine_share = step_engine_share(s)};
}

/* What the options and the schedule say. */
static hone_optim optim_defaults(const struct stepper *st)
{
    struct optimizer_settings s = stepper_settings(st);
    return (hone_optim){.size = sizeof(hone_optim),
                        .learning_rate = s.learning_rate,
                        .beta1 = s.beta1,
                        .beta2 = s.beta2,
                        .epsilon = s.epsilon,
                        .weight_decay = s.weight_decay,
                        .max_grad_norm = s.max_norm};
}

hone_status hone_trainer_optim_defaults(hone_trainer *t, hone_optim *optim)
{
    CHECK(check_struct(optim, "optim", __func__));
    CHECK(trainer_enter(&t, __func__));
    hone_optim filled = optim_defaults(&t->trainer.stepper);
    hand_over(optim, &filled, sizeof filled);
    return trainer_leave(t, OK);
}

/* The numbers of hone_optim. In float32, in which steps are computed, a small one would become 0: where that has a meaning of its
 * own, it is refused. */
static const struct optim_number {
    const char *name;
    size_t at;
    float below;
    bool means_by_0;
} optim_numbers[] = {
    {"learning_rate", offsetof(hone_optim, learning_rate), INFINITY, false},
    {"beta1", offsetof(hone_optim, beta1), 1, false},
    {"beta2", offsetof(hone_optim, beta2), 1, false},
    {"epsilon", offsetof(hone_optim, epsilon), INFINITY, true},
    {"weight_decay", offsetof(hone_optim, weight_decay), INFINITY, false},
    {"max_grad_norm", offsetof(hone_optim, max_grad_norm), INFINITY, true},
    {"divisor", offsetof(hone_optim, divisor), INFINITY, true},
};

enum { OPTIM_NUMBERS = sizeof optim_numbers / sizeof *optim_numbers };

static double optim_value(const hone_optim *o, int number)
{
    double value;
    memcpy(&value, (const char *)o + optim_numbers[number].at, sizeof value);
    return value;
}

/* A struct that nobody filled has an epsilon of 0. */
static enum status check_optim(const hone_optim *o, const char *call)
{
    static const double EPSILON_MIN = 1e-30;
    if (!(o->epsilon >= EPSILON_MIN && o->epsilon <= 1))
        return fail(ERR_ARGUMENT, "%s: epsilon is %g: it is %g to 1; hone_trainer_optim_defaults fills optim", call, o->epsilon,
                    EPSILON_MIN);
    for (int i = 0; i < OPTIM_NUMBERS; i++) {
        const struct optim_number *n = &optim_numbers[i];
        double value = optim_value(o, i);
        float number = (float)value;
        if (!(value >= 0 && number < n->below) || (n->means_by_0 && number == 0 && value > 0))
            return fail(ERR_ARGUMENT, "%s: %s is %.9g: it is %s, also as float32", call, n->name, value,
                        n->below == 1   ? "at least 0 and below 1"
                        : n->means_by_0 ? "0, or above 0 and finite"
                                        : "at least 0 and finite");
    }
    return OK;
}

/* Ranks that step differently would have other weights from then on. */
static enum status optim_agree(const struct stepper *st, const hone_optim *o, const char *call)
{
    struct rank_number numbers[OPTIM_NUMBERS];
    TRY(group_agree(st->build->group, check_optim(o, call)));
    for (int i = 0; i < OPTIM_NUMBERS; i++)
        numbers[i] = (struct rank_number){optim_numbers[i].name, optim_value(o, i)};
    return ranks_agree_numbers(st->build->group, numbers, OPTIM_NUMBERS);
}

static enum status optim_step(struct stepper *st, const hone_optim *given, struct step *step, const char *call)
{
    hone_optim o = optim_defaults(st);
    if (given)
        take_over(&o, sizeof o, given);
    TRY(check_exchange(st, call));
    TRY(optim_agree(st, &o, call));
    const struct optimizer_settings settings = {.learning_rate = o.learning_rate,
                                                .beta1 = o.beta1,
                                                .beta2 = o.beta2,
                                                .epsilon = o.epsilon,
                                                .weight_decay = o.weight_decay,
                                                .max_norm = o.max_grad_norm};
    return stepper_step_with(st, &settings, o.divisor, step);
}

hone_status hone_trainer_clear_gradients(hone_trainer *t)
{
    CHECK(trainer_enter(&t, __func__));
    return trainer_leave(t, stepper_clear(&t->trainer.stepper));
}

hone_status hone_trainer_optim_step(hone_trainer *t, const hone_optim *optim, hone_step *step)
{
    struct step s;
    CHECK(check_struct(step, "step", __func__));
    if (optim)
        CHECK(check_filled(optim, sizeof *optim, "optim", __func__));
    CHECK(trainer_enter(&t, __func__));
    enum status status = optim_step(&t->trainer.stepper, optim, &s, __func__);
    if (status == OK) {
        hone_step filled = public_step(&s);
        hand_over(step, &filled, sizeof filled);
    }
    return trainer_leave(t, status);
}

/* --- tensors ------------------------------------------------------------------------------------------------------------ */

hone_status hone_trainer_tensors(hone_trainer *t, char **json)
{
    GIVEN(json);
    *json = NULL;
    ENTER_NESTED(t, HANDLE_TRAINER, __func__);
    json_t *list = NULL;
    enum status status = trained_json(&t->trainer.build, &list);
    if (status == OK)
        status = json_result(list, json);
    return trainer_leave(t, status);
}

static enum status read_tensor(struct trainer *t, const char *name, bool gradient, float *values, int64_t *count)
{
    TRY(stepper_at_rest(&t->stepper));
    if (gradient)
        TRY(stepper_clear_stale(&t->stepper));
    return trained_read(&t->build, name, gradient, values, count);
}

hone_status hone_trainer_read_tensor(hone_trainer *t, const char *name, hone_tensor_kind kind, float *values, int64_t *count)
{
    CHECK(check_text(name, "name", __func__));
    GIVEN(count);
    if (kind != HONE_TENSOR_WEIGHT && kind != HONE_TENSOR_GRADIENT)
        return (hone_status)fail(ERR_ARGUMENT, "%s: kind is %d: it is HONE_TENSOR_WEIGHT or HONE_TENSOR_GRADIENT", __func__,
                                 (int)kind);
    CHECK(trainer_enter(&t, __func__));
    return trainer_leave(t, read_tensor(&t->trainer, name, kind == HONE_TENSOR_GRADIENT, values, count));
}
