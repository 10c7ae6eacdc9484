/* Words: arrays that only grow. */
#include "text/tokenizer/word.h"

enum status word_start(struct word *w, int64_t symbols)
{
    w->count = 0;
    if (symbols > INT32_MAX / 4)
        return fail(ERR_LIMIT, "a word of %lld bytes; cut the text", (long long)symbols);
    return memory_grow(&w->symbols, &w->capacity, symbols, (int64_t)sizeof *w->symbols);
}

void word_free(struct word *w)
{
    memory_free(w->symbols);
    memory_free(w->heap);
    memory_free(w->paths);
    buffer_free(&w->content);
    *w = (struct word){0};
}
