/* Writing and loading checkpoints. */
#include "train/checkpoint.h"

#include <stdio.h>
#include <string.h>

#include "base/checksums.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "format/provenance.h"
#include "tensor/shard.h"
#include "train/micro.h"
#include "train/nature.h"
#include "train/origin.h"
#include "train/output.h"
#include "train/place.h"
#include "train/sync.h"

enum { STATE_BYTES_MAX = 1 << 20 };

#define STATE_FILE "state.safetensors"
#define PLACE_FILE NATURE_FILE

/* --- writing ------------------------------------------------------------------------------------------------------------ */

static enum status write_place(struct trainer *t, const char *path)
{
    json_t *tree = place_json(&t->place);
    enum status status = tree ? nature_add(t, tree) : fail(ERR_MEMORY, "out of memory: the state of a run");
    if (status == OK)
        status = json_replace_file(path, tree);
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
    for (int i = 0; i < s->count; i++) {
        int64_t elements = optimizer_saved(&t->optimizer, s->tensor[i]);
        s->file[i] = (struct safetensors_tensor){.name = names[i],
                                                 .dtype = s->tensor[i]->dtype == DTYPE_I32 ? SAFETENSORS_I32 : SAFETENSORS_F32,
                                                 .rank = 1,
                                                 .shape = {elements},
                                                 .bytes = elements * dtype_size(s->tensor[i]->dtype)};
    }
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
    TRY(write_place(t, place));
    TRY(origin_write_checkpoint(t, dir));
    return checksums_write(dir);
}

/* Gradients of half a step are no part of a checkpoint. */
static enum status between_steps(const struct trainer *t)
{
    TRY(trainer_at_rest(t));
    return t->sums.sequences ? fail(ERR_ARGUMENT,
                                    "gradients were added since step %lld, and a checkpoint has none of them: take the step "
                                    "first, or save before they are added",
                                    (long long)t->place.step)
                             : OK;
}

/* A state that is there is replaced, and what is left of a save that did not end; somebody's files are not. */
static enum status check_replaced(struct arena *arena, const char *dir, bool is_part)
{
    const char **names;
    int64_t count, ours = 0, of_state = 0;
    if (directory_is_free(dir) || (!is_part && !file_is_directory(dir)))
        return OK;
    TRY(directory_list(arena, dir, &names, &count));
    for (int64_t i = 0; i < count; i++) {
        bool state = !strcmp(names[i], STATE_FILE) || checksums_is_list(names[i]);
        of_state += state;
        ours += state || !strcmp(names[i], PLACE_FILE) || output_is_result(names[i]) || file_beside_stem(names[i], ".part") > 0;
    }
    return (is_part ? ours == count : !count || of_state)
               ? OK
               : fail(ERR_IO, "%s: has files that are no saved state, and they would be lost: choose another folder", dir);
}

static enum status save_by(struct trainer *t, struct arena *arena, const char *part, const char *dir)
{
    enum status status = directory_remove(part);
    if (status == OK)
        status = directory_make_new(part);
    if (status == OK)
        status = write_all(t, arena, part);
    if (status == OK)
        status = directory_replace(part, dir);
    if (status != OK)
        directory_discard(part);
    return status;
}

static enum status save(struct trainer *t, const char *dir)
{
    TRY(between_steps(t));
    struct arena arena = {0};
    int length = (int)strlen(dir);
    while (length > 1 && dir[length - 1] == '/')
        length--;
    const char *part = arena_format(&arena, "%.*s.part", length, dir);
    enum status status = part ? check_replaced(&arena, dir, false) : ERR_MEMORY;
    if (status == OK)
        status = check_replaced(&arena, part, true);
    if (status == OK)
        status = save_by(t, &arena, part, dir);
    arena_free(&arena);
    return status;
}

/* Rank 0 writes; the others hand over what they keep of the state, and write nothing. */
static enum status together(struct trainer *t, const char *dir, enum status (*write)(struct trainer *t, const char *dir))
{
    struct engine *e = &t->session.engine;
    if (group_rank(t->group))
        return shard_serve(e);
    char message[STATUS_MESSAGE_SIZE];
    enum status status = write(t, dir);
    snprintf(message, sizeof message, "%s", status == OK ? "" : status_message());
    enum status ended = shard_end(e);
    return status == OK ? ended : fail(status, "%s", message);
}

enum status checkpoint_save(struct trainer *t, const char *dir)
{
    return together(t, dir, save);
}

static enum status save_result(struct trainer *t, const char *dir)
{
    TRY(trainer_save(t, dir));
    return origin_write_result(t, dir, t->place.step);
}

enum status checkpoint_save_result(struct trainer *t, const char *dir)
{
    return together(t, dir, save_result);
}

/* --- as a result ---------------------------------------------------------------------------------------------------------- */

