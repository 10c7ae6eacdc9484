/* The output directory of a run: what a killed run left there, what is moved out of the way, what is removed. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "cannot_remove.h"
#include "state/checkpoint.h"
#include "train/metrics.h"
#include "trainer_rig.h"

#define NUMBER "0123456789abcdef"

static struct arena arena;
static struct buffer said; /* by warnings */

static void keep_warning(void *context, enum log_level level, const char *message)
{
    (void)context;
    if (level == LOG_WARNING)
        assert_ok(buffer_format(&said, "%s\n", message));
}

static void assert_said(const char *words)
{
    if (!said.data || !strstr(said.data, words))
        fail_msg("\"%s\" is not in: %s", words, said.data ? said.data : "");
}

/* --- a system that forbids -------------------------------------------------------------------------------------------------- */

static const char *forbidden; /* a folder that may not be read */

int access(const char *path, int mode)
{
    bool below = forbidden && !strncmp(path, forbidden, strlen(forbidden));
    errno = EACCES;
    return below && (mode != F_OK || path[strlen(forbidden)]) ? -1 : faccessat(AT_FDCWD, path, mode, 0);
}

static int64_t renames = INT64_MAX; /* that are allowed */

int rename(const char *from, const char *to)
{
    errno = EACCES;
    return renames-- > 0 ? renameat(AT_FDCWD, from, AT_FDCWD, to) : -1;
}

/* --- an output -------------------------------------------------------------------------------------------------------------- */

static const char *at(const char *name)
{
    return file_join(&arena, output_dir, name);
}

static void put(const char *name, const char *text)
{
    assert_ok(file_replace(at(name), text, (int64_t)strlen(text)));
}

static void make(const char *name)
{
    assert_ok(directory_make(at(name)));
}

static void assert_entries(const char *dir, const char *const *want)
{
    const char **names;
    int64_t count, n = 0;
    assert_ok(directory_list(&arena, dir, &names, &count));
    for (; want[n] || n < count; n++)
        assert_string_equal(n < count ? names[n] : "(nothing more)", want[n] ? want[n] : "(nothing more)");
}

#define ENTRIES(...) ((const char *const[]){__VA_ARGS__, NULL})

/* The checkpoints of steps 1 to 3 of a run, whose trainer stays open without the output. */
static void save_three(struct rig *r)
{
    assert_ok(directory_remove(output_dir));
    open_rig(r, &tied, 0, SETTINGS("data", data_path));
    for (int64_t step = 1; step <= 3; step++) {
        step_once(&r->t, -1);
        assert_ok(directory_make(output_dir));
        assert_ok(trainer_save_state(&r->t, checkpoint_path(&arena, output_dir, step)));
    }
    said.size = 0;
}

static void open_output(struct rig *r)
{
    open_rig(r, &tied, 0, SETTINGS("data", data_path, "output", output_dir));
}

/* --- tests ------------------------------------------------------------------------------------------------------------------ */

/* Fails if a kill inside a save or a removal costs a checkpoint that is whole, or leaves its parts for ever. */
static void what_a_killed_run_left_is_put_back_or_removed(void **state)
{
    (void)state;
    struct rig r, next;
    save_three(&r);
    assert_int_equal(rename(at("checkpoint-3"), at("checkpoint-3." NUMBER ".old")), 0);
    assert_int_equal(rename(at("checkpoint-2"), at("checkpoint-2.part")), 0);
    make("checkpoint-2." NUMBER ".old");
    make("checkpoint-1." NUMBER ".old");
    make("checkpoint-1.part");
    put("checkpoint-1.part/state.safetensors", "half");
    make("checkpoint-9." NUMBER ".old"); /* half removed */
    put("checkpoint-9." NUMBER ".old/trainer_state.json", "{}");
    put("adapter_model.safetensors." NUMBER ".part", "half");
    put("tokenizer.json." NUMBER ".part", "half");
    put("run.json." NUMBER ".part", "half");
    make("checkpoint-x.part"); /* of others */
    make("checkpoint-1.abc.old");
    put("notes." NUMBER ".part", "theirs");
    set_options(&next, &tied, SETTINGS("data", data_path, "output", output_dir));
    next.options.dry_run = true; /* changes nothing */
    assert_ok(trainer_open(&next.t, &next.options, 0));
    assert_string_equal(next.t.snap.resume, at("checkpoint-1"));
    assert_true(file_exists(at("checkpoint-9." NUMBER ".old")));
    close_rig(&next);
    open_output(&next);
    assert_string_equal(next.t.snap.resume, at("checkpoint-3"));
    assert_entries(output_dir, ENTRIES("checkpoint-1", "checkpoint-1.abc.old", "checkpoint-2", "checkpoint-3",
                                       "checkpoint-x.part", "notes." NUMBER ".part", "run.lock"));
    assert_said("checkpoint-3: a run was killed");
    close_rig(&next);
    close_rig(&r);
}

