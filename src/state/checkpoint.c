/* Writing and loading checkpoints. */
#include "state/checkpoint.h"

#include <stdio.h>
#include <string.h>

#include "base/checksums.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "format/checkpoint_dir.h"
#include "format/provenance.h"
#include "state/fingerprint.h"
#include "state/origin.h"
#include "state/output.h"
#include "state/result.h"
#include "tensor/shard.h"

#define STATE_FILE "state.safetensors"

/* --- writing ------------------------------------------------------------------------------------------------------------ */

static enum status write_state(struct snapshot *snap, const char *path)
{
    json_t *tree = run_state_json(&snap->state);
    enum status status = tree ? fingerprint_add(snap, tree) : fail(ERR_MEMORY, "out of memory: the state of a run");
    if (status == OK)
        status = json_replace_file(path, tree);
    json_decref(tree);
    return status;
}

struct state {
    const struct snapshot *snap;
    int count;
    struct tensor *tensor[OPTIMIZER_TENSORS];
    struct safetensors_tensor file[OPTIMIZER_TENSORS];
};

static void list_state(struct snapshot *snap, struct state *s)
{
    const char *names[OPTIMIZER_TENSORS];
    *s = (struct state){.snap = snap};
    s->count = optimizer_tensors(&snap->build->optimizer, s->tensor, names);
    for (int i = 0; i < s->count; i++) {
        int64_t elements = optimizer_saved(&snap->build->optimizer, s->tensor[i]);
        s->file[i] = (struct safetensors_tensor){.name = names[i],
                                                 .dtype = s->tensor[i]->dtype == DTYPE_I32 ? SAFETENSORS_I32 : SAFETENSORS_F32,
                                                 .rank = 1,
                                                 .shape = {elements},
                                                 .bytes = elements * dtype_size(s->tensor[i]->dtype)};
    }
}

static enum status checkpoint_read_state(void *context, int64_t tensor, int64_t offset, void *to, int64_t bytes)
{
    const struct state *s = context;
    return engine_download(&s->snap->build->session.engine, s->tensor[tensor], offset, to, bytes);
}

static enum status checkpoint_write_all(struct snapshot *snap, struct arena *arena, const char *dir)
{
    struct state s;
    const char *tensors = file_join(arena, dir, STATE_FILE), *state = file_join(arena, dir, CHECKPOINT_STATE);
    if (!tensors || !state)
        return ERR_MEMORY;
    list_state(snap, &s);
    TRY(result_write(snap, dir));
    TRY(safetensors_write_from(tensors, s.file, s.count, NULL, checkpoint_read_state, &s));
    TRY(write_state(snap, state));
    TRY(origin_write_checkpoint(snap, dir));
    return checksums_write(dir);
}

/* A state that is there is replaced, and what is left of a save that did not end; somebody's files are not. */
static enum status checkpoint_check_replaced(struct arena *arena, const char *dir, bool is_part)
{
    const char **names;
    int64_t count, ours = 0, of_state = 0;
    if (directory_is_free(dir) || (!is_part && !file_is_directory(dir)))
        return OK;
    TRY(directory_list(arena, dir, &names, &count));
    for (int64_t i = 0; i < count; i++) {
        bool state = !strcmp(names[i], STATE_FILE) || checksums_is_list(names[i]);
        of_state += state;
        ours += state || !strcmp(names[i], CHECKPOINT_STATE) || output_is_result(names[i]) ||
                file_sibling_stem(names[i], ".part") > 0;
    }
    return (is_part ? ours == count : !count || of_state)
               ? OK
               : fail(ERR_IO, "%s: has files that are no saved state, and they would be lost: choose another folder", dir);
}

static enum status save_by(struct snapshot *snap, struct arena *arena, const char *part, const char *dir)
{
    enum status status = directory_remove(part);
    if (status == OK)
        status = directory_make_new(part);
    if (status == OK)
        status = checkpoint_write_all(snap, arena, part);
    if (status == OK)
        status = directory_replace(part, dir);
    if (status != OK)
        directory_discard(part);
    return status;
}

static enum status save(struct snapshot *snap, const char *dir)
{
    struct arena arena = {0};
    int length = (int)strlen(dir);
    while (length > 1 && dir[length - 1] == '/')
        length--;
    const char *part = arena_format(&arena, "%.*s.part", length, dir);
    enum status status = part ? checkpoint_check_replaced(&arena, dir, false) : ERR_MEMORY;
    if (status == OK)
        status = checkpoint_check_replaced(&arena, part, true);
    if (status == OK)
        status = save_by(snap, &arena, part, dir);
    arena_free(&arena);
    return status;
}

