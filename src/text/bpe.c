/* Byte-pair encoding: of all neighbours that a merge joins, the one of lowest rank is joined first, the leftmost among
 * equals, until none is left. Short words look at every pair each time; long ones keep the pairs in a heap.
 */
#include "text/bpe.h"

#include "text/alphabet.h"

enum { SHORT = 40, NONE = INT32_MAX };

/* The rank of the pair, or NONE. */
static int32_t look_up(const struct bpe *bpe, int32_t left, int32_t right, int32_t *id)
{
    uint64_t key = bpe_key(left, right);
    for (uint64_t i = bpe_slot(key);; i++) {
        const struct bpe_merge *m = &bpe->merges[i & bpe->mask];
        if (m->key == key) {
            *id = m->id;
            return m->rank;
        }
        if (!m->key)
            return NONE;
    }
}

static enum status reserve(struct bpe_word *w, int64_t count)
{
    if (count <= w->capacity)
        return OK;
    if (count > INT32_MAX / 4)
        return fail(ERR_LIMIT, "a word of %lld bytes; cut the text", (long long)count);
    int64_t capacity = count + count / 2 + 64;
    struct bpe_symbol *symbols = memory_resize(w->symbols, capacity * (int64_t)sizeof *symbols);
    if (!symbols)
        return ERR_MEMORY;
    w->symbols = symbols;
    uint64_t *heap = memory_resize(w->heap, 3 * capacity * (int64_t)sizeof *heap);      /* a merge pushes two more at most */
    if (!heap)
        return ERR_MEMORY;
    w->heap = heap;
    w->capacity = capacity;
    return OK;
}

/* The merge of symbol i with the one behind it. */
static void update(const struct bpe *bpe, struct bpe_symbol *s, int64_t i, int64_t next)
{
    s[i].rank = next >= 0 ? look_up(bpe, s[i].id, s[next].id, &s[i].merged) : NONE;
}

static void merge_short(const struct bpe *bpe, struct bpe_word *w)
{
    struct bpe_symbol *s = w->symbols;
    for (int64_t i = 0; i < w->count; i++)
        update(bpe, s, i, i + 1 < w->count ? i + 1 : -1);
    for (;;) {
        int64_t best = 0;
        for (int64_t i = 1; i < w->count; i++)
            if (s[i].rank < s[best].rank)
                best = i;
        if (s[best].rank == NONE)
            return;
        s[best].id = s[best].merged;
        s[best].end = s[best + 1].end;
        w->count--;
        for (int64_t i = best + 1; i < w->count; i++)
            s[i] = s[i + 1];
        update(bpe, s, best, best + 1 < w->count ? best + 1 : -1);
        if (best)
            update(bpe, s, best - 1, best);
    }
}

/* A heap of rank << 32 | position: the smallest on top is the pair to join. */
static void push(uint64_t *heap, int64_t *count, int32_t rank, int64_t position)
{
    if (rank == NONE)
        return;
    uint64_t item = (uint64_t)rank << 32 | (uint64_t)position;
    int64_t i = (*count)++;
    for (; i && heap[(i - 1) / 2] > item; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = item;
}

static uint64_t pop(uint64_t *heap, int64_t *count)
{
    uint64_t top = heap[0], item = heap[--*count];
    int64_t i = 0;
    for (int64_t child; (child = 2 * i + 1) < *count; i = child) {
        if (child + 1 < *count && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= item)
            break;
        heap[i] = heap[child];
    }
    heap[i] = item;
    return top;
}

static void merge_long(const struct bpe *bpe, struct bpe_word *w)
{
    struct bpe_symbol *s = w->symbols;
    int64_t pairs = 0;
    for (int64_t i = 0; i < w->count; i++) {
        s[i].prev = (int32_t)(i - 1);
        s[i].next = i + 1 < w->count ? (int32_t)(i + 1) : -1;
        update(bpe, s, i, s[i].next);
        push(w->heap, &pairs, s[i].rank, i);
    }
    while (pairs) {
        uint64_t top = pop(w->heap, &pairs);
        int64_t i = (int64_t)(uint32_t)top;
        if (s[i].rank != (int32_t)(top >> 32))          /* the pair was changed since; a joined symbol has the rank NONE */
            continue;
        int64_t gone = s[i].next, next = s[gone].next, prev = s[i].prev;
        s[i].id = s[i].merged;
        s[i].end = s[gone].end;
        s[i].next = (int32_t)next;
        s[gone].rank = NONE;
        s[gone].id = -1;
        if (next >= 0)
            s[next].prev = (int32_t)i;
        update(bpe, s, i, next);
        push(w->heap, &pairs, s[i].rank, i);
        if (prev >= 0) {
            update(bpe, s, prev, i);
            push(w->heap, &pairs, s[prev].rank, prev);
        }
    }
    int64_t count = 0;
    for (int64_t i = 0; i < w->count; i++)
        if (s[i].id >= 0)
            s[count++] = s[i];
    w->count = count;
}

static void add(struct bpe_word *w, int32_t id, int64_t begin, int64_t end)
{
    w->symbols[w->count++] = (struct bpe_symbol){.id = id, .begin = (int32_t)begin, .end = (int32_t)end};
}

/* The token that is the whole word, or -1. */
static enum status find_whole(const struct bpe *bpe, const char *bytes, int64_t length, struct bpe_word *w, int32_t *id)
{
    w->content.size = 0;
    TRY(buffer_reserve(&w->content, 2 * length + 2));
    for (int64_t i = 0; i < length; i++)
        w->content.size += alphabet_char((uint8_t)bytes[i], w->content.data + w->content.size);
    *id = (int32_t)map_get(&bpe->ids, w->content.data, w->content.size);
    return OK;
}

enum status bpe_encode(const struct bpe *bpe, const char *bytes, int64_t length, struct bpe_word *w)
{
    TRY(reserve(w, length));
    w->count = 0;
    if (bpe->ignore_merges) {
        int32_t id;
        TRY(find_whole(bpe, bytes, length, w, &id));
        if (id >= 0) {
            add(w, id, 0, length);
            return OK;
        }
    }
    bool unknown = false;
    for (int64_t i = 0; i < length; i++) {
        int32_t id = bpe->byte_id[(uint8_t)bytes[i]];
        if (id < 0 && unknown && bpe->fuse_unknown)
            w->symbols[w->count - 1].end = (int32_t)(i + 1);
        else if (id >= 0 || bpe->unknown >= 0)
            add(w, id >= 0 ? id : bpe->unknown, i, i + 1);
        unknown = id < 0 && bpe->unknown >= 0;
    }
    if (w->count > SHORT)
        merge_long(bpe, w);
    else if (w->count > 1)
        merge_short(bpe, w);
    return OK;
}

void bpe_word_free(struct bpe_word *w)
{
    memory_free(w->symbols);
    memory_free(w->heap);
    buffer_free(&w->content);
    *w = (struct bpe_word){0};
}
