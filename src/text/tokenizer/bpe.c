/* Byte-pair encoding: of all neighbours that a merge joins, the one of lowest rank is joined first, the leftmost among
 * equals, until none is left. Short words look at every pair each time; long ones keep the pairs in a heap.
 */
#include "text/tokenizer/bpe.h"

#include <string.h>

#include "base/utf8.h"
#include "text/tokenizer/alphabet.h"

enum { SHORT = 40, NONE = INT32_MAX, GAP = INT32_MAX }; /* GAP: the id of a symbol that is left out after merging */

/* The rank of the pair, or NONE. */
static int32_t bpe_look_up(const struct bpe *bpe, int32_t left, int32_t right, int32_t *id)
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

/* The merge of symbol i with the one after it. */
static void bpe_update(const struct bpe *bpe, struct word_symbol *s, int64_t i, int64_t next)
{
    s[i].rank = next >= 0 ? bpe_look_up(bpe, s[i].id, s[next].id, &s[i].merged) : NONE;
}

static void merge_short(const struct bpe *bpe, struct word *w)
{
    struct word_symbol *s = w->symbols;
    for (int64_t i = 0; i < w->count; i++)
        bpe_update(bpe, s, i, i + 1 < w->count ? i + 1 : -1);
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
        bpe_update(bpe, s, best, best + 1 < w->count ? best + 1 : -1);
        if (best)
            bpe_update(bpe, s, best - 1, best);
    }
}

/* A heap of rank << 32 | position: the smallest on top is the pair to join. */
static void bpe_push(uint64_t *heap, int64_t *count, int32_t rank, int64_t position)
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

static enum status merge_long(const struct bpe *bpe, struct word *w)
{
    struct word_symbol *s = w->symbols;
    int64_t pairs = 0;
    TRY(memory_grow(&w->heap, &w->heap_capacity, 3 * w->count, (int64_t)sizeof *w->heap)); /* a merge pushes at most two */
    for (int64_t i = 0; i < w->count; i++) {
        s[i].prev = (int32_t)(i - 1);
        s[i].next = i + 1 < w->count ? (int32_t)(i + 1) : -1;
        bpe_update(bpe, s, i, s[i].next);
        bpe_push(w->heap, &pairs, s[i].rank, i);
    }
    while (pairs) {
        uint64_t top = pop(w->heap, &pairs);
        int64_t i = (int64_t)(uint32_t)top;
        if (s[i].rank != (int32_t)(top >> 32)) /* the pair has changed since; a joined symbol has the rank NONE */
            continue;
        int64_t gone = s[i].next, next = s[gone].next, prev = s[i].prev;
        s[i].id = s[i].merged;
        s[i].end = s[gone].end;
        s[i].next = (int32_t)next;
        s[gone].rank = NONE;
        s[gone].id = -1;
        if (next >= 0)
            s[next].prev = (int32_t)i;
        bpe_update(bpe, s, i, next);
        bpe_push(w->heap, &pairs, s[i].rank, i);
        if (prev >= 0) {
            bpe_update(bpe, s, prev, i);
            bpe_push(w->heap, &pairs, s[prev].rank, prev);
        }
    }
    int64_t count = 0;
    for (int64_t i = 0; i < w->count; i++)
        if (s[i].id >= 0)
            s[count++] = s[i];
    w->count = count;
    return OK;
}

/* The token that is the whole word, or -1. */
static enum status find_whole(const struct bpe *bpe, const char *text, int64_t length, struct word *w, int32_t *id)
{
    if (!bpe->options.bytes) {
        *id = vocabulary_id(bpe->vocabulary, text, length);
        return OK;
    }
    w->content.size = 0;
    TRY(buffer_reserve(&w->content, 2 * length + 2));
    for (int64_t i = 0; i < length; i++)
        w->content.size += alphabet_char((uint8_t)text[i], w->content.data + w->content.size);
    *id = vocabulary_id(bpe->vocabulary, w->content.data, w->content.size);
    return OK;
}

/* Text without a token, waiting for more of its kind. */
struct unknown {
    bool waiting;
    int64_t begin, end;
};

static void bpe_add_unknown(const struct bpe *bpe, struct word *w, struct unknown *u)
{
    if (u->waiting)
        word_add(w, bpe->options.unknown, u->begin, u->end);
    u->waiting = false;
}

static bool add_bytes(const struct bpe *bpe, struct word *w, const char *text, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++)
        if (bpe->byte_id[(uint8_t)text[i]] < 0)
            return false;
    for (int64_t i = from; i < to; i++)
        word_add(w, bpe->byte_id[(uint8_t)text[i]], i, i + 1);
    return true;
}

/* The symbols that merging starts with. An unknown character waits until one with a token comes, as in Hugging Face's
 * tokenizers; bytes of a character without a token go before it. */
static void add_symbols(const struct bpe *bpe, const char *text, int64_t length, struct word *w)
{
    struct unknown u = {0};
    for (int64_t i = 0, n; i < length; i += n) {
        uint32_t code;
        uint8_t c = (uint8_t)text[i];
        n = bpe->options.bytes ? 1 : utf8_decode(text + i, &code);
        int32_t id = bpe->options.bytes ? bpe->byte_id[c]
                     : c < 128          ? bpe->ascii_id[c]
                                        : vocabulary_id(bpe->vocabulary, text + i, n);
        if (id >= 0) {
            bpe_add_unknown(bpe, w, &u);
            word_add(w, id, i, i + n);
        } else if (bpe->options.byte_fallback && add_bytes(bpe, w, text, i, i + n)) {
            continue;
        } else if (bpe->options.unknown >= 0) {
            if (!bpe->options.fuse_unknown)
                bpe_add_unknown(bpe, w, &u);
            u = (struct unknown){true, u.waiting ? u.begin : i, i + n};
        } else if (bpe->options.gaps) {
            word_add(w, GAP, i, i + n);
        }
    }
    bpe_add_unknown(bpe, w, &u);
}

static void leave_out_gaps(struct word *w)
{
    int64_t count = 0;
    for (int64_t i = 0; i < w->count; i++)
        if (w->symbols[i].id != GAP)
            w->symbols[count++] = w->symbols[i];
    w->count = count;
}

enum status bpe_encode(const struct bpe *bpe, const char *text, int64_t length, struct word *w)
{
    TRY(word_start(w, length));
    if (bpe->options.ignore_merges) {
        int32_t id;
        TRY(find_whole(bpe, text, length, w, &id));
        if (id >= 0) {
            word_add(w, id, 0, length);
            return OK;
        }
    }
    add_symbols(bpe, text, length, w);
    if (w->count > SHORT)
        TRY(merge_long(bpe, w));
    else if (w->count > 1)
        merge_short(bpe, w);
    if (bpe->options.gaps)
        leave_out_gaps(w);
    return OK;
}

static bool is_space(const char *text, int64_t length, int64_t at)
{
    return at >= 0 && length - at >= 3 && memcmp(text + at, "\xe2\x96\x81", 3) == 0;
}

int64_t bpe_cut(const struct bpe *bpe, const char *text, int64_t length, int64_t from)
{
    for (int64_t i = from + 1; bpe->cut && i < length; i++) {
        uint8_t a = (uint8_t)text[i - 1], b = (uint8_t)text[i];
        if (a < 128 && b < 128 && !(bpe->joined[a][b / 64] >> b % 64 & 1))
            return i;
        if (b == 0xe2 && bpe->space_cut && is_space(text, length, i) && !is_space(text, length, i - 3))
            return i;
    }
    return length;
}