/* Rank 0 writes; the others hand over what they keep of the state, and write nothing. */
static enum status checkpoint_together(struct snapshot *snap, const char *dir,
                                       enum status (*write)(struct snapshot *snap, const char *dir))
{
    struct engine *e = &snap->build->session.engine;
    if (group_rank(snap->build->group))
        return shard_serve(e);
    char message[STATUS_MESSAGE_SIZE];
    enum status status = write(snap, dir);
    snprintf(message, sizeof message, "%s", status == OK ? "" : status_message());
    enum status ended = shard_end(e);
    return status == OK ? ended : fail(status, "%s", message);
}

enum status checkpoint_save(struct snapshot *snap, const char *dir)
{
    return checkpoint_together(snap, dir, save);
}

static enum status save_result(struct snapshot *snap, const char *dir)
{
    TRY(result_write(snap, dir));
    return origin_write_result(snap, dir, snap->state.step);
}

enum status checkpoint_save_result(struct snapshot *snap, const char *dir)
{
    return checkpoint_together(snap, dir, save_result);
}

/* --- as a result ---------------------------------------------------------------------------------------------------------- */

/* What is not in the list of checksums is somebody else's. */
static enum status copy_result(const struct snapshot *snap, struct arena *arena, struct buffer *list, const char *dir,
                               const char *output)
{
    const char **names;
    int64_t count, own = 0;
    TRY(checksums_check(dir));
    TRY(checksums_read(list, dir));
    TRY(directory_list(arena, dir, &names, &count));
    const char **chosen = arena_array(arena, count + 1, sizeof *chosen);
    if (!chosen)
        return ERR_MEMORY;
    for (int64_t i = 0; i < count; i++)
        if (strcmp(names[i], STATE_FILE) != 0 && strcmp(names[i], CHECKPOINT_STATE) != 0 && !provenance_is_file(names[i]) &&
            checksums_line(list, names[i]))
            chosen[own++] = names[i];
    TRY(origin_check_signed(snap, dir, chosen));
    for (int64_t i = 0; i < own; i++) {
        const char *from = file_join(arena, dir, chosen[i]), *to = file_join(arena, output, chosen[i]);
        if (!from || !to)
            return ERR_MEMORY;
        TRY(file_copy(from, to));
    }
    return OK;
}

enum status checkpoint_copy_result(struct snapshot *snap, const char *dir, const char *output)
{
    struct arena arena = {0};
    struct buffer list = {0};
    enum status status = copy_result(snap, &arena, &list, dir, output);
    if (status == OK)
        status = origin_write_result(snap, output, snap->state.best_step);
    buffer_free(&list);
    arena_free(&arena);
    return status;
}

/* --- reading ------------------------------------------------------------------------------------------------------------ */

static enum status checkpoint_check_files(const struct snapshot *snap, const char *dir)
{
    static const char *const needed[] = {CHECKPOINT_STATE, STATE_FILE, NULL};
    struct buffer list = {0};
    TRY(checksums_check(dir));
    enum status status = checksums_read(&list, dir);
    for (int i = 0; i < 2 && status == OK; i++)
        if (!checksums_line(&list, needed[i]))
            status = fail(ERR_FORMAT, "%s: its list of checksums is damaged: it does not name %s", dir, needed[i]);
    buffer_free(&list);
    return status == OK ? origin_check_signed(snap, dir, needed) : status;
}

/* Of a trainer that has no data no run can go on: it steps by hand. */
static enum status check_to_load(struct snapshot *snap, const json_t *tree, const char *dir)
{
    if (snap->rows->data.row_count && fingerprint_check(snap, tree, dir) == OK)
        return OK;
    snap->other_run = true;
    if (snap->rows->data.row_count)
        log_message(LOG_DEBUG, "for steps by hand: %s", status_message());
    return fingerprint_check_arrays(snap, tree, dir);
}

