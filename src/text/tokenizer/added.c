/* Added tokens. A set is a sorted list; looking for the longest token at a place narrows the list byte by byte.
 *
 * The order of checks is that of Hugging Face's tokenizers, and so is that a refused token (single_word) still hides the tokens
 * inside it.
 */
#include "text/tokenizer/added.h"

#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/utf8.h"
#include "text/tokenizer/tokenizer.h"

/* With longer tokens a small file could make the search slow, and so could many that share a long beginning: published ones take
 * a few steps for each byte of text. */
enum { TOKEN_BYTES_MAX = 4096, STEPS = 1 << 24, STEPS_PER_BYTE = 128 };

/* Whether any byte of [from, to) of the view came from a guarded range. */
static bool is_guarded(const struct view *view, struct added_guard guard, int64_t from, int64_t to)
{
    int64_t begin, end, low = 0, high = guard.count;
    view_origin(view, from, to, &begin, &end);
    while (low < high) { /* the first range that ends after begin */
        int64_t middle = low + (high - low) / 2;
        if (guard.plain[middle].end > begin)
            high = middle;
        else
            low = middle + 1;
    }
    return low < guard.count && guard.plain[low].begin < end;
}

/* The longest token of the set that is allowed at this place of the text, or NULL. */
static const struct added_token *longest(const struct added_set *set, const struct view *view, int64_t at,
                                         struct added_guard guard, int64_t *steps)
{
    const struct added_token *found = NULL;
    const char *text = view->text + at;
    int64_t length = view->length - at;
    int64_t low = set->first[(uint8_t)text[0]], high = set->first[(uint8_t)text[0] + 1];
    for (int64_t depth = 1; low < high; depth++) {
        --*steps;
        const struct added_token *one = set->tokens[low], *other = set->tokens[high - 1];
        if (one->pattern_length > depth && one->pattern[depth] == other->pattern[depth]) { /* what all share, at once */
            int64_t here = shared_bytes(text + depth, one->pattern + depth, min(one->pattern_length, length) - depth);
            int64_t room = min(one->pattern_length, other->pattern_length) - depth;
            int64_t all = shared_bytes(one->pattern + depth, other->pattern + depth, min(here + 1, room));
            *steps -= here / SHARED_PIECE;
            if (all > here)
                break;
            depth += all;
        }
        if (set->tokens[low]->pattern_length == depth) {
            if (!guard.count || !set->tokens[low]->special || !is_guarded(view, guard, at, at + depth))
                found = set->tokens[low];
            low++;
        }
        if (depth == length)
            break;
        uint8_t c = (uint8_t)text[depth];
        for (int64_t a = low, b = high; (high = b), a < b;) { /* the first whose byte is above c */
            int64_t middle = a + (b - a) / 2;
            if ((uint8_t)set->tokens[middle]->pattern[depth] > c)
                b = middle;
            else
                a = middle + 1;
        }
        for (int64_t b = high; low < b;) { /* the first whose byte is not below c */
            int64_t middle = low + (b - low) / 2;
            if ((uint8_t)set->tokens[middle]->pattern[depth] < c)
                low = middle + 1;
            else
                b = middle;
        }
    }
    return found;
}

static enum status added_is_word(const struct added *added, struct regex_search *search, const char *text, int64_t length,
                                 bool *word)
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
        TRY(added_is_word(added, search, text + before, begin - before, &left));
    }
    if (end < length)
        TRY(added_is_word(added, search, text + end, utf8_decode(text + end, &code), &right));
    *inside = left || right;
    return OK;
}

/* The first byte from `at` on that a token starts with, or the length. */
static int64_t next_start(const struct added_set *set, const char *text, int64_t length, int64_t at)
{
    if (at >= length)
        return length;
    if (set->only >= 0) {
        const char *found = memchr(text + at, set->only, (size_t)(length - at));
        return found ? found - text : length;
    }
    while (at < length && !set->starts[(uint8_t)text[at]])
        at++;
    return at;
}

