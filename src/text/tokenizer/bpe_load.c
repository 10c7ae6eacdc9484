/* Building a BPE model: the merges go into a hash table by pair of ids. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/utf8.h"
#include "text/tokenizer/alphabet.h"
#include "text/tokenizer/bpe.h"

/* Every split of a token is looked up, so a long one would take quadratic time; published vocabularies have tokens of up to 93
 * bytes, and two pairs for each token. */
enum { SCORED_BYTES_MAX = 256, SCORED_PAIRS_FREE = 1 << 16, SCORED_PAIRS_FACTOR = 4 };

#define SPACE "\xe2\x96\x81" /* U+2581, which stands for a space */

static void put_merge(struct bpe *bpe, int32_t left, int32_t right, int32_t rank, int32_t id)
{
    uint64_t key = bpe_key(left, right);
    for (uint64_t i = bpe_slot(key);; i++) {
        struct bpe_merge *m = &bpe->merges[i & bpe->mask];
        if (m->key && m->key != key)
            continue;
        *m = (struct bpe_merge){key, rank, id}; /* of a repeated pair, the last counts */
        return;
    }
}

static enum status bpe_load_make_table(struct bpe *bpe, int64_t count, const char *where)
{
    int64_t capacity = 16;
    if (count > INT32_MAX / 4)
        return fail(ERR_LIMIT, "%s: %lld merges", where, (long long)count);
    while (capacity < count + count / 2)
        capacity *= 2;
    if (!(bpe->merges = memory_alloc(capacity * (int64_t)sizeof *bpe->merges)))
        return ERR_MEMORY;
    bpe->mask = (uint64_t)capacity - 1;
    return OK;
}

/* Finds out where words may be cut without changing what merges do: between characters that no token has side by side. */
static void find_cuts(struct bpe *bpe)
{
    const struct vocabulary *v = bpe->vocabulary;
    bpe->cut = !bpe->options.ignore_merges;
    bpe->space_cut = vocabulary_id(v, SPACE, 3) >= 0;
    for (int64_t i = 0; i < v->limit; i++) {
        const char *text = v->tokens[i].text;
        for (int64_t k = 1; text && k < v->tokens[i].length; k++) {
            uint8_t a = (uint8_t)text[k - 1], b = (uint8_t)text[k];
            if (a < 128 && b < 128)
                bpe->joined[a][b / 64] |= (uint64_t)1 << b % 64;
            if (k + 3 <= v->tokens[i].length && memcmp(text + k, SPACE, 3) == 0 && (k < 3 || memcmp(text + k - 3, SPACE, 3) != 0))
                bpe->space_cut = false;
        }
    }
    for (int c = 0; c < 128; c++) /* characters without a token may be joined into one unknown token */
        if (bpe->ascii_id[c] < 0) {
            bpe->joined[c][0] = bpe->joined[c][1] = UINT64_MAX;
            for (int a = 0; a < 128; a++)
                bpe->joined[a][c / 64] |= (uint64_t)1 << c % 64;
        }
}

static void bpe_load_start(struct bpe *bpe, const struct vocabulary *vocabulary, struct bpe_options options)
{
    *bpe = (struct bpe){.vocabulary = vocabulary, .options = options};
    if (!options.bytes) {
        vocabulary_bytes(vocabulary, bpe->byte_id);
        for (int c = 0; c < 128; c++)
            bpe->ascii_id[c] = vocabulary_id(vocabulary, &(char){(char)c}, 1);
        find_cuts(bpe);
        return;
    }
    for (int byte = 0; byte < 256; byte++) {
        char utf8[4];
        bpe->byte_id[byte] = vocabulary_id(vocabulary, utf8, alphabet_char((uint8_t)byte, utf8));
    }
}

static enum status put_pairs(struct bpe *bpe, const struct bpe_pair *pairs, int64_t count, struct buffer *joined,
                             const char *where)
{
    for (int64_t i = 0; i < count; i++) {
        const struct bpe_pair *p = &pairs[i];
        joined->size = 0;
        TRY(buffer_append(joined, p->left, p->left_length));
        TRY(buffer_append(joined, p->right, p->right_length));
        int32_t left = vocabulary_id(bpe->vocabulary, p->left, p->left_length);
        int32_t right = vocabulary_id(bpe->vocabulary, p->right, p->right_length);
        int32_t id = vocabulary_id(bpe->vocabulary, joined->data, joined->size);
        if (left < 0 || right < 0 || id < 0) {
            const char *text = left < 0 ? p->left : right < 0 ? p->right : joined->data;
            int64_t length = left < 0 ? p->left_length : right < 0 ? p->right_length : joined->size;
            return fail(ERR_FORMAT, "%s: merge %lld names a token that is not in the vocabulary: \"%.*s\"", where, (long long)i,
                        (int)min(length, 60), text);
        }
        put_merge(bpe, left, right, (int32_t)i, id);
    }
    return OK;
}

enum status bpe_init(struct bpe *bpe, const struct vocabulary *vocabulary, struct bpe_options options,
                     const struct bpe_pair *pairs, int64_t count, const char *where)
{
    struct buffer joined = {0};
    bpe_load_start(bpe, vocabulary, options);
    TRY(bpe_load_make_table(bpe, count, where));
    enum status status = buffer_reserve(&joined, 256);
    if (status == OK)
        status = put_pairs(bpe, pairs, count, &joined, where);
    buffer_free(&joined);
    return status;
}

