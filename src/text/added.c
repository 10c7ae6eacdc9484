/* Added tokens. A set is a sorted list; looking for the longest token at a place narrows the list byte by byte.
 *
 * The order of checks, and that a token which is refused (single_word) still hides the tokens inside it, is that of Hugging
 * Face's tokenizers.
 */
#include "text/added.h"

#include <stdlib.h>
#include <string.h>

#include "text/utf8.h"

/* A longer token would let a small file make the search slow. */
enum { LENGTH_MOST = 4096 };

/* The longest token of the set at the start of the text, or NULL. */
static const struct added_token *longest(const struct added_set *set, const char *text, int64_t length)
{
    const struct added_token *found = NULL;
    int64_t low = set->first[(uint8_t)text[0]], high = set->first[(uint8_t)text[0] + 1];
    for (int64_t depth = 1; low < high; depth++) {
        if (set->tokens[low]->pattern_length == depth)
            found = set->tokens[low++];
        if (depth == length)
            break;
        uint8_t c = (uint8_t)text[depth];
        for (int64_t a = low, b = high; (high = b), a < b;) {           /* the first whose byte is above c */
            int64_t middle = a + (b - a) / 2;
            if ((uint8_t)set->tokens[middle]->pattern[depth] > c)
                b = middle;
            else
                a = middle + 1;
        }
        for (int64_t b = high; low < b;) {                              /* the first whose byte is not below c */
            int64_t middle = low + (b - low) / 2;
            if ((uint8_t)set->tokens[middle]->pattern[depth] < c)
                low = middle + 1;
            else
                b = middle;
        }
    }
    return found;
}

static enum status is_word(const struct added *added, struct regex_search *search, const char *text, int64_t length, bool *word)
{
    int64_t begin, end;
    TRY(regex_find(added->word, search, text, length, 0, &begin, &end));
    *word = begin == 0;
    return OK;
}

static enum status inside_word(const struct added *added, struct regex_search *search, const char *text, int64_t length,
                               int64_t begin, int64_t end, bool *inside)
{
    bool left = false, right = false;
    uint32_t code;
    if (begin > 0) {
        int64_t before = utf8_before(text, begin);
        TRY(is_word(added, search, text + before, begin - before, &left));
    }
    if (end < length)
        TRY(is_word(added, search, text + end, utf8_decode(text + end, &code), &right));
    *inside = left || right;
    return OK;
}

enum status added_split(const struct added *added, const struct added_set *set, struct regex_search *search, const char *text,
                        int64_t length, added_sink *sink, void *context)
{
    int64_t done = 0;
    for (int64_t at = 0; set->count && at < length;) {
        const struct added_token *token = longest(set, text + at, length - at);
        if (!token) {
            at++;
            continue;
        }
        int64_t begin = at, end = at += token->pattern_length;
        if (token->single_word) {
            bool inside;
            TRY(inside_word(added, search, text, length, begin, end, &inside));
            if (inside)
                continue;
        }
        uint32_t code;
        if (token->strip_left) {
            for (int64_t b; begin > done && (b = utf8_before(text, begin), utf8_decode(text + b, &code), utf8_is_space(code));)
                begin = b;
            begin = begin < done ? done : begin;
        }
        if (token->strip_right)
            for (int n; end < length && (n = utf8_decode(text + end, &code), utf8_is_space(code));)
                end += n;
        if (done < begin)
            TRY(sink(context, NULL, done, begin));
        if (begin >= end)               /* made of space that the token in front has taken */
            continue;
        TRY(sink(context, token, begin, end));
        done = end;
    }
    return done < length ? sink(context, NULL, done, length) : OK;
}

static int compare(const void *a, const void *b)
{
    const struct added_token *x = *(const struct added_token *const *)a, *y = *(const struct added_token *const *)b;
    int64_t shared = x->pattern_length < y->pattern_length ? x->pattern_length : y->pattern_length;
    int order = memcmp(x->pattern, y->pattern, (size_t)shared);
    return order ? order : (x->pattern_length > y->pattern_length) - (x->pattern_length < y->pattern_length);
}

static enum status build_set(struct added *added, struct added_set *set, bool normalized, const char *where)
{
    set->tokens = arena_array(&added->arena, added->count + 1, sizeof *set->tokens);
    if (!set->tokens)
        return ERR_MEMORY;
    for (int64_t i = 0; i < added->count; i++)
        if (added->tokens[i].normalized == normalized && added->tokens[i].pattern_length)
            set->tokens[set->count++] = &added->tokens[i];
    qsort(set->tokens, (size_t)set->count, sizeof *set->tokens, compare);
    for (int64_t i = 0; i < set->count; i++) {
        if (i && compare(&set->tokens[i - 1], &set->tokens[i]) == 0)
            return fail(ERR_FORMAT, "%s: tokens \"%.60s\" and \"%.60s\" are the same once normalised", where,
                        set->tokens[i - 1]->content, set->tokens[i]->content);
        set->first[(uint8_t)set->tokens[i]->pattern[0] + 1]++;
    }
    for (int c = 0; c < 256; c++)
        set->first[c + 1] += set->first[c];
    return OK;
}

