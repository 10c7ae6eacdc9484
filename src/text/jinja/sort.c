/* A stable merge sort that can fail, because comparing can. */
#include <string.h>

#include "base/number.h"
#include "text/jinja/value.h"

struct keyed {
    struct value key, value;
};

static enum status merge(struct render *render, struct keyed *a, struct keyed *scratch, int64_t count, int sign)
{
    for (int64_t width = 1; width < count; width *= 2) {
        for (int64_t begin = 0; begin < count; begin += 2 * width) {
            int64_t middle = min(begin + width, count);
            int64_t end = begin + 2 * width < count ? begin + 2 * width : count;
            int64_t i = begin, j = middle;
            for (int64_t k = begin; k < end; k++) {
                int order = 0;
                TRY(render_step(render, 1));
                if (i < middle && j < end)
                    TRY(value_compare(render, a[i].key, a[j].key, &order));
                scratch[k] = j >= end || (i < middle && order * sign <= 0) ? a[i++] : a[j++];
            }
        }
        memcpy(a, scratch, (size_t)count * sizeof *a);
    }
    return OK;
}

enum status sort_values(struct render *render, struct value *value, struct value *key, int64_t count, bool reverse)
{
    struct keyed *items, *scratch;
    TRY(render_alloc(render, count, (int64_t)sizeof *items, &items));
    TRY(render_alloc(render, count, (int64_t)sizeof *items, &scratch));
    for (int64_t i = 0; i < count; i++)
        items[i] = (struct keyed){key[i], value[i]};
    TRY(merge(render, items, scratch, count, reverse ? -1 : 1));
    for (int64_t i = 0; i < count; i++)
        value[i] = items[i].value;
    return OK;
}
