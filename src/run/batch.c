/* Packing sequences into slots. */
#include "run/batch.h"

#include "base/number.h"
#include "models/rotary.h"

bool batch_next(const struct data *data, int64_t slots, struct batch *batch)
{
    *batch = (struct batch){.first = batch->first + batch->count};
    for (int64_t r = batch->first; r < data->row_count && (!batch->count || batch->tokens + data->rows[r].count <= slots); r++) {
        batch->count++;
        batch->tokens += data->rows[r].count;
        batch->trained += data->rows[r].trained;
    }
    return batch->count;
}

int64_t batch_rows(int64_t T, int64_t trained)
{
    for (int64_t part = 1; part < 4 && T % 4 == 0; part++)
        if (trained <= T / 4 * part)
            return T / 4 * part;
    return T;
}

struct sequence batch_sequence(const struct data *data, int64_t row, int64_t number)
{
    const struct token_row *r = &data->rows[row];
    return (struct sequence){.ids = data->marked + r->begin, .marked = true, .count = r->count, .number = number};
}

float sequence_weight(const struct sequence *s, int64_t i)
{
    return i == 0 ? 0 : s->weights ? s->weights[i] : s->marked ? (float)TOKEN_TRAINED(s->ids[i]) : 1;
}

bool sequence_asks(const struct sequence *s, int64_t i)
{
    return i > 0 && (s->mask ? s->mask[i] != 0 : sequence_weight(s, i) != 0);
}

int64_t sequence_targets(const struct sequence *s)
{
    int64_t count = 0;
    for (int64_t i = 1; i < s->count; i++)
        count += sequence_asks(s, i);
    return count;
}

static int32_t *input(const struct writer *w, const struct value *v)
{
    return v ? engine_input(w->e, v) : NULL;
}

void batch_place(struct writer *w, const struct sequence *s)
{
    const struct net *n = w->n;
    int64_t slot = w->slot;
    int32_t *id = input(w, n->ids), *position = input(w, n->positions), *first = input(w, n->first), *last = input(w, n->last);
    int32_t *until = input(w, n->until), *sequence = input(w, n->sequence), *rope_set = input(w, n->rope_set);
    for (int64_t i = 0; i < s->count; i++) {
        id[slot + i] = TOKEN_ID(s->ids[i]);
        position[slot + i] = (int32_t)i;
        first[slot + i] = (int32_t)slot;
        last[slot + i] = (int32_t)(slot + i);
        if (until)
            until[slot + i] = (int32_t)(slot + s->count - 1);
        if (sequence)
            sequence[slot + i] = (int32_t)s->number;
        if (rope_set)
            rope_set[slot + i] = rotary_set(n->config, s->count);
    }
    w->slot += s->count;
}

static float *float_input(const struct writer *w, const struct value *v)
{
    return v ? engine_input(w->e, v) : NULL;
}

/* What losses other than cross entropy know of a row: 0 where it has no target. */
static void batch_put_loss(const struct writer *w, int64_t row, float old, float advantage)
{
    const struct loss_inputs *in = &w->n->of_loss;
    if (!in->old)
        return;
    float_input(w, in->old)[row] = old;
    float_input(w, in->advantages)[row] = advantage;
}

/* The rows [first, end) are one sequence. */
static void put_loss_rows(const struct writer *w, int64_t first, int64_t end)
{
    int32_t *rows = input(w, w->n->of_loss.rows);
    for (int64_t r = first; rows && r < end; r++) {
        rows[2 * r] = (int32_t)first;
        rows[2 * r + 1] = (int32_t)end;
    }
}