enum status added_split(const struct added *added, const struct added_set *set, struct regex_search *search, struct view view,
                        struct added_guard guard, added_sink *sink, void *context)
{
    const char *text = view.text;
    int64_t done = 0, length = view.length, steps = STEPS + STEPS_PER_BYTE * length;
    for (int64_t at = 0; set->count && (at = next_start(set, text, length, at)) < length;) {
        const struct added_token *token = longest(set, &view, at, guard, &steps);
        if (steps < 0)
            return fail(ERR_LIMIT, "the search for added tokens takes too long: too many of them begin as this text does");
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
            begin = max(begin, done);
        }
        if (token->strip_right)
            for (int n; end < length && (n = utf8_decode(text + end, &code), utf8_is_space(code));)
                end += n;
        if (done < begin)
            TRY(sink(context, NULL, done, begin));
        if (begin >= end) /* only space that the previous token has taken */
            continue;
        TRY(sink(context, token, begin, end));
        done = end;
    }
    return done < length ? sink(context, NULL, done, length) : OK;
}

static int added_compare(const void *a, const void *b)
{
    const struct added_token *x = *(const struct added_token *const *)a, *y = *(const struct added_token *const *)b;
    int64_t shared = min(x->pattern_length, y->pattern_length);
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
    qsort(set->tokens, (size_t)set->count, sizeof *set->tokens, added_compare);
    for (int64_t i = 0; i < set->count; i++) {
        if (i && added_compare(&set->tokens[i - 1], &set->tokens[i]) == 0)
            return fail(ERR_FORMAT, "%s: tokens \"%.60s\" and \"%.60s\" are the same once normalised", where,
                        set->tokens[i - 1]->content, set->tokens[i]->content);
        set->first[(uint8_t)set->tokens[i]->pattern[0] + 1]++;
    }
    int kinds = 0;
    for (int c = 0; c < 256; c++) {
        set->starts[c] = set->first[c + 1] > 0;
        kinds += set->starts[c];
        set->only = set->starts[c] ? c : set->only;
        set->first[c + 1] += set->first[c];
    }
    set->only = kinds == 1 ? set->only : -1;
    return OK;
}

enum status added_add(struct added *added, const struct added_token *token, const char *where)
{
    struct added_token t = *token;
    if (!t.length)
        return OK;
    if (t.length > TOKEN_BYTES_MAX)
        return fail(ERR_LIMIT, "%s: an added token of %lld bytes; at most %d are accepted", where, (long long)t.length,
                    TOKEN_BYTES_MAX);
    if (!(t.content = arena_text(&added->arena, t.content, t.length)))
        return ERR_MEMORY;
    if (!added->index.entries)
        TRY(map_init(&added->index, 64));
    int64_t index = map_get(&added->index, t.content, t.length);
    if (index < 0) {
        TRY(memory_grow(&added->tokens, &added->capacity, added->count + 1, (int64_t)sizeof *added->tokens));
        index = added->count++;
        TRY(map_put(&added->index, t.content, t.length, index, NULL));
    }
    added->tokens[index] = t; /* of a repeated token, the last counts */
    return OK;
}

static int64_t added_find(const struct added *added, const json_t *content)
{
    return map_get(&added->index, json_string_value(content), (int64_t)json_string_length(content));
}

/* A string, or an object with its content and flags; `special` is one that it has anyway. */
static enum status added_read_token(struct added *added, const json_t *json, int64_t id, bool special, const char *where)
{
    const json_t *content = json_is_string(json) ? json : json_object_get(json, "content");
    if (!json_is_string(content))
        return fail(ERR_FORMAT, "%s: an added token without \"content\"", where);
    struct added_token t = {.content = json_string_value(content), .length = (int64_t)json_string_length(content)};
    if (id < 0 || id >= INT32_MAX)
        return fail(ERR_FORMAT, "%s: added token \"%.60s\" cannot have the id %lld", where, t.content, (long long)id);
    t.id = (int32_t)id;
    TRY(json_get_bool(json, "single_word", &t.single_word, where));
    TRY(json_get_bool(json, "lstrip", &t.strip_left, where));
    TRY(json_get_bool(json, "rstrip", &t.strip_right, where));
    TRY(json_get_bool(json, "normalized", &t.normalized, where));
    TRY(json_get_bool(json, "special", &t.special, where));
    t.special |= special;
    return added_add(added, &t, where);
}

