/* Unigram by dynamic programming over the bytes of a word: paths[i] is the best way to get to byte i. Tokens that start at a byte
 * are found by narrowing the sorted vocabulary byte by byte.
 *
 * Sums are doubles added from left to right and the first of equals wins, as in Hugging Face's tokenizers: the same sums, the
 * same choices.
 */
#include "text/tokenizer/unigram.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/utf8.h"

static const double UNKNOWN_PENALTY = 10;

/* All tokens are tried at every byte of a text, so with long ones a small file could make that slow, and so could many that share
 * a long beginning: published ones take a few steps for each byte. */
enum { TOKEN_BYTES_MAX = 4096, STEPS = 1 << 24, STEPS_PER_BYTE = 128 };

/* The ids of [low, high) whose content has the byte at this depth; contents are at least so long. */
static void narrow(const struct unigram *u, int64_t *low, int64_t *high, int64_t depth, uint8_t byte)
{
    int64_t a = *low, b = *high;
    while (a < b) { /* the first whose byte is not below */
        int64_t middle = a + (b - a) / 2;
        if ((uint8_t)u->vocabulary->tokens[u->sorted[middle]].text[depth] < byte)
            a = middle + 1;
        else
            b = middle;
    }
    *low = a;
    for (b = *high; a < b;) { /* the first whose byte is above */
        int64_t middle = a + (b - a) / 2;
        if ((uint8_t)u->vocabulary->tokens[u->sorted[middle]].text[depth] > byte)
            b = middle;
        else
            a = middle + 1;
    }
    *high = a;
}

static void reach(struct word_path *path, double score, int64_t from, int32_t id)
{
    if (path->from < 0 || score > path->score)
        *path = (struct word_path){score, (int32_t)from, id};
}

/* Tries all tokens that start at a byte; returns whether one of them is the single character there. */
static bool try_tokens(const struct unigram *u, const char *text, int64_t length, int64_t at, int character,
                       struct word_path *paths, int64_t *steps)
{
    bool single = false;
    uint8_t byte = (uint8_t)text[at];
    int64_t low = u->first[byte], high = u->first[byte + 1];
    for (int64_t depth = 1; low < high; depth++) {
        int32_t id = u->sorted[low];
        const struct vocabulary_token *token = &u->vocabulary->tokens[id], *last = &u->vocabulary->tokens[u->sorted[high - 1]];
        --*steps;
        if (token->length > depth && token->text[depth] == last->text[depth]) { /* what all share, at once */
            int64_t here = shared_bytes(text + at + depth, token->text + depth, min(token->length, length - at) - depth);
            int64_t room = min(token->length, last->length) - depth;
            int64_t all = shared_bytes(token->text + depth, last->text + depth, min(here + 1, room));
            *steps -= here / SHARED_PIECE;
            if (all > here)
                break;
            depth += all;
        }
        if (token->length == depth) {
            reach(&paths[at + depth], paths[at].score + u->scores[id], at, id);
            single = single || depth == character;
            low++;
        }
        if (at + depth == length)
            break;
        narrow(u, &low, &high, depth, (uint8_t)text[at + depth]);
    }
    return single;
}

static enum status find_paths(const struct unigram *u, const char *text, int64_t length, struct word_path *paths)
{
    int64_t steps = STEPS + STEPS_PER_BYTE * length;
    for (int64_t i = 0; i <= length; i++)
        paths[i] = (struct word_path){0, -1, 0};
    for (int64_t at = 0; at < length;) {
        uint32_t code;
        int character = utf8_decode(text + at, &code);
        if (!try_tokens(u, text, length, at, character, paths, &steps)) {
            if (u->unknown < 0)
                return fail(ERR_DATA, "the tokenizer has no token for the character U+%04X and no unknown token", code);
            reach(&paths[at + character], paths[at].score + u->unknown_score, at, u->unknown);
        }
        if (steps < 0)
            return fail(ERR_LIMIT, "the search for tokens takes too long: too many of the vocabulary begin as this text does");
        at += character;
    }
    return OK;
}

/* Unknown text: it may be a token as a whole, or the tokens of its bytes. */
static void unigram_add_unknown(const struct unigram *u, struct word *w, const char *text, int64_t begin, int64_t end)
{
    int32_t id = vocabulary_id(u->vocabulary, text + begin, end - begin);
    bool bytes = id < 0 && u->byte_fallback;
    for (int64_t i = begin; i < end && bytes; i++)
        bytes = u->byte_id[(uint8_t)text[i]] >= 0;
    if (!bytes)
        word_add(w, id >= 0 ? id : u->unknown, begin, end);
    for (int64_t i = end - 1; i >= begin && bytes; i--) /* the word is built from its end */
        word_add(w, u->byte_id[(uint8_t)text[i]], i, i + 1);
}