static enum status read_token(struct added *added, const json_t *json, const char *where)
{
    const json_t *content = json_object_get(json, "content");
    if (!json_is_string(content))
        return fail(ERR_FORMAT, "%s: an added token without \"content\"", where);
    struct added_token t = {.length = (int64_t)json_string_length(content)};
    if (!t.length)
        return OK;
    if (t.length > LENGTH_MOST)
        return fail(ERR_LIMIT, "%s: an added token of %lld bytes; at most %d are accepted", where, (long long)t.length,
                    LENGTH_MOST);
    if (!(t.content = arena_text(&added->arena, json_string_value(content), t.length)))
        return ERR_MEMORY;
    int64_t id = -1;
    TRY(json_need_int(json, "id", &id, where));
    if (id < 0 || id >= INT32_MAX)
        return fail(ERR_FORMAT, "%s: added token \"%.60s\" cannot have the id %lld", where, t.content, (long long)id);
    t.id = (int32_t)id;
    TRY(json_get_bool(json, "single_word", &t.single_word, where));
    TRY(json_get_bool(json, "lstrip", &t.strip_left, where));
    TRY(json_get_bool(json, "rstrip", &t.strip_right, where));
    TRY(json_get_bool(json, "normalized", &t.normalized, where));
    TRY(json_get_bool(json, "special", &t.special, where));
    int64_t index = map_get(&added->index, t.content, t.length);
    if (index < 0) {
        index = added->count++;
        TRY(map_put(&added->index, t.content, t.length, index, NULL));
    }
    added->tokens[index] = t;           /* of a token that is there twice, the last counts */
    return OK;
}

/* Hugging Face's tokenizers take the id from the vocabulary, or number the others behind it, whatever the file says. */
static enum status check_ids(struct added *added, const struct map *vocabulary, int64_t size, const char *where)
{
    int64_t next = size;
    for (int64_t i = 0; i < added->count; i++) {
        const struct added_token *t = &added->tokens[i];
        int64_t id = map_get(vocabulary, t->content, t->length);
        if (id < 0)
            id = next;
        next = id >= next ? id + 1 : next;
        if (id != t->id)
            return fail(ERR_FORMAT, "%s: added token \"%.60s\" has the id %d, but the vocabulary makes it %lld; correct the file",
                        where, t->content, t->id, (long long)id);
        added->limit = id >= added->limit ? id + 1 : added->limit;
    }
    return OK;
}

static enum status set_patterns(struct added *added, const struct normalizer *normalizer, struct normalize_scratch *scratch)
{
    for (int64_t i = 0; i < added->count; i++) {
        struct added_token *t = &added->tokens[i];
        struct view view = {.text = t->content, .length = t->length};
        if (t->normalized)
            TRY(normalizer_run(normalizer, scratch, &view));
        t->pattern_length = view.length;
        if (!(t->pattern = view.text == t->content ? t->content : arena_text(&added->arena, view.text, view.length)))
            return ERR_MEMORY;
    }
    return OK;
}

enum status added_open(struct added *added, const json_t *json, const struct map *vocabulary, int64_t size,
                       const struct normalizer *normalizer, const char *where)
{
    *added = (struct added){0};
    if (json && !json_is_null(json) && !json_is_array(json))
        return fail(ERR_FORMAT, "%s: \"added_tokens\" must be an array", where);
    int64_t count = (int64_t)json_array_size(json);
    if (!(added->tokens = arena_array(&added->arena, count + 1, sizeof *added->tokens)))
        return ERR_MEMORY;
    TRY(map_init(&added->index, count));
    bool words = false;
    for (int64_t i = 0; i < count; i++)
        TRY(read_token(added, json_array_get(json, (size_t)i), where));
    TRY(check_ids(added, vocabulary, size, where));
    struct normalize_scratch scratch = {0};
    enum status status = regex_search_init(&scratch.search);
    if (status == OK)
        status = set_patterns(added, normalizer, &scratch);
    regex_search_free(scratch.search);
    normalize_scratch_free(&scratch);
    TRY(status);
    TRY(build_set(added, &added->raw, false, where));
    TRY(build_set(added, &added->normalized, true, where));
    for (int64_t i = 0; i < added->count; i++)
        words |= added->tokens[i].single_word;
    static const char WORD[] = "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}]";      /* Rust's \w, not Oniguruma's */
    return words ? regex_open(&added->word, WORD, sizeof WORD - 1, where) : OK;
}

void added_close(struct added *added)
{
    regex_close(added->word);
    map_free(&added->index);
    arena_free(&added->arena);
    *added = (struct added){0};
}
