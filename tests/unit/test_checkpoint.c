/* Checkpoints: resuming from them, what is refused, which are kept; and running out of memory between opening and saving. */
#include "test.h"

#include "base/checksums.h"
#include "failing.h"
#include "processor.h"
#include "state/checkpoint.h"
#include "trainer_rig.h"

/* A run of three steps, saved as the third's checkpoint. */
static void save_checkpoint(struct rig *r, const char *const *settings)
{
    assert_ok(directory_remove(output_dir));
    open_rig(r, &tied, 0, settings);
    for (int i = 0; i < 3; i++)
        step_once(&r->t, -1);
    r->t.snap.state.best_step = 2;
    r->t.snap.state.best_loss = 1.25;
    assert_ok(directory_make(output_dir));
    assert_ok(trainer_save_state(&r->t, checkpoint_dir));
}

static void a_checkpoint_goes_on_as_if_nothing_had_happened(void **state)
{
    (void)state;
    static const char *const dtypes[] = {"float32", "bfloat16"};
    bool bf16 = processor_has_bf16();
    for (int i = 0; i < METHODS * 2; i += bf16 ? 1 : 2) {
        struct rig a, b, c;
        const char *settings[32] = {0}, *const *from = join(i / 2, SETTINGS("dtype", dtypes[i % 2], "data", data_path));
        for (int k = 0; from[k]; k++)
            settings[k] = from[k];
        save_checkpoint(&a, settings);
        open_rig(&b, &tied, 0, settings); /* loads it */
        step_once(&b.t, 0.5);
        add_all(&b.t); /* forgotten by then */
        assert_ok(trainer_load_state(&b.t, checkpoint_dir));
        int n = 0;
        while (settings[n])
            n++;
        settings[n++] = "output";
        settings[n++] = output_dir;
        open_rig(&c, &tied, 0, settings); /* finds it */
        assert_string_equal(c.t.snap.resume, checkpoint_dir);
        struct trainer *both[] = {&b.t, &c.t};
        for (int k = 0; k < 2; k++) {
            assert_memory_equal(&both[k]->snap.state, &a.t.snap.state, offsetof(struct run_state, best_loss));
            assert_true(both[k]->snap.state.best_loss == 1.25 && isnan(both[k]->snap.state.eval_loss));
            assert_same_state(&a.t, both[k]);
        }
        for (int step = 0; step < 3; step++) {
            struct step x = step_once(&a.t, -1), y = step_once(&b.t, -1), z = step_once(&c.t, -1);
            assert_same_step(&x, &y);
            assert_same_step(&x, &z);
        }
        assert_same_state(&a.t, &b.t);
        assert_same_state(&a.t, &c.t);
        close_rig(&a);
        close_rig(&b);
        close_rig(&c);
    }
}

/* Fails if the size of another run's micro-batches takes the place of that for which the programs were made: more tokens than
 * they hold would then be written to their inputs. */
static void loading_leaves_the_size_of_micro_batches(void **state)
{
    (void)state;
    struct rig large, small;
    save_checkpoint(&large, SETTINGS("data", data_path, "micro_batch_tokens", "256"));
    open_rig(&small, &tied, 0, SETTINGS("data", data_path, "micro_batch_tokens", "64"));
    int64_t slots = small.t.build.slots;
    assert_true(slots < large.t.build.slots);
    for (int i = 0; i < 2; i++) {
        assert_ok(trainer_load_state(&small.t, checkpoint_dir));
        assert_int_equal(small.t.build.slots, slots);
        assert_int_equal(small.t.snap.state.slots, slots);
    }
    close_rig(&small);
    close_rig(&large);
}

