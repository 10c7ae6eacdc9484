/* Reading a BPE model: the vocabulary into one block of text and a map, the merges into a hash table by pair of ids. */
#include <string.h>

#include "text/alphabet.h"
#include "text/bpe.h"

/* Ids may have holes, but the tables are as long as the largest id: it may not be absurd for the size of the file. */
enum { SPARSE_FREE = 1 << 20, SPARSE_FACTOR = 8 };

static enum status load_vocabulary(struct bpe *bpe, const json_t *vocabulary, const char *where)
{
    if (!json_is_object(vocabulary) || !json_object_size(vocabulary))
        return fail(ERR_FORMAT, "%s: \"vocab\" must be an object with tokens", where);
    int64_t count = (int64_t)json_object_size(vocabulary), bytes = 0;
    int64_t most = count > SPARSE_FREE / SPARSE_FACTOR ? count * SPARSE_FACTOR : SPARSE_FREE;
    if (most > INT32_MAX)
        most = INT32_MAX;
    for (void *i = json_object_iter((json_t *)vocabulary); i; i = json_object_iter_next((json_t *)vocabulary, i)) {
        const json_t *value = json_object_iter_value(i);
        int64_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || id >= most)
            return fail(ERR_FORMAT, "%s: the id of token \"%.60s\" must be a whole number from 0 to %lld", where,
                        json_object_iter_key(i), (long long)most - 1);
        bpe->limit = id >= bpe->limit ? id + 1 : bpe->limit;
        bytes += (int64_t)json_object_iter_key_len(i) + 1;
    }
    char *text = arena_alloc(&bpe->arena, bytes);
    bpe->tokens = arena_array(&bpe->arena, bpe->limit, sizeof *bpe->tokens);
    if (!text || !bpe->tokens)
        return ERR_MEMORY;
    TRY(map_init(&bpe->ids, count));
    for (void *i = json_object_iter((json_t *)vocabulary); i; i = json_object_iter_next((json_t *)vocabulary, i)) {
        int64_t id = json_integer_value(json_object_iter_value(i)), length = (int64_t)json_object_iter_key_len(i);
        if (bpe->tokens[id].text)
            return fail(ERR_FORMAT, "%s: tokens \"%.60s\" and \"%.60s\" have the same id %lld", where, bpe->tokens[id].text,
                        json_object_iter_key(i), (long long)id);
        memcpy(text, json_object_iter_key(i), (size_t)length + 1);
        bpe->tokens[id] = (struct bpe_token){text, length};
        TRY(map_put(&bpe->ids, text, length, id, NULL));
        text += length + 1;
    }
    for (int byte = 0; byte < 256; byte++) {
        char utf8[4];
        bpe->byte_id[byte] = (int32_t)map_get(&bpe->ids, utf8, alphabet_char((uint8_t)byte, utf8));
    }
    return OK;
}

/* A merge is "left right" or ["left", "right"]. */
static bool read_merge(const json_t *merge, const char **left, int64_t *left_length, const char **right, int64_t *right_length)
{
    if (json_is_string(merge)) {
        const char *text = json_string_value(merge);
        int64_t length = (int64_t)json_string_length(merge);
        const char *space = memchr(text, ' ', (size_t)length);
        if (!space || memchr(space + 1, ' ', (size_t)(text + length - space - 1)))
            return false;
        *left = text;
        *left_length = space - text;
        *right = space + 1;
        *right_length = text + length - *right;
        return true;
    }
    const json_t *a = json_array_get(merge, 0), *b = json_array_get(merge, 1);
    if (json_array_size(merge) != 2 || !json_is_string(a) || !json_is_string(b))
        return false;
    *left = json_string_value(a);
    *left_length = (int64_t)json_string_length(a);
    *right = json_string_value(b);
    *right_length = (int64_t)json_string_length(b);
    return true;
}

static void put_merge(struct bpe *bpe, int32_t left, int32_t right, int32_t rank, int32_t id)
{
    uint64_t key = bpe_key(left, right);
    for (uint64_t i = bpe_slot(key);; i++) {
        struct bpe_merge *m = &bpe->merges[i & bpe->mask];
        if (m->key && m->key != key)
            continue;
        *m = (struct bpe_merge){key, rank, id};         /* of a pair that is there twice, the last counts */
        return;
    }
}

