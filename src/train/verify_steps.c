/* Computing a step's gradients twice. */
#include "train/verify_steps.h"

#include "train/micro.h"

enum status verify_hash(struct hash *hash, struct engine *e, const struct tensor *tensor, char *piece)
{
    int64_t bytes = tensor_bytes(tensor);
    for (int64_t at = 0; at < bytes; at += VERIFY_PIECE) {
        int64_t some = bytes - at < VERIFY_PIECE ? bytes - at : VERIFY_PIECE;
        TRY(engine_download(e, tensor, at, piece, some));
        hash_add(hash, piece, some);
    }
    return OK;
}

enum status verify_open(struct stepper *st)
{
    struct verification *v = &st->verification;
    if (!st->build->job->options->verify_every)
        return OK;
    v->first = memory_alloc(st->build->session.model.store.count * (int64_t)sizeof *v->first);
    v->piece = memory_alloc(VERIFY_PIECE);
    return v->first && v->piece ? OK : ERR_MEMORY;
}

void verify_close(struct stepper *st)
{
    memory_free(st->verification.first);
    memory_free(st->verification.piece);
}

/* Not where sequences were added before: their sums cannot be computed again. */
bool verify_due(const struct stepper *st)
{
    return st->verification.first && !st->sums.sequences &&
           (st->state->step + st->queue.ahead + 1) % st->build->job->options->verify_every == 0;
}

static enum status hash_gradient(struct stepper *st, int64_t tensor, struct digest *digest)
{
    struct hash hash;
    hash_init(&hash);
    TRY(verify_hash(&hash, &st->build->session.engine, st->build->session.model.store.tensor[tensor]->gradient,
                    st->verification.piece));
    *digest = hash_end(&hash);
    return OK;
}

enum status verify_first(struct stepper *st, const struct sequence *sequences, int64_t count)
{
    const struct store *store = &st->build->session.model.store;
    struct micro micro;
    double norm;
    for (int64_t done = 0; done < count; done += micro.sequences)
        TRY(micro_run(st, &st->loss, sequences + done, count - done, false, &micro));
    for (int64_t i = 0; i < store->count; i++)
        if (store->tensor[i]->gradient && !store->tensor[i]->assembled)
            TRY(hash_gradient(st, i, &st->verification.first[i]));
    micro_start_over(st);
    return optimizer_clear(&st->build->optimizer, &st->build->session, &norm);
}

enum status verify_second(struct stepper *st)
{
    const struct store *store = &st->build->session.model.store;
    for (int64_t i = 0; i < store->count; i++) {
        struct digest second;
        if (!store->tensor[i]->gradient || store->tensor[i]->assembled)
            continue;
        TRY(hash_gradient(st, i, &second));
        if (!digest_equal(st->verification.first[i], second))
            return fail(ERR_COMPUTE,
                        "step %lld was computed twice, and the gradient of %s is not the same: the memory or the processor of "
                        "device %s makes errors, or one of its kernels is not deterministic. Test the hardware; the same command "
                        "goes on from the last checkpoint, which was saved before",
                        (long long)(st->state->step + st->queue.ahead + 1), store->tensor[i]->name,
                        st->build->session.device->class->name);
    }
    return OK;
}
