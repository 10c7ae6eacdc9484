/* Comparing bfloat16 with float32 for a run. */
#include "job/other_dtype.h"

#include <stdio.h>

#include "base/log.h"
#include "base/parallel.h"
#include "base/process.h"
#include "device/matmul_time.h"

enum { NARROW, WIDE, TYPES }; /* bfloat16, float32 */
enum { PLANNED_LAYERS = 30 }; /* a plan takes longer with more: people wait for one, not for two */

static int other_dtype_here(const struct session *s)
{
    return s->run == RUN_BFLOAT16 ? NARROW : WIDE;
}

static bool other_dtype_matters(const struct build *b)
{
    const struct session *s = &b->session;
    enum dtype in_files;
    bool one = s->run == RUN_BFLOAT16 || s->run == RUN_FLOAT32;
    return one && s->info.instructions && model_dtype(&s->model, &in_files) == OK &&
           (in_files == DTYPE_BF16 || b->job->options->dtype == CHOICE_dtype_bfloat16);
}

/* Of a matmul in each; 0: there is none for it. */
static enum status other_dtype_time(const struct build *b, double seconds[static TYPES])
{
    const struct session *s = &b->session;
    bool widened = s->info.widens && !b->job->full;
    enum status status = matmul_time(s->device, DTYPE_BF16, DTYPE_BF16, &seconds[NARROW]);
    if (status == OK || status == ERR_UNSUPPORTED)
        status = matmul_time(s->device, DTYPE_F32, widened ? DTYPE_BF16 : DTYPE_F32, &seconds[WIDE]);
    return status;
}

static enum status other_dtype_build(struct build *other, struct rows *rows)
{
    TRY(build_add_training(other, rows, 0));
    if (rows->data.row_count)
        TRY(build_add_sizes(other));
    TRY(build_add_validation(other));
    return build_plan(other);
}

/* The bytes of the blocks of the same run in the other type. */
static enum status other_dtype_plan(const struct build *b, int64_t *bytes)
{
    struct job job = *b->job;
    struct options options = *job.options;
    struct build other;
    int64_t each[LIFE_COUNT], mapped;
    int threads = parallel_threads();
    options.dtype = other_dtype_here(&b->session) == NARROW ? CHOICE_dtype_float32 : CHOICE_dtype_bfloat16;
    options.device = "cpu";
    job.options = &options;
    bool muted = log_mute(true); /* it says nothing of itself */
    enum status status = build_open_plan(&other, &job, group_size(b->group));
    if (status == OK) {
        status = other_dtype_build(&other, b->rows);
        *bytes = session_bytes(&other.session, each, &mapped);
        build_close(&other);
    }
    log_mute(muted);
    parallel_set_threads(threads);
    return status;
}

enum status other_dtype_measure(struct build *b, int64_t peak, struct other_dtype *other)
{
    const struct session *s = &b->session;
    int here = other_dtype_here(s);
    double seconds[TYPES] = {0};
    int64_t each[LIFE_COUNT], mapped, bytes, now, highest;
    char memory[OTHER_DTYPE_WORDS / 2], time[OTHER_DTYPE_WORDS / 4];
    *other = (struct other_dtype){.name = NULL};
    if (!other_dtype_matters(b))
        return OK;
    TRY(other_dtype_time(b, seconds));
    if (seconds[!here] == 0)
        return OK;
    const char *name = here == NARROW ? "float32" : "bfloat16";
    if (s->model.config.layers > PLANNED_LAYERS)
        snprintf(memory, sizeof memory, "`hone plan --dtype %s` tells the memory that the run takes, and", name);
    else {
        TRY(other_dtype_plan(b, &bytes));
        process_memory(&now, &highest);
        peak = peak ? peak : now + session_bytes(s, each, &mapped);
        snprintf(memory, sizeof memory, "the run takes %.2f GB in place of %.2f GB, and",
                 1e-9 * (double)(peak + bytes - session_bytes(s, each, &mapped)), 1e-9 * (double)peak);
    }
    bool faster = seconds[!here] < seconds[here];
    snprintf(time, sizeof time, "a matmul is %.1f times as %s (measured)",
             faster ? seconds[here] / seconds[!here] : seconds[!here] / seconds[here], faster ? "fast" : "slow");
    snprintf(other->says, sizeof other->says, "this processor (%s) has %sunits for bfloat16: with --dtype %s %s %s",
             s->info.instructions, s->info.bf16 ? "" : "no ", name, memory, time);
    other->name = name;
    other->seconds = seconds[!here];
    other->seconds_here = seconds[here];
    return OK;
}

bool other_dtype_is_slow(const struct build *b)
{
    const struct device_info *info = &b->session.info;
    return b->job->options->dtype == CHOICE_dtype_bfloat16 && info->instructions && !info->bf16;
}

void other_dtype_warn(struct build *b)
{
    struct other_dtype other;
    if (!other_dtype_is_slow(b))
        return;
    if (other_dtype_measure(b, 0, &other) != OK)
        log_message(LOG_WARNING, "--dtype bfloat16 on a processor without units for it; comparing it with float32 failed: %s",
                    status_message());
    else if (other.name)
        log_message(LOG_WARNING, "%s", other.says);
}
