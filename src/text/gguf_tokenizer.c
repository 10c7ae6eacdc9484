/* Turns the keys tokenizer.ggml.* into the lists that text/tokenizer/tokenizer.h takes. */
#include "text/gguf_tokenizer.h"

#include <string.h>

#include "text/tokenizer/tokenizer.h"

#define KEY(name) "tokenizer.ggml." name

static enum status read_texts(const struct gguf *file, const char *key, struct arena *arena, const struct tokenizer_text **out,
                              int64_t *count)
{
    struct gguf_text *texts;
    TRY(gguf_get_texts(file, key, arena, &texts, count));
    if (!texts)
        return OK;
    struct tokenizer_text *copies = arena_array(arena, *count + 1, sizeof *copies);
    if (!copies)
        return ERR_MEMORY;
    for (int64_t i = 0; i < *count; i++)
        copies[i] = (struct tokenizer_text){texts[i].text, texts[i].length};
    *out = copies;
    return OK;
}

static enum status gguf_tokenizer_read_name(const struct gguf *file, const char *key, struct arena *arena, const char **out)
{
    struct gguf_text text = {0};
    TRY(gguf_get_text(file, key, &text));
    *out = text.text ? arena_text(arena, text.text, text.length) : NULL;
    return text.text && !*out ? ERR_MEMORY : OK;
}

static enum status read_flag(const struct gguf *file, const char *key, int *out)
{
    bool flag = false;
    *out = -1;
    if (!gguf_value_find(file, key))
        return OK;
    TRY(gguf_get_bool(file, key, &flag));
    *out = flag;
    return OK;
}

static enum status read_lists(struct tokenizer_lists *w, const struct gguf *file, struct arena *arena, const char *path)
{
    int64_t types = 0, scores = 0;
    int32_t *type = NULL;
    float *score = NULL;
    TRY(read_texts(file, KEY("tokens"), arena, &w->tokens, &w->count));
    TRY(read_texts(file, KEY("merges"), arena, &w->merges, &w->merge_count));
    TRY(gguf_get_ints(file, KEY("token_type"), arena, &type, &types));
    TRY(gguf_get_reals(file, KEY("scores"), arena, &score, &scores));
    if ((type && types != w->count) || (score && scores != w->count))
        return fail(ERR_FORMAT, "%s: %lld tokens, but %lld types and %lld scores", path, (long long)w->count, (long long)types,
                    (long long)scores);
    w->types = type;
    w->scores = score;
    return OK;
}

static enum status read_words(struct tokenizer_lists *w, const struct gguf *file, struct arena *arena, const char *path)
{
    TRY(gguf_tokenizer_read_name(file, KEY("model"), arena, &w->model));
    TRY(gguf_tokenizer_read_name(file, KEY("pre"), arena, &w->pre));
    if (!w->model)
        return fail(ERR_FORMAT, "%s: has no tokenizer: give the first file of a whole model, not an adapter or a later part",
                    path);
    TRY(read_lists(w, file, arena, path));
    TRY(gguf_get_int(file, KEY("unknown_token_id"), &w->unknown));
    TRY(gguf_get_int(file, KEY("bos_token_id"), &w->bos));
    TRY(gguf_get_int(file, KEY("eos_token_id"), &w->eos));
    TRY(read_flag(file, KEY("add_bos_token"), &w->add_bos));
    TRY(read_flag(file, KEY("add_eos_token"), &w->add_eos));
    return read_flag(file, KEY("add_space_prefix"), &w->space_prefix);
}

enum status gguf_tokenizer_open(struct tokenizer **out, const struct gguf *file, const char *path)
{
    struct tokenizer_lists words = {.unknown = -1, .bos = -1, .eos = -1};
    struct arena arena = {0};
    enum status status = read_words(&words, file, &arena, path);
    if (status == OK)
        status = tokenizer_open_lists(out, &words, path);
    arena_free(&arena);
    return status;
}

enum status gguf_tokenizer_open_file(struct tokenizer **out, const char *path)
{
    struct gguf *file = NULL;
    TRY(gguf_open(&file, path));
    enum status status = gguf_tokenizer_open(out, file, path);
    gguf_close(file);
    return status;
}
