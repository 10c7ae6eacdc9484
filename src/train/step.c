/* Optimizer steps: one that is waited for, and steps that are enqueued and reported later.
 *
 * An enqueued step is all its micro-batches and the optimizer's program, without waiting. Each micro-batch has one copy in, which
 * brings the optimizer's inputs too, and one copy out of its losses; the last also has the optimizer's outputs. At most
 * DEVICE_LATER copies out are in flight; before one more, the oldest is waited for. The device meanwhile runs what was enqueued
 * after it.
 */
#include "train/stepper.h"

#include <math.h>

#include "base/clock.h"
#include "base/number.h"
#include "device/cpu_pace.h"
#include "train/micro.h"
#include "train/verify_steps.h"

/* What ranks tell each other of a step: the losses of their sequences, the worst one, and whether to stop. */
struct rank_report {
    double sum, worst_loss;
    int64_t worst;
    int64_t stops;
};

/* What is known of a step with these sums before it has run. */
static struct step step_describe(const struct stepper *st, const struct micro_sums *sums, double rate)
{
    int64_t number = st->state->step + st->queue.ahead + 1;
    return (struct step){
        .step = number,
        .epoch = st->build->rows->steps_per_epoch ? (double)number / (double)st->build->rows->steps_per_epoch : 0,
        .rate = rate < 0 ? schedule_rate(&st->schedule, number) : rate,
        .tokens = sums->tokens,
        .targets = sums->targets,
        .worst = -1,
        .worst_loss = NAN,
    };
}

struct optimizer_settings stepper_settings(const struct stepper *st)
{
    const struct options *o = st->build->job->options;
    return (struct optimizer_settings){
        .learning_rate = schedule_rate(&st->schedule, st->state->step + st->queue.ahead + 1),
        .beta1 = o->adam_beta1,
        .beta2 = o->adam_beta2,
        .epsilon = o->adam_epsilon,
        .weight_decay = o->weight_decay,
        .max_norm = o->max_grad_norm,
    };
}

static struct optimizer_settings with_rate(const struct stepper *st, double rate)
{
    struct optimizer_settings settings = stepper_settings(st);
    if (rate >= 0)
        settings.learning_rate = rate;
    return settings;
}

/* What the gradient sums are divided by. Losses that a caller computed (stepper_add_with) may be not finite where their gradients
 * are: 0 skips the step. hone's own losses see to it themselves (ops/losses/linear_cross_entropy.c). */
static double divisor(const struct micro_sums *sums)
{
    return isfinite(sums->sum) ? sums->weight : 0;
}

/* The step is done: only now does the run's state count it. */
static void step_finish(struct stepper *st, struct step *step, double loss, double started, struct optimizer_result result)
{
    double now = clock_seconds();
    step->loss = loss;
    step->norm = result.norm;
    step->applied = result.applied;
    step->seconds = now - (started > st->queue.ended ? started : st->queue.ended);
    st->queue.ended = now;
    st->state->step = step->step;
    st->state->tokens += step->tokens;
    st->state->skipped += !result.applied && !step->idle;
}

double step_engine_share(const struct step *step)
{
    return step->engine_seconds > 0 && step->seconds > 0 ? step->engine_seconds / step->seconds : NAN;
}

/* The sums of all ranks, which are not kept: a step that is refused can be taken in another way. */
static enum status add_up(const struct stepper *st, struct micro_sums *all)
{
    enum { SUM, WEIGHT, NEGATIVE, TOKENS, TARGETS, SEQUENCES, SUMS };
    const struct micro_sums *own = &st->sums;
    double sums[SUMS] = {
        own->sum, own->weight, (double)own->negative, (double)own->tokens, (double)own->targets, (double)own->sequences};
    TRY(group_sum(st->build->group, sums, SUMS));
    if (sums[SEQUENCES] < 1)
        return fail(ERR_ARGUMENT, "a step without sequences: nothing was added since the last one");
    *all = *own;
    all->sum = sums[SUM];
    all->weight = sums[WEIGHT];
    all->negative = (int64_t)sums[NEGATIVE];
    all->tokens = (int64_t)sums[TOKENS];
    all->targets = (int64_t)sums[TARGETS];
    return OK;
}