static void a_checkpoint_with_other_settings_is_refused(void **state)
{
    (void)state;
    static const char ranks[] = "its ranks, scales or modules are not those";
    static const struct {
        const char *option, *value, *arrays; /* what is said where the arrays mean something else; NULL: they do not */
    } other[] = {
        {"finetuning_type", "full", "finetuning_type"},
        {"lora_r", "8", ranks},
        {"lora_alpha", "3", ranks},
        {"lora_dropout", "0.2", "lora_dropout"},
        {"rank_pattern", "q_proj=2", ranks},
        {"optim", "lion", "optim"},
        {"seed", "7", NULL},
        {"learning_rate", "0.5", NULL},
        {"lr_scheduler_type", "linear", NULL},
        {"max_grad_norm", "0", NULL},
        {"weight_decay", "0.5", NULL},
        {"max_steps", "1000", NULL},
        {"packing", "true", NULL},
        {"tf32", "true", NULL},
        {"dtype", "bfloat16", "dtype"},
    };
    size_t others = sizeof other / sizeof other[0] - !processor_has_bf16();
    struct rig r, wrong;
    save_checkpoint(&r, SETTINGS("data", data_path));
    close_rig(&r);
    for (size_t i = 0; i < others; i++) {
        const char *const *settings = SETTINGS("data", data_path, other[i].option, other[i].value);
        open_rig(&wrong, &tied, 0, settings);
        assert_ok(trainer_check_run(&wrong.t));
        if (other[i].arrays)
            assert_fails(trainer_load_state(&wrong.t, checkpoint_dir), ERR_ARGUMENT, other[i].arrays);
        else {
            assert_ok(trainer_load_state(&wrong.t, checkpoint_dir)); /* to step by hand */
            assert_int_equal(wrong.t.snap.state.step, 3);
            assert_fails(trainer_check_run(&wrong.t), ERR_ARGUMENT, "with other settings or data");
        }
        close_rig(&wrong);
        set_options(&wrong, &tied, SETTINGS("data", data_path, other[i].option, other[i].value, "output", output_dir));
        assert_fails(trainer_open(&wrong.t, &wrong.options, 0), ERR_ARGUMENT, other[i].option);
        arena_free(&wrong.arena);
    }
    open_rig(&wrong, &tied, 0, SETTINGS("lora_r", "4"));
    assert_ok(trainer_load_state(&wrong.t, checkpoint_dir));
    assert_fails(checkpoint_open(&wrong.t.snap, checkpoint_dir), ERR_ARGUMENT, "data_rows");
    assert_fails(trainer_load_state(&wrong.t, tied.dir), ERR_IO, "is not a checkpoint");
    close_rig(&wrong);
}

/* Loading fails in both ways, and leaves the trainer unchanged. */
static void assert_refused(struct rig *loads, struct rig *like)
{
    struct rig finds;
    struct run_state state = loads->t.snap.state;
    enum status status = trainer_load_state(&loads->t, checkpoint_dir);
    if (status != ERR_FORMAT && status != ERR_UNSUPPORTED)
        fail_msg("status %d: %s", status, status_message());
    assert_memory_equal(&state, &loads->t.snap.state, sizeof state);
    assert_same_state(&loads->t, &like->t);
    set_options(&finds, &tied, SETTINGS("output", output_dir));
    status = trainer_open(&finds.t, &finds.options, 0);
    if (status != ERR_FORMAT && status != ERR_UNSUPPORTED)
        fail_msg("status %d: %s", status, status_message());
    arena_free(&finds.arena);
}

/* If the words differ in length, the text must have room and be a string. */
static void replace(char *text, const char *word, const char *by)
{
    char *at = strstr(text, word);
    assert_non_null(at);
    if (strlen(by) != strlen(word))
        memmove(at + strlen(by), at + strlen(word), strlen(at + strlen(word)) + 1);
    memcpy(at, by, strlen(by));
}

