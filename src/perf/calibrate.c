/* Each command was run as a list of its own and waited for. What the fastest of them took is the price of waiting, and is taken
 * off all others. What a step takes beyond the sum of its commands is the gap between two of them. */
#include "perf/calibrate.h"

#include <stdio.h>

#include "perf/estimate.h"

struct totals {
    double work[WORK_COUNT], seconds[WORK_COUNT]; /* FLOPs, or bytes where only those count */
    double commands, all_seconds;
};

/* Runs of a program in a step: the optimizer's program runs once. */
static double runs_of(const struct build *b, int64_t program)
{
    const struct engine *e = &b->session.engine;
    return (double)e->programs[program].runs / (double)e->programs[b->optimizer.index].runs;
}

static double shortest(const struct build *b)
{
    const struct engine *e = &b->session.engine;
    double least = 1;
    for (int64_t i = 0; i < e->program_count; i++)
        for (int64_t k = 0; runs_of(b, i) > 0 && k < e->programs[i].timing->count; k++) {
            double seconds = e->programs[i].timing->command[k].seconds / runs_of(b, i);
            least = seconds < least ? seconds : least;
        }
    return least;
}

static void calibrate_add_up(const struct build *b, double waiting, struct totals *sum)
{
    const struct engine *e = &b->session.engine;
    for (int64_t i = 0; i < e->program_count; i++) {
        const struct timing *timing = e->programs[i].timing;
        double runs = runs_of(b, i), flops = 0; /* of a node, which stand with its first command */
        for (int64_t k = 0; runs > 0 && k < timing->count; k++) {
            const struct timing_command *c = &timing->command[k];
            enum work work = estimate_work_of(c->op, &timing->issued[k]);
            double seconds = c->seconds - runs * waiting;
            bool multiplying = !work_moves(work);
            if (work == WORK_copy) /* it runs at the same time as others, which are timed */
                continue;
            flops += c->products || multiplying ? c->flops : 0;
            sum->work[work] += runs * (multiplying ? flops : (double)c->bytes);
            flops = multiplying ? 0 : flops;
            sum->seconds[work] += seconds;
            sum->all_seconds += seconds;
            sum->commands += runs;
        }
    }
}

void calibrate_card(const struct build *b, const struct profile *p, struct gpu_spec *card)
{
    const struct device_info *info = &b->session.info;
    struct totals sum = {0};
    calibrate_add_up(b, shortest(b), &sum);
    *card = (struct gpu_spec){.bf16 = info->bf16,
                              .memory = info->memory,
                              .units = info->threads,
                              .measured = true,
                              .stand_in = info->stand_in,
                              .gap = p->step_seconds > sum.all_seconds ? (p->step_seconds - sum.all_seconds) / sum.commands : 0};
    snprintf(card->words, sizeof card->words, "%s", info->name);
    for (int i = 0; i < WORK_COUNT; i++)
        card->rate[i] = sum.seconds[i] > 0 ? sum.work[i] / sum.seconds[i] : 0;
}
