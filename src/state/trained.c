/* The list of what is trained, and reading from it. */
#include "state/trained.h"

#include <string.h>

#include "base/number.h"
#include "models/stacked.h"

static enum status add_row(struct trained_list *list, const char *name, const struct tensor *tensor, int64_t first, int rank,
                           const int64_t *shape)
{
    struct trained *row = &list->row[list->count++];
    *row = (struct trained){.name = name, .tensor = tensor, .first = first, .rank = rank};
    memcpy(row->shape, shape, (size_t)rank * sizeof *shape);
    return name ? OK : ERR_MEMORY;
}

/* As the model's files have them. */
static enum status trained_add_pieces(struct trained_list *list, const struct stacked *stacked, const struct tensor *t)
{
    int64_t shape[RANK], count = stacked_count(stacked, t);
    int rank = stacked_shape(stacked, t, shape);
    for (int64_t i = 0; i < count; i++) {
        char name[NAME_SIZE];
        stacked_name(stacked, t, i, name);
        TRY(add_row(list, arena_text(&list->arena, name, (int64_t)strlen(name)), t, i * (tensor_elements(t) / count), rank,
                    shape));
    }
    return OK;
}

enum status trained_list(struct trained_list *list, const struct build *b)
{
    const struct model *model = &b->session.model;
    const struct store *store = &model->store;
    bool adapter = b->session.tuning.lora;
    int64_t count = 0;
    *list = (struct trained_list){0};
    for (int64_t i = 0; i < store->count; i++) {
        const struct stacked *row = stacked_of(model->family->stacked, store->tensor[i]);
        count += row ? stacked_count(row, store->tensor[i]) : 1;
    }
    list->row = arena_array(&list->arena, count, sizeof *list->row);
    if (!list->row)
        return ERR_MEMORY;
    for (int64_t i = 0; i < store->count; i++) {
        const struct tensor *t = store->tensor[i];
        if (t->lifetime != LIFE_TRAINABLE || t->assembled)
            continue;
        const struct stacked *row = adapter ? NULL : stacked_of(model->family->stacked, t);
        char name[NAME_SIZE];
        weights_file_name(&model->weights, name, t->name);
        TRY(row ? trained_add_pieces(list, row, t)
                : add_row(list, arena_format(&list->arena, "%s%s", adapter ? ADAPTER_PREFIX : "", name), t, 0, t->rank,
                          t->shape));
    }
    return OK;
}

void trained_free(struct trained_list *list)
{
    arena_free(&list->arena);
}

static json_t *row_json(const struct trained *row)
{
    json_t *shape = json_array();
    for (int i = 0; i < row->rank; i++)
        json_array_append_new(shape, json_integer((json_int_t)row->shape[i]));
    return json_pack("{s:s, s:o}", "name", row->name, "shape", shape);
}

enum status trained_json(const struct build *b, json_t **out)
{
    struct trained_list list;
    enum status status = trained_list(&list, b);
    json_t *rows = status == OK ? json_array() : NULL;
    for (int64_t i = 0; i < list.count && rows; i++)
        json_array_append_new(rows, row_json(&list.row[i]));
    *out = rows;
    trained_free(&list);
    return status;
}

/* Elements from `first` on in float32, times a factor. */
static enum status read_elements(struct engine *e, const struct tensor *t, int64_t first, int64_t count, double by, float *to)
{
    enum { AT_ONCE = 4096 };
    char piece[AT_ONCE * sizeof(float)];
    int64_t size = dtype_size(t->dtype);
    for (int64_t done = 0, n; done < count; done += n) {
        n = min(count - done, AT_ONCE);
        TRY(engine_download(e, t, (first + done) * size, piece, n * size));
        if (!dtype_convert(to + done, DTYPE_F32, piece, t->dtype, n))
            return fail(ERR_INTERNAL, "%s cannot be read as float32", t->name);
        for (int64_t i = 0; i < n && by != 1; i++)
            to[done + i] = (float)((double)to[done + i] * by);
    }
    return OK;
}

static enum status read_row(struct build *b, const struct trained *row, bool gradient, float *values, int64_t *count)
{
    const struct optimizer *o = &b->optimizer;
    const struct tensor *t = row->tensor;
    int64_t room = *count, elements = shape_elements(row->rank, row->shape);
    *count = elements;
    if (!values)
        return OK;
    if (room < elements)
        return fail(ERR_ARGUMENT, "%s has %lld elements, and values has room for %lld", row->name, (long long)elements,
                    (long long)room);
    if (gradient && o->gradients->sharded)
        return fail(ERR_UNSUPPORTED, "with --shard gradients no rank has the gradient of %s", row->name);
    if (gradient)
        return read_elements(&b->session.engine, t->gradient, row->first, elements, 1 / o->program.gradient_scale, values);
    return read_elements(&b->session.engine, t->master && !o->sharded ? t->master : t, row->first, elements, 1, values);
}

static enum status read_by_name(struct build *b, const struct trained_list *list, const char *name, bool gradient, float *values,
                                int64_t *count)
{
    for (int64_t i = 0; i < list->count; i++)
        if (!strcmp(list->row[i].name, name))
            return read_row(b, &list->row[i], gradient, values, count);
    return fail(ERR_ARGUMENT, "'%.200s' is not trained: what is has names like %s (hone_trainer_tensors lists them)", name,
                list->count ? list->row[0].name : "none");
}

enum status trained_read(struct build *b, const char *name, bool gradient, float *values, int64_t *count)
{
    struct trained_list list;
    enum status status = trained_list(&list, b);
    if (status == OK)
        status = read_by_name(b, &list, name, gradient, values, count);
    trained_free(&list);
    return status;
}
