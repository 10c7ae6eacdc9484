/* Checks of rows.
 *
 * The idea: most checks need only ids and mask. Special tokens in messages are searched in the bytes of the row's JSON, and only
 * a row where one is found is parsed again, to see whether it is in a message at all.
 */
#include "data/row_checks.h"

#include <string.h>

#include "base/hash.h"
#include "base/number.h"
#include "data/parse.h"

enum { KEYS_MIN = 1 << 10, KEYS_MAX = 1 << 22 };

struct special {
    const char *text;
    int64_t length;
};

struct checker {
    const struct chat *chat;
    struct arena arena;
    struct special *specials; /* unsorted: few share a first byte */
    int64_t count, capacity;
    int32_t first[256]; /* the index of the first special with this byte, or -1; `next` links the others */
    int32_t *next;
    int64_t next_capacity;
};

static enum status row_checks_add_special(struct checker *c, int32_t id, struct buffer *text)
{
    text->size = 0;
    TRY(tokenizer_decode(chat_tokenizer(c->chat), &id, 1, true, text));
    if (text->size < 2) /* a special token of one character cannot be told apart from text */
        return OK;
    char *copy = arena_text(&c->arena, text->data, text->size);
    if (!copy)
        return ERR_MEMORY;
    TRY(memory_grow(&c->specials, &c->capacity, c->count + 1, (int64_t)sizeof *c->specials));
    TRY(memory_grow(&c->next, &c->next_capacity, c->count + 1, (int64_t)sizeof *c->next));
    uint8_t byte = (uint8_t)copy[0];
    c->specials[c->count] = (struct special){copy, text->size};
    c->next[c->count] = c->first[byte];
    c->first[byte] = (int32_t)c->count++;
    return OK;
}

enum status checker_open(struct checker **out, const struct chat *chat)
{
    *out = NULL;
    struct checker *c = memory_alloc((int64_t)sizeof *c);
    if (!c)
        return ERR_MEMORY;
    c->chat = chat;
    memset(c->first, -1, sizeof c->first); /* all bits of -1 are set */
    struct buffer text = {0};
    enum status status = OK;
    const struct tokenizer *tokenizer = chat_tokenizer(chat);
    for (int64_t id = 0; id < tokenizer_vocabulary(tokenizer) && status == OK; id++)
        if (tokenizer_is_special(tokenizer, (int32_t)id))
            status = row_checks_add_special(c, (int32_t)id, &text);
    buffer_free(&text);
    if (status == OK)
        *out = c;
    else
        checker_close(c);
    return status;
}

void checker_close(struct checker *c)
{
    if (!c)
        return;
    arena_free(&c->arena);
    memory_free(c->specials);
    memory_free(c->next);
    memory_free(c);
}

static bool spells(const struct checker *c, const char *text, int64_t length)
{
    for (int64_t i = 0; i < length; i++)
        for (int32_t s = c->first[(uint8_t)text[i]]; s >= 0; s = c->next[s]) {
            const struct special *special = &c->specials[s];
            if (special->length <= length - i && memcmp(text + i, special->text, (size_t)special->length) == 0)
                return true;
        }
    return false;
}

/* Any string inside a value, however deep: a parsed row has a bounded depth. */
static bool spells_inside(const struct checker *c, const json_t *value)
{
    size_t i;
    const char *key;
    json_t *member;
    if (json_is_string(value))
        return spells(c, json_string_value(value), (int64_t)json_string_length(value));
    json_array_foreach(value, i, member) if (spells_inside(c, member)) return true;
    if (json_is_object(value))
        json_object_foreach((json_t *)value, key, member) if (spells_inside(c, member)) return true;
    return false;
}

/* Where the texts of each kind of row are. */
static bool spells_in_row(const struct checker *c, const char *text, int64_t length, enum row_kind kind)
{
    static const char *const keys[] = {"messages", "conversations", "system", "instruction", "input", "output", "history"};
    static const char *const answers[] = {"prompt", "completion", "chosen", "input", "preferred_output"};
    bool found = false, whole = kind == ROW_MESSAGES || kind == ROW_SHAREGPT || kind == ROW_ALPACA;
    json_t *tree;
    if (parse_row(&tree, text, length) != OK)
        return false;
    for (size_t i = 0; whole && !found && i < sizeof keys / sizeof *keys; i++)
        found = spells_inside(c, json_object_get(tree, keys[i]));
    for (size_t i = 0; !whole && !found && i < sizeof answers / sizeof *answers; i++)
        found = spells_inside(c, json_object_get(tree, answers[i]));
    found = found || (kind == ROW_TEXT && spells_inside(c, json_object_get(tree, "text")));
    json_decref(tree);
    return found;
}

