/* Writing, finding and loading checkpoints. */
#include "train/checkpoint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/record.h"
#include "train/micro.h"

enum { STATE_BYTES_MAX = 1 << 20 };

#define STATE_FILE "state.safetensors"
#define PLACE_FILE "trainer_state.json"
#define NAME_START "checkpoint-"
#define LOSS_KEY "loss"

static const char *const data_keys[] = {"data_rows", "data_tokens", "data_trained_tokens", "data_units"};
enum { DATA_KEYS = sizeof data_keys / sizeof data_keys[0] };

static int64_t data_number(const struct trainer *t, int key)
{
    return key == 0 ? t->data.row_count : key == 1 ? t->data.tokens : key == 2 ? t->data.trained : t->sampler.units;
}

/* --- writing ------------------------------------------------------------------------------------------------------------ */

/* NULL: out of memory, or a setting that is not UTF-8. */
static json_t *describe_settings(const struct trainer *t)
{
    json_t *chosen = json_object();
    bool whole = json_object_set_new(chosen, LOSS_KEY, json_string(loss_of(t->session.tuning.loss)->name)) == 0;
    for (enum option o = 0; o < OPTIONS && whole; o++) {
        struct buffer text = {0};
        if (options_decides(o))
            whole = options_get(t->options, o, &text) == OK &&
                    json_object_set_new(chosen, options_name(o), json_string(text.data ? text.data : "")) == 0;
        buffer_free(&text);
    }
    for (int i = 0; i < DATA_KEYS && whole; i++)
        whole = json_object_set_new(chosen, data_keys[i], json_integer((json_int_t)data_number(t, i))) == 0;
    if (whole)
        return chosen;
    json_decref(chosen);
    return NULL;
}

static json_t *version_json(const void *place)
{
    (void)place;
    return json_integer(1);
}

static json_t *describe(const struct trainer *t)
{
    static const struct record_field fields[] = {
        RECORD_MADE("version", version_json),
        RECORD(struct trainer_place, step),
        RECORD_AS("micro_batch_tokens", struct trainer_place, slots),
        RECORD(struct trainer_place, tokens),
        RECORD_AS("skipped_steps", struct trainer_place, skipped),
        RECORD(struct trainer_place, skipped_in_row),
        RECORD(struct trainer_place, best_step),
        RECORD(struct trainer_place, best_loss),
        RECORD(struct trainer_place, eval_loss),
        {0},
    };
    json_t *tree = record_json(fields, &t->place);
    if (!tree || json_object_set_new(tree, "settings", describe_settings(t)) == 0)
        return tree;
    json_decref(tree);
    return NULL;
}

static enum status write_place(const struct trainer *t, const char *path)
{
    json_t *tree = describe(t);
    enum status status = json_replace_file(path, tree);
    json_decref(tree);
    return status;
}

struct state {
    struct trainer *trainer;
    int count;
    struct tensor *tensor[OPTIMIZER_TENSORS];
    struct safetensors_tensor file[OPTIMIZER_TENSORS];
};

static void list_state(struct trainer *t, struct state *s)
{
    const char *names[OPTIMIZER_TENSORS];
    *s = (struct state){.trainer = t};
    s->count = optimizer_tensors(&t->optimizer, s->tensor, names);
    for (int i = 0; i < s->count; i++)
        s->file[i] = (struct safetensors_tensor){.name = names[i],
                                                 .dtype = s->tensor[i]->dtype == DTYPE_I32 ? SAFETENSORS_I32 : SAFETENSORS_F32,
                                                 .rank = 1,
                                                 .shape = {s->tensor[i]->shape[0]},
                                                 .bytes = tensor_bytes(s->tensor[i])};
}

static enum status read_state(void *context, int64_t tensor, int64_t offset, void *to, int64_t bytes)
{
    const struct state *s = context;
    return engine_download(&s->trainer->session.engine, s->tensor[tensor], offset, to, bytes);
}

static enum status write_all(struct trainer *t, struct arena *arena, const char *dir)
{
    struct state s;
    const char *state = file_join(arena, dir, STATE_FILE), *place = file_join(arena, dir, PLACE_FILE);
    if (!state || !place)
        return ERR_MEMORY;
    list_state(t, &s);
    TRY(trainer_save(t, dir));
    TRY(safetensors_write_from(state, s.file, s.count, NULL, read_state, &s));
    return write_place(t, place);
}