/* `check`: whether it is the right one. */
static enum status open_checked(struct snapshot *snap, const char *dir,
                                enum status (*check)(struct snapshot *snap, const json_t *tree, const char *dir))
{
    struct arena arena = {0};
    const char *path;
    json_t *tree = NULL;
    struct run_state state = snap->state;
    enum status status = checkpoint_dir_find(&arena, dir, &path);
    if (status == OK)
        status = checkpoint_check_files(snap, dir);
    if (status == OK)
        status = json_parse_file(&tree, path, CHECKPOINT_STATE_BYTES_MAX);
    if (status == OK)
        status = run_state_check_version(tree, path);
    if (status == OK && !checkpoint_dir_run(tree))
        status = fail(ERR_FORMAT, "%s: \"" CHECKPOINT_RUN "\" is missing, or not the id of a run", path);
    if (status == OK)
        status = check(snap, tree, dir);
    if (status == OK)
        status = run_state_read(&state, tree, path);
    if (status == OK) {
        snap->state = state;
        snprintf(snap->identity.run, sizeof snap->identity.run, "%s", checkpoint_dir_run(tree));
    }
    json_decref(tree);
    arena_free(&arena);
    return status;
}

enum status checkpoint_open(struct snapshot *snap, const char *dir)
{
    return open_checked(snap, dir, fingerprint_check);
}

/* The updates that were applied and skipped are steps of the run, which adds to them. */
static enum status checkpoint_check_counts(const struct safetensors_tensor *f, int64_t steps, const char *path)
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
            TRY(checkpoint_check_counts(f, s->snap->state.step, path));
    }
    return OK;
}

static enum status upload_state(struct snapshot *snap, const struct state *s, const struct safetensors *files)
{
    const struct optimizer *o = &snap->build->optimizer;
    struct engine *e = &snap->build->session.engine;
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
static enum status load_tensors(struct snapshot *snap, const char *path, bool *begun)
{
    struct safetensors *files = NULL;
    struct state s;
    double cleared;
    bool reads = group_rank(snap->build->group) == 0;
    list_state(snap, &s);
    enum status status = group_agree(snap->build->group, reads ? open_state(&s, path, &files) : OK);
    *begun = status == OK;
    if (status == OK)
        status = optimizer_clear(&snap->build->optimizer, &snap->build->session, &cleared);
    if (status == OK)
        status = group_agree(snap->build->group, reads ? upload_state(snap, &s, files) : OK);
    for (int i = 0; i < s.count && status == OK; i++)
        status = s.tensor[i]->sharded ? shard_spread(&snap->build->session.engine, s.tensor[i],
                                                     reads ? safetensors_find(files, s.file[i].name)->data : NULL)
                                      : engine_broadcast(&snap->build->session.engine, s.tensor[i]);
    if (files)
        safetensors_close(files);
    if (status == OK && snap->build->optimizer.master != snap->build->optimizer.weights)
        status = engine_broadcast(&snap->build->session.engine, snap->build->optimizer.weights);
    return status;
}

enum status checkpoint_tell(struct snapshot *snap)
{
    struct {
        struct run_state state;
        struct identity identity;
        int64_t other_run;
    } known = {snap->state, snap->identity, snap->other_run};
    TRY(group_tell(snap->build->group, &known, (int64_t)sizeof known));
    snap->state = known.state;
    snap->identity = known.identity;
    snap->other_run = known.other_run;
    GROUP_TEXT(snap->identity.run);
    GROUP_TEXT(snap->identity.base);
    GROUP_TEXT(snap->identity.base_form);
    GROUP_TEXT(snap->identity.base_sketch);
    GROUP_TEXT(snap->identity.config);
    GROUP_TEXT(snap->identity.data);
    GROUP_TEXT(snap->identity.eval_data);
    GROUP_TEXT(snap->identity.adapter);
    GROUP_TEXT(snap->identity.init_adapter);
    return OK;
}

/* Only rank 0 looks into the directory. */
static enum status open_together(struct snapshot *snap, const char *dir)
{
    snap->other_run = false;
    TRY(group_agree(snap->build->group, group_rank(snap->build->group) ? OK : open_checked(snap, dir, check_to_load)));
    return checkpoint_tell(snap);
}

enum status checkpoint_load(struct snapshot *snap, const char *dir, bool *begun)
{
    struct arena arena = {0};
    const char *state = file_join(&arena, dir, STATE_FILE);
    enum status status = state ? OK : ERR_MEMORY;
    *begun = false;
    if (status == OK && dir != snap->resume)
        status = open_together(snap, dir);
    if (status == OK)
        status = load_tensors(snap, state, begun);
    arena_free(&arena);
    return status;
}
