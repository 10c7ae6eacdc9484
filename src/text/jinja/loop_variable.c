/* The `loop` variable of a for loop. */
#include <string.h>

#include "text/jinja/run.h"

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
    TRY(value_list(render, VALUE_TUPLE, args->count, &now));
    for (int64_t i = 0; i < args->count; i++)
        now.list->item[i] = args->item[i];
    if (self.loop->changed.kind != VALUE_ABSENT)
        TRY(value_equal(render, self.loop->changed, now, &same));
    self.loop->changed = now;
    *out = value_bool(!same);
    return OK;
}

enum field { INDEX, INDEX0, FIRST, LAST, LENGTH, REVINDEX, REVINDEX0, DEPTH, DEPTH0, PREVIOUS, NEXT, CYCLE, CHANGED };

int loop_field(const char *name)
{
    static const char *const names[] = {"index", "index0", "first",    "last",     "length", "revindex", "revindex0",
                                        "depth", "depth0", "previtem", "nextitem", "cycle",  "changed"};
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

enum status loop_attribute(struct render *render, struct value self, int field, const char *name, struct value *out)
{
    static const struct function cycle = {"cycle", loop_cycle}, changed = {"changed", loop_changed};
    const struct loop *loop = self.loop;
    int64_t i = loop->index, count = loop->items.count;
    switch (field) {
    case INDEX: *out = value_int(i + 1); break;
    case INDEX0: *out = value_int(i); break;
    case FIRST: *out = value_bool(i == 0); break;
    case LAST: *out = value_bool(i + 1 == count); break;
    case LENGTH: *out = value_int(count); break;
    case REVINDEX: *out = value_int(count - i); break;
    case REVINDEX0: *out = value_int(count - i - 1); break;
    case DEPTH: *out = value_int(loop->depth); break;
    case DEPTH0: *out = value_int(loop->depth - 1); break;
    case PREVIOUS: *out = i > 0 && i <= count ? loop->items.item[i - 1] : value_undefined("there is no previous item"); break;
    case NEXT: *out = i + 1 < count ? loop->items.item[i + 1] : value_undefined("there is no next item"); break;
    case CYCLE:
    case CHANGED: return method_bind(render, self, field == CYCLE ? &cycle : &changed, out);
    default: *out = value_undefined(name);
    }
    return OK;
}