enum status checkpoint_save(struct trainer *t, const char *dir)
{
    TRY(trainer_at_rest(t));
    struct arena arena = {0};
    const char *part = arena_format(&arena, "%s.part", dir);
    enum status status = part ? directory_remove(part) : ERR_MEMORY;
    if (status == OK)
        status = directory_make(part);
    if (status == OK)
        status = write_all(t, &arena, part);
    if (status == OK)
        status = directory_replace(part, dir);
    arena_free(&arena);
    return status;
}

/* --- reading ------------------------------------------------------------------------------------------------------------ */

static enum status read_double(const json_t *tree, const char *key, double *out, const char *path)
{
    *out = NAN;
    return json_get_real(tree, key, out, path);
}

static enum status read_place(struct trainer_place *p, const json_t *tree, const char *path)
{
    int64_t version = 0;
    TRY(json_need_int(tree, "version", &version, path));
    if (version != 1)
        return fail(ERR_UNSUPPORTED, "%s: a checkpoint of version %lld, this hone reads version 1", path, (long long)version);
    TRY(json_need_int(tree, "step", &p->step, path));
    TRY(json_need_int(tree, "micro_batch_tokens", &p->slots, path));
    TRY(json_get_int(tree, "tokens", &p->tokens, path));
    TRY(json_get_int(tree, "skipped_steps", &p->skipped, path));
    TRY(json_get_int(tree, "skipped_in_row", &p->skipped_in_row, path));
    TRY(json_get_int(tree, "best_step", &p->best_step, path));
    TRY(read_double(tree, "best_loss", &p->best_loss, path));
    TRY(read_double(tree, "eval_loss", &p->eval_loss, path));
    bool counts = p->step >= 0 && p->tokens >= 0 && p->skipped >= 0 && p->skipped_in_row >= 0 && p->best_step >= 0;
    if (!counts || p->slots < 1 || p->slots > INT32_MAX)
        return fail(ERR_FORMAT, "%s: one of its counts is out of range", path);
    return OK;
}

static enum status differs(const char *dir, const char *what, const char *was, const char *is)
{
    return fail(
        ERR_ARGUMENT,
        "%s is of a run with %s %s, this one has %s: use the same settings to resume, --resume none to start over, or another "
        "--output",
        dir, what, *was ? was : "(none)", *is ? is : "(none)");
}

static enum status check_settings(const struct trainer *t, const json_t *tree, const char *dir)
{
    const json_t *chosen = json_object_get(tree, "settings");
    if (!json_is_object(chosen))
        return fail(ERR_FORMAT, "%s/" PLACE_FILE ": \"settings\" is missing", dir);
    for (enum option o = 0; o < OPTIONS; o++) { /* what the checkpoint of an older hone lacks is not compared */
        const char *name = options_name(o), *was = json_string_value(json_object_get(chosen, name));
        struct buffer text = {0};
        enum status status = options_get(t->options, o, &text);
        const char *is = text.data ? text.data : "";
        if (status == OK && options_decides(o) && was && !options_same(o, was, is))
            status = differs(dir, name, was, is);
        buffer_free(&text);
        TRY(status);
    }
    const char *was_loss = json_string_value(json_object_get(chosen, LOSS_KEY)), *loss = loss_of(t->session.tuning.loss)->name;
    if (!was_loss)
        was_loss = loss_of(LOSS_cross_entropy)->name; /* an older hone had no other */
    if (strcmp(was_loss, loss) != 0)
        return differs(dir, LOSS_KEY, was_loss, loss);
    for (int i = 0; i < DATA_KEYS; i++) {
        const json_t *was = json_object_get(chosen, data_keys[i]);
        if (was && json_integer_value(was) != data_number(t, i))
            return fail(
                ERR_ARGUMENT,
                "%s is of a run on other data (%s was %lld and is %lld): use the same data to resume, --resume none to start "
                "over, or another --output",
                dir, data_keys[i], (long long)json_integer_value(was), (long long)data_number(t, i));
    }
    return OK;
}

static enum status read_json(struct arena *arena, const char *dir, json_t **tree, const char **path)
{
    *path = file_join(arena, dir, PLACE_FILE);
    if (!*path)
        return ERR_MEMORY;
    if (!file_exists(*path))
        return fail(ERR_IO,
                    "%s is not a checkpoint: it has no " PLACE_FILE "; --resume takes auto, none, or a folder checkpoint-N", dir);
    return json_parse_file(tree, *path, STATE_BYTES_MAX);
}

static int64_t step_of(const char *name)
{
    size_t start = strlen(NAME_START);
    const char *digits = name + start;
    bool named = !strncmp(name, NAME_START, start) && *digits && !digits[strspn(digits, "0123456789")] && strlen(digits) < 18;
    return named ? strtoll(digits, NULL, 10) : -1;
}

