/* Shards of at most 5 GB, as transformers cuts them, and an index if there are several. */
#include "export/safetensors_model.h"

#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "models/model_copy.h"
#include "text/chat/chat.h"

#define SHARD_BYTES ((int64_t)5000000000)
#define INDEX "model.safetensors.index.json"

static const char *const METADATA[] = {"format", "pt", NULL};

static const struct {
    enum safetensors_dtype dtype;
    const char *name;
} TYPES[OUT_TYPES] = {
    [OUT_f32] = {SAFETENSORS_F32, "float32"},
    [OUT_f16] = {SAFETENSORS_F16, "float16"},
    [OUT_bf16] = {SAFETENSORS_BF16, "bfloat16"},
};

struct shard {
    const char *name;
    int64_t first, count; /* of its tensors */
};

struct shards {
    struct sums *weights;
    struct layout layout;
    struct safetensors_tensor *tensors;
    struct shard *list;
    int64_t count;
    int64_t first; /* of the shard that is being written */
    int64_t open;  /* the tensor that is open; -1: none */
    char *index;   /* the text of the index; NULL: one shard needs none */
    struct written *written;
};

static void close_tensor(struct shards *s)
{
    if (s->open >= 0)
        sum_close(&s->weights->list[s->open]);
    s->open = -1;
}

static enum status read_piece(void *context, int64_t tensor, int64_t offset, void *to, int64_t bytes)
{
    struct shards *s = context;
    int64_t at = s->first + tensor, size = out_types[s->layout.type].bytes;
    if (s->open != at) {
        close_tensor(s);
        TRY(sum_open(&s->weights->list[at]));
        s->open = at;
    }
    return round_piece(&s->weights->list[at], &s->layout, offset / size, bytes / size, to, &s->written->change[s->layout.type]);
}

static void safetensors_model_describe(struct shards *s)
{
    for (int64_t i = 0; i < s->weights->count; i++) {
        const struct sum *w = &s->weights->list[i];
        s->tensors[i] = (struct safetensors_tensor){.name = w->base->file_name,
                                                    .dtype = TYPES[s->layout.type].dtype,
                                                    .rank = w->base->rank,
                                                    .bytes = out_bytes(s->layout.type, w->rows * w->columns)};
        memcpy(s->tensors[i].shape, w->base->shape, (size_t)w->base->rank * sizeof w->base->shape[0]);
        s->written->tensors[s->layout.type]++;
        s->written->bytes[s->layout.type] += s->tensors[i].bytes;
    }
}

/* How many tensors from `first` on make a shard. */
static int64_t shard_count(const struct shards *s, int64_t first)
{
    int64_t bytes = 0, n = 0;
    for (; first + n < s->weights->count && (!n || bytes + s->tensors[first + n].bytes <= SHARD_BYTES); n++)
        bytes += s->tensors[first + n].bytes;
    return n;
}

static enum status list_shards(struct shards *s, struct arena *arena)
{
    s->list = arena_array(arena, s->weights->count + 1, sizeof *s->list);
    if (!s->list)
        return ERR_MEMORY;
    for (int64_t at = 0; at < s->weights->count; at += s->list[s->count++].count)
        s->list[s->count] = (struct shard){.first = at, .count = shard_count(s, at)};
    for (int64_t i = 0; i < s->count; i++) {
        s->list[i].name = s->count == 1
                              ? "model.safetensors"
                              : arena_format(arena, "model-%05lld-of-%05lld.safetensors", (long long)i + 1, (long long)s->count);
        if (!s->list[i].name)
            return ERR_MEMORY;
    }
    return OK;
}

static enum status compose_index(struct shards *s)
{
    json_t *map = json_object();
    for (int64_t i = 0; i < s->count; i++)
        for (int64_t k = 0; k < s->list[i].count; k++)
            json_object_set_new(map, s->tensors[s->list[i].first + k].name, json_string(s->list[i].name));
    json_t *index =
        json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)s->written->bytes[s->layout.type], "weight_map", map);
    s->index = json_file_text(index);
    json_decref(index);
    return s->index ? OK : fail_at(ERR_MEMORY, INDEX ": ");
}

static enum status safetensors_model_add_file(void *context, const char *name, int64_t bytes)
{
    return target_file(context, name, bytes);
}

