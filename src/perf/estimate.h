/* A model of time: what a training step would take on a card that is not there.
 *
 * Every command of a step is known before it runs: what it multiplies, and the bytes that it reads and writes. A kind of work
 * (device/work.def) has a rate in FLOPs and one in bytes, measured or assumed, and a command takes the longer of both times, and
 * a gap to the next one. The sum is an estimate. The roofline is the same sum with every rate at what the card's maker publishes,
 * attention on tensor cores, and no gaps: no step with these commands can be faster. Copies of weights out of host memory run at
 * the same time as the commands: the step waits where one has not arrived in time.
 */
#ifndef PERF_ESTIMATE_H
#define PERF_ESTIMATE_H

#include "device/gpu_spec.h"
#include "job/build.h"

struct estimate_work { /* of a step, on average over the steps of the run */
    double commands, flops, bytes;
    double seconds, roofline_seconds; /* without gaps */
    double flops_seconds;             /* at the published rate, whatever the bytes */
};

struct estimate {
    const struct gpu_spec *card; /* the device's */
    bool graphs;
    struct estimate_work work[WORK_COUNT];
    enum dtype dtype;                           /* of the matmuls' operands */
    double commands, gap_seconds;               /* of all kinds of work */
    double seconds, roofline_seconds;           /* of a step */
    double flops, flops_seconds;                /* and their time only at the published rates */
    double wait_seconds, roofline_wait_seconds; /* of both: for weights on their way from the host */
    double tokens, micro_batches;               /* of a step */
    double keys;                                /* that a query sees on average, without a window */
    int64_t rows, longest;                      /* of the data that the steps were looked at with */
    bool synthetic;                             /* rows of one length, in place of data */
    int64_t steps;                              /* of the run; 0: not known */
};

/* The kind of work that a command of an op does. */
enum work estimate_work_of(const struct op *op, const struct command *command);

/* Of programs that are planned for a device that stands for a card, before session_shrink, with rows that may be synthetic. */
enum status estimate_make(struct build *b, bool synthetic, struct estimate *e);

#endif
