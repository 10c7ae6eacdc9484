/* Finding a device by name: the table of all classes, which nothing in this folder calls. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "device/device.h"

enum purpose { COMPUTES, LISTS };
enum numbers { SINGLE, NUMBERED, NAMED };

static const struct kind {
    const struct device_class *class;
    enum purpose purpose;
    enum numbers numbers;
    const char *library, *hardware;
} kinds[] = {
#define DEVICE(name, purpose, numbers, library, hardware) {&device_##name, purpose, numbers, library, hardware},
#include "device/devices.def"
#undef DEVICE
};

enum { KINDS = sizeof kinds / sizeof kinds[0], TEXT_MAX = 256, NUMBER_MAX = 9999 };

const char *device_choice(int index)
{
    for (int i = 0; i < KINDS; i++)
        if (kinds[i].purpose == COMPUTES && index-- == 0)
            return kinds[i].class->name;
    return NULL;
}

/* Why `auto` took this kind: what those before it lack. */
static void give_reason(char text[TEXT_MAX], int chosen)
{
    int at = 0;
    if (!chosen)
        snprintf(text, TEXT_MAX, "%s comes first where there is a %s for it", kinds[0].library, kinds[0].hardware);
    for (int i = 0; i < chosen && at < TEXT_MAX; i++)
        at += snprintf(text + at, (size_t)(TEXT_MAX - at), "%s no %s for %s", i ? " and" : "there is", kinds[i].hardware,
                       kinds[i].library);
}

/* Opens the best device of this machine. One that is present but unusable is an error: a card should not idle unnoticed. */
static enum status open_best(struct device **out)
{
    int chosen = 0;
    for (; chosen < KINDS; chosen++) {
        if (kinds[chosen].purpose != COMPUTES)
            continue;
        enum status status = kinds[chosen].class->open(out, DEVICE_AUTO);
        if (status != OK)
            return fail_at(status, "there is a device for %s, but it cannot be used (--device cpu runs without it): ",
                           kinds[chosen].class->name);
        if (*out)
            break;
    }
    if (!*out)
        return fail(ERR_DEVICE, "no device is usable");
    return OK;
}

void device_tell_best(struct device *d, enum log_level level)
{
    struct device_info info;
    char reason[TEXT_MAX];
    int chosen = 0;
    while (chosen < KINDS - 1 && kinds[chosen].class != d->class)
        chosen++;
    device_info(d, &info);
    give_reason(reason, chosen);
    log_message(level, "device %s: %s (%s; --device chooses another)", d->class->name, info.name, reason);
}

static enum status unknown_name(const char *name)
{
    char names[TEXT_MAX] = "";
    int at = 0;
    for (int i = 0; device_choice(i) && at < TEXT_MAX; i++)
        at += snprintf(names + at, (size_t)(TEXT_MAX - at), "%s%s", i ? ", " : "", device_choice(i));
    return fail(ERR_ARGUMENT, "there is no device '%s': use %s or auto", name, names);
}

/* What follows a device's name: nothing, or a colon and its number or id. */
static enum status device_table_read_number(const struct kind *kind, const char *name, const char *rest, int *number)
{
    char *end = NULL;
    *number = DEVICE_PREFERRED;
    if (!*rest)
        return OK;
    if (kind->numbers == SINGLE)
        return fail(ERR_ARGUMENT, "there is no device '%s': there is one %s, which takes no number", name, kind->class->name);
    if (kind->class->find && ((rest[1] | 32) == 'g' || (rest[1] | 32) == 'm'))
        return kind->class->find(rest + 1, number);
    long value = rest[1] >= '0' && rest[1] <= '9' ? strtol(rest + 1, &end, 10) : -1;
    if (value < 0 || value > NUMBER_MAX || *end)
        return fail(ERR_ARGUMENT, "there is no device '%s': after the colon comes a number from 0, as in %s:1%s", name,
                    kind->class->name, kind->class->find ? ", or an id that hone devices prints" : "");
    *number = (int)value;
    return OK;
}

enum status device_open(struct device **out, const char *name)
{
    size_t length = strcspn(name, ":");
    int number;
    *out = NULL;
    if (!strcmp(name, DEVICE_BEST))
        return open_best(out);
    for (int i = 0; i < KINDS; i++)
        if (strlen(kinds[i].class->name) == length && !strncmp(name, kinds[i].class->name, length)) {
            if (kinds[i].numbers == NAMED && name[length])
                return kinds[i].class->open_named(out, name + length + 1);
            TRY(device_table_read_number(&kinds[i], name, name + length, &number));
            return kinds[i].class->open(out, number);
        }
    return unknown_name(name);
}

int device_count(const char *name)
{
    for (int i = 0; i < KINDS; i++)
        if (!strcmp(kinds[i].class->name, name))
            return kinds[i].class->count ? kinds[i].class->count() : 0;
    return 0;
}
