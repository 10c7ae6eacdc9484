/* The names of losses.def. */
#include "job/loss_names.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *loss_names(unsigned losses, char text[static LOSS_NAMES])
{
    size_t length = 0;
    text[0] = 0;
    for (int i = 0; i < LOSS_COUNT; i++)
        if (losses & LOSS_BIT(i))
            length +=
                (size_t)snprintf(text + length, LOSS_NAMES - length, "%s%s", length ? "," : "", loss_of((enum loss_id)i)->name);
    return text;
}

enum status loss_by_name(enum loss_id *id, const char *name, int64_t length)
{
    char all[LOSS_NAMES];
    for (int i = 0; i < LOSS_COUNT; i++) {
        const char *known = loss_of((enum loss_id)i)->name;
        if ((int64_t)strlen(known) == length && !memcmp(known, name, (size_t)length)) {
            *id = (enum loss_id)i;
            return OK;
        }
    }
    return fail(ERR_ARGUMENT, "there is no loss '%.*s': they are %s", (int)(length < 80 ? length : 80), name,
                loss_names(~0u, all));
}

enum status loss_set_by_names(unsigned *losses, const char *text)
{
    *losses = 0;
    for (const char *at = text; at;) {
        int64_t length = (int64_t)strcspn(at, ",");
        enum loss_id id;
        TRY(loss_by_name(&id, at, length));
        *losses |= LOSS_BIT(id);
        at = at[length] ? at + length + 1 : NULL;
    }
    return OK;
}

/* As float32, which is what kernels get. */
static bool loss_names_in_range(const struct loss *loss, int setting, double value)
{
    float number = (float)value;
    return loss->setting[setting].above_0 ? isnormal(number) && number > 0 : value >= 0;
}

static void loss_names_take(struct loss_use *use, int setting, double value)
{
    use->setting[setting] = value;
    use->given[setting] = true;
    for (int i = 0; i < LOSS_NUMBERS; i++)
        if (loss_of(use->id)->setting[i].as_first && !use->given[i])
            use->setting[i] = use->setting[0];
}

enum status loss_set(struct loss_use *use, const char *setting, double value)
{
    const struct loss *loss = loss_of(use->id);
    char all[LOSS_NAMES] = "";
    for (int i = 0; i < LOSS_NUMBERS && loss->setting[i].name; i++) {
        size_t length = strlen(all);
        if (!strcmp(loss->setting[i].name, setting)) {
            if (!loss_names_in_range(loss, i, value))
                return fail(ERR_ARGUMENT, "%s of the loss %s is %g: it is %s", setting, loss->name, value,
                            loss->setting[i].above_0 ? "above 0 and finite" : "at least 0");
            loss_names_take(use, i, value);
            return OK;
        }
        snprintf(all + length, sizeof all - length, "%s%s", i ? ", " : "", loss->setting[i].name);
    }
    return fail(ERR_ARGUMENT, "the loss %s has no setting '%.80s'%s%s", loss->name, setting, *all ? ": it has " : "", all);
}