/* Fails if what a checkpoint does not say is taken to be as in this run, or what nobody knows is passed over. */
static void a_checkpoint_has_every_setting_and_no_other(void **state)
{
    (void)state;
    static const char *const words[][2] = {{"\"tf32\"", "\"tf31\""},
                                           {"\"data_rows\"", "\"data_rose\""},
                                           {"\"loss\"", "\"less\""},
                                           {"\"settings\": {", "\"settings\": {\"future\": \"1\", "},
                                           {"\"init_adapter\"", "\"init_adopter\""},
                                           {"\"config\"", "\"conflict\""},
                                           {"\"device\": \"cpu\"", "\"device\": null"}};
    struct rig r, like;
    struct buffer place = {0};
    char path[160], text[8192];
    save_checkpoint(&r, SETTINGS("lora_r", "4"));
    close_rig(&r);
    snprintf(path, sizeof path, "%s/trainer_state.json", checkpoint_dir);
    assert_ok(file_read(&place, path, sizeof text / 2));
    open_rig(&r, &tied, 0, SETTINGS("lora_r", "4", "recompute", "full", "threads", "1")); /* these decide no number */
    open_rig(&like, &tied, 0, SETTINGS("lora_r", "4"));
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        strcpy(text, place.data);
        replace(text, words[i][0], words[i][1]);
        assert_ok(file_replace(path, text, (int64_t)strlen(text)));
        assert_fails(trainer_load_state(&r.t, checkpoint_dir), ERR_FORMAT, "trainer_state.json: is damaged");
        assert_ok(checksums_write(checkpoint_dir));
        assert_refused(&r, &like);
        assert_non_null(strstr(status_message(), "trainer_state.json: "));
    }
    assert_ok(file_replace(path, place.data, place.size));
    assert_ok(checksums_write(checkpoint_dir));
    assert_ok(trainer_load_state(&r.t, checkpoint_dir));
    buffer_free(&place);
    close_rig(&like);
    close_rig(&r);
}

static void a_damaged_checkpoint_is_an_error(void **state)
{
    (void)state;
    static const char *const words[][2] = {{"\"version\": 3", "\"version\": 1"},
                                           {"\"version\": 3", "\"version\":[]"},
                                           {"\"step\": 3", "\"step\":-3"},
                                           {"\"step\": 3", "\"stop\": 3"},
                                           {"\"tokens\": ", "\"tokens\":-"},
                                           {"_tokens\": 64", "_tokens\": -4"},
                                           {"_tokens\": 64,", "_tokens\":9e9,"},
                                           {"\"settings\"", "\"sittings\""},
                                           {"\"run\"", "\"ran\""},
                                           {"\"best_loss\": 1.25", "\"best_loss\": \"25\""},
                                           {"\"warnings\": 0", "\"warnings\": 9223372036854775807"}, /* one more overflows */
                                           {"loss_count\": 0", "loss_count\": 9223372036854775807"},
                                           {"norm_count\": 0", "norm_count\": -1"},
                                           {"norm_variance\": 0", "norm_variance\": -1"}};
    struct rig saved, loads;
    struct buffer tensors = {0}, place = {0};
    char tensors_path[160], place_path[160], text[8192];
    save_checkpoint(&saved, SETTINGS("lora_r", "4"));
    close_rig(&saved);
    open_rig(&saved, &tied, 0, SETTINGS("lora_r", "4"));
    open_rig(&loads, &tied, 0, SETTINGS("lora_r", "4"));
    snprintf(tensors_path, sizeof tensors_path, "%s/state.safetensors", checkpoint_dir);
    snprintf(place_path, sizeof place_path, "%s/trainer_state.json", checkpoint_dir);
    assert_ok(file_read(&tensors, tensors_path, 1 << 24));
    assert_ok(file_read(&place, place_path, sizeof text - 1));
    for (int64_t cut = 0; cut < place.size; cut += 1 + place.size / 12) {
        assert_ok(file_replace(place_path, place.data, cut));
        assert_refused(&loads, &saved);
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        strcpy(text, place.data);
        replace(text, words[i][0], words[i][1]);
        assert_ok(file_replace(place_path, text, (int64_t)strlen(text)));
        assert_refused(&loads, &saved);
        assert_ok(checksums_write(checkpoint_dir)); /* as if it had been written so */
        assert_refused(&loads, &saved);
    }
    assert_ok(file_replace(place_path, place.data, place.size));
    assert_ok(checksums_write(checkpoint_dir));
    for (int64_t cut = 0; cut < tensors.size; cut += 1 + (cut < 16 ? 3 : tensors.size / 6)) {
        assert_ok(file_replace(tensors_path, tensors.data, cut));
        assert_refused(&loads, &saved);
        assert_ok(checksums_write(checkpoint_dir));
        assert_refused(&loads, &saved);
    }
    tensors.data[7] = 0x7f; /* a header of 2^62 bytes */
    assert_ok(file_replace(tensors_path, tensors.data, tensors.size));
    assert_ok(checksums_write(checkpoint_dir));
    assert_refused(&loads, &saved);
    tensors.data[7] = 0;
    replace(tensors.data + 8, "moment2", "moment3"); /* the last but one that is looked up */
    assert_ok(file_replace(tensors_path, tensors.data, tensors.size));
    assert_ok(checksums_write(checkpoint_dir));
    assert_refused(&loads, &saved);
    replace(tensors.data + 8, "moment3", "moment2");
    assert_ok(file_replace(tensors_path, tensors.data, tensors.size));
    assert_ok(checksums_write(checkpoint_dir));
    assert_ok(trainer_load_state(&loads.t, checkpoint_dir));
    buffer_free(&tensors);
    buffer_free(&place);
    close_rig(&saved);
    close_rig(&loads);
}

