/* Handles: made, copied, and freed once the last call has left them. */
#include "api/handles.h"

#include <string.h>

#include "api/model_session.h"
#include "base/process.h"

/* --- options ------------------------------------------------------------------------------------------------------------ */

hone_status hone_options_create(hone_options **out, const char *command)
{
    enum user_command which;
    GIVEN(out);
    *out = NULL;
    GIVEN(command);
    CHECK(options_command(&which, command));
    struct hone_options *o = memory_alloc(sizeof *o);
    if (!o)
        return HONE_ERR_MEMORY;
    handle_add(&o->handle, HANDLE_OPTIONS);
    o->command = which;
    options_init(&o->values, &o->arena);
    *out = o;
    return HONE_OK;
}

static void free_options(struct hone_options *o)
{
    for (int i = 0; i < OPTIONS; i++)
        buffer_free(&o->text[i]);
    arena_free(&o->arena);
    memory_free(o);
}

void hone_options_destroy(hone_options *o)
{
    if (handle_release(o, HANDLE_OPTIONS))
        free_options(o);
}

hone_status options_leave(const struct hone_options *o, enum status status)
{
    if (handle_leave(o))
        free_options((struct hone_options *)o);
    return (hone_status)status;
}

enum status options_copy(struct hone_options **out, const struct hone_options *from)
{
    hone_status status = hone_options_create(out, options_command_name(from->command));
    if (status != HONE_OK)
        return (enum status)status;
    struct hone_options *o = *out;
    struct arena *arena = o->values.arena;
    o->values = from->values;
    o->values.arena = arena;
    bool copied =
        !o->values.notes || (o->values.notes = arena_text(arena, o->values.notes, (int64_t)strlen(o->values.notes))) != NULL;
    for (int i = 0; i < OPTIONS; i++)
        if (o->values.source[i])
            copied &=
                (o->values.source[i] = arena_text(arena, o->values.source[i], (int64_t)strlen(o->values.source[i]))) != NULL;
#define COPY_TEXT(name)                                                                                                          \
    if (o->values.name)                                                                                                          \
        copied &= (o->values.name = arena_text(arena, o->values.name, (int64_t)strlen(o->values.name))) != NULL;
#define COPY_PATH(name) COPY_TEXT(name)
#define COPY_CHOICE(name)
#define COPY_INT(name)
#define COPY_REAL(name)
#define COPY_BOOL(name)
#define OPTION(kind, name, ...) COPY_##kind(name)
#include "config/options.def"
    if (copied)
        return OK;
    hone_options_destroy(o);
    *out = NULL;
    return ERR_MEMORY;
}

/* --- models ------------------------------------------------------------------------------------------------------------- */

static void free_model(struct hone_model *m)
{
    model_session_close(&m->session);
    data_close(&m->data);
    chat_close(m->chat);
    hone_options_destroy(m->options);
    memory_free(m);
}

void hone_model_close(hone_model *m)
{
    if (handle_release(m, HANDLE_MODEL))
        free_model(m);
}

hone_status model_leave(struct hone_model *m, enum status status)
{
    if (handle_leave(m))
        free_model(m);
    return (hone_status)status;
}

enum status model_chat(struct hone_model *m)
{
    if (m->chat)
        return OK;
    enum status status = chat_open(&m->chat, m->options->values.model_name_or_path);
    process_trim(); /* a tokenizer's JSON is large, but little of it is kept */
    return status;
}

/* --- trainers ----------------------------------------------------------------------------------------------------------- */

static void free_trainer(struct hone_trainer *t)
{
    trainer_close(&t->trainer);
    hone_options_destroy(t->options);
    memory_free(t);
}

void hone_trainer_close(hone_trainer *t)
{
    if (handle_release(t, HANDLE_TRAINER))
        free_trainer(t);
}

hone_status trainer_leave(struct hone_trainer *t, enum status status)
{
    if (handle_leave(t))
        free_trainer(t);
    return (hone_status)status;
}

/* --- results ------------------------------------------------------------------------------------------------------------ */

void hand_over_answer(hone_generate_result *result, const struct answered *answered)
{
    hone_generate_result filled = {
        .prompt_tokens = answered->prompt_tokens,
        .new_tokens = answered->new_tokens,
        .ended = answered->ended,
        .startup_seconds = answered->startup_seconds,
        .prefill_seconds = answered->prefill_seconds,
        .decode_seconds = answered->decode_seconds,
        .reused_tokens = answered->reused_tokens,
    };
    hand_over(result, &filled, sizeof filled);
}

enum status json_result(json_t *tree, char **out)
{
    char *text = json_write(tree, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    *out = text ? memory_alloc((int64_t)strlen(text) + 1) : NULL;
    if (*out)
        strcpy(*out, text);
    json_text_free(text);
    json_decref(tree);
    return *out ? OK : ERR_MEMORY;
}

void hone_text_destroy(char *text)
{
    memory_free(text);
}
