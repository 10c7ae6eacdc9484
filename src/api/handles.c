/* Handles: made, copied, and freed once the last call has left them. */
#include "api/handles.h"

#include <string.h>

#include "api/model_session.h"
#include "base/process.h"
#include "train/slots.h"

/* --- options ------------------------------------------------------------------------------------------------------------ */

static struct hone_options *new_options(enum user_command command)
{
    struct hone_options *o = memory_alloc(sizeof *o);
    if (!o)
        return NULL;
    o->command = command;
    options_init(&o->values, &o->arena);
    return o;
}

hone_status hone_options_create(hone_options **out, const char *command)
{
    enum user_command which;
    GIVEN(out);
    *out = NULL;
    GIVEN(command);
    CHECK(options_command(&which, command));
    struct hone_options *o = new_options(which);
    if (!o)
        return HONE_ERR_MEMORY;
    *out = handle_add(&o->handle, HANDLE_OPTIONS);
    return HONE_OK;
}

void options_free(struct hone_options *o)
{
    if (!o)
        return;
    for (int i = 0; i < OPTIONS; i++)
        buffer_free(&o->text[i]);
    arena_free(&o->arena);
    memory_free(o);
}

void hone_options_destroy(hone_options *o)
{
    options_free((void *)handle_release(o, HANDLE_OPTIONS));
}

hone_status options_leave(const struct hone_options *o, enum status status)
{
    struct hone_options *own = (struct hone_options *)o;
    if (handle_leave(&own->handle))
        options_free(own);
    return (hone_status)status;
}

enum status options_copy(struct hone_options **out, const struct hone_options *from)
{
    struct hone_options *o = *out = new_options(from->command);
    if (!o)
        return ERR_MEMORY;
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
    options_free(o);
    *out = NULL;
    return ERR_MEMORY;
}

/* --- models ------------------------------------------------------------------------------------------------------------- */

static void free_model(struct hone_model *m)
{
    model_session_close(&m->session);
    data_close(&m->data);
    chat_close(m->chat);
    arena_free(&m->arena);
    options_free(m->options);
    memory_free(m);
}

void hone_model_close(hone_model *m)
{
    struct handle *released = handle_release(m, HANDLE_MODEL);
    if (released)
        free_model((void *)released);
}

hone_status model_leave(struct hone_model *m, enum status status)
{
    if (handle_leave(&m->handle))
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
    options_free(t->options);
    memory_free(t);
}

void hone_trainer_close(hone_trainer *t)
{
    struct handle *released = handle_release(t, HANDLE_TRAINER);
    if (released)
        free_trainer((void *)released);
}

static enum status check_entered(struct hone_trainer *t)
{
    enum status status = slots_check_selected(&t->trainer);
    if (status != OK)
        trainer_leave(t, status);
    return status;
}

enum status trainer_enter(struct hone_trainer **t, const char *call)
{
    struct handle *h;
    TRY(handle_enter(&h, *t, HANDLE_TRAINER, call));
    *t = (void *)h;
    return check_entered(*t);
}

enum status trainer_enter_nested(struct hone_trainer **t, const char *call)
{
    struct handle *h;
    TRY(handle_enter_nested(&h, *t, HANDLE_TRAINER, call));
    *t = (void *)h;
    return check_entered(*t);
}

hone_status trainer_leave(struct hone_trainer *t, enum status status)
{
    if (handle_leave(&t->handle))
        free_trainer(t);
    return (hone_status)status;
}

/* --- results ------------------------------------------------------------------------------------------------------------ */

int caller_token(void *caller, const struct answer_token *t)
{
    const struct caller_sink *to = caller;
    hone_token token = {.size = sizeof token,
                        .id = t->id,
                        .of_prompt = t->of_prompt,
                        .logprob = t->logprob,
                        .text = t->text,
                        .length = t->length,
                        .top_ids = t->most->ids,
                        .top_logprobs = t->most->logprobs,
                        .top_count = t->most->count};
    return to->sink(to->context, &token);
}

struct stream caller_stream(struct caller_sink *caller, bool logprobs)
{
    return (struct stream){.sink = caller->sink ? caller_token : NULL, .context = caller, .logprobs = logprobs};
}

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
