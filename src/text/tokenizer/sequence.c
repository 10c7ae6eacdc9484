/* Steps of Sequences, in order. */
#include "text/tokenizer/sequence.h"

#include <string.h>

enum { NESTING_MAX = 8 };

struct walk {
    const struct sequence_part *part;
    sequence_step *step;
    void *context;
    const char *where;
};

static enum status sequence_open_step(const struct walk *w, const char *type, const json_t *json)
{
    const char *row = w->part->kinds;
    for (size_t i = 0; i < w->part->count; i++, row += w->part->size)
        if (strcmp(type, *(const char *const *)(const void *)row) == 0)
            return w->step(w->context, row, json, w->where);
    return fail(ERR_UNSUPPORTED, "%s: a %s of type \"%s\" is not supported", w->where, w->part->step, type);
}

static enum status walk(const struct walk *w, const json_t *json, int nesting)
{
    const char *type = "";
    TRY(json_get_text(json, "type", &type, w->where));
    if (strcmp(type, "Sequence") != 0)
        return sequence_open_step(w, type, json);
    const json_t *steps = json_object_get(json, w->part->list), *item;
    size_t i;
    if (nesting >= NESTING_MAX || !json_is_array(steps))
        return fail(ERR_FORMAT, "%s: a Sequence without a list, or nested too deep", w->where);
    json_array_foreach(steps, i, item) TRY(walk(w, item, nesting + 1));
    return OK;
}

enum status sequence_walk(const struct sequence_part *part, const json_t *json, sequence_step *step, void *context,
                          const char *where)
{
    return walk(&(struct walk){part, step, context, where}, json, 0);
}