/* Fails if what the system cannot look at counts as missing: a whole checkpoint that a kill left without its name was removed. */
static void a_checkpoint_that_cannot_be_looked_at_is_left(void **state)
{
    (void)state;
    struct rig r, next;
    save_three(&r);
    assert_int_equal(rename(at("checkpoint-3"), at("checkpoint-3.part")), 0);
    forbidden = at("checkpoint-3.part");
    open_output(&next);
    forbidden = NULL;
    close_rig(&next);
    assert_true(file_exists(at("checkpoint-3.part")));
    open_output(&next);
    assert_string_equal(next.t.snap.resume, at("checkpoint-3"));
    close_rig(&next);
    close_rig(&r);
}

/* Fails if a save removes somebody's files that have the name of the folder, or of its part. */
static void a_save_replaces_only_states(void **state)
{
    (void)state;
    struct rig r;
    save_three(&r);
    put("checkpoint-3/notes.txt", "in a state");
    assert_ok(trainer_save_state(&r.t, at("checkpoint-3")));
    assert_int_equal(rename(at("checkpoint-2"), at("new.part")), 0); /* as a kill leaves it */
    assert_ok(trainer_save_state(&r.t, at("new")));
    assert_false(file_exists(at("new.part")));
    make("empty");
    assert_ok(trainer_save_state(&r.t, at("empty")));
    make("theirs");
    put("theirs/thesis.tex", "x");
    assert_fails(trainer_save_state(&r.t, at("theirs")), ERR_IO, "theirs: has files that are no saved state");
    assert_fails(trainer_save_state(&r.t, output_dir), ERR_IO, "has files that are no saved state");
    make("other.part");
    put("other.part/notes.txt", "x");
    assert_fails(trainer_save_state(&r.t, at("other")), ERR_IO, "other.part: has files that are no saved state");
    put("file.part", "x");
    assert_int_equal(trainer_save_state(&r.t, at("file")), ERR_IO);
    assert_true(file_exists(at("theirs/thesis.tex")) && file_exists(at("other.part/notes.txt")) && file_exists(at("file.part")));
    close_rig(&r);
}

/* Fails if the files of a checkpoint go one by one under its name, or if one that cannot be removed ends the run. */
static void a_checkpoint_that_cannot_be_removed_loses_its_name_and_costs_a_warning(void **state)
{
    (void)state;
    struct rig r, next;
    save_three(&r);
    cannot_remove = true;
    enum status status = checkpoint_thin(&r.t.snap, output_dir, 1);
    cannot_remove = false;
    assert_ok(status);
    assert_said("cannot remove: Device or resource busy; the run goes on");
    assert_false(file_exists(at("checkpoint-1")) || file_exists(at("checkpoint-2")));
    open_output(&next); /* both are whole, and kept until the next save */
    assert_ok(checkpoint_thin(&next.t.snap, output_dir, 1));
    assert_entries(output_dir, ENTRIES("checkpoint-3", "run.lock"));
    close_rig(&next);
    close_rig(&r);
}

