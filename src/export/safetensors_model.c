/* Shards of at most 5 GB, as transformers cuts them, and an index if there are several. */
#include "export/safetensors_model.h"

#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "models/model_copy.h"

#define SHARD_BYTES ((int64_t)5000000000)

static const struct {
    enum safetensors_dtype dtype;
    const char *name;
} TYPES[OUT_TYPES] = {
    [OUT_f32] = {SAFETENSORS_F32, "float32"},
    [OUT_f16] = {SAFETENSORS_F16, "float16"},
    [OUT_bf16] = {SAFETENSORS_BF16, "bfloat16"},
};

struct shards {
    struct sums *weights;
    struct layout layout;
    struct safetensors_tensor *tensors;
    int64_t first, count; /* of the shard that is being written */
    int64_t open;         /* the tensor that is open; -1: none */
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

static void describe(struct shards *s)
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

static enum status write_shard(struct shards *s, const char *path)
{
    static const char *const metadata[] = {"format", "pt", NULL};
    enum status status = safetensors_write_from(path, s->tensors + s->first, s->count, metadata, read_piece, s);
    close_tensor(s);
    return status;
}

static enum status write_index(const struct shards *s, json_t *map, const char *path)
{
    json_t *index =
        json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)s->written->bytes[s->layout.type], "weight_map", map);
    enum status status = json_replace_file(path, index);
    json_decref(index);
    return status;
}

static enum status write_shards(struct shards *s, struct arena *arena, const char *to, json_t *map)
{
    int64_t total = 0;
    for (int64_t at = 0; at < s->weights->count; at += shard_count(s, at))
        total++;
    for (int64_t number = 1; s->first < s->weights->count; number++, s->first += s->count) {
        const char *name = total == 1
                               ? "model.safetensors"
                               : arena_format(arena, "model-%05lld-of-%05lld.safetensors", (long long)number, (long long)total);
        const char *path = name ? file_join(arena, to, name) : NULL;
        if (!path)
            return ERR_MEMORY;
        s->count = shard_count(s, s->first);
        TRY(write_shard(s, path));
        for (int64_t i = s->first; i < s->first + s->count; i++)
            if (json_object_set_new(map, s->tensors[i].name, json_string(name)) != 0)
                return fail(ERR_MEMORY, "%s: out of memory for the index", to);
    }
    const char *index = file_join(arena, to, "model.safetensors.index.json");
    return !index ? ERR_MEMORY : total == 1 ? OK : write_index(s, map, index);
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

static enum status check_files(struct shards *s, const char *to)
{
    struct safetensors *files;
    TRY(safetensors_open(&files, to));
    enum status status = check_tensors(s, files, to);
    safetensors_close(files);
    return status;
}

enum status safetensors_model_write(struct sums *w, const char *from, const char *to, enum file_type type,
                                    struct written *written)
{
    struct shards s = {.weights = w, .layout = {.type = file_kinds[type].main}, .open = -1, .written = written};
    struct arena arena = {0};
    *written = (struct written){0};
    if (!TYPES[s.layout.type].name)
        return fail(ERR_ARGUMENT, "safetensors of type %s would be read by no program; name a file that ends in .gguf",
                    file_kinds[type].name);
    if (w->model.gguf)
        return fail(ERR_UNSUPPORTED,
                    "%s: safetensors need the tokenizer.json and config.json of a directory; write --output "
                    "FILE.gguf, or name the directory that the file was made from",
                    from);
    s.tensors = arena_array(&arena, w->count + 1, sizeof *s.tensors);
    json_t *map = json_object();
    enum status status = s.tensors && map ? OK : ERR_MEMORY;
    if (status == OK) {
        describe(&s);
        status = write_shards(&s, &arena, to, map);
    }
    if (status == OK)
        status = check_files(&s, to);
    if (status == OK)
        status = model_copy(from, to, TYPES[s.layout.type].name);
    json_decref(map);
    arena_free(&arena);
    return status;
}