char *checkpoint_path(struct arena *arena, const char *output, int64_t step)
{
    char *name = arena_format(arena, NAME_START "%lld", (long long)step);
    return name ? file_join(arena, output, name) : NULL;
}

static enum status find_newest(struct trainer *t, const char **dir)
{
    const char **names = NULL;
    int64_t count = 0, newest = -1;
    *dir = NULL;
    if (!t->options->output_dir || !file_is_directory(t->options->output_dir))
        return OK;
    TRY(directory_list(&t->arena, t->options->output_dir, &names, &count));
    for (int64_t i = 0; i < count; i++)
        newest = step_of(names[i]) > newest ? step_of(names[i]) : newest;
    if (newest < 0)
        return OK;
    *dir = checkpoint_path(&t->arena, t->options->output_dir, newest);
    return *dir ? OK : ERR_MEMORY;
}

enum status checkpoint_find(struct trainer *t)
{
    const char *resume = t->options->resume, *dir = resume, *path;
    json_t *tree = NULL;
    if (!strcmp(resume, "none"))
        return OK;
    if (!strcmp(resume, "auto"))
        TRY(find_newest(t, &dir));
    if (!dir)
        return OK;
    enum status status = read_json(&t->arena, dir, &tree, &path);
    if (status == OK)
        status = check_settings(t, tree, dir);
    if (status == OK)
        status = read_place(&t->place, tree, path);
    json_decref(tree);
    t->resume = arena_text(&t->arena, dir, (int64_t)strlen(dir));
    return status != OK || t->resume ? status : ERR_MEMORY;
}

static enum status load_tensors(struct trainer *t, const char *path)
{
    struct safetensors *files;
    struct state s;
    struct optimizer *o = &t->optimizer;
    struct optimizer_settings none = {0};
    struct optimizer_result cleared;
    struct engine *e = &t->session.engine;
    TRY(safetensors_open(&files, path));
    enum status status = OK;
    list_state(t, &s);
    for (int i = 0; i < s.count && status == OK; i++) { /* check all before loading the first */
        const struct safetensors_tensor *f = safetensors_find(files, s.file[i].name);
        if (!f || f->bytes != s.file[i].bytes || f->dtype != s.file[i].dtype)
            status = fail(ERR_FORMAT, "%s: the state %s does not fit this model and method", path, s.file[i].name);
    }
    if (status == OK) /* a step that is skipped only clears the sums and counts */
        status = optimizer_step(o, &t->session, 0, &none, &cleared);
    for (int i = 0; i < s.count && status == OK; i++) {
        const struct safetensors_tensor *f = safetensors_find(files, s.file[i].name);
        status = engine_upload(e, s.tensor[i], f->data, s.tensor[i]->dtype);
        if (status == OK && i == 0 && o->master != o->weights)
            status = engine_upload(e, o->weights, f->data, o->master->dtype);
        if (status == OK)
            file_map_drop(f->map, f->offset, f->bytes);
    }
    safetensors_close(files);
    return status;
}

enum status checkpoint_load(struct trainer *t, const char *dir)
{
    TRY(trainer_at_rest(t));
    struct arena arena = {0};
    json_t *tree = NULL;
    const char *path, *state = file_join(&arena, dir, STATE_FILE);
    struct trainer_place place = t->place;
    enum status status = state ? read_json(&arena, dir, &tree, &path) : ERR_MEMORY;
    if (status == OK)
        status = check_settings(t, tree, dir);
    if (status == OK)
        status = read_place(&place, tree, path);
    if (status == OK)
        status = load_tensors(t, state);
    json_decref(tree);
    arena_free(&arena);
    TRY(status);
    place.slots = t->place.slots;
    t->place = place;
    micro_start_over(t);
    return OK;
}

enum status checkpoint_thin(const struct trainer *t, const char *output, int64_t keep)
{
    struct arena arena = {0};
    const char **names = NULL;
    int64_t count = 0;
    enum status status = directory_list(&arena, output, &names, &count);
    for (int64_t i = 0; i < count && status == OK; i++) {
        int64_t step = step_of(names[i]), newer = 0;
        for (int64_t k = 0; k < count; k++)
            newer += step_of(names[k]) > step;
        if (step < 0 || newer < keep || step == t->place.best_step)
            continue;
        const char *path = checkpoint_path(&arena, output, step);
        status = path ? directory_remove(path) : ERR_MEMORY;
    }
    arena_free(&arena);
    return status;
}
