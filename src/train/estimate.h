/* A model of time: what a training step would take on a card that is not there.
 *
 * Every command of a step is known before it runs: what it multiplies, and the bytes that it reads and writes. A kind of work
 * (device/work.def) has a rate in FLOPs and one in bytes, measured or assumed, and a command takes the longer of both times, and
 * a gap to the next one. The sum is an estimate. The roofline is the same sum with every rate at what the card's maker
 * publishes, attention on tensor cores, and no gaps: no step with these commands can be faster. Copies of weights out of host
 * memory run beside the commands: the step waits where one has not arrived in time.
 */
#ifndef TRAIN_ESTIMATE_H
#define TRAIN_ESTIMATE_H

#include "device/card.h"
#include "train/trainer.h"

struct estimate_work { /* of a step, on average over the steps of the run */
    double commands, flops, bytes;
    double seconds, roofline_seconds; /* without gaps */
    double flops_seconds;             /* at the published rate, whatever the bytes */
};

struct estimate {
    const struct card *card; /* the device's */
    bool graphs;
    struct estimate_work work[WORK_COUNT];
    enum dtype dtype;                           /* of the matmuls' operands */
    double commands, gap_seconds;               /* of all kinds of work */
    double seconds, roofline_seconds;           /* of a step */
    double flops, flops_seconds;                /* and their time at the published rates alone */
    double wait_seconds, roofline_wait_seconds; /* of both: for weights on their way from the host */
    double tokens, micro_batches;               /* of a step */
    double keys;                                /* that a query sees on average, without a window */
    int64_t rows, longest;                      /* of the data that the steps were looked at with */
    bool synthetic;                             /* rows of one length, in place of data */
    int64_t steps;                              /* of the run; 0: not known */
};

/* The kind of work that a command of an op does. */
enum work estimate_work_of(const struct op *op, const struct command *command);

/* Of a trainer whose device stands for a card, between trainer_open with TRAINER_PLAN and session_shrink. It has data, or
 * synthetic rows (TRAINER_MEASURE). */
enum status estimate_make(struct trainer *t, bool synthetic, struct estimate *e);

#endif