/* A step that is waited for. 0: divided by the sum of the weights, whatever that is. */
static enum status step_divided(struct stepper *st, const struct micro_sums *all, const struct optimizer_settings *settings,
                                double by, struct step *step)
{
    struct optimizer_result result;
    *step = step_describe(st, all, settings->learning_rate);
    TRY(optimizer_step(&st->build->optimizer, &st->build->session, by > 0 && isfinite(all->sum) ? by : divisor(all), settings,
                       &result));
    step->engine_seconds = cpu_gemm_seconds(st->build->session.device) - st->sums.gemm_seconds;
    step_finish(st, step, all->sum / (by > 0 ? by : all->weight), all->started, result);
    micro_start_over(st);
    return OK;
}

enum status stepper_step(struct stepper *st, double rate, struct step *step)
{
    struct micro_sums all;
    struct optimizer_settings settings = with_rate(st, rate);
    TRY(stepper_at_rest(st));
    TRY(add_up(st, &all));
    return step_divided(st, &all, &settings, 0, step);
}

enum status stepper_step_with(struct stepper *st, const struct optimizer_settings *settings, double by, struct step *step)
{
    struct micro_sums all;
    TRY(stepper_at_rest(st));
    TRY(add_up(st, &all));
    if (by == 0 && (all.negative || all.weight == 0))
        return fail(ERR_ARGUMENT,
                    "the weights since the last step add up to %g, and %lld of them %s below 0: their sum divides nothing "
                    "sensibly. Set the divisor, to 1 for example",
                    all.weight, (long long)all.negative, is_or_are(all.negative));
    return step_divided(st, &all, settings, by, step);
}

static enum status open_queue(struct stepper *st)
{
    struct step_queue *q = &st->queue;
    int64_t slots = st->build->slots;
    for (int i = 0; i < DEVICE_LATER; i++) {
        struct in_flight *u = &q->in_flight[i];
        u->weights = memory_alloc(slots * (int64_t)sizeof *u->weights);
        u->sequence = memory_alloc(slots * (int64_t)sizeof *u->sequence);
        if (!u->weights || !u->sequence)
            return ERR_MEMORY;
    }
    q->worst = -1;
    q->reports = memory_alloc(group_size(st->build->group) * (int64_t)sizeof *q->reports);
    return q->reports ? OK : ERR_MEMORY;
}

enum status stepper_open(struct stepper *st, struct build *build, struct run_state *state, int64_t steps)
{
    const struct job *j = build->job;
    *st = (struct stepper){.build = build, .state = state, .loss = loss_by_default(j->loss)};
    enum status status = schedule_init(&st->schedule, j->options, steps);
    if (status == OK)
        status = micro_open(st);
    if (status == OK)
        status = open_queue(st);
    if (status == OK)
        status = verify_open(st);
    if (status != OK)
        stepper_close(st);
    return status;
}

enum status stepper_start(struct stepper *st, bool resumed)
{
    return diloco_open(st, resumed);
}

void stepper_close(struct stepper *st)
{
    micro_close(st);
    for (int i = 0; i < DEVICE_LATER; i++) {
        memory_free(st->queue.in_flight[i].weights);
        memory_free(st->queue.in_flight[i].sequence);
    }
    memory_free(st->queue.reports);
    verify_close(st);
    diloco_close(&st->diloco);
    *st = (struct stepper){0};
}

/* --- enqueued ----------------------------------------------------------------------------------------------------------- */

/* Sums the losses of a micro-batch sequence by sequence; none is in two of them. */
static void step_add_losses(struct step_queue *q, const struct in_flight *u, const float *losses)
{
    for (int64_t begin = 0, end; begin < u->rows; begin = end) {
        double sum = 0, weight = 0;
        for (end = begin; end < u->rows && u->sequence[end] == u->sequence[begin]; end++) {
            q->collected += (double)u->weights[end] * (double)losses[end];
            sum += (double)u->weights[end] * (double)losses[end];
            weight += (double)u->weights[end];
        }
        if (q->worst < 0 || (!isnan(q->worst_loss) && !(sum / weight <= q->worst_loss))) {
            q->worst = u->sequence[begin];
            q->worst_loss = sum / weight;
        }
    }
}

