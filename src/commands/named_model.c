/* The model, the adapter and the data that options name: found, and opened. */
#include "commands/named_model.h"

#include "base/file.h"
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

/* A path into the cache says what it is as well as a name does. */
static enum status find_commit(struct options *values)
{
    TRY(hub_origin(values->arena, values->model_name_or_path, &values->hub_name, &values->hub_commit));
    return pulled_find(values);
}

enum status named_model_find(const struct options *options, enum user_command command, struct options *values)
{
    TRY(options_need(options, command, OPTION_model_name_or_path));
    *values = *options;
    TRY(hub_enter(values->arena, &values->model_name_or_path));
    TRY(find_adapter(values->arena, &values->adapter));
    TRY(find_adapter(values->arena, &values->init_adapter));
    TRY(find_model(values));
    if (command == COMMAND_TRAIN)
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