static enum status copy_result(struct arena *arena, struct buffer *list, const char *dir, const char *output)
{
    const char **names;
    int64_t count;
    TRY(checksums_check(dir));
    TRY(checksums_read(list, dir));
    TRY(directory_list(arena, dir, &names, &count));
    for (int64_t i = 0; i < count; i++) {
        if (!strcmp(names[i], STATE_FILE) || !strcmp(names[i], PLACE_FILE) || provenance_is_file(names[i]) ||
            !checksums_line(list, names[i]))
            continue; /* the last are somebody else's */
        const char *from = file_join(arena, dir, names[i]), *to = file_join(arena, output, names[i]);
        if (!from || !to)
            return ERR_MEMORY;
        TRY(file_copy(from, to));
    }
    return OK;
}

enum status checkpoint_copy_result(struct trainer *t, const char *dir, const char *output)
{
    struct arena arena = {0};
    struct buffer list = {0};
    enum status status = copy_result(&arena, &list, dir, output);
    if (status == OK)
        status = origin_write_result(t, output, t->place.best_step);
    buffer_free(&list);
    arena_free(&arena);
    return status;
}

/* --- reading ------------------------------------------------------------------------------------------------------------ */

static enum status find_place(struct arena *arena, const char *dir, const char **path)
{
    *path = file_join(arena, dir, PLACE_FILE);
    if (!*path)
        return ERR_MEMORY;
    if (file_exists(*path))
        return OK;
    return fail(ERR_IO, "%s is not a checkpoint: it has no " PLACE_FILE "; --resume takes auto, none, or a folder checkpoint-N",
                dir);
}

static enum status check_files(const char *dir)
{
    static const char *const needed[] = {PLACE_FILE, STATE_FILE};
    struct buffer list = {0};
    TRY(checksums_check(dir));
    enum status status = checksums_read(&list, dir);
    for (int i = 0; i < 2 && status == OK; i++)
        if (!checksums_line(&list, needed[i]))
            status = fail(ERR_FORMAT, "%s: its list of checksums is damaged: it does not name %s", dir, needed[i]);
    buffer_free(&list);
    return status;
}

/* The id of the run in a place file, or NULL. */
static const char *run_in(const json_t *tree)
{
    const char *id = json_string_value(json_object_get(tree, NATURE_RUN));
    return id && strlen(id) == RUN_ID_SIZE - 1 ? id : NULL;
}

enum status checkpoint_open(struct trainer *t, const char *dir)
{
    struct arena arena = {0};
    const char *path;
    json_t *tree = NULL;
    struct trainer_place place = t->place;
    enum status status = find_place(&arena, dir, &path);
    if (status == OK)
        status = check_files(dir);
    if (status == OK)
        status = json_parse_file(&tree, path, STATE_BYTES_MAX);
    if (status == OK)
        status = place_check_version(tree, path);
    if (status == OK && !run_in(tree))
        status = fail(ERR_FORMAT, "%s: \"" NATURE_RUN "\" is missing, or not the id of a run", path);
    if (status == OK)
        status = nature_check(t, tree, dir);
    if (status == OK)
        status = place_read(&place, tree, path);
    if (status == OK) {
        t->place = place;
        snprintf(t->identity.run, sizeof t->identity.run, "%s", run_in(tree));
    }
    json_decref(tree);
    arena_free(&arena);
    return status;
}

enum status checkpoint_read(const char *dir, json_t **state)
{
    struct arena arena = {0};
    const char *path;
    *state = NULL;
    enum status status = find_place(&arena, dir, &path);
    if (status == OK)
        status = json_parse_file(state, path, STATE_BYTES_MAX);
    arena_free(&arena);
    return status;
}

enum checkpoint_kind checkpoint_kind(const char *dir, char run[RUN_ID_SIZE])
{
    struct arena arena = {0};
    const char *path;
    json_t *tree = NULL;
    bool place = find_place(&arena, dir, &path) == OK, parsed = place && json_parse_file(&tree, path, STATE_BYTES_MAX) == OK;
    bool known = run_in(tree) != NULL;
    snprintf(run, RUN_ID_SIZE, "%s", known ? run_in(tree) : "");
    bool listed = checksums_there(dir);
    json_decref(tree);
    arena_free(&arena);
    if (known && listed)
        return CHECKPOINT_OF_RUN;
    return listed || known || (place && !parsed) ? CHECKPOINT_DAMAGED : CHECKPOINT_FOREIGN;
}

/* The updates that were applied and skipped are steps of the run, which adds to them. */
static enum status check_counts(const struct safetensors_tensor *f, int64_t steps, const char *path)
{
    int64_t sum = 0;
    int32_t count = 0;
    for (int64_t at = 0; at < f->bytes; at += (int64_t)sizeof count) {
        memcpy(&count, f->data + at, sizeof count);
        sum += count;
        if (count < 0 || count > INT32_MAX / 2 || sum > steps)
            return fail(ERR_FORMAT, "%s: a count of steps, %d, is out of range: the run is at step %lld", path, count,
                        (long long)steps);
    }
    return OK;
}