/* Fails if a run that resumes replaces an adapter that somebody put there, or moves its own. */
static void a_result_of_no_checkpoint_is_moved_when_a_run_resumes(void **state)
{
    (void)state;
    struct rig r, next;
    const char *const *finished =
        ENTRIES("adapter_model.safetensors", "checkpoint-1", "checkpoint-2", "checkpoint-3", "run.json", "run.lock");
    save_three(&r);
    put("run.json", arena_format(&arena, "{\"run\": \"%s\"}", r.t.snap.identity.run));
    assert_ok(file_copy(at("checkpoint-2/adapter_model.safetensors"), at("adapter_model.safetensors"))); /* the best one */
    open_output(&next);
    assert_ok(checkpoint_make_room(&next.t.snap, output_dir, output_metrics));
    assert_entries(output_dir, finished);
    put("adapter_model.safetensors", "theirs");
    put("adapter_config.json", "{}");
    put("notes.txt", "theirs");
    assert_ok(checkpoint_make_room(&next.t.snap, output_dir, output_metrics));
    assert_entries(output_dir,
                   ENTRIES("checkpoint-1", "checkpoint-2", "checkpoint-3", "earlier-1", "notes.txt", "run.json", "run.lock"));
    assert_entries(at("earlier-1"), ENTRIES("adapter_config.json", "adapter_model.safetensors"));
    assert_said("of no checkpoint that is here");
    close_rig(&next);
    close_rig(&r);
}

/* Fails if the result of another run stays next to that of a run that starts over, or is replaced by it. */
static void a_run_that_starts_over_moves_the_results_of_others(void **state)
{
    (void)state;
    struct rig r;
    const char *const *none = SETTINGS("data", data_path, "output", output_dir, "resume", "none");
    save_three(&r);
    close_rig(&r);
    put("adapter_model.safetensors", "x");
    put("config.json", "{}");
    put("model-00001-of-00002.safetensors", "x"); /* a model of several files stays together */
    put("model.safetensors.index.json", "{}");
    put("notes.txt", "theirs");
    assert_int_equal(symlink("nowhere", at("earlier-1")), 0); /* which is no free name */
    open_rig(&r, &tied, 0, none);
    assert_ok(checkpoint_make_room(&r.t.snap, output_dir, output_metrics));
    assert_entries(output_dir, ENTRIES("earlier-1", "earlier-2", "notes.txt", "run.lock"));
    assert_entries(at("earlier-2"), ENTRIES("adapter_model.safetensors", "checkpoint-1", "checkpoint-2", "checkpoint-3",
                                            "config.json", "model-00001-of-00002.safetensors", "model.safetensors.index.json"));
    put("model.safetensors", "x"); /* a model that was tidied up, or downloaded: it would be replaced */
    r.options.resume = "auto";
    assert_ok(checkpoint_make_room(&r.t.snap, output_dir, output_metrics));
    assert_entries(at("earlier-3"), ENTRIES("model.safetensors"));
    close_rig(&r);
}

/* Fails if the metrics of two runs come into one file: --resume names a checkpoint of elsewhere. */
static void metrics_of_another_run_are_moved_when_a_run_is_resumed_there(void **state)
{
    (void)state;
    struct rig r;
    char text[64];
    save_three(&r);
    put("metrics.jsonl", "{}\n");
    snprintf(text, sizeof text, "{\"run\": \"%s\"}", r.t.snap.identity.run);
    put("run.json", text);
    assert_ok(checkpoint_make_room(&r.t.snap, output_dir, output_metrics));
    assert_false(file_exists(at("earlier-1")));
    put("model.safetensors", "x");
    put("run.json", "{\"run\": \"" NUMBER "\"}");
    assert_ok(checkpoint_make_room(&r.t.snap, output_dir, output_metrics));
    assert_entries(at("earlier-1"), ENTRIES("metrics.jsonl", "model.safetensors", "run.json"));
    put("metrics.jsonl", "{}\n");
    put("adapter_config.json", "{}");
    put("run.json", "not JSON"); /* which says nothing: the lines may be of the checkpoints next to them, a result is no one's */
    assert_ok(checkpoint_make_room(&r.t.snap, output_dir, output_metrics));
    assert_entries(at("earlier-2"), ENTRIES("adapter_config.json"));
    for (int64_t step = 1; step <= 3; step++)
        assert_ok(directory_remove(checkpoint_path(&arena, output_dir, step)));
    assert_ok(checkpoint_make_room(&r.t.snap, output_dir, output_metrics));
    assert_entries(at("earlier-3"), ENTRIES("metrics.jsonl", "run.json"));
    close_rig(&r);
}

