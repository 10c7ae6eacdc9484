/* Prefill and decode over the cache. */
#include "run/generate.h"

#include "base/number.h"
#include "models/rotary.h"
#include "run/batch.h"

enum { PREFILL_STEP = 16, PREFILL_MAX = 512 };

enum status generate_add(struct generator *g, struct session *s, int64_t slots, int64_t prompt)
{
    *g = (struct generator){.session = s, .slots = slots};
    int64_t T = min(round_up(prompt, PREFILL_STEP), PREFILL_MAX);
    TRY(session_add(s, NET_LOGITS, T, 1, slots, &g->prefill));
    TRY(session_add(s, NET_LOGITS, 1, 1, slots, &g->decode));
    g->logits = memory_alloc(s->model.config.vocabulary * (int64_t)sizeof *g->logits);
    return g->logits ? OK : ERR_MEMORY;
}

void generate_free(struct generator *g)
{
    memory_free(g->logits);
    *g = (struct generator){0};
}

void generate_reset(struct generator *g)
{
    g->used = 0;
}

static enum status feed(struct generator *g, int64_t program, const int32_t *ids, int64_t count)
{
    struct engine *e = &g->session->engine;
    const struct net *n = g->session->nets[program];
    int32_t *id = engine_input(e, n->ids), *position = engine_input(e, n->positions), *slot = engine_input(e, n->slots);
    int32_t *first = engine_input(e, n->first), *last = engine_input(e, n->last), *row = engine_input(e, n->rows);
    int32_t *rope_set = n->rope_set ? engine_input(e, n->rope_set) : NULL;
    for (int64_t i = 0; i < count; i++) {
        if (rope_set) /* one set for the whole sequence, whose keys stay as they were rotated */
            rope_set[i] = rotary_set(n->config, g->slots);
        id[i] = ids[i];
        position[i] = slot[i] = last[i] = (int32_t)(g->used + i);
        first[i] = 0;
    }
    row[0] = (int32_t)(count - 1);
    batch_end(&(struct writer){.e = e, .n = n, .slot = count, .row = 1});
    TRY(engine_run(e, program));
    g->used += count;
    return engine_read(e, n->result, g->logits);
}

enum status generate_feed(struct generator *g, const int32_t *ids, int64_t count)
{
    if (count < 1 || g->used + count > g->slots)
        return fail(ERR_ARGUMENT, "%lld more tokens do not fit after %lld of %lld", (long long)count, (long long)g->used,
                    (long long)g->slots);
    int64_t max_tokens = g->session->nets[g->prefill]->T;
    while (count > 0) {
        int64_t n = min(count, max_tokens);
        TRY(feed(g, n == 1 ? g->decode : g->prefill, ids, n));
        ids += n;
        count -= n;
    }
    return OK;
}
