/* Dealing out the sequences of a step. */
#include "job/rank_split.h"

#include <stdlib.h>

enum status rank_split_open(struct rank_split *s, int rank, int ranks)
{
    *s = (struct rank_split){.rank = rank, .ranks = ranks, .load = memory_alloc(ranks * (int64_t)sizeof *s->load)};
    return s->load ? OK : ERR_MEMORY;
}

void rank_split_close(struct rank_split *s)
{
    memory_free(s->item);
    memory_free(s->load);
    memory_free(s->mine);
    memory_free(s->sequence);
    *s = (struct rank_split){0};
}

void rank_split_begin(struct rank_split *s)
{
    s->count = 0;
}

enum status rank_split_add(struct rank_split *s, int64_t tokens)
{
    TRY(memory_grow(&s->item, &s->item_capacity, s->count + 1, (int64_t)sizeof *s->item));
    s->item[s->count] = (struct rank_split_item){tokens, s->count};
    s->count++;
    return OK;
}

static int longest_first(const void *a, const void *b)
{
    const struct rank_split_item *x = a, *y = b;
    if (x->tokens != y->tokens)
        return x->tokens < y->tokens ? 1 : -1;
    return x->number < y->number ? -1 : 1;
}

static int rank_split_ascending(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

enum status rank_split_end(struct rank_split *s)
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
    qsort(s->mine, (size_t)mine, sizeof *s->mine, rank_split_ascending);
    return OK;
}

enum status rank_split_sequences(struct rank_split *s, const struct sequence *sequences, int64_t count, int64_t first,
                                 const struct sequence **mine, int64_t *mine_count)
{
    rank_split_begin(s);
    for (int64_t i = 0; i < count; i++)
        TRY(rank_split_add(s, sequences[i].count));
    TRY(rank_split_end(s));
    TRY(memory_grow(&s->sequence, &s->sequence_capacity, s->count, (int64_t)sizeof *s->sequence));
    for (int64_t i = 0; i < s->count; i++) {
        s->sequence[i] = sequences[s->mine[i]];
        s->sequence[i].number = first + s->mine[i];
    }
    *mine = s->sequence;
    *mine_count = s->count;
    return OK;
}
