/* The input is a trainer_state.json, and after zero bytes a checksums.xxh128 and a state.safetensors in parts
 * (fuzz_put_safetensors). In the first @b, @c, @a, @i, @d and @e stand for the digests of base, configuration, adapter, its
 * first weights, data and validation data, and @s for the members of the settings. Where the list of
 * checksums is empty it is made, so that what is read after it is reached; where the state is empty it is a right one.
 *
 * What can be loaded can be trained on, saved, and loaded again, unless its counts grew too large; what cannot be loaded leaves
 * the trainer as it was. */
#include "model.h"

#include "base/checksums.h"
#include "state/checkpoint.h"
#include "train/trainer.h"

static struct arena arena;
static struct options options;
static struct trainer trainer;
static struct buffer right;    /* state.safetensors */
static struct buffer settings; /* the members of "settings" */
static char dir[256], again[256];

static void close_trainer(void)
{
    trainer_close(&trainer);
    arena_free(&arena);
    buffer_free(&right);
    buffer_free(&settings);
}

static void read_settings(void)
{
    json_t *state = NULL;
    PROMISE(checkpoint_dir_read(dir, &state) == OK);
    char *text = json_write(json_object_get(state, "settings"), JSON_COMPACT);
    PROMISE(text && buffer_append(&settings, text + 1, (int64_t)strlen(text) - 2) == OK);
    PROMISE(buffer_append(&settings, "", 1) == OK);
    json_text_free(text);
    json_decref(state);
}

static void open_trainer(void)
{
    const char *const chosen[][2] = {{"model", fuzz_model()},      {"device", "cpu"},
                                     {"dtype", "float32"},         {"lora_r", "1"},
                                     {"micro_batch_tokens", "16"}, {"lora_target_modules", "v_proj"}};
    options_init(&options, &arena);
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++)
        PROMISE(options_set(&options, COMMAND_TRAIN, chosen[i][0], chosen[i][1], "fuzz") == OK);
    PROMISE(trainer_open(&trainer, &options, 0) == OK);
    atexit(close_trainer);
    snprintf(again, sizeof again, "%s", fuzz_path("again"));
    snprintf(dir, sizeof dir, "%s", fuzz_path("checkpoint-1"));
    PROMISE(trainer_save_state(&trainer, dir) == OK && trainer_load_state(&trainer, dir) == OK);
    PROMISE(file_read(&right, fuzz_path("checkpoint-1/state.safetensors"), 1 << 20) == OK);
    read_settings();
}

/* The text with its digests filled in. */
static void put_place(struct fuzz_part text)
{
    struct buffer place = {0};
    for (size_t i = 0; i < text.size; i++) {
        const char *next = i + 1 < text.size ? (const char *)text.data + i + 1 : "";
        const struct identity *identity = &trainer.snap.identity;
        const char *digest = *next == 'b'   ? identity->base
                             : *next == 'c' ? identity->config
                             : *next == 'a' ? identity->adapter
                             : *next == 'i' ? identity->init_adapter
                             : *next == 'd' ? identity->data
                             : *next == 'e' ? identity->eval_data
                             : *next == 's' ? settings.data
                                            : NULL;
        bool named = text.data[i] == '@' && digest;
        PROMISE((named ? buffer_format(&place, "%s", digest) : buffer_append(&place, text.data + i, 1)) == OK);
        i += named;
    }
    fuzz_put("checkpoint-1/trainer_state.json", place.data, (size_t)place.size);
    buffer_free(&place);
}

static void train_on(void)
{
    const int32_t ids[] = {5, 6, 7, 8};
    const struct sequence sequence = {.ids = ids, .count = 4};
    struct step step;
    double sum, weight;
    PROMISE(stepper_add(&trainer.stepper, &sequence, 1, &sum, &weight) == OK);
    PROMISE(stepper_step(&trainer.stepper, -1, &step) == OK);
}

void fuzz_input(const uint8_t *data, size_t size)
{
    static const struct run_state start;
    if (!*dir)
        open_trainer();
    struct fuzz_part input = {data, size}, place = fuzz_next(&input), list = fuzz_next(&input);
    put_place(place);
    if (input.size)
        fuzz_put_safetensors("checkpoint-1/state.safetensors", input);
    else
        fuzz_put("checkpoint-1/state.safetensors", right.data, (size_t)right.size);
    if (list.size)
        fuzz_put("checkpoint-1/checksums.xxh128", list.data, list.size);
    else
        PROMISE(checksums_write(dir) == OK);
    struct run_state before = trainer.snap.state;
    char run[RUN_ID_SIZE];
    checkpoint_dir_kind(dir, run);
    PROMISE(strlen(run) < sizeof run);
    if (trainer_load_state(&trainer, dir) != OK) {
        PROMISE(*status_message() && !memcmp(&before, &trainer.snap.state, sizeof before));
        return;
    }
    fuzz_accept();
    PROMISE(trainer.snap.state.step >= start.step && trainer.build.slots == before.slots);
    train_on();
    PROMISE(trainer_save_state(&trainer, again) == OK);
    PROMISE(trainer_load_state(&trainer, again) == OK || strstr(status_message(), "out of range"));
}
