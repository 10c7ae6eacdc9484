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

enum status score_run(struct scorer *c, const struct sequence *sequences, int64_t count, int64_t first, float *const *logprobs)
{
    struct engine *e = &c->session->engine;
    for (int64_t done = 0, n, tokens; done < count; done += n) {
        n = score_take(c, sequences + done, count - done, &tokens);
        int64_t program = c->program[c->session->nets[c->program[0]]->T < tokens];
        struct writer w = {.e = e, .n = c->session->nets[program]};
        for (int64_t i = 0; i < n; i++)
            batch_put(&w, &sequences[done + i]);
        batch_end(&w);
        TRY(engine_run(e, program));
        TRY(engine_read(e, w.n->result, c->losses));
        enum status status = read_losses(c, sequences + done, n, first + done, logprobs + done);
        if (status == ERR_DATA) /* unless the files are at fault */
            TRY(model_check_finite(&c->session->model, false));
        TRY(status);
    }
    return OK;
}