/* Fails if a kill while files are moved leaves those of another run without what says so. */
static void what_says_whose_files_are_is_moved_last(void **state)
{
    (void)state;
    struct rig r;
    save_three(&r);
    put("run.json", "{\"run\": \"" NUMBER "\"}");
    put("metrics.jsonl", "{}\n");
    put("tokenizer.json", "{}");
    for (int64_t allowed = 0; allowed < 3; allowed++) {
        renames = allowed;
        enum status status = checkpoint_make_room(&r.t.snap, output_dir, output_metrics);
        renames = INT64_MAX;
        assert_fails(status, ERR_IO, allowed == 2 ? "run.json is in the way of the run, and cannot be moved: " : "is in the way");
        assert_true(file_exists(at("run.json")));
        put("metrics.jsonl", "{}\n");
        put("tokenizer.json", "{}");
    }
    assert_entries(output_dir, ENTRIES("checkpoint-1", "checkpoint-2", "checkpoint-3", "earlier-1", "earlier-2", "metrics.jsonl",
                                       "run.json", "tokenizer.json")); /* where nothing was moved, no folder is left */
    close_rig(&r);
}

/* Fails if what came into the output while the run went on is removed by its save, or its own checkpoint is moved. */
static void what_came_meanwhile_is_moved_aside_before_a_save(void **state)
{
    (void)state;
    struct rig r;
    save_three(&r);
    assert_ok(checkpoint_clear(&r.t.snap, output_dir, at("checkpoint-3")));
    assert_ok(checkpoint_clear(&r.t.snap, output_dir, at("checkpoint-4")));
    assert_false(file_exists(at("earlier-1")));
    r.t.snap.state.step = 4;
    assert_ok(file_rename(at("checkpoint-2"), at("checkpoint-4"))); /* its own of another step, by another name */
    assert_ok(checkpoint_clear(&r.t.snap, output_dir, at("checkpoint-4")));
    assert_true(file_exists(at("checkpoint-2")));
    make("checkpoint-4");
    put("checkpoint-4/notes.txt", "theirs");
    assert_ok(checkpoint_clear(&r.t.snap, output_dir, at("checkpoint-4")));
    assert_entries(at("earlier-1/checkpoint-4"), ENTRIES("notes.txt"));
    assert_said("checkpoint-4 is not of this run, but came while it went on: moved to ");
    close_rig(&r);
}

/* Fails if the best checkpoint is found by its name: that of another step may have it. */
static void the_checkpoint_of_a_step_is_found_by_what_it_says(void **state)
{
    (void)state;
    struct rig r;
    const char *path;
    save_three(&r);
    assert_ok(file_rename(at("checkpoint-2"), at("checkpoint-9")));
    assert_ok(file_rename(at("checkpoint-3"), at("checkpoint-2")));
    assert_ok(checkpoint_of_step(&r.t.snap, output_dir, 2, &path));
    assert_string_equal(path, at("checkpoint-9"));
    assert_ok(directory_remove(at("checkpoint-9")));
    assert_ok(checkpoint_of_step(&r.t.snap, output_dir, 2, &path));
    assert_null(path);
    assert_ok(identity_draw(&r.t.snap.identity)); /* another run's is none either */
    assert_ok(checkpoint_of_step(&r.t.snap, output_dir, 3, &path));
    assert_null(path);
    close_rig(&r);
}

