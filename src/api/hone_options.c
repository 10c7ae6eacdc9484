/* hone.h: versions, errors, messages, options. */
#include <stdio.h>
#include <string.h>

#include "api/handles.h"
#include "base/cancel.h"
#include "base/log.h"
#include "commands/named_model.h"
#include "dist/launcher.h"

#define STATUS(name, number, text) _Static_assert((int)HONE_##name == (int)name, "hone.h and status.def agree");
#include "base/status.def"
#undef STATUS

/* A single process where the variables make no sense: joining the group says so. An error that is to be reported stays. */
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

static void options_pass_on(void *context, enum log_level level, const char *message)
{
    log_to(context, (hone_log_level)level, message);
}

void hone_set_log(hone_log_sink sink, void *context)
{
    log_to = sink;
    log_set_sink(sink ? options_pass_on : NULL, context);
}

void hone_set_stop(hone_stop asked, void *context)
{
    cancel_set(asked, context);
}

hone_status hone_options_set(hone_options *o, const char *key, const char *value)
{
    enum option which;
    GIVEN(key);
    ENTER(o, HANDLE_OPTIONS, __func__);
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
    ENTER(o, HANDLE_OPTIONS, __func__);
    return options_leave(o, options_load_yaml(&o->values, o->command, yaml_path));
}

/* What an argument without a name is. An adapter is a folder, or a name on the hub; a model is named as one. */
static enum option unnamed_option(const struct options *values, enum user_command command, const char *argument, bool first)
{
    if (command == COMMAND_PULL)
        return OPTION_model_name_or_path;
    bool adapter = !options_has(command, OPTION_run_dir) && options_has(command, OPTION_adapter);
    return adapter && named_as_adapter(values, command, argument, first) ? OPTION_adapter : OPTION_run_dir;
}

hone_status hone_options_parse(hone_options *o, int argc, char **argv)
{
    struct arguments rest;
    CHECK(check_count(argv, argc, "argv", __func__));
    for (int i = 0; i < argc; i++)
        CHECK(check_given(argv[i], "an argument", __func__));
    ENTER(o, HANDLE_OPTIONS, __func__);
    enum status status = options_parse(&o->values, o->command, argc, argv, &rest);
    enum option unnamed = OPTION_run_dir;
    if (status == OK && rest.count)
        unnamed = unnamed_option(&o->values, o->command, rest.text[0], rest.count == 1 && !strcmp(rest.text[0], argv[0]));
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
    ENTER(o, HANDLE_OPTIONS, __func__);
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
    ENTER(o, HANDLE_OPTIONS, __func__);
    return options_leave(o, json_result(options_json(&o->values), json));
}

hone_status hone_options_get(hone_options *o, const char *key, const char **value)
{
    enum option which;
    GIVEN(value);
    *value = NULL;
    GIVEN(key);
    CHECK(options_find(key, &which));
    ENTER(o, HANDLE_OPTIONS, __func__);
    struct buffer *text = &o->text[which];
    text->size = 0;
    enum status status = options_get(&o->values, which, text);
    if (status == OK)
        status = buffer_append(text, NULL, 0);
    *value = status == OK ? text->data : NULL;
    return options_leave(o, status);
}