/* The next step's losses begin. */
static void begin_losses(struct step_queue *q)
{
    q->collected = 0;
    q->worst = -1;
}

/* Waits for the oldest copy out of losses. A rank without sequences in a step has none. */
static enum status step_collect(struct stepper *st)
{
    struct in_flight *u = &st->queue.in_flight[st->queue.oldest];
    const void *outputs;
    TRY(engine_read_wait(&st->build->session.engine, st->queue.oldest, &outputs));
    if (u->net)
        step_add_losses(&st->queue, u, engine_output(outputs, u->net->result));
    st->queue.oldest = (st->queue.oldest + 1) % DEVICE_LATER;
    st->queue.waiting--;
    if (!u->ends)
        return OK;
    st->queue.is_finished = true;
    st->queue.finished = u->step;
    st->queue.finished_sum = u->sum + st->queue.collected;
    st->queue.finished_weight = u->weight;
    st->queue.finished.worst = st->queue.worst;
    st->queue.finished.worst_loss = st->queue.worst_loss;
    st->queue.result = optimizer_read(engine_output(outputs, st->build->optimizer.control));
    st->queue.finished_started = u->started;
    begin_losses(&st->queue);
    return OK;
}

static enum status step_read_later(struct stepper *st, const struct in_flight *u)
{
    const struct value *last = u->net ? u->net->result : st->build->optimizer.control;
    TRY(engine_read_later(&st->build->session.engine, (st->queue.oldest + st->queue.waiting) % DEVICE_LATER, last));
    st->queue.waiting++;
    return OK;
}

/* The sequences of a step that this rank computes. */
static enum status take_share(struct stepper *st, const struct sequence **sequences, int64_t *count)
{
    if (!st->build->group)
        return OK;
    st->sums.numbered = true;
    return rank_split_sequences(&st->build->rows->split, *sequences, *count, st->sums.sequences, sequences, count);
}

/* Which losses the copy out of a micro-batch will bring. */
static void step_expect(const struct stepper *st, struct in_flight *u, const struct micro *micro,
                        const struct sequence *sequences, int64_t first)
{
    u->net = micro->net;
    u->rows = micro_weights(sequences + first, micro->sequences, u->weights, u->sequence, first);
    for (int64_t i = 0; i < u->rows && st->build->group; i++)
        u->sequence[i] = (int32_t)sequences[u->sequence[i]].number;
}

static enum status run_optimizer(struct stepper *st, const struct in_flight *u, bool ended)
{
    struct engine *e = &st->build->session.engine;
    if (!ended)
        TRY(optimizer_sum(&st->build->optimizer, &st->build->session));
    return u->net ? engine_run_lead(e) : engine_run(e, st->build->optimizer.index);
}

static double step_weight_of(const struct sequence *sequences, int64_t count)
{
    double weight = 0;
    for (int64_t i = 0; i < count; i++)
        for (int64_t k = 1; k < sequences[i].count; k++)
            weight += (double)sequence_weight(&sequences[i], k);
    return weight;
}