static bool ends_turn(const struct checker *c, int32_t id)
{
    int64_t count;
    const int32_t *eos = chat_eos(c->chat, &count);
    for (int64_t i = 0; i < count; i++)
        if (eos[i] == id)
            return true;
    return tokenizer_is_special(chat_tokenizer(c->chat), id);
}

/* Whether the JSON writes a character of ASCII by its number, as \u003c for '<'. */
static bool escapes_ascii(const char *text, int64_t length)
{
    const char *end = text + length;
    for (const char *p = text; (p = memmem(p, (size_t)(end - p), "\\u00", 4)); p += 4)
        if (end - p > 4 && p[4] >= '2' && p[4] <= '7')
            return true;
    return false;
}

/* Messages may not spell special tokens. Plain text may, on purpose: it is then written as a template writes it. */
static unsigned check_specials(const struct checker *c, const char *text, int64_t length, enum row_kind kind,
                               const struct chat_row *row)
{
    if (!row->messages && !chat_has_template(c->chat))
        return 0;
    bool found = (spells(c, text, length) || escapes_ascii(text, length)) && spells_in_row(c, text, length, kind);
    if (row->messages)
        return found ? 1u << CHECK_SPECIAL : 0;
    return found ? 0 : 1u << CHECK_NO_TEMPLATE;
}

static uint64_t row_key(const struct chat_row *row)
{
    struct hash hash;
    hash_init(&hash);
    hash_add(&hash, row->tokens.id, row->tokens.count * (int64_t)sizeof *row->tokens.id);
    hash_add(&hash, row->mask, row->tokens.count);
    return hash_end(&hash).low;
}

unsigned check_find(const struct checker *c, const char *text, int64_t length, enum row_kind kind, const struct chat_row *row)
{
    const int32_t *ids = row->tokens.id;
    int64_t n = row->tokens.count, last = n - 1;
    unsigned found = 0;
    while (last > 0 && !row->mask[last])
        last--;
    if (last <= 0) /* the first token has nothing before it to be predicted from */
        found |= 1u << CHECK_UNTRAINED;
    else if (!ends_turn(c, ids[last]))
        found |= 1u << CHECK_END;
    if (n > 1 && ids[0] == ids[1] && tokenizer_is_special(chat_tokenizer(c->chat), ids[0]))
        found |= 1u << CHECK_DOUBLE_BOS;
    return found | check_specials(c, text, length, kind, row);
}

void check_row(const struct checker *c, const char *text, int64_t length, enum row_kind kind, const struct chat_row *row,
               struct check_result *result)
{
    *result = (struct check_result){.found = check_find(c, text, length, kind, row),
                                    .key = row_key(row),
                                    .tokens = row->tokens.count,
                                    .trained = row->trained};
}

/* Inserts a key into an open table that has a free place, and says whether it was there. 0 marks a free place. */
static bool row_checks_put_key(uint64_t *keys, int64_t capacity, uint64_t key)
{
    int64_t i = (int64_t)(key >> 20 & (uint64_t)(capacity - 1));
    while (keys[i] && keys[i] != key)
        i = (i + 1) & (capacity - 1);
    bool there = keys[i] == key;
    keys[i] = key;
    return there;
}

static bool kept(const struct check_summary *s, uint64_t key)
{
    return (key & ((UINT64_C(1) << s->level) - 1)) == 0;
}

/* Grows the table or, at its max size, drops half of the keys. */
static enum status row_checks_make_room(struct check_summary *s)
{
    int64_t capacity = s->key_capacity ? s->key_capacity * 2 : KEYS_MIN;
    if (capacity > KEYS_MAX) {
        capacity = KEYS_MAX;
        s->level++;
    }
    uint64_t *keys = memory_alloc(capacity * (int64_t)sizeof *keys);
    if (!keys)
        return ERR_MEMORY;
    s->key_count = 0;
    for (int64_t i = 0; i < s->key_capacity; i++)
        if (s->keys[i] && kept(s, s->keys[i])) {
            row_checks_put_key(keys, capacity, s->keys[i]);
            s->key_count++;
        }
    memory_free(s->keys);
    s->keys = keys;
    s->key_capacity = capacity;
    return OK;
}

