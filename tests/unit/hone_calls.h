/* Calls of hone.h as most tests make them: with sequences, one rate, and log-probabilities of all tokens side by side. */
#ifndef TESTS_UNIT_HONE_CALLS_H
#define TESTS_UNIT_HONE_CALLS_H

#include "hone.h"

enum { CALL_DATA_MAX = 128 };

/* The sequences as data, until the next call; NULL: NULL. */
static inline const hone_datum *const *as_data(const hone_sequence *sequences, int64_t count)
{
    static hone_datum data[CALL_DATA_MAX];
    static const hone_datum *list[CALL_DATA_MAX];
    for (int64_t i = 0; sequences && i < count && i < CALL_DATA_MAX; i++) {
        data[i] = (hone_datum){
            .size = sizeof data[i], .ids = sequences[i].ids, .count = sequences[i].count, .weights = sequences[i].weights};
        list[i] = &data[i];
    }
    return sequences ? list : NULL;
}

/* Where the log-probabilities of each are in one array; NULL: NULL. */
static inline float *const *side_by_side(const hone_sequence *sequences, int64_t count, float *all)
{
    static float *each[CALL_DATA_MAX];
    for (int64_t i = 0; sequences && all && i < count && i < CALL_DATA_MAX; i++) {
        each[i] = all;
        all += sequences[i].count > 0 ? sequences[i].count : 0;
    }
    return all ? each : NULL;
}

static inline hone_status add_sequences(hone_trainer *t, const hone_sequence *sequences, int64_t count, hone_loss_sum *sum)
{
    return hone_trainer_forward_backward(t, as_data(sequences, count), count, NULL, NULL, sum);
}

static inline hone_status score_trainer(hone_trainer *t, const hone_sequence *sequences, int64_t count, float *all)
{
    return hone_trainer_logprobs(t, as_data(sequences, count), count, 0, side_by_side(sequences, count, all));
}

static inline hone_status score_model(hone_model *m, const hone_sequence *sequences, int64_t count, float *all)
{
    return hone_logprobs(m, as_data(sequences, count), count, side_by_side(sequences, count, all));
}

/* With this learning rate, or the schedule's. */
enum { RATE_OF_SCHEDULE = -1 };
static inline hone_status step_at(hone_trainer *t, double rate, hone_step *step)
{
    hone_optim optim = {.size = sizeof optim};
    hone_status status = hone_trainer_optim_defaults(t, &optim);
    optim.learning_rate = rate == RATE_OF_SCHEDULE ? optim.learning_rate : rate;
    return status == HONE_OK ? hone_trainer_optim_step(t, &optim, step) : status;
}

#endif
