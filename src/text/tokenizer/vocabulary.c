/* Vocabularies: the contents in one arena, a table by id and a map by content. */
#include "text/tokenizer/vocabulary.h"

#include <stdio.h>
#include <string.h>

#include "base/number.h"

/* Ids may have holes, but the tables are as long as the largest id: it must be plausible for the size of the file. */
enum { SPARSE_FREE = 1 << 20, SPARSE_FACTOR = 2 };

static enum status vocabulary_check_ids(struct vocabulary *v, const struct vocabulary_item *items, int64_t count,
                                        const char *where)
{
    int64_t limit = min(SPARSE_FREE + count * SPARSE_FACTOR, INT32_MAX);
    for (int64_t i = 0; i < count; i++) {
        if (items[i].id < 0 || items[i].id >= limit)
            return fail(ERR_FORMAT, "%s: the id of token \"%.*s\" must be a whole number from 0 to %lld", where,
                        (int)min(items[i].length, 60), items[i].text, (long long)limit - 1);
        v->limit = items[i].id >= v->limit ? items[i].id + 1 : v->limit;
    }
    return OK;
}

enum status vocabulary_init(struct vocabulary *v, const struct vocabulary_item *items, int64_t count, const char *where)
{
    *v = (struct vocabulary){.count = count};
    TRY(vocabulary_check_ids(v, items, count, where));
    int64_t bytes = 0, old;
    for (int64_t i = 0; i < count; i++)
        bytes += items[i].length + 1;
    char *text = arena_alloc(&v->arena, bytes + 1);
    v->tokens = arena_array(&v->arena, v->limit + 1, sizeof *v->tokens);
    if (!text || !v->tokens)
        return ERR_MEMORY;
    TRY(map_init(&v->ids, count));
    for (int64_t i = 0; i < count; i++) {
        struct vocabulary_token *token = &v->tokens[items[i].id];
        memcpy(text, items[i].text, (size_t)items[i].length);
        if (token->text)
            return fail(ERR_FORMAT, "%s: tokens \"%.60s\" and \"%.60s\" have the same id %lld", where, token->text, text,
                        (long long)items[i].id);
        *token = (struct vocabulary_token){text, items[i].length};
        TRY(map_put(&v->ids, text, items[i].length, items[i].id, &old));
        if (old >= 0)
            return fail(ERR_FORMAT, "%s: token \"%.60s\" occurs twice, with the ids %lld and %lld", where, text, (long long)old,
                        (long long)items[i].id);
        text += items[i].length + 1;
    }
    return OK;
}

void vocabulary_free(struct vocabulary *v)
{
    map_free(&v->ids);
    arena_free(&v->arena);
    *v = (struct vocabulary){0};
}

/* Contents with escapes are kept in the arena, the others stay where they are. */
static enum status vocabulary_read_items(struct json_reader *r, struct arena *arena, struct vocabulary_item **items,
                                         int64_t *count)
{
    int64_t capacity = 0;
    bool more;
    TRY(json_reader_enter(r, '{'));
    for (;;) {
        struct json_span text;
        double id;
        TRY(json_reader_next(r, '}', &more));
        if (!more)
            return OK;
        TRY(json_reader_key(r, &text));
        TRY(json_reader_keep(r, arena, &text));
        char first = json_reader_peek(r);
        if (first == '-' || (first >= '0' && first <= '9'))
            TRY(json_reader_number(r, &id));
        else
            return json_reader_fail(r, "an id must be a whole number");
        TRY(memory_grow(items, &capacity, *count + 1, (int64_t)sizeof **items));
        bool whole = id >= 0 && id < INT32_MAX && (double)(int32_t)id >= id;
        (*items)[(*count)++] = (struct vocabulary_item){text.text, text.length, whole ? (int64_t)id : -1};
    }
}

enum status vocabulary_read(struct vocabulary *v, struct json_span json, const char *where)
{
    struct json_reader reader;
    struct arena arena = {0};
    struct vocabulary_item *items = NULL;
    int64_t count = 0;
    if (!json.text || *json.text != '{')
        return fail(ERR_FORMAT, "%s: \"vocab\" must be an object with tokens", where);
    json_reader_init(&reader, json.text, json.length, where);
    enum status status = vocabulary_read_items(&reader, &arena, &items, &count);
    if (status == OK && !count)
        status = fail(ERR_FORMAT, "%s: \"vocab\" must be an object with tokens", where);
    if (status == OK)
        status = vocabulary_init(v, items, count, where);
    memory_free(items);
    arena_free(&arena);
    json_reader_free(&reader);
    return status;
}

int32_t vocabulary_id(const struct vocabulary *v, const char *text, int64_t length)
{
    return (int32_t)map_get(&v->ids, text, length);
}

bool vocabulary_bytes(const struct vocabulary *v, int32_t ids[256])
{
    bool all = true;
    for (int byte = 0; byte < 256; byte++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte);
        ids[byte] = vocabulary_id(v, name, 6);
        all = all && ids[byte] >= 0;
    }
    return all;
}
