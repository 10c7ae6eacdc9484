/* The model, the adapter and the data that options name: found, and opened. */
#include "commands/named_model.h"

#include "base/file.h"
#include "base/log.h"
#include "base/parallel.h"
#include "commands/pulled.h"
#include "format/adapter.h"
#include "hub/blob.h"
#include "hub/hub_cache.h"
#include "job/settings.h"
#include "train/trainer.h"

/* A directory of this name comes before a model of the hub. */
static enum status find_model(struct options *values)
{
    const char *name = values->model_name_or_path, *path, *cache;
    if (file_exists(name) || !hub_is_name(name))
        return OK;
    TRY(hub_find(values->arena, name, "main", &path));
    if (!path) {
        TRY(hub_cache(values->arena, &cache));
        return fail(ERR_IO,
                    "%s: no such directory, and no such model in the Hugging Face cache (%s): `hone pull %s` downloads it", name,
                    cache, name);
    }
    values->model_name_or_path = path;
    values->model_id = name;
    return OK;
}

/* The same for an adapter; one that is not there is reported where it is opened. */
static enum status find_adapter(struct arena *arena, const char **name)
{
    const char *path = NULL;
    if (*name && !file_exists(*name))
        TRY(hub_find(arena, *name, "main", &path));
    *name = path ? path : *name;
    return OK;
}

static bool named_has(struct arena *arena, const char *dir, const char *name)
{
    const char *path = file_join(arena, dir, name);
    return path && file_exists(path);
}

/* What is not there may be misspelt, where nothing else says what to use; but a word after hone generate is rather one of a
 * prompt without quotes, if it does not come before --prompt. */
static bool may_be_lost(const struct options *options, enum user_command command, const char *argument, bool first)
{
    enum option option;
    bool of_prompt = command == COMMAND_GENERATE && !(first && options->prompt);
    bool plain = !argument[strspn(argument, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._/-")];
    if (options->model_name_or_path || of_prompt)
        return hub_is_name(argument);
    return plain && options_find(argument, &option) != OK;
}

bool named_as_adapter(const struct options *options, enum user_command command, const char *argument, bool first)
{
    struct arena arena = {0};
    bool there = file_exists(argument), adapter = there && named_has(&arena, argument, ADAPTER_CONFIG);
    bool model = !adapter && named_has(&arena, argument, "config.json");
    arena_free(&arena);
    return there ? file_is_directory(argument) && !model : may_be_lost(options, command, argument, first);
}

/* --- the base that an adapter names ---------------------------------------------------------------------------------------- */

static enum status fail_no_base(const struct options *values, const char *base)
{
    const char *cache = "";
    if (!base)
        return fail(ERR_ARGUMENT, "%s: adapter_config.json names no base: name it with --model", values->adapter);
    if (!hub_is_name(base))
        return fail(ERR_IO, "%s: its base is %.200s by adapter_config.json, and that is not here: name it with --model",
                    values->adapter, base);
    TRY(hub_cache(values->arena, &cache));
    return fail(ERR_IO,
                "%s: its base is %.200s by adapter_config.json, which is no directory here, nor in the Hugging Face cache (%s): "
                "name it with --model, or download it: `hone pull %.200s`",
                values->adapter, base, cache, base);
}

/* As a path from here, or as a name of the hub. */
static enum status take_base(struct options *values, const char *base)
{
    const char *path = NULL;
    bool here = base && file_exists(base);
    if (base && !here && hub_is_name(base))
        TRY(hub_find(values->arena, base, "main", &path));
    if (!here && !path)
        return fail_no_base(values, base);
    values->model_name_or_path = base;
    log_message(LOG_INFO, "the model is %.200s, the base of %s", base, values->adapter);
    return OK;
}

static enum status find_base(struct options *values, enum user_command command)
{
    const char *base;
    if (values->model_name_or_path || !values->adapter || !options_has(command, OPTION_any_base))
        return OK;
    TRY(adapter_read_base(values->arena, values->adapter, &base));
    return take_base(values, base);
}

/* --- both ------------------------------------------------------------------------------------------------------------------- */

/* A path into the cache says what it is as well as a name does. */
static enum status find_commit(struct options *values)
{
    TRY(hub_origin(values->arena, values->model_name_or_path, &values->hub_name, &values->hub_commit));
    return pulled_find(values);
}

enum status named_model_find(const struct options *options, enum user_command command, struct options *values)
{
    *values = *options;
    TRY(find_adapter(values->arena, &values->adapter));
    TRY(find_base(values, command));
    TRY(options_need(values, command, OPTION_model_name_or_path));
    TRY(hub_enter(values->arena, &values->model_name_or_path));
    TRY(find_adapter(values->arena, &values->init_adapter));
    TRY(find_model(values));
    if (command == COMMAND_TRAIN || values->adapter)
        TRY(find_commit(values));
    TRY(named_model_check(values->model_name_or_path, command));
    const char *const paths[] = {values->model_name_or_path, values->adapter, values->init_adapter};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (paths[i])
            TRY(blob_check_model(values->arena, paths[i]));
    return OK;
}

enum status named_model_open(struct session *s, const struct options *options, bool weights)
{
    struct session_options session = settings_session(options, options->adapter, weights);
    parallel_set_threads((int)options->threads);
    return session_open(s, &session);
}

enum status named_adapter_check(const char *dir)
{
    struct arena arena = {0};
    struct adapter_config config;
    const char *path = dir ? file_join(&arena, dir, "adapter_config.json") : NULL;
    bool there = path && file_exists(path);
    arena_free(&arena);
    if (!dir || there)
        return OK;
    TRY(path ? adapter_config_open(&config, dir) : ERR_MEMORY);
    adapter_config_free(&config);
    return OK;
}

enum status named_data_open(struct data *data, const struct options *options, const struct model_config *config,
                            struct chat **chat)
{
    struct arena arena = {0};
    struct data_limits limits;
    enum status status = rows_limits(&limits, options, config->window, config->vocabulary, &arena);
    limits.split = "test";
    if (status == OK)
        status = data_open(data, options->dataset_path, chat, &limits);
    arena_free(&arena);
    return status;
}
