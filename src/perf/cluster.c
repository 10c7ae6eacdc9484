/* Arithmetic on paper: bytes are those of the plan, rates those of cards and networks as published. */
#include "perf/cluster.h"

#include <math.h>
#include <string.h>

/* NCCL's own tests reach 80 to 95% of a link in large rings; the lower end is assumed, and 10 µs for each step of a tree. */
static const double network_share = 0.8, hop_seconds = 10e-6;

struct load {         /* what one rank would hold without sharing, in bytes */
    double in_layers; /* frozen weights of layers */
    double trained, gradients, state;
    double bucket; /* gradients that are whole at once (tensor/scatter.h) */
    double layers, micro_batches;
};

static double bytes_in_layers(const struct store *store)
{
    double bytes = 0;
    for (int64_t i = 0; i < store->count; i++) {
        const struct tensor *tensor = store->tensor[i];
        if (tensor->lifetime == LIFE_WEIGHTS && !tensor->assembled && strstr(tensor->name, "layers."))
            bytes += (double)tensor_bytes(tensor);
    }
    return bytes;
}

/* Those of two layers, and of what is in none: it may live as long as the backward pass. */
static double largest_bucket(const struct store *store)
{
    double layer = 0, largest = 0, others = 0;
    int64_t last = -1;
    for (int64_t i = 0; i < store->count; i++) {
        const struct tensor *t = store->tensor[i];
        if (!tensor_is_trained(t))
            continue;
        double bytes = (double)tensor_bytes(t->gradient);
        layer = tensor_layer(t) == last ? layer + bytes : bytes;
        last = tensor_layer(t);
        if (last >= 0)
            largest = fmax(largest, layer);
        else
            others += bytes;
    }
    return 2 * largest + others;
}

static struct load load_of(const struct build *b, const struct estimate *e)
{
    int64_t bytes[LIFE_COUNT], mapped;
    session_bytes(&b->session, bytes, &mapped);
    return (struct load){.in_layers = bytes_in_layers(&b->session.model.store),
                         .trained = (double)bytes[LIFE_TRAINABLE],
                         .gradients = (double)bytes[LIFE_GRADIENTS],
                         .state = (double)bytes[LIFE_STATE],
                         .bucket = largest_bucket(&b->session.model.store),
                         .layers = (double)b->session.model.config.layers,
                         .micro_batches = e->micro_batches};
}

static double hops(const struct scale *s)
{
    return ceil(log2((double)s->ranks));
}

/* Adds collectives of this payload in all: `ways` is 2 for a reduction, which goes around twice. */
static void communicate(const struct scale *s, struct scale_layout *l, double payload, double ways, double collectives)
{
    double sent = ways * payload * (double)(s->ranks - 1) / (double)s->ranks;
    l->payload += payload;
    l->sent += sent;
    l->seconds += sent * 8 / (s->network * s->share) + collectives * ways * hops(s) * s->latency;
}

/* Bytes that a rank gives up when these are shared. */
static double saved(const struct scale *s, double bytes)
{
    return bytes * (double)(s->ranks - 1) / (double)s->ranks;
}

/* Of layers that are divided two are there as a whole: the one in use and the next. The last two of the forward pass are still
 * there in the backward pass. */
static void cluster_lay_out(const struct scale *s, const struct load *load, enum scale_layout_id id, int64_t peak,
                            struct scale_layout *l)
{
    static const struct scale_layout named[] = {
        [SCALE_NONE] = {.name = "none", .words = "nothing: everything is on every card"},
        [SCALE_OPTIMIZER] = {.name = "optimizer", .words = "the optimizer's state"},
        [SCALE_GRADIENTS] = {.name = "gradients", .words = "the same, and gradients"},
        [SCALE_WEIGHTS] = {.name = "weights", .words = "the same, and frozen weights of layers"},
    };
    double less = 0, layer = load->in_layers / load->layers;
    double reductions = id >= SCALE_GRADIENTS ? load->micro_batches : 1;
    *l = named[id];
    communicate(s, l, reductions * load->gradients, id == SCALE_NONE ? 2 : 1,
                id >= SCALE_GRADIENTS ? reductions * load->layers : 1);
    if (id >= SCALE_GRADIENTS) /* the largest bucket is there as a whole */
        less += fmax(saved(s, load->gradients) - load->bucket, 0);
    if (id != SCALE_NONE) {
        communicate(s, l, load->trained, 1, 1);
        less += saved(s, load->state);
    }
    if (id == SCALE_WEIGHTS && layer > 0) {
        double gathers = load->micro_batches * fmax(2 * load->layers - 2, load->layers);
        communicate(s, l, gathers * layer, 1, gathers);
        less += fmax(saved(s, load->in_layers) - 2 * layer, 0);
    }
    l->rank_bytes = peak - (int64_t)less;
}

void scale_make(const struct build *b, const struct estimate *e, int64_t ranks, double network, int64_t peak, int64_t memory,
                struct scale *s)
{
    struct load load = load_of(b, e);
    *s = (struct scale){.ranks = ranks, .network = network, .share = network_share, .latency = hop_seconds};
    for (int i = 0; i < SCALE_COUNT; i++) {
        struct scale_layout *l = &s->layout[i];
        cluster_lay_out(s, &load, (enum scale_layout_id)i, peak, l);
        l->fits = l->rank_bytes <= memory;
        l->after_seconds = e->seconds + l->seconds;
        l->under_seconds = fmax(e->seconds, l->seconds);
        l->after_tokens = (double)ranks * e->tokens / l->after_seconds;
        l->under_tokens = (double)ranks * e->tokens / l->under_seconds;
    }
}