enum status added_read(struct added *added, const json_t *json, const char *where)
{
    const json_t *token;
    size_t i;
    if (json && !json_is_null(json) && !json_is_array(json))
        return fail(ERR_FORMAT, "%s: \"added_tokens\" must be an array", where);
    json_array_foreach(json, i, token)
    {
        int64_t id = -1;
        if (!json_is_string(json_object_get(token, "content")))
            return fail(ERR_FORMAT, "%s: an added token without \"content\"", where);
        TRY(json_need_int(token, "id", &id, where));
        TRY(added_read_token(added, token, id, false, where));
    }
    return OK;
}

const char *const tokenizer_names[TOKENIZER_NAMES] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                      "pad_token", "cls_token", "mask_token"};

static int by_number(const void *a, const void *b)
{
    int64_t x = strtoll(*(const char *const *)a, NULL, 10), y = strtoll(*(const char *const *)b, NULL, 10);
    return (x > y) - (x < y);
}

enum status added_read_config(struct added *added, const json_t *json, const char *where)
{
    int64_t count = (int64_t)json_object_size(json), n = 0;
    if (json && !json_is_null(json) && !json_is_object(json))
        return fail(ERR_FORMAT, "%s: \"added_tokens_decoder\" must be an object", where);
    const char **names = memory_alloc((count + 1) * (int64_t)sizeof *names);
    enum status status = names ? OK : ERR_MEMORY;
    for (void *i = json_object_iter((json_t *)json); status == OK && i; i = json_object_iter_next((json_t *)json, i))
        names[n++] = json_object_iter_key(i);
    if (n)
        qsort(names, (size_t)n, sizeof *names, by_number);
    for (int64_t i = 0; i < n && status == OK; i++) {
        const json_t *token = json_object_get(json, names[i]), *content = json_object_get(token, "content");
        char *end;
        int64_t id = strtoll(names[i], &end, 10), known = json_is_string(content) ? added_find(added, content) : -1;
        if (known >= 0)
            id = added->tokens[known].id;
        else if (*end || end == names[i])
            id = -1;
        status = added_read_token(added, token, id, known >= 0 && added->tokens[known].special, where);
    }
    memory_free(names);
    return status;
}

static enum status name_token(struct added *added, const struct vocabulary *vocabulary, const json_t *token, const char *where)
{
    const json_t *content = json_is_string(token) ? token : json_object_get(token, "content");
    if (!json_is_string(content) || added_find(added, content) >= 0)
        return OK;
    int64_t id = vocabulary_id(vocabulary, json_string_value(content), (int64_t)json_string_length(content));
    return id < 0 ? OK : added_read_token(added, token, id, true, where);
}

enum status added_read_names(struct added *added, const struct vocabulary *vocabulary, const json_t *config, const char *where)
{
    static const char *const lists[] = {"additional_special_tokens", "extra_special_tokens"};
    for (int i = 0; i < TOKENIZER_NAMES; i++)
        TRY(name_token(added, vocabulary, json_object_get(config, tokenizer_names[i]), where));
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        json_t *list = json_object_get(config, lists[i]), *token;
        const char *name;
        size_t k;
        json_array_foreach(list, k, token) TRY(name_token(added, vocabulary, token, where));
        json_object_foreach(list, name, token) TRY(name_token(added, vocabulary, token, where));
    }
    return OK;
}

/* Hugging Face's tokenizers take the id from the vocabulary, or number new tokens after it, whatever the file says. */
static enum status added_check_ids(struct added *added, const struct vocabulary *vocabulary, const char *where)
{
    int64_t next = vocabulary->count;
    for (int64_t i = 0; i < added->count; i++) {
        const struct added_token *t = &added->tokens[i];
        int64_t id = vocabulary_id(vocabulary, t->content, t->length);
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

enum status added_build(struct added *added, const struct vocabulary *vocabulary, const struct normalizer *normalizer,
                        const char *where)
{
    bool words = false;
    TRY(added_check_ids(added, vocabulary, where));
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
    static const char WORD[] = "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}]"; /* Rust's \w, not Oniguruma's */
    return words ? regex_open(&added->word, WORD, sizeof WORD - 1, where) : OK;
}

void added_close(struct added *added)
{
    regex_close(added->word);
    map_free(&added->index);
    memory_free(added->tokens);
    arena_free(&added->arena);
    *added = (struct added){0};
}