static enum status load_merges(struct bpe *bpe, const json_t *merges, struct buffer *joined, const char *where)
{
    if (!json_is_array(merges))
        return fail(ERR_FORMAT, "%s: \"merges\" must be an array", where);
    int64_t count = (int64_t)json_array_size(merges), capacity = 16;
    if (count > INT32_MAX / 4)
        return fail(ERR_LIMIT, "%s: %lld merges", where, (long long)count);
    while (capacity < count + count / 2)
        capacity *= 2;
    if (!(bpe->merges = memory_alloc(capacity * (int64_t)sizeof *bpe->merges)))
        return ERR_MEMORY;
    bpe->mask = (uint64_t)capacity - 1;
    int32_t rank = 0;
    for (int64_t i = 0; i < count; i++) {
        const json_t *merge = json_array_get(merges, (size_t)i);
        if (json_is_string(merge) && strncmp(json_string_value(merge), "#version", 8) == 0)
            continue;
        const char *left, *right;
        int64_t left_length, right_length;
        if (!read_merge(merge, &left, &left_length, &right, &right_length))
            return fail(ERR_FORMAT, "%s: merge %lld must be two tokens", where, (long long)i);
        joined->size = 0;
        TRY(buffer_append(joined, left, left_length));
        TRY(buffer_append(joined, right, right_length));
        int64_t a = map_get(&bpe->ids, left, left_length), b = map_get(&bpe->ids, right, right_length);
        int64_t id = map_get(&bpe->ids, joined->data, joined->size);
        if (a < 0 || b < 0 || id < 0)
            return fail(ERR_FORMAT, "%s: merge %lld names a token that is not in the vocabulary: \"%.60s\"", where, (long long)i,
                        a < 0 ? left : b < 0 ? right : joined->data);
        put_merge(bpe, (int32_t)a, (int32_t)b, rank++, (int32_t)id);
    }
    return OK;
}

/* Parts of a model that change its result and that hone does not follow. */
static enum status check_options(struct bpe *bpe, const json_t *model, const char *where)
{
    const char *prefix = "", *suffix = "", *unknown = NULL;
    double dropout = 0;
    bool byte_fallback = false;
    TRY(json_get_text(model, "continuing_subword_prefix", &prefix, where));
    TRY(json_get_text(model, "end_of_word_suffix", &suffix, where));
    TRY(json_get_text(model, "unk_token", &unknown, where));
    TRY(json_get_real(model, "dropout", &dropout, where));
    TRY(json_get_bool(model, "byte_fallback", &byte_fallback, where));
    TRY(json_get_bool(model, "fuse_unk", &bpe->fuse_unknown, where));
    TRY(json_get_bool(model, "ignore_merges", &bpe->ignore_merges, where));
    const char *part = *prefix               ? "continuing_subword_prefix"
                       : *suffix             ? "end_of_word_suffix"
                       : dropout < 0 || dropout > 0 ? "dropout"
                       : byte_fallback       ? "byte_fallback"
                                             : NULL;
    if (part)
        return fail(ERR_UNSUPPORTED, "%s: a BPE model with %s is not supported", where, part);
    bpe->unknown = unknown ? (int32_t)map_get(&bpe->ids, unknown, (int64_t)strlen(unknown)) : -1;
    if (unknown && bpe->unknown < 0)
        return fail(ERR_FORMAT, "%s: unk_token \"%.60s\" is not in the vocabulary", where, unknown);
    return OK;
}

enum status bpe_open(struct bpe *bpe, const json_t *model, const char *where)
{
    *bpe = (struct bpe){.unknown = -1};
    struct buffer joined = {0};
    enum status status = load_vocabulary(bpe, json_object_get(model, "vocab"), where);
    if (status == OK)
        status = check_options(bpe, model, where);
    if (status == OK)
        status = load_merges(bpe, json_object_get(model, "merges"), &joined, where);
    buffer_free(&joined);
    return status;
}

void bpe_close(struct bpe *bpe)
{
    map_free(&bpe->ids);
    memory_free(bpe->merges);
    arena_free(&bpe->arena);
    *bpe = (struct bpe){0};
}
