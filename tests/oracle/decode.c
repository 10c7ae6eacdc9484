/* Decoding over the cache against the same sequence without one, and the time a token takes.
 *
 *     decode MODEL_DIR agree     cached and uncached logits differ by at most 1e-5 of their range, at every position
 *     decode MODEL_DIR flat      a token near position 1,024 takes at most 20% longer than one near 64
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "run/batch.h"
#include "run/generation.h"

enum { AGREE_TOKENS = 96, AGREE_PROMPT = 40, NEAR = 64, FAR = 1024, ROUNDS = 201 };
static const double agree_max = 1e-5, flat_max = 1.20;
static const double flat_max_narrow = 1.40; /* the cache in float32 is twice as much to read next to weights in bfloat16 */

/* The logits of all positions, of one pass. */
static enum status uncached(struct session *s, int64_t whole, const int32_t ids[AGREE_TOKENS], float *logits)
{
    const struct net *n = s->nets[whole];
    struct writer w = {.e = &s->engine, .n = n};
    batch_place(&w, &(struct sequence){.ids = ids, .count = AGREE_TOKENS});
    for (int i = 0; i < AGREE_TOKENS; i++)
        ((int32_t *)engine_input(&s->engine, n->rows))[i] = i;
    TRY(engine_run(&s->engine, whole));
    return engine_read(&s->engine, n->result, logits);
}

static enum status compare(struct session *s, struct generator *g, float *all)
{
    int64_t whole, V = s->model.config.vocabulary;
    int32_t ids[AGREE_TOKENS];
    double low = 1e30, high = -1e30, worst = 0;
    TRY(session_add(s, NET_LOGITS, AGREE_TOKENS, AGREE_TOKENS, 0, &whole));
    TRY(generate_add(g, s, AGREE_TOKENS + 7, 16));
    TRY(session_plan(s));
    TRY(session_prepare(s));
    for (int i = 0; i < AGREE_TOKENS; i++)
        ids[i] = (int32_t)((i * 7919 + 13) % V);
    TRY(uncached(s, whole, ids, all));
    for (int64_t i = 0; i < AGREE_TOKENS * V; i++) {
        low = (double)all[i] < low ? (double)all[i] : low;
        high = (double)all[i] > high ? (double)all[i] : high;
    }
    TRY(generate_feed(g, ids, AGREE_PROMPT));
    for (int t = AGREE_PROMPT - 1; t < AGREE_TOKENS; t++) {
        for (int64_t v = 0; v < V; v++) {
            double d = (double)g->logits[v] - (double)all[t * V + v];
            worst = d > worst ? d : -d > worst ? -d : worst;
        }
        if (t + 1 < AGREE_TOKENS)
            TRY(generate_feed(g, &ids[t + 1], 1));
    }
    worst /= high - low;
    printf("cached and uncached logits differ by %.2e of the range (at most %.0e)\n", worst, agree_max);
    return worst <= agree_max ? OK : fail(ERR_DATA, "they should agree");
}

static enum status agree(struct session *s)
{
    struct generator g = {0};
    float *all = memory_alloc(AGREE_TOKENS * s->model.config.vocabulary * (int64_t)sizeof *all);
    enum status status = all ? compare(s, &g, all) : ERR_MEMORY;
    memory_free(all);
    generate_free(&g);
    return status;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* One token after `position`, whatever was there before. */
static enum status time_at(struct generator *g, int64_t position, double *time)
{
    int32_t id = 100;
    g->used = position;
    double start = clock_seconds();
    TRY(generate_feed(g, &id, 1));
    *time = clock_seconds() - start;
    return OK;
}

/* Near and far in turns, token by token, so that a busy machine slows both alike; medians are compared. */
static enum status flat(struct session *s)
{
    double most = s->model.weights.narrow ? flat_max_narrow : flat_max;
    struct generator g = {0};
    double near[ROUNDS], far[ROUNDS];
    enum status status = generate_add(&g, s, FAR + 1, 16);
    if (status == OK)
        status = session_plan(s);
    if (status == OK)
        status = session_prepare(s);
    int32_t ids[FAR] = {0};
    if (status == OK)
        status = generate_feed(&g, ids, FAR);
    for (int i = 0; i < ROUNDS && status == OK; i++) {
        status = time_at(&g, NEAR, &near[i]);
        if (status == OK)
            status = time_at(&g, FAR, &far[i]);
    }
    if (status == OK) {
        qsort(near, ROUNDS, sizeof near[0], by_size);
        qsort(far, ROUNDS, sizeof far[0], by_size);
        double ratio = far[ROUNDS / 2] / near[ROUNDS / 2];
        printf("%s: %.2f ms a token at position %d, %.2f ms at %d: ratio %.3f (at most %.2f)\n", session_dtype(s),
               near[ROUNDS / 2] * 1e3, NEAR, far[ROUNDS / 2] * 1e3, FAR, ratio, most);
        if (!(ratio <= most))
            status = fail(ERR_DATA, "the time of a token grows with its position");
    }
    generate_free(&g);
    return status;
}

int main(int argc, char **argv)
{
    struct session s;
    bool timing = argc > 2 && !strcmp(argv[2], "flat");
    if (argc < 3 || (!timing && strcmp(argv[2], "agree"))) {
        fprintf(stderr, "usage: decode MODEL_DIR agree|flat\n");
        return (int)ERR_ARGUMENT;
    }
    struct session_options options = {.dir = argv[1], .device = "cpu", .run = RUN_FLOAT32, .weights = true};
    enum status status = session_open(&s, &options);
    if (status == OK) {
        status = timing ? flat(&s) : agree(&s);
        session_close(&s);
    }
    if (status != OK)
        printf("%s\n", status_message());
    return (int)status;
}
