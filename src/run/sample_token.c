/* Choosing a token without sorting the vocabulary.
 *
 * The choice is defined by sums over sorted candidates (choose_sorted), and the same seed gives the same token for good. But a
 * token is found without them: candidates are counted into buckets of similar weights, and only the bucket is sorted in which
 * a sum ends. Sums in another order differ by their rounding, of which there is a bound. What is nearer to a border than this
 * bound is left to choose_sorted: one choice in tens of thousands where all tokens are equally likely, far fewer else.
 */
#include "run/sample_token.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"

struct candidate {
    double weight;
    int32_t token;
};

enum { BUCKETS = 1024, BUCKET_BITS = 48 }; /* a bucket for each 16th of a power of two; the last has all below 2^-64 */

/* The candidates: of the most likely token the weight is 1. What is not to be drawn has the weight 0. */
struct candidates {
    const struct sampling *sampling;
    struct chooser *c;
    int64_t vocabulary, position;
    double total, above; /* sums of weights: of all, and of those that min_p leaves */
    double margin;       /* sums are nearer than this to those in any other order */
    double mass[BUCKETS];
    int64_t count[BUCKETS];
};

enum status chooser_init(struct chooser *c, int64_t vocabulary)
{
    *c = (struct chooser){.weights = memory_alloc(vocabulary * (int64_t)sizeof *c->weights),
                          .list = memory_alloc(vocabulary * (int64_t)sizeof *c->list),
                          .logits = memory_alloc(vocabulary * (int64_t)sizeof *c->logits),
                          .seen = memory_alloc(vocabulary * (int64_t)sizeof *c->seen)};
    return c->weights && c->list && c->logits && c->seen ? OK : ERR_MEMORY;
}

void chooser_free(struct chooser *c)
{
    memory_free(c->weights);
    memory_free(c->list);
    memory_free(c->logits);
    memory_free(c->seen);
    *c = (struct chooser){0};
}

static int by_weight(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight < y->weight ? 1 : -1;
    return x->token < y->token ? -1 : 1;
}

/* Weights are in [0, 1], where their bits are in the order of their values. */
static int64_t weight_bucket(double weight)
{
    uint64_t bits;
    const uint64_t one = 0x3ff0000000000000;
    memcpy(&bits, &weight, sizeof bits);
    uint64_t below = (one >> BUCKET_BITS) - (bits >> BUCKET_BITS);
    return below < BUCKETS ? (int64_t)below : BUCKETS - 1;
}

static void candidates_weigh(struct candidates *k, const float *logits, double max_logit)
{
    double temperature = k->sampling->temperature;
    for (int64_t v = 0; v < k->vocabulary; v++)
        k->c->weights[v] = exp(((double)logits[v] - max_logit) / temperature);
}

static void candidates_count(struct candidates *k)
{
    const double *weights = k->c->weights;
    memset(k->mass, 0, sizeof k->mass);
    memset(k->count, 0, sizeof k->count);
    k->total = k->above = 0;
    for (int64_t v = 0; v < k->vocabulary; v++) {
        int64_t b = weight_bucket(weights[v]);
        k->total += weights[v];
        k->above += weights[v] >= k->sampling->min_p ? weights[v] : 0;
        k->mass[b] += weights[v];
        k->count[b]++;
    }
    /* A sum has V roundings of at most 2^-53, four sums are compared, and what is kept may end half a margin early. */
    k->margin = 16 * (double)k->vocabulary * 0x1p-53 * k->total;
}

/* Sorts the candidates of a bucket, or of all of them, into the list. */
static int64_t candidates_sort(const struct candidates *k, int64_t bucket, bool all)
{
    int64_t n = 0;
    struct candidate *list = k->c->list;
    for (int64_t v = 0; v < k->vocabulary; v++)
        if (k->c->weights[v] > 0 && (all || weight_bucket(k->c->weights[v]) == bucket))
            list[n++] = (struct candidate){k->c->weights[v], (int32_t)v};
    qsort(list, (size_t)n, sizeof *list, by_weight);
    return n;
}

