/* Dealing out the sequences of a step. */
#include "train/share.h"

#include <stdlib.h>

enum status share_open(struct share *s, int rank, int ranks)
{
    *s = (struct share){.rank = rank, .ranks = ranks, .load = memory_alloc(ranks * (int64_t)sizeof *s->load)};
    return s->load ? OK : ERR_MEMORY;
}

void share_close(struct share *s)
{
    memory_free(s->item);
    memory_free(s->load);
    memory_free(s->mine);
    memory_free(s->sequence);
    *s = (struct share){0};
}

void share_begin(struct share *s)
{
    s->count = 0;
}

enum status share_add(struct share *s, int64_t tokens)
{
    TRY(memory_grow(&s->item, &s->item_capacity, s->count + 1, (int64_t)sizeof *s->item));
    s->item[s->count] = (struct share_item){tokens, s->count};
    s->count++;
    return OK;
}

static int longest_first(const void *a, const void *b)
{
    const struct share_item *x = a, *y = b;
    if (x->tokens != y->tokens)
        return x->tokens < y->tokens ? 1 : -1;
    return x->number < y->number ? -1 : 1;
}

static int ascending(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

enum status share_end(struct share *s)
{
    int64_t mine = 0;
    TRY(memory_grow(&s->mine, &s->mine_capacity, s->count, (int64_t)sizeof *s->mine));
    qsort(s->item, (size_t)s->count, sizeof *s->item, longest_first);
    for (int r = 0; r < s->ranks; r++)
        s->load[r] = 0;
    for (int64_t i = 0; i < s->count; i++) {
        int to = 0;
        for (int r = 1; r < s->ranks; r++)
            to = s->load[r] < s->load[to] ? r : to;
        s->load[to] += s->item[i].tokens;
        if (to == s->rank)
            s->mine[mine++] = s->item[i].number;
    }
    s->count = mine;
    qsort(s->mine, (size_t)mine, sizeof *s->mine, ascending);
    return OK;
}

enum status share_sequences(struct share *s, const struct sequence *sequences, int64_t count, int64_t first,
                            const struct sequence **mine, int64_t *mine_count)
{
    share_begin(s);
    for (int64_t i = 0; i < count; i++)
        TRY(share_add(s, sequences[i].count));
    TRY(share_end(s));
    TRY(memory_grow(&s->sequence, &s->sequence_capacity, s->count, (int64_t)sizeof *s->sequence));
    for (int64_t i = 0; i < s->count; i++) {
        s->sequence[i] = sequences[s->mine[i]];
        s->sequence[i].number = first + s->mine[i];
    }
    *mine = s->sequence;
    *mine_count = s->count;
    return OK;
}
