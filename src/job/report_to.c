/* Reading the list of --report-to. */
#include "job/report_to.h"

#include <string.h>

static bool report_to_is_word(const char *text, size_t length, enum choice_report_to word)
{
    const char *name = options_word(OPTION_report_to, (int)word);
    return strlen(name) == length && !strncmp(text, name, length);
}

bool report_to_has(const struct options *o, enum choice_report_to target)
{
    for (const char *at = o->report_to; *at; at += strspn(at, ", ")) {
        size_t length = strcspn(at, ", ");
        if (report_to_is_word(at, length, target) || report_to_is_word(at, length, CHOICE_report_to_all))
            return true;
        at += length;
    }
    return false;
}

enum status report_to_check(const struct options *o)
{
    for (const char *at = o->report_to; *at; at += strspn(at, ", ")) {
        size_t length = strcspn(at, ", ");
        bool known = false;
        for (int word = 0; options_word(OPTION_report_to, word); word++)
            known |= report_to_is_word(at, length, (enum choice_report_to)word);
        if (!known)
            return fail(ERR_ARGUMENT,
                        "--report-to %s: takes none, tensorboard, csv or all, separated by commas. For W&B, MLflow and others "
                        "see docs/metrics.md: they read what these write",
                        o->report_to);
        at += length;
    }
    return OK;
}