static void candidates_keep_top(struct candidates *k, int64_t top_k)
{
    int64_t bucket = 0, before = 0;
    while (before + k->count[bucket] < top_k)
        before += k->count[bucket++];
    int64_t n = candidates_sort(k, bucket, false);
    if (top_k - before > n) /* fewer have a weight above 0 */
        return;
    double least = k->c->list[top_k - before - 1].weight;
    for (int64_t v = 0; v < k->vocabulary; v++)
        k->c->weights[v] = k->c->weights[v] < least ? 0 : k->c->weights[v];
    candidates_count(k);
}

static double candidates_top_p(const struct candidates *k)
{
    return (k->sampling->top_p > 0 ? k->sampling->top_p : 1) * k->total;
}

/* A number from 0 up to `kept`. */
static double candidates_draw(const struct candidates *k, double kept)
{
    struct philox r = philox(k->sampling->seed, 0, (uint64_t)k->position);
    return ((double)r.word[0] + (double)r.word[1] * 0x1p-32) * 0x1p-32 * kept;
}

/* The choice as it is defined. */
static int32_t choose_sorted(const struct candidates *k)
{
    const struct candidate *list = k->c->list;
    int64_t n = candidates_sort(k, 0, true), count = 0;
    double kept = 0, target = candidates_top_p(k);
    while (count < n && kept < target && list[count].weight >= k->sampling->min_p)
        kept += list[count++].weight;
    double draw = candidates_draw(k, kept);
    for (int64_t i = 0; i < count; i++) {
        draw -= list[i].weight;
        if (draw < 0)
            return list[i].token;
    }
    return list[count - 1].token;
}

/* The token at which the sum of sorted weights passes the target, and that sum; -1 if it is too near to be sure. */
static int32_t candidates_pass(const struct candidates *k, double target, double *sum)
{
    int64_t bucket = 0;
    double before = 0;
    for (; bucket < BUCKETS && before + k->mass[bucket] < target; bucket++)
        before += k->mass[bucket];
    int64_t n = bucket < BUCKETS ? candidates_sort(k, bucket, false) : 0;
    for (int64_t i = 0; i < n; i++) {
        *sum = before + k->c->list[i].weight;
        if (*sum > target - k->margin)
            return before<target - k->margin && * sum> target + k->margin ? k->c->list[i].token : -1;
        before = *sum;
    }
    return -1;
}

static int32_t choose_unsorted(const struct candidates *k)
{
    double kept = k->above, target = candidates_top_p(k);
    if (target < k->above - k->margin / 2 && candidates_pass(k, target, &kept) < 0)
        return -1;
    return candidates_pass(k, candidates_draw(k, kept), &kept);
}

static int64_t most_likely(const float *logits, int64_t vocabulary)
{
    int64_t best = 0;
    for (int64_t v = 1; v < vocabulary; v++)
        if (logits[v] > logits[best])
            best = v;
    return best;
}

static bool adjusts(const struct sampling *s)
{
    return s->bias_count > 0 || (s->repetition_penalty != 0 && s->repetition_penalty != 1) || s->frequency_penalty != 0 ||
           s->presence_penalty != 0;
}

enum status sample_token(struct chooser *c, const float *logits, int64_t vocabulary, const struct sampling *sampling,
                         const struct said *said, int32_t *token)
{
    for (int64_t v = 0; v < vocabulary; v++)
        if (!isfinite(logits[v]))
            return fail(ERR_DATA, "the model's logits are not finite at position %lld", (long long)said->count);
    if (adjusts(sampling)) {
        memcpy(c->logits, logits, (size_t)vocabulary * sizeof *logits);
        sample_adjust(c->logits, vocabulary, sampling, said, c->seen);
        logits = c->logits;
    }
    *token = (int32_t)most_likely(logits, vocabulary);
    if (sampling->temperature <= 0)
        return OK;
    struct candidates k = {.sampling = sampling, .c = c, .vocabulary = vocabulary, .position = said->count};
    candidates_weigh(&k, logits, (double)logits[*token]);
    candidates_count(&k);
    if (sampling->top_k > 0 && sampling->top_k < vocabulary)
        candidates_keep_top(&k, sampling->top_k);
    *token = choose_unsorted(&k);
    if (*token < 0)
        *token = choose_sorted(&k);
    return OK;
}
