/* The unit tests' model directory for targets that need one: what they assert is promised here. */
#ifndef TESTS_FUZZ_MODEL_H
#define TESTS_FUZZ_MODEL_H

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "fuzz.h"

#define assert_ok(call) PROMISE((call) == OK)
#define assert_non_null(pointer) PROMISE((pointer) != NULL)
#include "tiny_model.h"

static struct tiny_model model;

/* Made once in a process, and removed with fuzz_dir(). */
static inline const char *fuzz_model(void)
{
    if (!*model.dir) {
        PROMISE(snprintf(model.dir, sizeof model.dir, "%s", fuzz_path("model")) < (int)sizeof model.dir);
        model.tied = true;
        assert_ok(directory_make(model.dir));
        tiny_config(&model, "1e-5", "10000.0");
        tiny_tokenizer(&model);
        tiny_weights(&model);
        tiny_chats(&model, 3);
    }
    return model.dir;
}

#endif
