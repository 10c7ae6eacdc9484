/* The warnings before a run's first step. */
#include "train/run_warnings.h"

#include "base/file.h"
#include "base/log.h"
#include "base/number.h"

/* A step of AdamW or Lion moves every weight by about the learning rate, and few weights are larger than this. */
static const double RATE_USUAL_MAX = 0.1;
enum { FEW_STEPS = 10 }; /* where nobody asked for a number of steps */

/* What was asked for, and never comes. */
static void warn_of_no_validation(const struct trainer *t, int64_t evals)
{
    const struct options *o = t->job.options;
    const char *asked = o->evals_per_epoch ? o->source[OPTION_evals_per_epoch]
                        : o->eval_steps    ? o->source[OPTION_eval_steps]
                                           : NULL;
    if (asked && !t->rows.eval_data.row_count && !t->job.samples.count)
        log_message(
            LOG_WARNING,
            "%s: there is nothing to validate on, so no validation comes: name a file with --eval-data, or hold rows back "
            "with --val-set-size 0.05",
            asked);
    if (t->rows.eval_data.row_count && evals == 1 && o->eval_steps && !o->evals_per_epoch && t->rows.steps > 1)
        log_message(asked ? LOG_WARNING : LOG_INFO,
                    "the run has %lld steps and validates only %sat its end: --eval-steps is %lld; --evals-per-epoch 4 validates "
                    "in between",
                    (long long)t->rows.steps, o->eval_on_start ? "before them and " : "", (long long)o->eval_steps);
}

/* Of the two that make a step large the one that can be lowered, the batch first. */
static void warn_of_few_steps(const struct options *o, int64_t steps)
{
    bool batch = o->per_device_train_batch_size > 1, pieces = o->gradient_accumulation_steps > 1;
    char lower[96] = "";
    if (batch || pieces)
        snprintf(lower, sizeof lower, "lower --%s, which is %lld, or ",
                 batch ? "per-device-train-batch-size" : "gradient-accumulation-steps",
                 (long long)(batch ? o->per_device_train_batch_size : o->gradient_accumulation_steps));
    log_message(LOG_WARNING,
                "the run has %lld step%s, in which a model learns little: %sraise --num-train-epochs; hone init chooses both",
                (long long)steps, plural(steps), lower);
}

void run_warn_of_options(const struct trainer *t)
{
    const struct options *o = t->job.options;
    int64_t evals = interval_left(rows_evals(&t->rows, o), 0, t->rows.steps);
    if (t->job.rate_words[0])
        log_message(LOG_INFO, "learning rate %s", t->job.rate_words);
    if (o->learning_rate > RATE_USUAL_MAX)
        log_message(
            LOG_WARNING,
            "--learning-rate %g is very high: a step moves every weight by about that much, and usual rates are from 1e-5 "
            "to 1e-3",
            o->learning_rate);
    if (t->rows.steps < FEW_STEPS && !o->source[OPTION_max_steps])
        warn_of_few_steps(o, t->rows.steps);
    if (o->eval_dataset_path && file_same(o->dataset_path, o->eval_dataset_path))
        log_message(LOG_WARNING,
                    "--eval-data is the file of --data: its loss falls even if the model only remembers. --val-set-size 0.05 "
                    "holds rows back instead");
    if (o->verify_every > t->rows.steps)
        log_message(LOG_WARNING, "--verify-every %lld: the run has %lld step%s, and none of them will be computed twice",
                    (long long)o->verify_every, (long long)t->rows.steps, plural(t->rows.steps));
    if (o->warmup_steps && o->warmup_steps >= t->rows.steps)
        log_message(
            LOG_WARNING,
            "--warmup-steps %lld: the run has %lld step%s, so that the learning rate only rises, and does not come to what "
            "was asked for: lower it, or leave --warmup-ratio to choose",
            (long long)o->warmup_steps, (long long)t->rows.steps, plural(t->rows.steps));
    warn_of_no_validation(t, evals);
    if (o->early_stopping_patience >= evals)
        log_message(LOG_WARNING,
                    "--early-stopping-patience %lld: the run validates %lld time%s after its start and cannot end early: lower "
                    "--eval-steps or the patience",
                    (long long)o->early_stopping_patience, (long long)evals, plural(evals));
}
