/* hone.h: versions, errors, messages, options. */
#include <stdio.h>
#include <string.h>

#include "api/handles.h"
#include "base/log.h"
#include "base/stop.h"
#include "dist/launcher.h"

#define STATUS(name, number, text) _Static_assert((int)HONE_##name == (int)name, "hone.h and status.def agree");
#include "base/status.def"
#undef STATUS

/* Alone where the variables make no sense: joining the group says so. An error that is to be told stays. */
static struct launcher find_launcher(void)
{
    struct launcher launcher;
    char message[STATUS_MESSAGE_SIZE];
    snprintf(message, sizeof message, "%s", status_message());
    if (launcher_read(&launcher) == OK)
        return launcher;
    fail(ERR_ARGUMENT, "%s", message);
    return (struct launcher){.kind = LAUNCHER_ALONE, .size = 1};
}

int hone_rank(void)
{
    return find_launcher().rank;
}

int hone_ranks(void)
{
    return find_launcher().size;
}

const char *hone_version(void)
{
    return HONE_VERSION;
}

const char *hone_error(void)
{
    return status_message();
}

const char *hone_status_text(hone_status status)
{
    return status_text((enum status)status);
}

static hone_log_sink log_to;

static void pass_on(void *context, enum log_level level, const char *message)
{
    log_to(context, (hone_log_level)level, message);
}

void hone_set_log(hone_log_sink sink, void *context)
{
    log_to = sink;
    log_set_sink(sink ? pass_on : NULL, context);
}

void hone_set_stop(hone_stop asked, void *context)
{
    stop_set(asked, context);
}

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

hone_status hone_options_set(hone_options *o, const char *key, const char *value)
{
    enum option which;
    GIVEN(key);
    CHECK(handle_enter(o, HANDLE_OPTIONS, __func__));
    if (value)
        return options_leave(o, options_set(&o->values, o->command, key, value, key));
    enum status status = options_find(key, &which);
    if (status == OK)
        options_clear(&o->values, which);
    return options_leave(o, status);
}

hone_status hone_options_load(hone_options *o, const char *yaml_path)
{
    CHECK(check_text(yaml_path, "yaml_path", __func__));
    CHECK(handle_enter(o, HANDLE_OPTIONS, __func__));
    return options_leave(o, options_load_yaml(&o->values, o->command, yaml_path));
}

hone_status hone_options_parse(hone_options *o, int argc, char **argv)
{
    struct arguments rest;
    CHECK(check_count(argv, argc, "argv", __func__));
    for (int i = 0; i < argc; i++)
        CHECK(check_given(argv[i], "an argument", __func__));
    CHECK(handle_enter(o, HANDLE_OPTIONS, __func__));
    enum status status = options_parse(&o->values, o->command, argc, argv, &rest);
    enum option unnamed =
        o->command == COMMAND_PULL ? OPTION_model_name_or_path : OPTION_run_dir; /* the one that needs no name */
    if (status == OK && rest.count && options_has(o->command, unnamed) && !o->values.source[unnamed]) {
        status = options_set(&o->values, o->command, options_name(unnamed), rest.text[0], rest.text[0]);
        rest.text++;
        rest.count--;
    }
    if (status == OK && rest.count)
        status = options_stray(o->command, rest.text[0]);
    return options_leave(o, status);
}

hone_status hone_options_write(const hone_options *o, char **yaml)
{
    struct buffer text = {0};
    GIVEN(yaml);
    *yaml = NULL;
    CHECK(handle_enter(o, HANDLE_OPTIONS, __func__));
    enum status status = options_write(&o->values, &text);
    if (status == OK)
        *yaml = text.data;
    else
        buffer_free(&text);
    return options_leave(o, status);
}

hone_status hone_options_json(const hone_options *o, char **json)
{
    GIVEN(json);
    *json = NULL;
    CHECK(handle_enter(o, HANDLE_OPTIONS, __func__));
    return options_leave(o, json_result(options_json(&o->values), json));
}

hone_status hone_options_get(hone_options *o, const char *key, const char **value)
{
    enum option which;
    GIVEN(value);
    *value = NULL;
    GIVEN(key);
    CHECK(options_find(key, &which));
    CHECK(handle_enter(o, HANDLE_OPTIONS, __func__));
    struct buffer *text = &o->text[which];
    text->size = 0;
    enum status status = options_get(&o->values, which, text);
    if (status == OK)
        status = buffer_append(text, NULL, 0);
    *value = status == OK ? text->data : NULL;
    return options_leave(o, status);
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