enum status check_add(struct check_summary *s, const struct check_result *result, const struct check_place *place)
{
    uint64_t key = result->key ? result->key : UINT64_C(1) << 32;
    while (s->key_count * 2 >= s->key_capacity)
        TRY(row_checks_make_room(s));
    bool here = kept(s, key), duplicate = here && row_checks_put_key(s->keys, s->key_capacity, key);
    s->key_count += here && !duplicate;
    s->rows++;
    s->tokens += result->tokens;
    s->trained += result->trained;
    unsigned found = result->found | (duplicate ? 1u << CHECK_DUPLICATE : 0);
    if (s->max_tokens && result->tokens > s->max_tokens)
        found |= 1u << CHECK_LONG;
    for (int c = 0; c < CHECKS; c++)
        if (found >> c & 1) {
            s->first[c] = s->count[c] ? s->first[c] : *place;
            s->count[c] += c == CHECK_DUPLICATE ? INT64_C(1) << s->level : 1;
        }
    return OK;
}

void check_free(struct check_summary *s)
{
    memory_free(s->keys);
    *s = (struct check_summary){0};
}

static const struct {
    const char *name, *advice;
} TEXTS[CHECKS] = {
    [CHECK_UNTRAINED] = {"nothing trained",
                         "a row without a trained token costs time and teaches nothing: does it have an answer, and does "
                         "the chat template print it?"},
    [CHECK_DOUBLE_BOS] = {"double BOS",
                          "rows begin with the same special token twice, which no model has seen: remove it from the data "
                          "or the chat template"},
    [CHECK_END] = {"end of turn not trained",
                   "the last trained token does not end the turn, so the model would not learn to stop: does the chat "
                   "template end an answer with a special token?"},
    [CHECK_SPECIAL] = {"special tokens in text",
                       "messages spell special tokens, usually because a template was applied before: give "
                       "the original messages, or --raw for prompts and completions that are strings"},
    [CHECK_NO_TEMPLATE] =
        {"trained without the chat template",
         "hone chat and servers ask through the template, these rows do not: hone generate --raw asks as they do; and "
         "prompts with completions go through it without --raw"},
    [CHECK_DUPLICATE] = {"duplicate rows", "the same tokens occur again and count more than the others: is that intended?"},
    [CHECK_LONG] = {"too long",
                    "rows have more tokens than --max-length, which is the model's window if it is not given: --excess-length "
                    "truncate, split or drop says what becomes of them, else a run stops"},
};

const char *check_name(enum check check)
{
    return TEXTS[check].name;
}

const char *check_advice(enum check check)
{
    return TEXTS[check].advice;
}

bool check_exact(const struct check_summary *s, enum check check)
{
    return check != CHECK_DUPLICATE || s->level == 0;
}

bool check_stops(const struct check_summary *s, enum check check)
{
    if (check == CHECK_UNTRAINED)
        return s->count[check] == s->rows;
    return (check == CHECK_DOUBLE_BOS || (check == CHECK_LONG && s->long_stops)) && s->count[check] > 0;
}

enum status check_verdict(const struct check_summary *s)
{
    if (!s->rows)
        return fail(ERR_DATA, "there are no rows");
    if (check_stops(s, CHECK_UNTRAINED))
        return fail(ERR_DATA, "there is no token to train in %lld row%s: %s", (long long)s->rows, plural(s->rows),
                    check_advice(CHECK_UNTRAINED));
    if (check_stops(s, CHECK_DOUBLE_BOS))
        return fail(ERR_DATA,
                    "%lld of %lld row%s begin%s with the same special token twice, the first is row %lld, line %lld of its file: "
                    "remove it from the data or the chat template",
                    (long long)s->count[CHECK_DOUBLE_BOS], (long long)s->rows, plural(s->rows),
                    s->count[CHECK_DOUBLE_BOS] == 1 ? "s" : "", (long long)s->first[CHECK_DOUBLE_BOS].row,
                    (long long)s->first[CHECK_DOUBLE_BOS].line);
    if (check_stops(s, CHECK_LONG))
        return fail(ERR_DATA,
                    "%lld of %lld row%s %s more than %lld tokens, the first is row %lld, line %lld of its file: choose "
                    "--excess-length truncate, split or drop, or raise --max-length if the model's window is larger",
                    (long long)s->count[CHECK_LONG], (long long)s->rows, plural(s->rows),
                    s->count[CHECK_LONG] == 1 ? "has" : "have", (long long)s->max_tokens, (long long)s->first[CHECK_LONG].row,
                    (long long)s->first[CHECK_LONG].line);
    return OK;
}