/* Fails if a number of the run's place is taken as it stands. */
static void every_wrong_value_of_the_place_is_refused(void **state)
{
    (void)state;
    static const char *const values[][2] = {
        {"first_loss", "\"low\""},     {"guard_loss_mean", "[]"},   {"guard_loss_variance", "[]"},
        {"guard_loss_count", "1.5"},   {"guard_norm_mean", "{}"},   {"guard_norm_variance", "true"},
        {"guard_norm_count", "\"1\""}, {"warnings", "[1]"},         {"guard_loss_count", "-1"},
        {"guard_norm_count", "-1"},    {"warnings", "-1"},          {"eval_loss", "\"\""},
        {"first_eval_loss", "[]"},     {"eval_due", "1"},           {"skipped_steps", "-1"},
        {"bad_in_row", "\"0\""},       {"best_step", "-2"},         {"best_step", "{}"},
        {"tokens", "\"64\""},          {"micro_batch_tokens", "0"},
    };
    struct rig saved, loads;
    struct buffer place = {0};
    char path[160];
    save_checkpoint(&saved, SETTINGS("lora_r", "4"));
    close_rig(&saved);
    open_rig(&saved, &tied, 0, SETTINGS("lora_r", "4"));
    open_rig(&loads, &tied, 0, SETTINGS("lora_r", "4"));
    snprintf(path, sizeof path, "%s/trainer_state.json", checkpoint_dir);
    assert_ok(file_read(&place, path, 1 << 16));
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        json_t *tree = json_loadb(place.data, (size_t)place.size, 0, NULL);
        assert_int_equal(json_object_set_new(tree, values[i][0], json_loads(values[i][1], JSON_DECODE_ANY, NULL)), 0);
        char *text = json_dumps(tree, 0);
        assert_ok(file_replace(path, text, (int64_t)strlen(text)));
        assert_ok(checksums_write(checkpoint_dir)); /* as if it had been written so */
        assert_refused(&loads, &saved);
        if (!strstr(status_message(), "trainer_state.json"))
            fail_msg("%s: %s", values[i][0], status_message());
        free(text);
        json_decref(tree);
    }
    buffer_free(&place);
    close_rig(&saved);
    close_rig(&loads);
}

static void write_text(struct arena *arena, const char *dir, const char *name, const char *text)
{
    assert_ok(directory_make(dir));
    assert_ok(file_replace(file_join(arena, dir, name), text, (int64_t)strlen(text)));
}