/* Fails if somebody's file is overwritten or removed because a lock has its name. */
static void a_file_that_is_no_lock_is_left(void **state)
{
    (void)state;
    struct rig r;
    assert_ok(directory_remove(output_dir));
    assert_ok(directory_make(output_dir));
    set_options(&r, &tied, SETTINGS("data", data_path, "output", output_dir));
    put("run.lock", "important");
    assert_fails(trainer_open(&r.t, &r.options, 0), ERR_ARGUMENT, "run.lock: is somebody's file");
    assert_int_equal(file_size(at("run.lock")), 9);
    r.options.dry_run = true;
    assert_fails(trainer_open(&r.t, &r.options, 0), ERR_ARGUMENT, "run.lock: is somebody's file");
    r.options.dry_run = false;
    assert_ok(file_rename(at("run.lock"), at("notes.txt")));
    assert_int_equal(link(at("notes.txt"), at("run.lock")), 0);
    assert_fails(trainer_open(&r.t, &r.options, 0), ERR_ARGUMENT, "or another name of one");
    assert_int_equal(file_size(at("notes.txt")), 9);
    assert_ok(directory_remove(output_dir));
    assert_ok(directory_make(output_dir));
    arena_free(&r.arena);
    static const char *const left[] = {"4711 host\n", "47", "", "\0\0\0"}; /* by a run that was killed, or a crash */
    static const int64_t sizes[] = {10, 2, 0, 3};
    for (int i = 0; i < 4; i++) {
        assert_ok(file_replace(at("run.lock"), left[i], sizes[i]));
        set_options(&r, &tied, SETTINGS("data", data_path, "output", output_dir));
        assert_ok(trainer_open(&r.t, &r.options, 0));
        close_rig(&r);
        assert_ok(directory_make(output_dir));
    }
}

/* Fails if a run calls its own checkpoints another run's. */
static void what_is_moved_is_called_what_it_is(void **state)
{
    (void)state;
    struct rig r;
    save_three(&r);
    make("checkpoint-7");
    file_remove(at("checkpoint-2/trainer_state.json"));
    r.t.snap.state.step = 2;
    assert_ok(checkpoint_make_room(&r.t.snap, output_dir, output_metrics));
    assert_said("checkpoint-7 is not a checkpoint of hone's: moved to ");
    assert_said("checkpoint-3 is of a later step than the run goes on from: moved to ");
    assert_said("checkpoint-2 is damaged: moved to ");
    assert_null(strstr(said.data, "of an earlier run"));
    assert_ok(identity_draw(&r.t.snap.identity));
    assert_ok(checkpoint_make_room(&r.t.snap, output_dir, output_metrics));
    assert_said("checkpoint-1 is of an earlier run: moved to ");
    close_rig(&r);
}

/* Fails if the newest checkpoint is found by its name, or the one that the run resumes from is moved away. */
static void a_renamed_checkpoint_is_of_the_step_that_it_was(void **state)
{
    (void)state;
    struct rig r, next;
    save_three(&r);
    close_rig(&r);
    assert_ok(file_rename(at("checkpoint-2"), at("checkpoint-99")));
    open_output(&next);
    assert_string_equal(next.t.snap.resume, at("checkpoint-3"));
    close_rig(&next);
    assert_ok(directory_remove(at("checkpoint-3")));
    open_output(&next);
    assert_string_equal(next.t.snap.resume, at("checkpoint-99"));
    assert_int_equal(next.t.snap.state.step, 2);
    assert_ok(checkpoint_make_room(&next.t.snap, output_dir, output_metrics));
    assert_false(file_exists(at("earlier-1")));
    close_rig(&next);
}

