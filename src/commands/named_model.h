/* The model, the adapter and the data that options name. */
#ifndef COMMANDS_NAMED_MODEL_H
#define COMMANDS_NAMED_MODEL_H

#include "config/options.h"
#include "data/data.h"
#include "run/session.h"

/* The options with the model's directory or GGUF file as model_name_or_path: where they have only an adapter, the base that it
 * names, and where they name a model of the Hugging Face hub, its place in the cache, and the name as model_id. Fails if there is
 * no such model, or if a file of it in the cache is not what its checksum says. New texts live as long as the options, which
 * `found` may be. */
enum status named_model_find(const struct options *options, enum user_command command, struct options *found);

/* Whether an argument that stands alone can be an adapter: a directory that is no model, or a name of what is not here. `first`:
 * it comes before all options. */
bool named_as_adapter(const struct options *options, enum user_command command, const char *argument, bool first);

/* Whether a path is a model's directory or a GGUF file; if not, the message says what it is instead. */
enum status named_model_check(const char *path, enum user_command command);

/* The session that the options ask for. */
enum status named_model_open(struct session *s, const struct options *options, bool weights);

/* An adapter's files are read when they are needed; one that is not there is reported at once. `dir` may be NULL. */
enum status named_adapter_check(const char *dir);

/* The data of an evaluation; the chat is opened if it is NULL and tokens are needed. */
enum status named_data_open(struct data *data, const struct options *options, const struct model_config *config,
                            struct chat **chat);

#endif
