/* Where an export goes: a name of its own beside the final one until it is complete. */
#ifndef EXPORT_TARGET_H
#define EXPORT_TARGET_H

#include <stdbool.h>

#include "base/memory.h"
#include "export/export.h"

struct target {
    struct arena arena;
    const char *output, *part;
    bool gguf;
    const char *modelfile; /* of a GGUF model, beside it; else NULL */
};

/* Refuses an output that exists unless it may be replaced, and one that is the input. */
enum status target_open(struct target *t, const struct export_options *o, const char *known, bool modelfile);

/* After an export that ended with `status`: gives it its name, or removes it. */
enum status target_close(struct target *t, enum status status);

#endif
