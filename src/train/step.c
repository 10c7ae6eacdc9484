/* Optimizer steps of a trainer: one that is waited for, and steps that are queued and told of later.
 *
 * A queued step is all its micro-batches and the optimizer's program, put into the device's queue without waiting: one copy in
 * for each micro-batch (which brings the optimizer's inputs along) and one copy out of its losses (the last has the optimizer's
 * outputs too). At most DEVICE_LATER copies out are under way; before one more, the oldest is waited for. The device meanwhile
 * has the work that is behind it.
 */
#include "train/micro.h"

#include "base/clock.h"

/* What is known of the step of the sums before it has run. */
static struct trainer_step describe(const struct trainer *t, double rate)
{
    int64_t number = t->place.step + t->ahead + 1;
    return (struct trainer_step){
        .step = number,
        .epoch = t->steps_per_epoch ? (double)number / (double)t->steps_per_epoch : 0,
        .rate = rate < 0 ? schedule_rate(&t->schedule, number) : rate,
        .tokens = t->tokens,
        .targets = t->targets,
    };
}

static struct optimizer_settings settings(const struct trainer *t, double rate)
{
    const struct options *o = t->options;
    return (struct optimizer_settings){
        .learning_rate = rate,
        .beta1 = o->adam_beta1,
        .beta2 = o->adam_beta2,
        .epsilon = o->adam_epsilon,
        .weight_decay = o->weight_decay,
        .max_norm = o->max_grad_norm,
    };
}

static void start_over(struct trainer *t)
{
    t->sum = t->weight = 0;
    t->tokens = t->targets = t->sequences = 0;
}

/* The step is done: only now does the trainer's place know of it. */
static void finish(struct trainer *t, struct trainer_step *step, double loss, double started, struct optimizer_result result)
{
    double now = clock_seconds();
    step->loss = loss;
    step->norm = result.norm;
    step->applied = result.applied;
    step->seconds = now - (started > t->ended ? started : t->ended);
    t->ended = now;
    t->place.step = step->step;
    t->place.tokens += step->tokens;
    t->place.skipped += !result.applied;
    t->place.skipped_in_row = result.applied ? 0 : t->place.skipped_in_row + 1;
}

enum status trainer_at_rest(const struct trainer *t)
{
    return t->ahead ? fail(ERR_ARGUMENT, "the device has step %lld under way: this has to wait until the run has told of it",
                           (long long)(t->place.step + t->ahead))
                    : OK;
}

enum status trainer_step(struct trainer *t, double rate, struct trainer_step *step)
{
    struct optimizer_result result;
    TRY(trainer_at_rest(t));
    if (!t->sequences)
        return fail(ERR_ARGUMENT, "a step without sequences: nothing was added since the last one");
    *step = describe(t, rate);
    struct optimizer_settings chosen = settings(t, step->rate);
    TRY(optimizer_step(&t->optimizer, &t->session, t->weight, &chosen, &result));
    finish(t, step, t->sum / t->weight, t->started, result);
    start_over(t);
    return OK;
}

/* --- queued ------------------------------------------------------------------------------------------------------------- */

/* Waits for the losses that were asked for first. */
static enum status collect(struct trainer *t)
{
    struct under_way *u = &t->under_way[t->oldest];
    const void *outputs;
    TRY(engine_read_wait(&t->session.engine, t->oldest, &outputs));
    const float *losses = engine_output(outputs, u->net->result);
    for (int64_t i = 0; i < u->rows; i++)
        t->collected += (double)u->weights[i] * (double)losses[i];
    t->oldest = (t->oldest + 1) % DEVICE_LATER;
    t->waiting--;
    if (!u->ends)
        return OK;
    t->is_finished = true;
    t->finished = u->step;
    t->finished.loss = (u->sum + t->collected) / u->weight;
    t->result = optimizer_read(engine_output(outputs, t->optimizer.control));
    t->finished_started = u->started;
    t->collected = 0;
    return OK;
}

static enum status read_later(struct trainer *t, const struct under_way *u)
{
    TRY(engine_read_later(&t->session.engine, (t->oldest + t->waiting) % DEVICE_LATER, u->net->result));
    t->waiting++;
    return OK;
}

static double weight_of(const struct sequence *sequences, int64_t count)
{
    double weight = 0;
    for (int64_t i = 0; i < count; i++)
        for (int64_t k = 1; k < sequences[i].count; k++)
            weight += (double)sequence_weight(&sequences[i], k);
    return weight;
}

enum status trainer_queue(struct trainer *t, const struct sequence *sequences, int64_t count, double rate)
{
    struct session *s = &t->session;
    struct micro micro;
    double started = t->sequences ? t->started : clock_seconds(), weight = weight_of(sequences, count);
    for (int64_t i = 0; i < count; i++)
        TRY(trainer_check(t, &sequences[i]));
    t->weight += weight;
    rate = describe(t, rate).rate;
    struct optimizer_settings chosen = settings(t, rate);
    optimizer_write(&t->optimizer, s, t->weight, &chosen);
    for (int64_t done = 0; done < count; done += micro.sequences) {
        TRY(micro_run(t, sequences + done, count - done, &micro));
        if (t->waiting == DEVICE_LATER)
            TRY(collect(t));
        struct under_way *u = &t->under_way[(t->oldest + t->waiting) % DEVICE_LATER];
        u->net = micro.net;
        u->rows = micro_weights(sequences + done, micro.sequences, u->weights);
        u->ends = done + micro.sequences == count;
        if (u->ends) {
            TRY(engine_run_lead(&s->engine));
            u->step = describe(t, rate);
            u->sum = t->sum;
            u->weight = t->weight;
            u->started = started;
        }
        TRY(read_later(t, u));
    }
    start_over(t);
    t->ahead++;
    return OK;
}

enum status trainer_report(struct trainer *t, struct trainer_step *step)
{
    while (!t->is_finished)
        TRY(collect(t));
    t->is_finished = false;
    *step = t->finished;
    finish(t, step, t->finished.loss, t->finished_started, t->result);
    t->ahead--;
    return OK;
}

void trainer_settle(struct trainer *t)
{
    struct trainer_step step;
    while (t->ahead && trainer_report(t, &step) == OK)
        ;
    t->is_finished = false;
    t->ahead = t->waiting = 0;
    t->collected = 0;
    start_over(t);
}
