/* Logits before a choice: biases and penalties; and the log-probabilities that they are. */
#include <float.h>
#include <math.h>

#include "base/memory.h"
#include "run/sample_token.h"

static float limited(float logit)
{
    return fminf(fmaxf(logit, -FLT_MAX), FLT_MAX);
}

/* Once for each token that was said. */
static void penalize(float *logit, const struct sampling *s, int32_t answered)
{
    float repetition = s->repetition_penalty > 0 ? (float)s->repetition_penalty : 1;
    *logit = limited(*logit < 0 ? *logit * repetition : *logit / repetition);
    *logit -= (float)s->frequency_penalty * (float)answered;
    *logit -= answered ? (float)s->presence_penalty : 0;
    *logit = limited(*logit);
}

void sample_adjust(float *logits, int64_t vocabulary, const struct sampling *s, const struct said *said, int32_t *seen)
{
    for (int64_t i = 0; i < s->bias_count; i++)
        if (s->bias_tokens[i] < vocabulary)
            logits[s->bias_tokens[i]] = limited(logits[s->bias_tokens[i]] + s->biases[i]);
    for (int64_t i = said->prompt; i < said->count; i++)
        if (said->ids[i] < vocabulary)
            seen[said->ids[i]]++;
    for (int64_t i = 0; i < said->count; i++) {
        int32_t id = said->ids[i];
        if (id >= vocabulary || seen[id] < 0)
            continue;
        penalize(&logits[id], s, seen[id]);
        seen[id] = -1;
    }
    for (int64_t i = 0; i < said->count; i++)
        if (said->ids[i] < vocabulary)
            seen[said->ids[i]] = 0;
}

/* --- log-probabilities ---------------------------------------------------------------------------------------------------- */

enum status likely_init(struct likely *l, int64_t capacity)
{
    *l = (struct likely){.capacity = capacity};
    if (!capacity)
        return OK;
    l->ids = memory_alloc(capacity * (int64_t)sizeof *l->ids);
    l->logprobs = memory_alloc(capacity * (int64_t)sizeof *l->logprobs);
    return l->ids && l->logprobs ? OK : ERR_MEMORY;
}

void likely_free(struct likely *l)
{
    memory_free(l->ids);
    memory_free(l->logprobs);
    *l = (struct likely){0};
}

/* A token at its place among the most likely ones so far. */
static void likely_put(struct likely *l, const float *logits, int32_t token)
{
    int64_t at = l->count < l->capacity ? l->count++ : l->capacity - 1;
    for (; at > 0 && logits[l->ids[at - 1]] < logits[token]; at--)
        l->ids[at] = l->ids[at - 1];
    l->ids[at] = token;
}

double sample_logprob(const float *logits, int64_t vocabulary, int32_t token, struct likely *most)
{
    double total = 0;
    float max_logit = logits[0];
    most->count = 0;
    for (int64_t v = 0; v < vocabulary; v++) {
        max_logit = fmaxf(max_logit, logits[v]);
        if (most->count < most->capacity || (most->capacity && logits[v] > logits[most->ids[most->count - 1]]))
            likely_put(most, logits, (int32_t)v);
    }
    for (int64_t v = 0; v < vocabulary; v++)
        total += exp((double)logits[v] - (double)max_logit);
    for (int64_t i = 0; i < most->count; i++)
        most->logprobs[i] = (double)logits[most->ids[i]] - (double)max_logit - log(total);
    return (double)logits[token] - (double)max_logit - log(total);
}
