/* Choosing a token from logits. */
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "run/generation.h"

struct candidate {
    double probability;
    int32_t token;
};

static int by_probability(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->probability != y->probability)
        return x->probability < y->probability ? 1 : -1;
    return x->token < y->token ? -1 : 1;
}

static int32_t most_likely(const float *logits, int64_t vocabulary)
{
    int64_t best = 0;
    for (int64_t v = 1; v < vocabulary; v++)
        if (logits[v] > logits[best])
            best = v;
    return (int32_t)best;
}

enum status sample_token(const float *logits, int64_t vocabulary, const struct sampling *sampling, int64_t position,
                         int32_t *token)
{
    for (int64_t v = 0; v < vocabulary; v++)
        if (!isfinite(logits[v]))
            return fail(ERR_DATA, "the model's logits are not finite at position %lld", (long long)position);
    *token = most_likely(logits, vocabulary);
    double max_logit = (double)logits[*token], total = 0, kept = 0;
    if (sampling->temperature <= 0)
        return OK;
    struct candidate *list = memory_alloc(vocabulary * (int64_t)sizeof *list);
    if (!list)
        return ERR_MEMORY;
    for (int64_t v = 0; v < vocabulary; v++) {
        list[v] = (struct candidate){exp(((double)logits[v] - max_logit) / sampling->temperature), (int32_t)v};
        total += list[v].probability;
    }
    qsort(list, (size_t)vocabulary, sizeof *list, by_probability);
    int64_t count = 0;
    while (count < vocabulary && kept < sampling->top_p * total)
        kept += list[count++].probability;
    struct philox r = philox(sampling->seed, 0, (uint64_t)position);
    double draw = ((double)r.word[0] + (double)r.word[1] * 0x1p-32) * 0x1p-32 * kept;
    *token = list[count - 1].token;
    for (int64_t i = 0; i < count; i++) {
        draw -= list[i].probability;
        if (draw < 0) {
            *token = list[i].token;
            break;
        }
    }
    memory_free(list);
    return OK;
}

double sample_logprob(const float *logits, int64_t vocabulary, int32_t token)
{
    double max_logit = (double)logits[most_likely(logits, vocabulary)], total = 0;
    for (int64_t v = 0; v < vocabulary; v++)
        total += exp((double)logits[v] - max_logit);
    return (double)logits[token] - max_logit - log(total);
}