/* A merge is "left right" or ["left", "right"]. Strings with escapes are kept in the arena. */
static enum status bpe_load_read_pair(struct json_reader *r, struct arena *arena, struct bpe_pair *pair, int64_t number)
{
    struct json_span text[2];
    bool list = json_reader_peek(r) == '[', more, good = true;
    if (list)
        TRY(json_reader_enter(r, '['));
    for (int i = 0; i < 1 + list && good; i++) {
        if (list) {
            TRY(json_reader_next(r, ']', &more));
            good = more;
        }
        good = good && json_reader_peek(r) == '"';
        if (!good)
            break;
        TRY(json_reader_string(r, &text[i]));
        TRY(json_reader_keep(r, arena, &text[i]));
    }
    if (good && list) {
        TRY(json_reader_next(r, ']', &more));
        *pair = (struct bpe_pair){text[0].text, text[1].text, text[0].length, text[1].length};
        good = !more;
    } else if (good) {
        const char *space = memchr(text[0].text, ' ', (size_t)text[0].length), *end = text[0].text + text[0].length;
        good = space && !memchr(space + 1, ' ', (size_t)(end - space - 1));
        if (good)
            *pair = (struct bpe_pair){text[0].text, space + 1, space - text[0].text, end - space - 1};
    }
    return good ? OK : fail(ERR_FORMAT, "%s: merge %lld must be two tokens", r->where, (long long)number);
}

static enum status bpe_load_read_pairs(struct json_reader *r, struct arena *arena, struct bpe_pair **pairs, int64_t *count)
{
    int64_t capacity = 0;
    bool more;
    TRY(json_reader_enter(r, '['));
    for (int64_t number = 0;; number++) {
        TRY(json_reader_next(r, ']', &more));
        if (!more)
            return OK;
        if (json_reader_peek(r) == '"' && r->end - r->at > 9 && memcmp(r->at + 1, "#version", 8) == 0) {
            struct json_span comment;
            TRY(json_reader_string(r, &comment));
            continue;
        }
        TRY(memory_grow(pairs, &capacity, *count + 1, (int64_t)sizeof **pairs));
        TRY(bpe_load_read_pair(r, arena, &(*pairs)[*count], number));
        ++*count;
    }
}

enum status bpe_read(struct bpe *bpe, const struct vocabulary *vocabulary, struct bpe_options options, struct json_span merges,
                     const char *where)
{
    struct json_reader reader;
    struct arena arena = {0};
    struct bpe_pair *pairs = NULL;
    int64_t count = 0;
    if (!merges.text || *merges.text != '[')
        return fail(ERR_FORMAT, "%s: \"merges\" must be an array", where);
    json_reader_init(&reader, merges.text, merges.length, where);
    enum status status = bpe_load_read_pairs(&reader, &arena, &pairs, &count);
    if (status == OK)
        status = bpe_init(bpe, vocabulary, options, pairs, count, where);
    memory_free(pairs);
    arena_free(&arena);
    json_reader_free(&reader);
    return status;
}

struct scored {
    float score;
    int32_t left, right, id;
};

static int higher_first(const void *a, const void *b)
{
    float x = ((const struct scored *)a)->score, y = ((const struct scored *)b)->score;
    return (x < y) - (x > y);
}

/* Every way to make a token from two. */
static enum status find_scored(const struct vocabulary *v, const float *scores, struct scored **found, int64_t *count,
                               const char *where)
{
    int64_t capacity = 0, allowed = SCORED_PAIRS_FREE + SCORED_PAIRS_FACTOR * v->count;
    for (int64_t id = 0; id < v->limit; id++) {
        const char *text = v->tokens[id].text;
        int64_t length = v->tokens[id].length;
        if (!text)
            continue;
        if (!isfinite(scores[id]))
            return fail(ERR_FORMAT, "%s: the score of token %lld is not a number", where, (long long)id);
        if (length > SCORED_BYTES_MAX)
            return fail(ERR_LIMIT, "%s: a token of %lld bytes; at most %d are accepted", where, (long long)length,
                        SCORED_BYTES_MAX);
        uint32_t code;
        for (int64_t at = length ? utf8_decode(text, &code) : 0; at < length; at += utf8_decode(text + at, &code)) {
            int32_t left = vocabulary_id(v, text, at), right = left < 0 ? -1 : vocabulary_id(v, text + at, length - at);
            if (right < 0)
                continue;
            if (*count == allowed)
                return fail(ERR_LIMIT,
                            "%s: more than %lld pairs make a token of a vocabulary of %lld; at most that many are accepted",
                            where, (long long)allowed, (long long)v->count);
            TRY(memory_grow(found, &capacity, *count + 1, (int64_t)sizeof **found));
            (*found)[(*count)++] = (struct scored){scores[id], left, right, (int32_t)id};
        }
    }
    return OK;
}

enum status bpe_init_scores(struct bpe *bpe, const struct vocabulary *vocabulary, struct bpe_options options, const float *scores,
                            const char *where)
{
    struct scored *found = NULL;
    int64_t count = 0;
    bpe_load_start(bpe, vocabulary, options);
    enum status status = find_scored(vocabulary, scores, &found, &count, where);
    if (status == OK)
        status = bpe_load_make_table(bpe, count, where);
    if (status == OK && count)
        qsort(found, (size_t)count, sizeof *found, higher_first);
    int32_t rank = 0;
    for (int64_t i = 0; status == OK && i < count; i++) { /* equal scores are equal ranks: the leftmost pair goes first */
        rank += i && found[i].score < found[i - 1].score;
        put_merge(bpe, found[i].left, found[i].right, rank, found[i].id);
    }
    memory_free(found);
    return status;
}

void bpe_close(struct bpe *bpe)
{
    memory_free(bpe->merges);
    *bpe = (struct bpe){0};
}
