/* Optimizer steps of a trainer: one that is waited for, and steps that are enqueued and reported later.
 *
 * An enqueued step is all its micro-batches and the optimizer's program, without waiting. Each micro-batch has one copy in, which
 * brings the optimizer's inputs too, and one copy out of its losses; the last also has the optimizer's outputs. At most
 * DEVICE_LATER copies out are in flight; before one more, the oldest is waited for. The device meanwhile runs what was enqueued
 * after it.
 */
#include "train/step.h"

#include <math.h>

#include "base/clock.h"
#include "device/cpu_pace.h"
#include "train/micro.h"
#include "train/verify.h"

/* What ranks tell each other of a step: the losses of their sequences, the worst one, and whether to stop. */
struct told {
    double sum, worst_loss;
    int64_t worst;
    int64_t stops;
};

/* What is known of the sums' step before it has run. */
static struct trainer_step describe(const struct trainer *t, double rate)
{
    int64_t number = t->place.step + t->queue.ahead + 1;
    return (struct trainer_step){
        .step = number,
        .epoch = t->steps_per_epoch ? (double)number / (double)t->steps_per_epoch : 0,
        .rate = rate < 0 ? schedule_rate(&t->schedule, number) : rate,
        .tokens = t->sums.tokens,
        .targets = t->sums.targets,
        .worst = -1,
        .worst_loss = NAN,
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

/* What the gradient sums are divided by. Losses that a caller computed (trainer_add_with) may be not finite where their gradients
 * are: 0 skips the step. hone's own losses see to it themselves (ops/linear_cross_entropy.c). */
static double divisor(const struct trainer *t)
{
    return isfinite(t->sums.sum) ? t->sums.weight : 0;
}

/* The step is done: only now does the trainer's place count it. */
static void finish(struct trainer *t, struct trainer_step *step, double loss, double started, struct optimizer_result result)
{
    double now = clock_seconds();
    step->loss = loss;
    step->norm = result.norm;
    step->applied = result.applied;
    step->seconds = now - (started > t->queue.ended ? started : t->queue.ended);
    t->queue.ended = now;
    t->place.step = step->step;
    t->place.tokens += step->tokens;
    t->place.skipped += !result.applied && !step->idle;
}

double step_engine_share(const struct trainer_step *step)
{
    return step->engine_seconds > 0 && step->seconds > 0 ? step->engine_seconds / step->seconds : NAN;
}

enum status trainer_at_rest(const struct trainer *t)
{
    return t->queue.ahead ? fail(ERR_ARGUMENT, "step %lld is in flight: wait until the run has reported it",
                                 (long long)(t->place.step + t->queue.ahead))
                          : OK;
}

enum status trainer_step(struct trainer *t, double rate, struct trainer_step *step)
{
    struct optimizer_result result;
    TRY(trainer_at_rest(t));
    double sums[] = {t->sums.sum, t->sums.weight, (double)t->sums.tokens, (double)t->sums.targets, (double)t->sums.sequences};
    TRY(group_sum(t->group, sums, 5));
    if (sums[4] < 1)
        return fail(ERR_ARGUMENT, "a step without sequences: nothing was added since the last one");
    t->sums.sum = sums[0];
    t->sums.weight = sums[1];
    t->sums.tokens = (int64_t)sums[2];
    t->sums.targets = (int64_t)sums[3];
    *step = describe(t, rate);
    struct optimizer_settings chosen = settings(t, step->rate);
    TRY(optimizer_step(&t->optimizer, &t->session, divisor(t), &chosen, &result));
    step->engine_seconds = cpu_gemm_seconds(t->session.device) - t->sums.gemm_seconds;
    finish(t, step, t->sums.sum / t->sums.weight, t->sums.started, result);
    micro_start_over(t);
    return OK;
}

enum status step_open(struct trainer *t)
{
    for (int i = 0; i < DEVICE_LATER; i++) {
        struct under_way *u = &t->queue.under_way[i];
        u->weights = memory_alloc(t->place.slots * (int64_t)sizeof *u->weights);
        u->sequence = memory_alloc(t->place.slots * (int64_t)sizeof *u->sequence);
        if (!u->weights || !u->sequence)
            return ERR_MEMORY;
    }
    t->queue.worst = -1;
    t->queue.told = memory_alloc(group_size(t->group) * (int64_t)sizeof *t->queue.told);
    return t->queue.told ? OK : ERR_MEMORY;
}

void step_close(struct trainer *t)
{
    memory_free(t->queue.told);
    for (int i = 0; i < DEVICE_LATER; i++) {
        memory_free(t->queue.under_way[i].weights);
        memory_free(t->queue.under_way[i].sequence);
    }
}

/* --- enqueued ----------------------------------------------------------------------------------------------------------- */

/* Sums the losses of a micro-batch sequence by sequence; none is in two of them. */
static void add_losses(struct step_queue *q, const struct under_way *u, const float *losses)
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
static void collect_anew(struct step_queue *q)
{
    q->collected = 0;
    q->worst = -1;
}

/* Waits for the oldest copy out of losses. A rank without sequences in a step has none. */
static enum status collect(struct trainer *t)
{
    struct under_way *u = &t->queue.under_way[t->queue.oldest];
    const void *outputs;
    TRY(engine_read_wait(&t->session.engine, t->queue.oldest, &outputs));
    if (u->net)
        add_losses(&t->queue, u, engine_output(outputs, u->net->result));
    t->queue.oldest = (t->queue.oldest + 1) % DEVICE_LATER;
    t->queue.waiting--;
    if (!u->ends)
        return OK;
    t->queue.is_finished = true;
    t->queue.finished = u->step;
    t->queue.finished_sum = u->sum + t->queue.collected;
    t->queue.finished_weight = u->weight;
    t->queue.finished.worst = t->queue.worst;
    t->queue.finished.worst_loss = t->queue.worst_loss;
    t->queue.result = optimizer_read(engine_output(outputs, t->optimizer.control));
    t->queue.finished_started = u->started;
    collect_anew(&t->queue);
    return OK;
}

static enum status read_later(struct trainer *t, const struct under_way *u)
{
    const struct value *last = u->net ? u->net->result : t->optimizer.control;
    TRY(engine_read_later(&t->session.engine, (t->queue.oldest + t->queue.waiting) % DEVICE_LATER, last));
    t->queue.waiting++;
    return OK;
}

/* The sequences of a step that this rank computes. */
static enum status take_share(struct trainer *t, const struct sequence **sequences, int64_t *count)
{
    if (!t->group)
        return OK;
    t->sums.numbered = true;
    return share_sequences(&t->share, *sequences, *count, t->sums.sequences, sequences, count);
}

/* Which losses the copy out of a micro-batch will bring. */
static void expect(const struct trainer *t, struct under_way *u, const struct micro *micro, const struct sequence *sequences,
                   int64_t first)
{
    u->net = micro->net;
    u->rows = micro_weights(sequences + first, micro->sequences, u->weights, u->sequence, first);
    for (int64_t i = 0; i < u->rows && t->group; i++)
        u->sequence[i] = (int32_t)sequences[u->sequence[i]].number;
}

static enum status run_optimizer(struct trainer *t, const struct under_way *u, bool ended)
{
    struct engine *e = &t->session.engine;
    if (!ended)
        TRY(optimizer_sum(&t->optimizer, &t->session));
    return u->net ? engine_run_lead(e) : engine_run(e, t->optimizer.index);
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
    int64_t done = 0;
    if (count < 1)
        return fail(ERR_ARGUMENT, "a step without sequences: there are none to queue");
    double started = t->sums.sequences ? t->sums.started : clock_seconds();
    double matmuls = t->sums.sequences ? t->sums.gemm_seconds : cpu_gemm_seconds(s->device);
    for (int64_t i = 0; i < count; i++)
        TRY(trainer_check(t, &sequences[i]));
    bool verifies = verify_due(t);
    const struct sequence *all = sequences;
    int64_t all_count = count;
    TRY(take_share(t, &sequences, &count));
    if (verifies)
        TRY(verify_first(t, sequences, count));
    t->sums.numbered = t->group != NULL;
    micro_weigh(t, all, all_count);
    if (t->sync.on) /* a rank that steps on its own divides by its own */
        t->sums.weight = weight_of(sequences, count);
    rate = describe(t, rate).rate;
    struct optimizer_settings chosen = settings(t, rate);
    optimizer_write(&t->optimizer, s, divisor(t), &chosen);
    TRY(micro_even_out(t, sequences, count));
    do {
        struct micro micro = {0};
        if (count)
            TRY(micro_run(t, sequences + done, count - done, !verifies, &micro));
        if (t->queue.waiting == DEVICE_LATER)
            TRY(collect(t));
        struct under_way *u = &t->queue.under_way[(t->queue.oldest + t->queue.waiting) % DEVICE_LATER];
        expect(t, u, &micro, sequences, done);
        done += micro.sequences;
        u->ends = done == count;
        if (u->ends && verifies)
            TRY(verify_second(t));
        if (u->ends) {
            TRY(run_optimizer(t, u, micro.ended));
            u->step = describe(t, rate);
            u->step.verified = verifies;
            u->step.engine_seconds = cpu_gemm_seconds(s->device) - matmuls;
            u->sum = t->sums.sum;
            u->weight = t->sums.weight;
            u->started = started;
        }
        TRY(read_later(t, u));
    } while (done < count);
    micro_start_over(t);
    t->queue.ahead++;
    return OK;
}

static bool is_worse(const struct told *told, const struct trainer_step *than)
{
    if (told->worst < 0 || than->worst < 0)
        return told->worst >= 0;
    if (isnan(told->worst_loss) || isnan(than->worst_loss))
        return isnan(told->worst_loss) && (!isnan(than->worst_loss) || told->worst < than->worst);
    return told->worst_loss > than->worst_loss || (told->worst_loss == than->worst_loss && told->worst < than->worst);
}

/* Every rank gets the same sum, in the order of ranks. */
static enum status join_losses(struct trainer *t, struct trainer_step *step)
{
    struct step_queue *q = &t->queue;
    if (!t->group || (t->sync.on && !sync_due(t, step->step)))
        return OK;
    struct told mine = {q->finished_sum, step->worst_loss, step->worst, q->asks_stop};
    struct told *all = q->told;
    TRY(group_share(t->group, &mine, all, (int64_t)sizeof mine));
    for (int rank = 0; rank < t->group->size; rank++)
        step->stops |= all[rank].stops != 0;
    if (t->sync.on) /* the loss of a rank's own sequences */
        return OK;
    q->finished_sum = 0;
    step->worst = -1;
    for (int rank = 0; rank < t->group->size; rank++) {
        q->finished_sum += all[rank].sum;
        if (is_worse(&all[rank], step)) {
            step->worst = all[rank].worst;
            step->worst_loss = all[rank].worst_loss;
        }
    }
    return OK;
}

enum status trainer_report(struct trainer *t, struct trainer_step *step)
{
    while (!t->queue.is_finished)
        TRY(collect(t));
    t->queue.is_finished = false;
    *step = t->queue.finished;
    TRY(join_losses(t, step));
    step->idle = t->queue.finished_weight == 0;
    finish(t, step, t->queue.finished_sum / t->queue.finished_weight, t->queue.finished_started, t->queue.result);
    t->queue.ahead--;
    return OK;
}

void trainer_settle(struct trainer *t)
{
    struct trainer_step step;
    while (t->queue.ahead && trainer_report(t, &step) == OK)
        ;
    t->queue.is_finished = false;
    t->queue.ahead = t->queue.waiting = 0;
    collect_anew(&t->queue);
    micro_start_over(t);
}
