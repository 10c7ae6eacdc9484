/* Opening a model with the programs that calls need. */
#include "api/model_session.h"

#include "base/number.h"
#include "base/parallel.h"
#include "commands/named_model.h"
#include "run/evaluation.h"

enum { CACHE_MIN = 1024 }; /* slots */

void model_session_close(struct model_session *k)
{
    generate_free(&k->generator);
    score_free(&k->scorer);
    if (k->open)
        session_close(&k->session);
    *k = (struct model_session){0};
}

enum status model_session_open(struct hone_model *m)
{
    if (m->session.open) {
        parallel_set_threads((int)m->options->values.threads);
        return OK;
    }
    TRY(named_model_open(&m->session.session, &m->options->values, true));
    m->session.open = true;
    m->options->values.any_base = true; /* it was compared, and is not again when the model is opened for more */
    return OK;
}

static enum status model_session_add_programs(struct model_session *k, int64_t cache, int64_t batch)
{
    struct session *s = &k->session;
    if (cache)
        TRY(generate_add_turns(&k->generator, s, cache));
    if (batch)
        TRY(score_add(&k->scorer, s, NET_LOSS, batch));
    TRY(session_plan(s));
    return session_prepare(s);
}

/* Programs of these sizes, 0 for none. */
static enum status model_session_prepare(struct hone_model *m, int64_t cache, int64_t batch)
{
    if (m->session.session.net_count) /* all programs share one plan */
        model_session_close(&m->session);
    TRY(model_session_open(m));
    enum status status = model_session_add_programs(&m->session, cache, batch);
    if (status != OK)
        model_session_close(&m->session);
    return status;
}

enum status model_session_generator(struct hone_model *m, int64_t prompt, int64_t max_new_tokens)
{
    struct model_session *k = &m->session;
    int64_t window = k->session.model.config.window, slots = CACHE_MIN;
    if (prompt >= window)
        return fail(ERR_LIMIT, "the prompt has %lld tokens, and the model's window of %lld leaves no room for an answer",
                    (long long)prompt, (long long)window);
    int64_t need = prompt + min(max_new_tokens, window - prompt);
    while (slots < need)
        slots *= 2;
    return need <= k->generator.slots ? OK : model_session_prepare(m, min(slots, window), k->scorer.slots);
}

enum status model_session_scorer(struct hone_model *m, int64_t longest)
{
    struct model_session *k = &m->session;
    int64_t window = k->session.model.config.window;
    if (longest > window)
        return fail(ERR_ARGUMENT, "a sequence of %lld tokens, and the model's window has %lld", (long long)longest,
                    (long long)window);
    if (longest <= k->scorer.slots && k->scorer.slots)
        return OK;
    int64_t batch = eval_slots(m->options->values.micro_batch_tokens, max(longest, 2 * k->scorer.slots));
    return model_session_prepare(m, k->generator.slots, batch);
}