/* The tokenizer and the template are copied as they are, but not where they are broken; what only hone cannot follow is fine. */
static enum status safetensors_model_check_text(const char *from)
{
    struct chat *chat = NULL;
    enum status status = chat_is_there(from) ? chat_open(&chat, from) : OK;
    chat_close(chat);
    return status == ERR_UNSUPPORTED || status == ERR_LIMIT ? OK : status;
}

static enum status safetensors_model_list_files(struct shards *s, struct arena *arena, const char *from, struct target *t)
{
    int64_t bytes;
    TRY(list_shards(s, arena));
    for (int64_t i = 0; i < s->count; i++) {
        const struct shard *shard = &s->list[i];
        TRY(safetensors_write_bytes(shard->name, s->tensors + shard->first, shard->count, METADATA, &bytes));
        TRY(target_file(t, shard->name, bytes));
    }
    if (s->count > 1) {
        TRY(compose_index(s));
        TRY(target_file(t, INDEX, (int64_t)strlen(s->index)));
    }
    TRY(safetensors_model_check_text(from));
    return model_copy_list(from, TYPES[s->layout.type].name, safetensors_model_add_file, t);
}

static enum status write_shards(struct shards *s, struct arena *arena, const char *to)
{
    for (int64_t i = 0; i < s->count; i++) {
        const struct shard *shard = &s->list[i];
        const char *path = file_join(arena, to, shard->name);
        if (!path)
            return ERR_MEMORY;
        s->first = shard->first;
        enum status status = safetensors_write_from(path, s->tensors + shard->first, shard->count, METADATA, read_piece, s);
        close_tensor(s);
        TRY(status);
    }
    const char *index = file_join(arena, to, INDEX);
    return !index ? ERR_MEMORY : !s->index ? OK : file_replace(index, s->index, (int64_t)strlen(s->index));
}

/* Every tensor as it is in the files now. */
static enum status check_tensors(struct shards *s, const struct safetensors *files, const char *to)
{
    for (int64_t i = 0; i < s->weights->count; i++) {
        struct sum *w = &s->weights->list[i];
        const struct safetensors_tensor *read = safetensors_find(files, w->base->file_name);
        double error = 1;
        TRY(sum_open(w));
        enum status status = read && read->bytes == s->tensors[i].bytes ? round_check(w, &s->layout, read->data, &error) : OK;
        sum_close(w);
        TRY(status);
        s->written->worst = error > s->written->worst ? error : s->written->worst;
        if (!(error < 0.5))
            return fail(ERR_INTERNAL, "%s: tensor %s was read back wrong (off by %.2g)", to, w->name, error);
    }
    return OK;
}

static enum status safetensors_model_check_files(struct shards *s, const char *to)
{
    struct safetensors *files;
    TRY(safetensors_open(&files, to));
    enum status status = check_tensors(s, files, to);
    safetensors_close(files);
    return status;
}

static enum status safetensors_model_write_model(struct shards *s, struct arena *arena, const char *from, struct target *t)
{
    s->tensors = arena_array(arena, s->weights->count + 1, sizeof *s->tensors);
    if (!s->tensors)
        return ERR_MEMORY;
    safetensors_model_describe(s);
    TRY(safetensors_model_list_files(s, arena, from, t));
    TRY(target_start(t));
    if (t->dry)
        return OK;
    TRY(write_shards(s, arena, t->part));
    TRY(safetensors_model_check_files(s, t->part));
    return model_copy(from, t->part, TYPES[s->layout.type].name);
}

enum status safetensors_model_check(const struct sums *w, const char *from, enum file_type type)
{
    if (!TYPES[file_kinds[type].main].name)
        return fail(ERR_ARGUMENT, "safetensors of type %s would be read by no program; name a file that ends in .gguf",
                    file_kinds[type].name);
    if (w->model.gguf)
        return fail(ERR_UNSUPPORTED,
                    "%s: safetensors need the tokenizer.json and config.json of a directory; write --output "
                    "FILE.gguf, or name the directory that the file was made from",
                    from);
    return OK;
}

enum status safetensors_model_write(struct sums *w, const char *from, struct target *t, enum file_type type,
                                    struct written *written)
{
    struct shards s = {.weights = w, .layout = {.type = file_kinds[type].main}, .open = -1, .written = written};
    struct arena arena = {0};
    *written = (struct written){0};
    enum status status = safetensors_model_write_model(&s, &arena, from, t);
    json_text_free(s.index);
    arena_free(&arena);
    return status;
}