void batch_put(struct writer *w, const struct sequence *s)
{
    const struct net *n = w->n;
    int32_t *rows = input(w, n->rows), *targets = input(w, n->targets);
    float *weights = float_input(w, n->of_loss.weights);
    int64_t first = w->row;
    for (int64_t i = 1; i < s->count; i++) {
        if (!sequence_asks(s, i))
            continue;
        rows[w->row] = (int32_t)(w->slot + i - 1); /* the token before predicts this one */
        targets[w->row] = s->targets ? s->targets[i] : TOKEN_ID(s->ids[i]);
        if (weights)
            weights[w->row] = sequence_weight(s, i) * (float)n->program.gradient_scale;
        batch_put_loss(w, w->row, s->old_logprobs ? s->old_logprobs[i] : 0, s->advantages ? s->advantages[i] : 0);
        w->row++;
    }
    put_loss_rows(w, first, w->row);
    batch_place(w, s);
}

static bool comes_before(const int32_t *id, int32_t a, int32_t b)
{
    return id[a] < id[b] || (id[a] == id[b] && a < b);
}

static void sift(int32_t *order, int64_t at, int64_t count, const int32_t *id)
{
    for (int64_t child = 2 * at + 1; child < count; at = child, child = 2 * at + 1) {
        child += child + 1 < count && comes_before(id, order[child], order[child + 1]);
        if (!comes_before(id, order[at], order[child]))
            return;
        int32_t swap = order[at];
        order[at] = order[child];
        order[child] = swap;
    }
}

/* Sorts slots by id, equal ids by slot: a heap sort, because a step allocates nothing. */
static void sort_slots(int32_t *order, const int32_t *id, int64_t count)
{
    for (int64_t t = 0; t < count; t++)
        order[t] = (int32_t)t;
    for (int64_t at = count / 2; at-- > 0;)
        sift(order, at, count, id);
    for (int64_t end = count; end-- > 1;) {
        int32_t swap = order[0];
        order[0] = order[end];
        order[end] = swap;
        sift(order, 0, end, id);
    }
}

/* A layer with local attention sees the last so many of the keys that others see. */
static void put_local(const struct writer *w)
{
    const struct net *n = w->n;
    const int32_t *first = input(w, n->first), *last = input(w, n->last), *until = input(w, n->until);
    int32_t *local_first = input(w, n->local_first), *local_until = input(w, n->local_until);
    int64_t reach = n->config->local - 1;
    for (int64_t t = 0; t < n->T && local_first; t++) {
        local_first[t] = (int32_t)max(first[t], last[t] - reach);
        if (local_until)
            local_until[t] = (int32_t)min(until[t], t + reach);
    }
}

/* An empty slot is a sequence of one token whose result is not used. */
void batch_end(struct writer *w)
{
    const struct net *n = w->n;
    int32_t *id = input(w, n->ids), *position = input(w, n->positions), *first = input(w, n->first), *last = input(w, n->last);
    int32_t *slots = input(w, n->slots), *until = input(w, n->until), *sequence = input(w, n->sequence);
    int32_t *rope_set = input(w, n->rope_set);
    int32_t *rows = input(w, n->rows), *targets = input(w, n->targets);
    float *weights = float_input(w, n->of_loss.weights);
    for (int64_t t = w->slot; t < n->T; t++) {
        id[t] = position[t] = 0;
        first[t] = last[t] = n->S ? 0 : (int32_t)t;
        if (slots)
            slots[t] = -1;
        if (until)
            until[t] = (int32_t)t;
        if (sequence)
            sequence[t] = 0;
        if (rope_set)
            rope_set[t] = 0;
    }
    for (int64_t r = w->row; r < n->R; r++) {
        rows[r] = -1;
        if (targets)
            targets[r] = -1;
        if (weights)
            weights[r] = 0;
        batch_put_loss(w, r, 0, 0);
        put_loss_rows(w, r, r + 1);
    }
    if (n->order)
        sort_slots(input(w, n->order), id, n->T);
    put_local(w);
}

void batch_write(struct engine *e, const struct net *n, const struct data *data, const struct batch *batch)
{
    struct writer w = {.e = e, .n = n};
    for (int64_t r = batch->first; r < batch->first + batch->count; r++) {
        struct sequence s = batch_sequence(data, r, 0);
        batch_put(&w, &s);
    }
    batch_end(&w);
}
