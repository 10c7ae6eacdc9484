/* A tiny model with a file of chats, opened as data with a cache of their tokens; warnings are counted. */
#ifndef TESTS_UNIT_DATA_RIG_H
#define TESTS_UNIT_DATA_RIG_H

#include "base/log.h"
#include "data/data.h"
#include "tiny_model.h"

static struct tiny_model model;
static char chats[128], cache[128], last_warning[1024];
static int warnings;
static struct data_limits limits;

static inline void count_warning(void *context, enum log_level level, const char *message)
{
    (void)context;
    if (level == LOG_WARNING) {
        warnings++;
        snprintf(last_warning, sizeof last_warning, "%s", message);
    }
}

/* Group fixtures; the cache's parent does not exist yet. */
static inline int make_model(void **state)
{
    *state = &model;
    tiny_model_make(&model, true);
    snprintf(chats, sizeof chats, "%s/chats.jsonl", model.dir);
    snprintf(cache, sizeof cache, "%s/a/cache", model.dir);
    log_set_sink(count_warning, NULL);
    return 0;
}

/* Before each test: no cache, no warnings, the usual limits. */
static inline void reset_data(void)
{
    assert_ok(directory_remove(cache));
    limits = (struct data_limits){.max_tokens = 512, .vocabulary = TINY_VOCABULARY, .model_dir = model.dir, .cache_dir = cache};
    warnings = 0;
}

/* Chat r of a file whose chats have different lengths. */
static inline void add_chat(struct buffer *text, int64_t r)
{
    assert_ok(buffer_format(text,
                            "{\"messages\": [{\"role\": \"user\", \"content\": \"What is %lld?\"}, "
                            "{\"role\": \"assistant\", \"content\": \"%.*s\"}]}\n",
                            (long long)r, (int)(r % 37), "A number, and not a small one, I think."));
}

/* Opens without a chat at hand; says whether one was needed. */
static inline bool open_data(struct data *data)
{
    struct chat *chat = NULL;
    assert_ok(data_open(data, chats, &chat, &limits));
    bool needed = chat != NULL;
    chat_close(chat);
    return needed;
}

#endif
