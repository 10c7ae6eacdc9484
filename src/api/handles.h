/* What the public handles are. */
#ifndef API_HANDLES_H
#define API_HANDLES_H

#include "base/json.h"
#include "config/options.h"
#include "hone.h"
#include "text/chat/chat.h"
#include "train/trainer.h"

struct hone_options {
    struct arena arena;
    struct options values;
    enum user_command command;
    struct buffer text[OPTIONS]; /* the results of hone_options_get */
};

struct hone_model {
    struct hone_options *options;
    struct chat *chat; /* NULL until it is needed */
    struct data data;  /* for hone_eval; row_count is 0 until it is needed */
};

struct hone_trainer {
    struct hone_options *options;
    struct trainer trainer;
    double startup_seconds;
    json_t *run_file; /* the tree of run.json while hone_train runs, else NULL */
    bool run_file_lost;
};

/* A new handle with the same values. */
enum status options_copy(struct hone_options **out, const struct hone_options *from);

/* The options' values with the model's directory or GGUF file as model_name_or_path: where they name a model of the Hugging Face
 * hub, its place in the cache, and the name as model_id. Fails if there is no such model. New texts live as long as the options,
 * which `values` may be those of. */
enum status need_model(const struct hone_options *options, struct options *values);

/* Whether a path is a model's directory or a GGUF file; if not, the message says what it is instead. */
enum status check_model(const char *path);

/* The session that the options ask for. */
enum status open_session(struct session *s, const struct options *values, bool weights);

/* Structs of the caller begin with their size: ERR_ARGUMENT if it is not set, and filled as far as the caller's version goes. */
enum status check_size(size_t size);
void hand_over(void *result, size_t size, const void *filled, size_t filled_size);

/* The memory of a session by blocks, as rows {"block", "bytes"}. */
json_t *plan_rows(const struct session *s, const struct device_costs *costs, int64_t process_bytes);

/* A JSON object as text for the caller; takes the tree. */
enum status json_result(json_t *tree, char **out);

#endif
