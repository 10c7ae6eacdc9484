/* The input is a file of options. What it sets can be written as text, and set again from that. */
#include <string.h>

#include "base/memory.h"
#include "config/options.h"
#include "fuzz.h"

static void check(const struct options *options)
{
    struct arena arena = {0};
    struct options again;
    options_init(&again, &arena);
    for (enum option o = 0; o < OPTIONS; o++) {
        struct buffer text = {0}, once_more = {0};
        if (options->source[o]) {
            PROMISE(options_has(COMMAND_TRAIN, o));
            PROMISE(options_get(options, o, &text) == OK && text.data);
            PROMISE(options_set(&again, COMMAND_TRAIN, options_name(o), text.data, "again") == OK);
            PROMISE(options_get(&again, o, &once_more) == OK && options_same(o, text.data, once_more.data));
        }
        buffer_free(&text);
        buffer_free(&once_more);
    }
    arena_free(&arena);
}

void fuzz_input(const uint8_t *data, size_t size)
{
    struct arena arena = {0};
    struct options options;
    options_init(&options, &arena);
    const char *path = fuzz_put("options.yaml", data, size);
    if (options_load_yaml(&options, COMMAND_TRAIN, path) == OK)
        check(&options);
    else
        PROMISE(!strncmp(status_message(), path, strlen(path)));
    arena_free(&arena);
}
