/* Steps of Sequences, in order. */
#include "text/tokenizer/sequence.h"

#include <string.h>

enum { NESTING_MAX = 8 };

static enum status walk(const json_t *json, const char *list, int nesting, sequence_step *step, void *context, const char *where)
{
    const char *type = "";
    TRY(json_get_text(json, "type", &type, where));
    if (strcmp(type, "Sequence") != 0)
        return step(context, type, json, where);
    const json_t *steps = json_object_get(json, list), *item;
    size_t i;
    if (nesting >= NESTING_MAX || !json_is_array(steps))
        return fail(ERR_FORMAT, "%s: a Sequence without a list, or nested too deep", where);
    json_array_foreach(steps, i, item) TRY(walk(item, list, nesting + 1, step, context, where));
    return OK;
}

enum status sequence_walk(const json_t *json, const char *list, sequence_step *step, void *context, const char *where)
{
    return walk(json, list, 0, step, context, where);
}
