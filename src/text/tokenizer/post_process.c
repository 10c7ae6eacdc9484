/* Post-processors, for one text: each puts tokens around the text. To add a kind, add a row to KINDS. */
#include "text/tokenizer/post_process.h"

#include <string.h>

#include "text/tokenizer/sequence.h"

static enum status post_process_add(struct post_process *post, int64_t id, bool after, int64_t limit, const char *where)
{
    if (id < 0 || id >= limit)
        return fail(ERR_FORMAT, "%s: the id %lld is not in the vocabulary", where, (long long)id);
    if ((after ? post->after_count : post->before_count) == POST_PROCESS_MAX)
        return fail(ERR_LIMIT, "%s: more than %d tokens around a text", where, POST_PROCESS_MAX);
    if (after)
        post->after[post->after_count++] = (int32_t)id;
    else
        post->before[post->before_count++] = (int32_t)id;
    return OK;
}

/* "special_tokens": {"<s>": {"ids": [1], ...}} */
static enum status post_process_add_special(struct post_process *post, const json_t *json, const char *name, bool after,
                                            int64_t limit, const char *where)
{
    const json_t *ids = json_object_get(json_object_get(json_object_get(json, "special_tokens"), name), "ids"), *id;
    size_t i;
    if (!json_is_array(ids))
        return fail(ERR_FORMAT, "%s: the special token \"%.60s\" has no ids", where, name);
    json_array_foreach(ids, i, id)
        TRY(post_process_add(post, json_is_integer(id) ? json_integer_value(id) : -1, after, limit, where));
    return OK;
}

static enum status open_template(struct post_process *post, const json_t *json, int64_t limit, const char *where)
{
    const json_t *single = json_object_get(json, "single"), *item;
    bool text = false;
    size_t i;
    if (!json_is_array(single))
        return fail(ERR_FORMAT, "%s: a TemplateProcessing without \"single\"", where);
    json_array_foreach(single, i, item)
    {
        const char *name = "";
        const json_t *special = json_object_get(item, "SpecialToken"), *sequence = json_object_get(item, "Sequence");
        TRY(json_get_text(special ? special : sequence, "id", &name, where));
        if (special)
            TRY(post_process_add_special(post, json, name, text, limit, where));
        else if (strcmp(name, "A") != 0 || text)
            return fail(ERR_UNSUPPORTED, "%s: a template with its text twice, or with a second text, is not supported", where);
        else
            text = true;
    }
    return text ? OK : fail(ERR_UNSUPPORTED, "%s: a template without the text is not supported", where);
}

/* BERT's and RoBERTa's: "cls": ["[CLS]", 101], "sep": ["[SEP]", 102]. */
static enum status post_process_open_pair(struct post_process *post, const json_t *json, int64_t limit, const char *where)
{
    const json_t *cls = json_array_get(json_object_get(json, "cls"), 1), *sep = json_array_get(json_object_get(json, "sep"), 1);
    TRY(post_process_add(post, json_is_integer(cls) ? json_integer_value(cls) : -1, false, limit, where));
    return post_process_add(post, json_is_integer(sep) ? json_integer_value(sep) : -1, true, limit, where);
}

/* ByteLevel only trims offsets, and hone's are those of the text. */
static enum status open_nothing(struct post_process *post, const json_t *json, int64_t limit, const char *where)
{
    (void)post;
    (void)json;
    (void)limit;
    (void)where;
    return OK;
}

static const struct kind {
    const char *name;
    enum status (*open)(struct post_process *post, const json_t *json, int64_t limit, const char *where);
} KINDS[] = {
    {"ByteLevel", open_nothing},
    {"TemplateProcessing", open_template},
    {"BertProcessing", post_process_open_pair},
    {"RobertaProcessing", post_process_open_pair},
};

static const struct sequence_part PART = SEQUENCE_PART("post_processor", "processors", KINDS);

/* One step of a sequence goes around what the steps before it made. */
static enum status surround(struct post_process *post, const struct post_process *step, const char *where)
{
    if (step->before_count + post->before_count > POST_PROCESS_MAX || step->after_count + post->after_count > POST_PROCESS_MAX)
        return fail(ERR_LIMIT, "%s: more than %d tokens around a text", where, POST_PROCESS_MAX);
    memmove(post->before + step->before_count, post->before, (size_t)post->before_count * sizeof *post->before);
    memcpy(post->before, step->before, (size_t)step->before_count * sizeof *post->before);
    memcpy(post->after + post->after_count, step->after, (size_t)step->after_count * sizeof *post->after);
    post->before_count += step->before_count;
    post->after_count += step->after_count;
    return OK;
}

struct opening {
    struct post_process *post;
    int64_t limit;
};

static enum status post_process_open_step(void *context, const void *row, const json_t *json, const char *where)
{
    const struct kind *kind = row;
    const struct opening *opening = context;
    struct post_process step = {0};
    TRY(kind->open(&step, json, opening->limit, where));
    return surround(opening->post, &step, where);
}

enum status post_process_open(struct post_process *post, const json_t *json, int64_t limit, const char *where)
{
    *post = (struct post_process){0};
    struct opening opening = {post, limit};
    return !json || json_is_null(json) ? OK : sequence_walk(&PART, json, post_process_open_step, &opening, where);
}