/* Fails if a checkpoint that lacks a file, or cannot be read, ends the run that has one before it. */
static void a_checkpoint_that_cannot_be_read_gives_way_to_the_one_before(void **state)
{
    (void)state;
    struct rig r, next;
    save_three(&r);
    close_rig(&r);
    file_remove(at("checkpoint-3/trainer_state.json"));
    file_remove(at("checkpoint-2/state.safetensors"));
    make("checkpoint-2/state.safetensors");
    open_output(&next);
    assert_string_equal(next.t.snap.resume, at("checkpoint-1"));
    assert_said("checkpoint-3 cannot be used, the one before it is tried: ");
    assert_said("checkpoint-2 cannot be used, the one before it is tried: ");
    close_rig(&next);
}

/* Fails if a folder of another user's is passed over, or taken for damaged. */
static void a_checkpoint_that_may_not_be_read_is_an_error(void **state)
{
    (void)state;
    struct rig r, next;
    save_three(&r);
    close_rig(&r);
    const char *const denied[] = {at("checkpoint-3"), at("checkpoint-3/trainer_state.json")};
    for (int i = 0; i < 4; i++) {
        forbidden = denied[i % 2];
        set_options(&next, &tied,
                    SETTINGS("data", data_path, "output", output_dir, "resume", i < 2 ? "auto" : at("checkpoint-3")));
        enum status status = trainer_open(&next.t, &next.options, 0);
        forbidden = NULL;
        assert_fails(status, ERR_IO, "Permission denied");
        assert_non_null(strstr(status_message(), denied[i % 2]));
        arena_free(&next.arena);
    }
}

static int start(void **state)
{
    log_set_sink(keep_warning, NULL);
    return make_models(state);
}

static int end(void **state)
{
    log_set_sink(NULL, NULL);
    buffer_free(&said);
    arena_free(&arena);
    return remove_models(state);
}

/* As `hone watch` does when it looks whether a run is there. Seen to fail: the start was refused as a second run. */
static void a_look_at_the_lock_does_not_refuse_a_run(void **state)
{
    (void)state;
    struct output o;
    make("looked");
    put("looked/run.lock", "1 elsewhere\n");
    int fd = open(at("looked/run.lock"), O_RDONLY);
    assert_int_equal(flock(fd, LOCK_SH), 0);
    pid_t child = fork();
    if (!child) {
        usleep(60000);
        _exit(0); /* with its copy of the descriptor the lock ends */
    }
    close(fd);
    assert_ok(output_take(&o, at("looked"), &arena));
    output_release(&o);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_killed_run_left_is_put_back_or_removed),
        cmocka_unit_test(a_checkpoint_that_cannot_be_looked_at_is_left),
        cmocka_unit_test(a_save_replaces_only_states),
        cmocka_unit_test(a_checkpoint_that_cannot_be_removed_loses_its_name_and_costs_a_warning),
        cmocka_unit_test(a_result_of_no_checkpoint_is_moved_when_a_run_resumes),
        cmocka_unit_test(a_run_that_starts_over_moves_the_results_of_others),
        cmocka_unit_test(metrics_of_another_run_are_moved_when_a_run_is_resumed_there),
        cmocka_unit_test(what_says_whose_files_are_is_moved_last),
        cmocka_unit_test(what_came_meanwhile_is_moved_aside_before_a_save),
        cmocka_unit_test(the_checkpoint_of_a_step_is_found_by_what_it_says),
        cmocka_unit_test(a_file_that_is_no_lock_is_left),
        cmocka_unit_test(what_is_moved_is_called_what_it_is),
        cmocka_unit_test(a_renamed_checkpoint_is_of_the_step_that_it_was),
        cmocka_unit_test(a_checkpoint_that_cannot_be_read_gives_way_to_the_one_before),
        cmocka_unit_test(a_checkpoint_that_may_not_be_read_is_an_error),
        cmocka_unit_test(a_look_at_the_lock_does_not_refuse_a_run),
    };
    return cmocka_run_group_tests(tests, start, end);
}
