/* Prefill and decode over the cache. */
#include "run/generation.h"

#include <string.h>

#include "base/number.h"
#include "models/rotary.h"
#include "run/batch.h"

enum { PREFILL_STEP = 16, PREFILL_TURN = 64, PREFILL_MAX = 512 };

static enum status generation_add_programs(struct generator *g, struct session *s, int64_t slots, const int64_t *T,
                                           int64_t prefills)
{
    *g = (struct generator){.session = s, .slots = slots, .prefills = prefills};
    for (int64_t i = 0; i < prefills; i++)
        TRY(session_add(s, NET_LOGITS, T[i], 1, slots, &g->prefill[i]));
    TRY(session_add(s, NET_LOGITS, 1, 1, slots, &g->decode));
    g->logits = memory_alloc(s->model.config.vocabulary * (int64_t)sizeof *g->logits);
    g->fed = memory_alloc(slots * (int64_t)sizeof *g->fed);
    return g->logits && g->fed ? chooser_init(&g->chooser, s->model.config.vocabulary) : ERR_MEMORY;
}

enum status generate_add(struct generator *g, struct session *s, int64_t slots, int64_t prompt)
{
    return generation_add_programs(g, s, slots, (int64_t[]){min(round_up(prompt, PREFILL_STEP), PREFILL_MAX)}, 1);
}

enum status generate_add_turns(struct generator *g, struct session *s, int64_t slots)
{
    return generation_add_programs(g, s, slots, (int64_t[]){PREFILL_TURN, PREFILL_MAX}, PREFILLS_MAX);
}

void generate_free(struct generator *g)
{
    memory_free(g->fed);
    memory_free(g->logits);
    chooser_free(&g->chooser);
    *g = (struct generator){0};
}

void generate_reset(struct generator *g)
{
    g->used = 0;
}

int64_t generate_keep(struct generator *g, const int32_t *ids, int64_t count)
{
    int64_t same = 0;
    while (same < g->used && same < count - 1 && g->fed[same] == ids[same])
        same++;
    bool whole_only = g->session->model.config.delta.value_heads > 0;
    g->used = whole_only && same < g->used ? 0 : same;
    return g->used;
}

static enum status generation_feed(struct generator *g, int64_t program, const int32_t *ids, int64_t count)
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
    memcpy(g->fed + g->used, ids, (size_t)count * sizeof *ids);
    g->used += count;
    return engine_read(e, n->result, g->logits);
}

enum status generate_feed(struct generator *g, const int32_t *ids, int64_t count)
{
    if (count < 1 || g->used + count > g->slots)
        return fail(ERR_ARGUMENT, "%lld more tokens do not fit after %lld of %lld", (long long)count, (long long)g->used,
                    (long long)g->slots);
    while (count > 0) {
        int64_t which = 0;
        while (which < g->prefills - 1 && g->session->nets[g->prefill[which]]->T < count)
            which++;
        int64_t n = min(count, g->session->nets[g->prefill[which]]->T);
        TRY(generation_feed(g, n == 1 ? g->decode : g->prefill[which], ids, n));
        ids += n;
        count -= n;
    }
    return OK;
}
