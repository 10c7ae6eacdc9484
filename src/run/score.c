/* Sequences through loss programs, whose losses are negative log-probabilities. */
#include "run/score.h"

#include <math.h>

#include "base/number.h"

enum { SLOTS_STEP = 64, FEW = 4 };

enum status score_add(struct scorer *c, struct session *s, enum net_goal goal, int64_t slots)
{
    *c = (struct scorer){.session = s, .slots = slots};
    int64_t few = round_up(divide_up(slots, FEW), SLOTS_STEP), sizes[SCORE_PROGRAMS] = {min(few, slots), slots};
    for (int i = 0; i < SCORE_PROGRAMS; i++)
        TRY(session_add(s, goal, sizes[i], sizes[i], 0, &c->program[i]));
    c->losses = memory_alloc(slots * (int64_t)sizeof *c->losses);
    return c->losses ? OK : ERR_MEMORY;
}

void score_free(struct scorer *c)
{
    memory_free(c->losses);
    *c = (struct scorer){0};
}

/* As many sequences as fit, at least one. */
static int64_t score_take(const struct scorer *c, const struct sequence *sequences, int64_t count, int64_t *tokens)
{
    int64_t n = 0;
    for (*tokens = 0; n < count && *tokens + sequences[n].count <= c->slots; n++)
        *tokens += sequences[n].count;
    return n;
}

static enum status read_losses(const struct scorer *c, const struct sequence *sequences, int64_t count, int64_t first,
                               float *const *logprobs)
{
    int64_t at = 0;
    for (int64_t s = 0; s < count; s++)
        for (int64_t i = 0; i < sequences[s].count; i++) {
            float found = sequence_asks(&sequences[s], i) ? -c->losses[at++] : 0;
            if (logprobs[s])
                logprobs[s][i] = found;
            if (!isfinite(found))
                return fail(ERR_DATA,
                            "the log-probability of token %lld of sequence %lld is not finite: the trained weights are broken, "
                            "or numbers are too large for this type (try --dtype float32)",
                            (long long)i, (long long)(first + s));
        }
    return OK;
}

static bool gathers(const struct scorer *c)
{
    return c->session->engine.gather.wanted;
}

enum status score_join(const struct scorer *c, enum status status, int64_t *calls)
{
    struct group *g = c->session->device->group;
    if (!gathers(c))
        return status;
    TRY(group_agree(g, status));
    return group_largest(g, calls);
}

/* After numbers that are not finite; not after a failure to compute. */
bool score_goes_on(const struct scorer *c, enum status status)
{
    return status == OK || (gathers(c) && (status == ERR_DATA || status == ERR_FORMAT));
}

/* Ranks that gather weights run one program. */
static enum status run_batch_of(struct scorer *c, const struct sequence *sequences, int64_t count, int64_t tokens)
{
    struct engine *e = &c->session->engine;
    int64_t program = c->program[gathers(c) || c->session->nets[c->program[0]]->T < tokens];
    struct writer w = {.e = e, .n = c->session->nets[program]};
    for (int64_t i = 0; i < count; i++)
        batch_put(&w, &sequences[i]);
    batch_end(&w);
    TRY(engine_run(e, program));
    return engine_read(e, w.n->result, c->losses);
}

/* Empty micro-batches: as many as another rank has more than this one. */
static enum status even_out(struct scorer *c, const struct sequence *sequences, int64_t count)
{
    int64_t tokens, own = 0, largest;
    for (int64_t done = 0; done < count; own++)
        done += score_take(c, sequences + done, count - done, &tokens);
    largest = own;
    TRY(group_largest(c->session->device->group, &largest));
    for (; own < largest; own++)
        TRY(run_batch_of(c, NULL, 0, 0));
    return OK;
}

enum status score_run(struct scorer *c, const struct sequence *sequences, int64_t count, int64_t first, float *const *logprobs)
{
    enum status status = OK;
    TRY(gathers(c) ? even_out(c, sequences, count) : OK);
    for (int64_t done = 0, n, tokens; done < count && (status == OK || gathers(c)); done += n) {
        n = score_take(c, sequences + done, count - done, &tokens);
        TRY(run_batch_of(c, sequences + done, n, tokens));
        enum status read = read_losses(c, sequences + done, n, first + done, logprobs + done);
        status = status == OK ? read : status;
    }
    if (status == ERR_DATA) /* unless the files are at fault */
        TRY(model_check_finite(&c->session->model, false));
    return status;
}
