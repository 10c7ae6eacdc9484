/* The input is a file of options, hone's or another tool's, and after zero bytes the data/dataset_info.json, m/config.json and
 * data/train.jsonl that it may name. What it sets can be written as text, and set again from that; written as a file, it is read
 * as the same. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/directory.h"
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

static void check_file(const struct options *options)
{
    struct arena arena = {0};
    struct options again;
    struct buffer file = {0};
    options_init(&again, &arena);
    again.config_format = CHOICE_config_format_hone;
    PROMISE(options_write(options, &file) == OK);
    const char *path = fuzz_put("again.yaml", (const uint8_t *)file.data, (size_t)file.size);
    PROMISE(options_load_yaml(&again, COMMAND_TRAIN, path) == OK);
    for (enum option o = 0; o < OPTIONS; o++) {
        struct buffer a = {0}, b = {0};
        PROMISE(options_get(options, o, &a) == OK && options_get(&again, o, &b) == OK);
        PROMISE(o == OPTION_config_format || (!a.data && !b.data) || (a.data && b.data && options_same(o, a.data, b.data)));
        buffer_free(&a);
        buffer_free(&b);
    }
    buffer_free(&file);
    arena_free(&arena);
}

static void put_files(struct fuzz_part input)
{
    static const char *const names[] = {"options.yaml", "data/dataset_info.json", "m/config.json", "data/train.jsonl"};
    static bool ready;
    if (!ready) {
        PROMISE(directory_make(fuzz_path("data")) == OK && directory_make(fuzz_path("m")) == OK);
        ready = true;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct fuzz_part part = fuzz_next(&input);
        if (part.size || i == 0)
            fuzz_put(names[i], part.data, part.size);
        else
            unlink(fuzz_path(names[i]));
    }
}

void fuzz_input(const uint8_t *data, size_t size)
{
    static int home = -1; /* the corpus may be named from there */
    PROMISE(home >= 0 || (home = open(".", O_DIRECTORY | O_CLOEXEC)) >= 0);
    put_files((struct fuzz_part){data, size});
    PROMISE(chdir(fuzz_dir()) == 0);
    for (enum choice_config_format format = CHOICE_config_format_auto; format <= CHOICE_config_format_mlx; format++) {
        struct arena arena = {0};
        struct options options;
        options_init(&options, &arena);
        options.config_format = format;
        const char *path = fuzz_path("options.yaml");
        if (options_load_yaml(&options, COMMAND_TRAIN, path) == OK) {
            fuzz_accept();
            check(&options);
            check_file(&options);
        } else
            PROMISE(!strncmp(status_message(), path, strlen(path)));
        arena_free(&arena);
    }
    PROMISE(fchdir(home) == 0);
}