/* Opens the file and checks all of it before the first tensor is loaded. */
static enum status open_state(const struct state *s, const char *path, struct safetensors **files)
{
    TRY(safetensors_open(files, path));
    for (int i = 0; i < s->count; i++) {
        const struct safetensors_tensor *f = safetensors_find(*files, s->file[i].name);
        if (!f || f->bytes != s->file[i].bytes || f->dtype != s->file[i].dtype)
            return fail(ERR_FORMAT, "%s: the state %s does not fit this model and method", path, s->file[i].name);
        if (f->dtype == SAFETENSORS_I32)
            TRY(check_counts(f, s->trainer->place.step, path));
    }
    return OK;
}

static enum status upload_state(struct trainer *t, const struct state *s, const struct safetensors *files)
{
    const struct optimizer *o = &t->optimizer;
    struct engine *e = &t->session.engine;
    for (int i = 0; i < s->count; i++) {
        const struct safetensors_tensor *f = safetensors_find(files, s->file[i].name);
        if (!s->tensor[i]->sharded)
            TRY(engine_upload_part(e, s->tensor[i], 0, s->file[i].shape[0], f->data, s->tensor[i]->dtype));
        if (i == 0 && o->master != o->weights)
            TRY(engine_upload_part(e, o->weights, 0, s->file[i].shape[0], f->data, o->master->dtype));
        if (!s->tensor[i]->sharded)
            file_map_drop(f->map, f->offset, f->bytes);
    }
    return OK;
}

/* Rank 0 reads, and sends what it has read. */
static enum status load_tensors(struct trainer *t, const char *path)
{
    struct safetensors *files = NULL;
    struct state s;
    double cleared;
    bool reads = group_rank(t->group) == 0;
    list_state(t, &s);
    enum status status = group_agree(t->group, reads ? open_state(&s, path, &files) : OK);
    if (status == OK)
        status = optimizer_clear(&t->optimizer, &t->session, &cleared);
    if (status == OK)
        status = group_agree(t->group, reads ? upload_state(t, &s, files) : OK);
    for (int i = 0; i < s.count && status == OK; i++)
        status = s.tensor[i]->sharded
                     ? shard_spread(&t->session.engine, s.tensor[i], reads ? safetensors_find(files, s.file[i].name)->data : NULL)
                     : engine_broadcast(&t->session.engine, s.tensor[i]);
    if (files)
        safetensors_close(files);
    if (status == OK && t->optimizer.master != t->optimizer.weights)
        status = engine_broadcast(&t->session.engine, t->optimizer.weights);
    return status;
}

enum status checkpoint_tell(struct trainer *t)
{
    struct {
        struct trainer_place place;
        struct identity identity;
    } known = {t->place, t->identity};
    TRY(group_tell(t->group, &known, (int64_t)sizeof known));
    t->place = known.place;
    t->identity = known.identity;
    GROUP_TEXT(t->identity.run);
    GROUP_TEXT(t->identity.base);
    GROUP_TEXT(t->identity.config);
    GROUP_TEXT(t->identity.data);
    GROUP_TEXT(t->identity.eval_data);
    GROUP_TEXT(t->identity.adapter);
    GROUP_TEXT(t->identity.init_adapter);
    return OK;
}

/* Rank 0 alone looks into the directory. */
static enum status open_together(struct trainer *t, const char *dir)
{
    TRY(group_agree(t->group, group_rank(t->group) ? OK : checkpoint_open(t, dir)));
    return checkpoint_tell(t);
}

/* Loading leaves the size of micro-batches, for which the programs are prepared. */
enum status checkpoint_load(struct trainer *t, const char *dir)
{
    TRY(trainer_at_rest(t));
    struct arena arena = {0};
    const struct trainer_place before = t->place;
    const struct identity was = t->identity;
    const char *state = file_join(&arena, dir, STATE_FILE);
    enum status status = state ? OK : ERR_MEMORY;
    if (status == OK && dir != t->resume) /* which was opened when it was found */
        status = open_together(t, dir);
    if (status == OK)
        status = load_tensors(t, state);
    if (status == OK)
        status = sync_start_over(t);
    arena_free(&arena);
    if (status != OK) {
        t->place = before;
        t->identity = was;
        return status;
    }
    t->place.slots = before.slots;
    micro_start_over(t);
    return OK;
}

enum status checkpoint_check_around(struct arena *arena, const char *output)
{
    char run[RUN_ID_SIZE], *slash, *there = arena_text(arena, output, (int64_t)strlen(output));
    while (there && !file_exists(there) && (slash = strrchr(there, '/')) && slash != there)
        *slash = 0;
    const char *dir = !there || file_exists(there) ? there : *there == '/' ? "/" : ".";
    for (const char *above; dir; dir = above) {
        if (checkpoint_kind(dir, run) == CHECKPOINT_OF_RUN)
            return fail(ERR_ARGUMENT, "--output %s is in a checkpoint, and would be removed with it: name another one", output);
        above = file_join(arena, dir, "..");
        if (above && (file_same(above, dir) || !file_exists(above)))
            return OK;
    }
    return ERR_MEMORY;
}
