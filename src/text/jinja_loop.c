/* The `loop` variable of a for loop. */
#include <string.h>

#include "text/jinja_run.h"

static enum status loop_cycle(struct render *render, struct value self, const struct args *args, struct value *out)
{
    if (args->count == 0)
        return render_fail(render, ERR_DATA, "loop.cycle: no items for cycling given");
    *out = args->item[self.loop->index % args->count];
    return OK;
}

static enum status loop_changed(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct value now;
    bool same = false;
    TRY(value_list(render, VALUE_TUPLE, 0, &now));
    now.list->item = args->item;
    now.list->count = args->count;
    if (self.loop->changed.kind != VALUE_ABSENT)
        TRY(value_equal(render, self.loop->changed, now, &same));
    self.loop->changed = now;
    *out = value_bool(!same);
    return OK;
}

enum status loop_attribute(struct render *render, struct value self, const char *name, struct value *out)
{
    static const struct function functions[] = {{"cycle", loop_cycle}, {"changed", loop_changed}};
    const struct loop *loop = self.loop;
    int64_t i = loop->index, count = loop->items.count;
    const struct { const char *name; struct value value;
    } plain[] = {
        {"index", value_int(i + 1)},
        {"index0", value_int(i)},
        {"first", value_bool(i == 0)},
        {"last", value_bool(i + 1 == count)},
        {"length", value_int(count)},
        {"revindex", value_int(count - i)},
        {"revindex0", value_int(count - i - 1)},
        {"depth", value_int(loop->depth)},
        {"depth0", value_int(loop->depth - 1)},
        {"previtem", i > 0 && i <= count ? loop->items.item[i - 1] : value_undefined("there is no previous item")},
        {"nextitem", i + 1 < count ? loop->items.item[i + 1] : value_undefined("there is no next item")},
    };
    for (size_t k = 0; k < sizeof plain / sizeof *plain; k++) {
        if (strcmp(plain[k].name, name) == 0) {
            *out = plain[k].value;
            return OK;
        }
    }
    *out = value_undefined(name);
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++) {
        if (strcmp(functions[k].name, name) == 0) {
            struct method *method;
            TRY(render_alloc(render, 1, (int64_t)sizeof *method, &method));
            *method = (struct method){&functions[k], self};
            *out = (struct value){.kind = VALUE_METHOD, .origin = NO_MESSAGE, .method = method};
        }
    }
    return OK;
}
