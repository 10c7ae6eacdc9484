/* export/target: an export replaces nothing that it did not write, and appears under its name only when complete. */
#include "test.h"

#include <errno.h>
#include <sys/syscall.h>

#include "export/target.h"
#include "export_rig.h"
#include "format/gguf.h"

/* Fails if an export replaces what is there, or writes over its input. */
static void test_existing_output_is_refused_unless_asked(void **state)
{
    (void)state;
    struct export_options o = options_of("twice.gguf", FILE_F16);
    assert_ok(merge(&o));
    assert_fails(merge(&o), ERR_ARGUMENT, "--overwrite");
    o.overwrite = true;
    assert_ok(merge(&o));
    o.output = model.dir;
    assert_fails(merge(&o), ERR_ARGUMENT, "must not be what is read");
}

/* A system, or a file system, that has no rename which replaces nothing. */
static bool system_is_old;

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    errno = EINVAL;
    return system_is_old ? -1 : (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}

/* An export to `name` while another one, which began later, ends first. */
static void lose_a_race(const char *name)
{
    struct export_options o = options_of(name, FILE_F32);
    struct target t;
    assert_ok(target_open(&t, &o, "config.json", true));
    assert_ok(target_start(&t));
    if (t.gguf) {
        assert_ok(file_replace(t.part, "mine", 4));
        assert_ok(file_replace(t.modelfile_part, "mine", 4));
    }
    char part[160], modelfile[160];
    snprintf(part, sizeof part, "%s", t.part);
    snprintf(modelfile, sizeof modelfile, "%s", t.gguf ? t.modelfile_part : t.part);
    assert_ok(merge(&o));
    assert_fails(target_close(&t, OK), ERR_ARGUMENT, "exists; name another --output, or replace it with --overwrite");
    assert_false(file_exists(part) || file_exists(modelfile));
}

/* Fails if what was not there at the beginning is replaced at the end, or if the loser leaves its files or Modelfile. */
static void test_of_two_exports_to_one_name_the_first_is_kept(void **state)
{
    (void)state;
    struct gguf *file;
    struct safetensors *files;
    struct buffer text = {0};
    for (int old = 1; old >= 0; old--) {
        system_is_old = old;
        lose_a_race(old ? "old-race" : "race");
        assert_ok(safetensors_open(&files, output));
        safetensors_close(files);
        lose_a_race(old ? "old-race.gguf" : "race.gguf");
        assert_ok(gguf_open(&file, output));
        gguf_close(file);
        snprintf(strrchr(output, '.'), 16, ".Modelfile");
        assert_ok(file_read(&text, output, 4096));
        assert_memory_equal(text.data, "FROM ./", 7);
        buffer_free(&text);
    }
}

/* Fails if --overwrite removes checkpoints or the adapter that is read, or if a directory of someone else's is taken for what an
 * earlier export left. */
static void test_only_exports_are_replaced(void **state)
{
    (void)state;
    char theirs[160];
    struct export_options o = options_of("kept.part", FILE_F16);
    assert_ok(directory_make(output));
    put_file("mine.txt", "");
    snprintf(theirs, sizeof theirs, "%s/mine.txt", output);
    o = options_of("kept", FILE_F16);
    assert_ok(merge(&o));
    assert_true(file_exists(theirs));
    o.overwrite = true;
    assert_ok(merge(&o));
    put_file("metrics.jsonl", "");
    assert_fails(merge(&o), ERR_ARGUMENT, "metrics.jsonl: is not what this export writes");
    snprintf(theirs, sizeof theirs, "%s/metrics.jsonl", output);
    assert_int_equal(unlink(theirs), 0);
    snprintf(theirs, sizeof theirs, "%s/checkpoint.json", output);
    assert_ok(directory_make(theirs));
    assert_fails(merge(&o), ERR_ARGUMENT, "checkpoint.json: is not what this export writes");
    assert_int_equal(rmdir(theirs), 0);
    for (int i = 0; i < 3; i++) { /* seen to fail: files were taken for an export's by their last letters */
        const char *const names[] = {"notes.json", "adapter_model.safetensors", "other-model-00001-of-00002.safetensors"};
        put_file(names[i], "{}");
        assert_fails(merge(&o), ERR_ARGUMENT, names[i]);
        snprintf(theirs, sizeof theirs, "%s/%s", output, names[i]);
        assert_int_equal(unlink(theirs), 0);
    }
    put_file("model-00001-of-00002.safetensors", ""); /* of an export in several files */
    put_file("model.safetensors.index.json", "{}");
    assert_ok(merge(&o));
    o = options_of("pair", FILE_TYPE_AUTO);
    assert_ok(directory_make(output));
    put_file("adapter_config.json", "{}");
    put_file("notes.json", "{}");
    o.overwrite = true;
    json_t *report = NULL;
    assert_fails(export_adapter(&o, &report), ERR_ARGUMENT, "notes.json: is not what this export writes");
    json_decref(report);
}

/* Seen to fail: what a run wrote there while a model was merged was removed with what was to be replaced. */
static void test_what_came_meanwhile_is_not_replaced(void **state)
{
    (void)state;
    struct export_options o = options_of("meanwhile", FILE_F16);
    struct target t;
    assert_ok(merge(&o));
    o.overwrite = true;
    assert_ok(target_open(&t, &o, "config.json", true));
    assert_ok(target_start(&t));
    put_file("run.lock", "");
    assert_fails(target_close(&t, OK), ERR_ARGUMENT, "run.lock: is not what this export writes");
    char lock[160];
    snprintf(lock, sizeof lock, "%s/run.lock", output);
    assert_true(file_exists(lock));
}

/* Fails if room is not asked for, or asked for after something was made. */
static void test_a_full_disk_is_told_before_anything_is_written(void **state)
{
    (void)state;
    struct export_options o = options_of("huge", FILE_F16);
    struct target t;
    assert_ok(target_open(&t, &o, "config.json", true));
    assert_ok(target_file(&t, "model.safetensors", INT64_C(1) << 60));
    assert_fails(target_start(&t), ERR_IO, "1152921504.607 GB will be written, and");
    assert_false(file_exists(t.part));
    assert_int_equal(target_close(&t, ERR_IO), ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_existing_output_is_refused_unless_asked),
        cmocka_unit_test(test_of_two_exports_to_one_name_the_first_is_kept),
        cmocka_unit_test(test_only_exports_are_replaced),
        cmocka_unit_test(test_what_came_meanwhile_is_not_replaced),
        cmocka_unit_test(test_a_full_disk_is_told_before_anything_is_written),
    };
    return cmocka_run_group_tests(tests, make, clean);
}