/* Of the newest checkpoints the first sound one is taken; what is no checkpoint blocks nothing. */
static void a_damaged_checkpoint_costs_the_steps_since_the_one_before(void **state)
{
    (void)state;
    struct rig r, finds;
    struct arena arena = {0};
    const char *const *settings = SETTINGS("data", data_path, "output", output_dir);
    save_checkpoint(&r, SETTINGS("data", data_path));
    step_once(&r.t, -1);
    const char *newer = checkpoint_path(&arena, output_dir, 4);
    assert_ok(trainer_save_state(&r.t, newer));
    assert_ok(directory_make(checkpoint_path(&arena, output_dir, 9999)));
    write_text(&arena, checkpoint_path(&arena, output_dir, 500), "trainer_state.json", "{\"global_step\": 500}\n");
    open_rig(&finds, &tied, 0, settings);
    assert_string_equal(finds.t.snap.resume, newer);
    assert_string_equal(finds.t.snap.identity.run, r.t.snap.identity.run);
    close_rig(&finds);
    write_text(&arena, newer, "adapter_config.json", "{}");
    open_rig(&finds, &tied, 0, settings);
    assert_string_equal(finds.t.snap.resume, checkpoint_dir);
    assert_int_equal(finds.t.snap.state.step, 3);
    close_rig(&finds);
    write_text(&arena, checkpoint_dir, "checksums.xxh128", "");
    set_options(&finds, &tied, settings);
    assert_fails(trainer_open(&finds.t, &finds.options, 0), ERR_FORMAT, "none of its 2 checkpoints can be used");
    arena_free(&finds.arena);
    arena_free(&arena);
    close_rig(&r);
}

/* A list that names a file of gigabytes thousands of times would be compared for hours. */
static void a_list_of_checksums_names_each_file_once(void **state)
{
    (void)state;
    struct rig r;
    struct buffer list = {0};
    char path[160];
    save_checkpoint(&r, SETTINGS("lora_r", "4"));
    snprintf(path, sizeof path, "%s/checksums.xxh128", checkpoint_dir);
    assert_ok(file_read(&list, path, 1 << 20));
    assert_ok(checksums_check(checkpoint_dir));
    int64_t last = list.size - 1;
    while (last && list.data[last - 1] != '\n')
        last--;
    assert_ok(buffer_append(&list, list.data + last, list.size - last));
    assert_ok(file_replace(path, list.data, list.size));
    assert_fails(trainer_load_state(&r.t, checkpoint_dir), ERR_FORMAT,
                 "checksums.xxh128: is damaged: its names are not in order");
    buffer_free(&list);
    close_rig(&r);
}

/* The same options and counts, but not the same weights, or not the same rows in the same order. */
static void another_base_or_other_rows_are_refused(void **state)
{
    (void)state;
    struct rig r, other;
    save_checkpoint(&r, SETTINGS("data", data_path));
    open_rig(&other, &tied, 0, SETTINGS("data", data_path));
    struct weights *weights = &other.t.build.session.model.weights;
    float one = 1;
    other.t.snap.identity.hashed = false;
    weights->list[weights->count - 1].part[0].data = &one;
    weights->list[weights->count - 1].part[0].bytes = sizeof one;
    weights->list[weights->count - 1].part[0].map = NULL;
    assert_fails(trainer_load_state(&other.t, checkpoint_dir), ERR_ARGUMENT, "another base model");
    other.options.seed++; /* the model is named before settings */
    assert_fails(trainer_load_state(&other.t, checkpoint_dir), ERR_ARGUMENT, "another base model");
    close_rig(&other);
    open_rig(&other, &tied, 0, SETTINGS("data", data_path));
    other.options.seed++; /* all that differ are named, up to five */
    other.options.warmup_steps++;
    assert_fails(checkpoint_open(&other.t.snap, checkpoint_dir), ERR_ARGUMENT, "; ");
    assert_null(strstr(status_message(), "and others"));
    other.options.max_steps++;
    other.options.max_length++;
    other.options.max_samples++;
    other.options.per_device_train_batch_size++;
    assert_fails(checkpoint_open(&other.t.snap, checkpoint_dir), ERR_ARGUMENT, "; and others: use the same");
    close_rig(&other);
    open_rig(&other, &tied, 0, SETTINGS("data", data_path));
    struct token_row *rows = test_malloc((size_t)other.t.rows.data.row_count * sizeof *rows);
    const struct token_row *mapped = other.t.rows.data.rows;
    memcpy(rows, mapped, (size_t)other.t.rows.data.row_count * sizeof *rows);
    struct token_row first = rows[0];
    rows[0] = rows[1];
    rows[1] = first;
    other.t.snap.identity.hashed = false;
    other.t.rows.data.rows = rows;
    assert_fails(checkpoint_open(&other.t.snap, checkpoint_dir), ERR_ARGUMENT, "or in another order");
    other.t.rows.data.rows = mapped;
    test_free(rows);
    close_rig(&other);
    close_rig(&r);
}

