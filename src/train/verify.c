/* Computing a step's gradients twice. */
#include "train/verify.h"

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

enum status verify_open(struct trainer *t)
{
    struct verification *v = &t->verification;
    if (!t->options->verify_every)
        return OK;
    v->first = arena_array(&t->arena, t->session.model.store.count, sizeof *v->first);
    v->piece = arena_alloc(&t->arena, VERIFY_PIECE);
    return v->first && v->piece ? OK : ERR_MEMORY;
}

/* Not where sequences were added before: their sums cannot be computed again. */
bool verify_due(const struct trainer *t)
{
    return t->verification.first && !t->sums.sequences && (t->place.step + t->queue.ahead + 1) % t->options->verify_every == 0;
}

static enum status hash_gradient(struct trainer *t, int64_t tensor, struct digest *digest)
{
    struct hash hash;
    hash_init(&hash);
    TRY(verify_hash(&hash, &t->session.engine, t->session.model.store.tensor[tensor]->gradient, t->verification.piece));
    *digest = hash_end(&hash);
    return OK;
}

enum status verify_first(struct trainer *t, const struct sequence *sequences, int64_t count)
{
    const struct store *store = &t->session.model.store;
    struct micro micro;
    double norm;
    for (int64_t done = 0; done < count; done += micro.sequences)
        TRY(micro_run(t, sequences + done, count - done, false, &micro));
    for (int64_t i = 0; i < store->count; i++)
        if (store->tensor[i]->gradient && !store->tensor[i]->assembled)
            TRY(hash_gradient(t, i, &t->verification.first[i]));
    micro_start_over(t);
    return optimizer_clear(&t->optimizer, &t->session, &norm);
}

enum status verify_second(struct trainer *t)
{
    const struct store *store = &t->session.model.store;
    for (int64_t i = 0; i < store->count; i++) {
        struct digest second;
        if (!store->tensor[i]->gradient || store->tensor[i]->assembled)
            continue;
        TRY(hash_gradient(t, i, &second));
        if (!digest_equal(t->verification.first[i], second))
            return fail(ERR_COMPUTE,
                        "step %lld was computed twice, and the gradient of %s is not the same: the memory or the processor of "
                        "device %s makes errors, or one of its kernels is not deterministic. Test the hardware; the same command "
                        "goes on from the last checkpoint, which was saved before",
                        (long long)(t->place.step + t->queue.ahead + 1), store->tensor[i]->name, t->session.device->class->name);
    }
    return OK;
}