enum status stepper_queue(struct stepper *st, const struct sequence *sequences, int64_t count, double rate)
{
    struct session *s = &st->build->session;
    int64_t done = 0;
    if (count < 1)
        return fail(ERR_ARGUMENT, "a step without sequences: there are none to queue");
    double started = st->sums.sequences ? st->sums.started : clock_seconds();
    double matmuls = st->sums.sequences ? st->sums.gemm_seconds : cpu_gemm_seconds(s->device);
    for (int64_t i = 0; i < count; i++)
        TRY(stepper_check(st, st->loss.id, &sequences[i]));
    TRY(stepper_clear_stale(st));
    st->stale = true; /* until all of the step is enqueued */
    bool verifies = verify_due(st);
    const struct sequence *all = sequences;
    int64_t all_count = count;
    TRY(take_share(st, &sequences, &count));
    if (verifies)
        TRY(verify_first(st, sequences, count));
    st->sums.numbered = st->build->group != NULL;
    micro_weigh(st, all, all_count);
    if (st->diloco.on) /* a rank that steps on its own divides by its own */
        st->sums.weight = step_weight_of(sequences, count);
    struct optimizer_settings chosen = with_rate(st, rate);
    rate = chosen.learning_rate;
    optimizer_write(&st->build->optimizer, s, divisor(&st->sums), &chosen);
    TRY(micro_even_out(st, &st->loss, sequences, count));
    do {
        struct micro micro = {0};
        if (count)
            TRY(micro_run(st, &st->loss, sequences + done, count - done, !verifies, &micro));
        if (st->queue.waiting == DEVICE_LATER)
            TRY(step_collect(st));
        struct in_flight *u = &st->queue.in_flight[(st->queue.oldest + st->queue.waiting) % DEVICE_LATER];
        step_expect(st, u, &micro, sequences, done);
        done += micro.sequences;
        u->ends = done == count;
        if (u->ends && verifies)
            TRY(verify_second(st));
        if (u->ends) {
            TRY(run_optimizer(st, u, micro.ended));
            u->step = step_describe(st, &st->sums, rate);
            u->step.verified = verifies;
            u->step.engine_seconds = cpu_gemm_seconds(s->device) - matmuls;
            u->sum = st->sums.sum;
            u->weight = st->sums.weight;
            u->started = started;
        }
        TRY(step_read_later(st, u));
    } while (done < count);
    micro_start_over(st);
    st->stale = false;
    st->queue.ahead++;
    return OK;
}

static bool is_worse(const struct rank_report *report, const struct step *than)
{
    if (report->worst < 0 || than->worst < 0)
        return report->worst >= 0;
    if (isnan(report->worst_loss) || isnan(than->worst_loss))
        return isnan(report->worst_loss) && (!isnan(than->worst_loss) || report->worst < than->worst);
    return report->worst_loss > than->worst_loss || (report->worst_loss == than->worst_loss && report->worst < than->worst);
}

/* Every rank gets the same sum, in the order of ranks. */
static enum status join_losses(struct stepper *st, struct step *step)
{
    struct step_queue *q = &st->queue;
    if (!st->build->group || (st->diloco.on && !diloco_due(st, step->step)))
        return OK;
    struct rank_report mine = {q->finished_sum, step->worst_loss, step->worst, q->asks_stop};
    struct rank_report *all = q->reports;
    TRY(group_share(st->build->group, &mine, all, (int64_t)sizeof mine));
    for (int rank = 0; rank < st->build->group->size; rank++)
        step->stops |= all[rank].stops != 0;
    if (st->diloco.on) /* the loss of a rank's own sequences */
        return OK;
    q->finished_sum = 0;
    step->worst = -1;
    for (int rank = 0; rank < st->build->group->size; rank++) {
        q->finished_sum += all[rank].sum;
        if (is_worse(&all[rank], step)) {
            step->worst = all[rank].worst;
            step->worst_loss = all[rank].worst_loss;
        }
    }
    return OK;
}

enum status stepper_report(struct stepper *st, struct step *step)
{
    while (!st->queue.is_finished)
        TRY(step_collect(st));
    st->queue.is_finished = false;
    *step = st->queue.finished;
    TRY(join_losses(st, step));
    step->idle = st->queue.finished_weight == 0;
    step_finish(st, step, st->queue.finished_sum / st->queue.finished_weight, st->queue.finished_started, st->queue.result);
    st->queue.ahead--;
    return OK;
}

void stepper_settle(struct stepper *st)
{
    struct step step;
    while (st->queue.ahead && stepper_report(st, &step) == OK)
        ;
    st->stale |= st->queue.ahead != 0 || st->sums.sequences != 0;
    st->queue.is_finished = false;
    st->queue.ahead = st->queue.waiting = 0;
    begin_losses(&st->queue);
    micro_start_over(st);
}