static void assert_entries(const char *dir, const char *const *want)
{
    struct arena arena = {0};
    const char **names;
    int64_t count, n = 0;
    assert_ok(directory_list(&arena, dir, &names, &count));
    for (; want[n]; n++) {
        assert_true(n < count);
        assert_string_equal(names[n], want[n]);
    }
    assert_int_equal(n, count);
    arena_free(&arena);
}

#define ENTRIES(...) ((const char *const[]){__VA_ARGS__, NULL})

/* The checkpoints of steps 1 to 6 of a run. */
static void save_six(struct rig *r, struct arena *arena)
{
    assert_ok(directory_remove(output_dir));
    open_rig(r, &tied, 0, SETTINGS("lora_r", "4"));
    for (int64_t step = 1; step <= 6; step++) {
        step_once(&r->t, -1);
        assert_ok(directory_make(output_dir));
        assert_ok(trainer_save_state(&r->t, checkpoint_path(arena, output_dir, step)));
    }
}

static void thinning_keeps_the_newest_and_the_best_of_the_run(void **state)
{
    (void)state;
    struct rig r;
    struct arena arena = {0};
    save_six(&r, &arena);
    write_text(&arena, checkpoint_path(&arena, output_dir, 7), "trainer_state.json", "{}"); /* another program's */
    assert_ok(directory_make(file_join(&arena, output_dir, "checkpoint-x")));
    r.t.snap.state.best_step = 2;
    assert_ok(checkpoint_thin(&r.t.snap, output_dir, 2));
    assert_entries(output_dir, ENTRIES("checkpoint-2", "checkpoint-5", "checkpoint-6", "checkpoint-7", "checkpoint-x"));
    assert_ok(identity_draw(&r.t.snap.identity)); /* another run */
    assert_ok(checkpoint_thin(&r.t.snap, output_dir, 0));
    assert_entries(output_dir, ENTRIES("checkpoint-2", "checkpoint-5", "checkpoint-6", "checkpoint-7", "checkpoint-x"));
    arena_free(&arena);
    close_rig(&r);
}

static void a_run_that_starts_moves_those_of_others_aside(void **state)
{
    (void)state;
    struct rig r;
    struct arena arena = {0};
    save_six(&r, &arena);
    write_text(&arena, output_dir, "metrics.jsonl", "{}\n");
    assert_ok(directory_make(checkpoint_path(&arena, output_dir, 9)));
    r.t.snap.state.step = 4; /* resumed from there: its own later ones are no longer true either */
    assert_ok(checkpoint_make_room(&r.t.snap, output_dir, SETTINGS("metrics.jsonl", "metrics.csv")));
    assert_entries(output_dir,
                   ENTRIES("checkpoint-1", "checkpoint-2", "checkpoint-3", "checkpoint-4", "earlier-1", "metrics.jsonl"));
    assert_entries(file_join(&arena, output_dir, "earlier-1"), ENTRIES("checkpoint-5", "checkpoint-6", "checkpoint-9"));
    assert_ok(checkpoint_make_room(&r.t.snap, output_dir, SETTINGS("metrics.jsonl", "metrics.csv")));
    assert_ok(identity_draw(&r.t.snap.identity));
    r.t.snap.state.step = 0;
    assert_ok(checkpoint_make_room(&r.t.snap, output_dir, SETTINGS("metrics.jsonl", "metrics.csv")));
    assert_entries(output_dir, ENTRIES("earlier-1", "earlier-2"));
    assert_entries(file_join(&arena, output_dir, "earlier-2"),
                   ENTRIES("checkpoint-1", "checkpoint-2", "checkpoint-3", "checkpoint-4", "metrics.jsonl"));
    arena_free(&arena);
    close_rig(&r);
}

