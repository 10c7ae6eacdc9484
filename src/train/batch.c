/* Packing sequences into slots. */
#include "train/batch.h"

enum status batch_cut(const struct data *data, int64_t slots, struct batch **batches, int64_t *count)
{
    *batches = memory_alloc(data->row_count * (int64_t)sizeof **batches);
    *count = 0;
    if (!*batches)
        return ERR_MEMORY;
    struct batch *open = NULL;
    for (int64_t r = 0; r < data->row_count; r++) {
        const struct data_row *row = &data->rows[r];
        if (!open || open->tokens + row->count > slots) {
            open = &(*batches)[(*count)++];
            *open = (struct batch){.first = r};
        }
        open->count++;
        open->tokens += row->count;
        for (int64_t i = 0; i < row->count; i++)
            open->trained += data->mask[row->begin + i];
    }
    return OK;
}

int64_t batch_rows(int64_t T, int64_t trained)
{
    for (int64_t part = 8; part > 1; part /= 2)
        if (T % part == 0 && trained <= T / part)
            return T / part;
    return T;
}

void batch_place(struct engine *e, const struct net *n, int64_t slot, const int32_t *ids, int64_t count)
{
    int32_t *id = engine_input(e, n->ids), *position = engine_input(e, n->positions);
    int32_t *first = engine_input(e, n->first), *last = engine_input(e, n->last);
    for (int64_t i = 0; i < count; i++) {
        id[slot + i] = ids[i];
        position[slot + i] = (int32_t)i;
        first[slot + i] = (int32_t)slot;
        last[slot + i] = (int32_t)(slot + i);
    }
}

/* An empty slot is a sequence of one token that nobody asks about. */
void batch_pad(struct engine *e, const struct net *n, int64_t slot, int64_t row)
{
    int32_t *id = engine_input(e, n->ids), *position = engine_input(e, n->positions), *rows = engine_input(e, n->rows);
    int32_t *first = engine_input(e, n->first), *last = engine_input(e, n->last);
    for (int64_t t = slot; t < n->T; t++) {
        id[t] = position[t] = 0;
        first[t] = last[t] = n->S ? 0 : (int32_t)t;
        if (n->slots)
            ((int32_t *)engine_input(e, n->slots))[t] = -1;
    }
    for (int64_t r = row; r < n->R; r++) {
        rows[r] = -1;
        if (n->targets)
            ((int32_t *)engine_input(e, n->targets))[r] = -1;
    }
}

void batch_write(struct engine *e, const struct net *n, const struct data *data, const struct batch *batch)
{
    int32_t *rows = engine_input(e, n->rows), *targets = engine_input(e, n->targets);
    int64_t slot = 0, row = 0;
    for (int64_t r = batch->first; r < batch->first + batch->count; r++) {
        int64_t begin = data->rows[r].begin, count = data->rows[r].count;
        batch_place(e, n, slot, data->ids + begin, count);
        for (int64_t i = 1; i < count; i++)
            if (data->mask[begin + i]) {
                rows[row] = (int32_t)(slot + i - 1);                    /* the token before predicts this one */
                targets[row++] = data->ids[begin + i];
            }
        slot += count;
    }
    batch_pad(e, n, slot, row);
}