enum status unigram_encode(const struct unigram *u, const char *text, int64_t length, struct word *w)
{
    TRY(word_start(w, length));
    TRY(memory_grow(&w->paths, &w->path_capacity, length + 1, (int64_t)sizeof *w->paths));
    TRY(find_paths(u, text, length, w->paths));
    for (int64_t end = length; end > 0;) {
        int64_t begin = w->paths[end].from;
        if (w->paths[end].id != u->unknown) {
            word_add(w, w->paths[end].id, begin, end);
        } else {
            while (begin > 0 && w->paths[begin].id == u->unknown)
                begin = w->paths[begin].from;
            unigram_add_unknown(u, w, text, begin, end);
        }
        end = begin;
    }
    for (int64_t i = 0, k = w->count - 1; i < k; i++, k--) {
        struct word_symbol symbol = w->symbols[i];
        w->symbols[i] = w->symbols[k];
        w->symbols[k] = symbol;
    }
    return OK;
}

static int unigram_compare(const void *a, const void *b, void *context)
{
    const struct vocabulary_token *tokens = context, *x = &tokens[*(const int32_t *)a], *y = &tokens[*(const int32_t *)b];
    int order = memcmp(x->text, y->text, (size_t)min(x->length, y->length));
    return order ? order : (x->length > y->length) - (x->length < y->length);
}

enum status unigram_init(struct unigram *u, const struct vocabulary *v, const double *scores, int32_t unknown, bool byte_fallback,
                         const char *where)
{
    *u = (struct unigram){.vocabulary = v, .unknown = unknown, .byte_fallback = byte_fallback};
    if (unknown >= v->limit || (unknown >= 0 && !v->tokens[unknown].text))
        return fail(ERR_FORMAT, "%s: the id of the unknown token, %d, is not in the vocabulary", where, unknown);
    u->scores = memory_alloc(v->limit * (int64_t)sizeof *u->scores);
    u->sorted = memory_alloc(v->limit * (int64_t)sizeof *u->sorted);
    if (!u->scores || !u->sorted)
        return ERR_MEMORY;
    double min_score = DBL_MAX;
    int64_t count = 0;
    for (int64_t i = 0; i < v->limit; i++) {
        if (!v->tokens[i].text)
            continue;
        if (!isfinite(scores[i]))
            return fail(ERR_FORMAT, "%s: the score of token %lld is not a number", where, (long long)i);
        if (v->tokens[i].length > TOKEN_BYTES_MAX)
            return fail(ERR_LIMIT, "%s: a token of %lld bytes; at most %d are accepted", where, (long long)v->tokens[i].length,
                        TOKEN_BYTES_MAX);
        u->scores[i] = scores[i];
        min_score = scores[i] < min_score ? scores[i] : min_score;
        if (!v->tokens[i].length)
            continue;
        u->sorted[count++] = (int32_t)i;
        u->first[(uint8_t)v->tokens[i].text[0] + 1]++;
    }
    for (int c = 0; c < 256; c++)
        u->first[c + 1] += u->first[c];
    qsort_r(u->sorted, (size_t)count, sizeof *u->sorted, unigram_compare, v->tokens);
    u->unknown_score = min_score - UNKNOWN_PENALTY;
    vocabulary_bytes(v, u->byte_id);
    return OK;
}

static enum status unigram_read_items(struct json_reader *r, struct arena *arena, struct vocabulary_item **items, double **scores,
                                      int64_t *count)
{
    int64_t capacity = 0, score_capacity = 0;
    bool more;
    TRY(json_reader_enter(r, '['));
    for (;;) {
        struct json_span text;
        TRY(json_reader_next(r, ']', &more));
        if (!more)
            return OK;
        TRY(memory_grow(items, &capacity, *count + 1, (int64_t)sizeof **items));
        TRY(memory_grow(scores, &score_capacity, *count + 1, (int64_t)sizeof **scores));
        TRY(json_reader_enter(r, '['));
        TRY(json_reader_next(r, ']', &more));
        TRY(json_reader_string(r, &text));
        TRY(json_reader_keep(r, arena, &text));
        TRY(json_reader_next(r, ']', &more));
        TRY(json_reader_number(r, &(*scores)[*count]));
        TRY(json_reader_next(r, ']', &more));
        if (more)
            return json_reader_fail(r, "a token must be a text and its score");
        (*items)[*count] = (struct vocabulary_item){text.text, text.length, *count};
        ++*count;
    }
}

enum status unigram_read(struct unigram *u, struct vocabulary *v, struct json_span json, int32_t unknown, bool byte_fallback,
                         const char *where)
{
    struct json_reader reader;
    struct arena arena = {0};
    struct vocabulary_item *items = NULL;
    double *scores = NULL;
    int64_t count = 0;
    if (!json.text || *json.text != '[')
        return fail(ERR_FORMAT, "%s: the \"vocab\" of a Unigram model must be an array", where);
    json_reader_init(&reader, json.text, json.length, where);
    enum status status = unigram_read_items(&reader, &arena, &items, &scores, &count);
    if (status == OK && !count)
        status = fail(ERR_FORMAT, "%s: \"vocab\" has no tokens", where);
    if (status == OK)
        status = vocabulary_init(v, items, count, where);
    if (status == OK)
        status = unigram_init(u, v, scores, unknown, byte_fallback, where);
    memory_free(items);
    memory_free(scores);
    arena_free(&arena);
    json_reader_free(&reader);
    return status;
}

void unigram_close(struct unigram *u)
{
    memory_free(u->scores);
    memory_free(u->sorted);
    *u = (struct unigram){0};
}