static void an_output_belongs_to_one_run_at_a_time(void **state)
{
    (void)state;
    struct rig a, b;
    char mine[32];
    assert_ok(directory_remove(output_dir));
    open_rig(&a, &tied, 0, SETTINGS("output", output_dir));
    set_options(&b, &tied, SETTINGS("output", output_dir));
    snprintf(mine, sizeof mine, "process %ld on ", (long)getpid());
    assert_fails(trainer_open(&b.t, &b.options, 0), ERR_ARGUMENT, mine);
    assert_entries(output_dir, ENTRIES("run.lock"));
    close_rig(&a);
    assert_false(file_exists(output_dir)); /* nothing was written */
    assert_ok(trainer_open(&b.t, &b.options, 0));
    close_rig(&b);
}

/* --- failures ------------------------------------------------------------------------------------------------------------- */

static enum status train_and_save(struct rig *r, const struct trainer_uses *uses, struct failing *f)
{
    struct step step;
    double sum, weight;
    failing_begin(f);
    enum status status = trainer_open(&r->t, &r->options, uses);
    if (status == OK)
        status = stepper_add(&r->t.stepper, sequences(), SEQUENCES, &sum, &weight);
    if (status == OK)
        status = stepper_step(&r->t.stepper, -1, &step);
    strcpy(r->t.snap.identity.run, "0123456789abcdef");
    r->t.snap.state.moment = 1;
    if (status == OK)
        status = trainer_save_state(&r->t, checkpoint_dir);
    failing_end(f, status);
    trainer_close(&r->t);
    return status;
}

/* Each allocation fails once. What still succeeds has left nothing out. */
static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    for (int method = 0; method < METHODS; method++) {
        struct rig r;
        struct buffer whole = {0}, now = {0};
        char path[160];
        const struct trainer_uses *uses = method ? &LOGITS : &SAMPLES;
        snprintf(path, sizeof path, "%s/trainer_state.json", checkpoint_dir);
        set_options(&r, &tied,
                    join(method, SETTINGS("data", data_path, "val_set_size", "2", "output", output_dir, "resume", "none",
                                          "max_steps", "1", "sample_length", "16")));
        assert_ok(train_and_save(&r, uses, &(struct failing){.after = -1}));
        assert_ok(file_read(&whole, path, 1 << 20));
        struct failing f = {0};
        while (failing_next(&f)) {
            if (train_and_save(&r, uses, &f) != OK)
                continue;
            now.size = 0;
            assert_ok(file_read(&now, path, 1 << 20));
            assert_string_equal(now.data, whole.data);
        }
        print_message("%lld allocations, %lld of them can be done without\n", (long long)f.made, (long long)f.done_without);
        assert_true(f.failed > 20 && f.done_without <= 60); /* files of the system that name limits */
        buffer_free(&whole);
        buffer_free(&now);
        arena_free(&r.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_checkpoint_goes_on_as_if_nothing_had_happened),
        cmocka_unit_test(loading_leaves_the_size_of_micro_batches),
        cmocka_unit_test(a_checkpoint_with_other_settings_is_refused),
        cmocka_unit_test(a_checkpoint_has_every_setting_and_no_other),
        cmocka_unit_test(a_damaged_checkpoint_is_an_error),
        cmocka_unit_test(every_wrong_value_of_the_place_is_refused),
        cmocka_unit_test(a_damaged_checkpoint_costs_the_steps_since_the_one_before),
        cmocka_unit_test(a_list_of_checksums_names_each_file_once),
        cmocka_unit_test(another_base_or_other_rows_are_refused),
        cmocka_unit_test(thinning_keeps_the_newest_and_the_best_of_the_run),
        cmocka_unit_test(a_run_that_starts_moves_those_of_others_aside),
        cmocka_unit_test(an_output_belongs_to_one_run_at_a_time),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
