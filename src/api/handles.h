/* What the public handles are. */
#ifndef API_HANDLES_H
#define API_HANDLES_H

#include "api/check.h"
#include "base/json.h"
#include "config/options.h"
#include "run/generate.h"
#include "run/score.h"
#include "text/chat/chat.h"
#include "train/trainer.h"

struct hone_options {
    struct handle handle;
    struct arena arena;
    struct options values;
    enum user_command command;
    struct buffer text[OPTIONS]; /* the results of hone_options_get */
};

/* A model on its device, kept for the next call. */
struct model_session {
    bool open;
    struct session session;
    struct generator generator; /* for sequences of up to slots tokens; session NULL: none yet */
    struct scorer scorer;       /* slots 0: none yet */
};

struct hone_model {
    struct handle handle;
    struct hone_options *options;
    struct chat *chat; /* NULL until it is needed */
    struct data data;  /* for hone_eval; row_count is 0 until it is needed */
    struct model_session kept;
};

struct hone_trainer {
    struct handle handle;
    struct hone_options *options;
    struct trainer trainer;
    double startup_seconds;
    json_t *run_file; /* the tree of run.json while hone_train runs, else NULL */
    bool run_file_lost;
};

/* A new handle with the same values. */
enum status options_copy(struct hone_options **out, const struct hone_options *from);

/* The options' values with the model's directory or GGUF file as model_name_or_path: where they name a model of the Hugging Face
 * hub, its place in the cache, and the name as model_id. Fails if there is no such model, or
 * if a file of it in the cache is not what its checksum says. New texts live as long as the options,
 * which `values` may be those of. */
enum status need_model(const struct hone_options *options, struct options *values);

/* Whether a path is a model's directory or a GGUF file; if not, the message says what it is instead. */
enum status check_model(const char *path, enum user_command command);

/* The session that the options ask for. */
enum status open_session(struct session *s, const struct options *values, bool weights);

/* The chat of a model, opened when it is first needed. */
enum status model_chat(struct hone_model *m);

/* Ends a call of hone.h at a handle, and frees what was released meanwhile. */
hone_status options_leave(const struct hone_options *o, enum status status);
hone_status model_leave(struct hone_model *m, enum status status);
hone_status trainer_leave(struct hone_trainer *t, enum status status);

/* A report of hone.h: checks the arguments, and makes it. */
hone_status make_report(const hone_options *options, char **json, const char *call,
                        enum status (*make)(const struct hone_options *options, char **json));

/* The memory of a session by blocks, as rows {"block", "bytes"}. */
json_t *plan_rows(const struct session *s, const struct device_costs *costs, int64_t process_bytes);

/* A JSON object as text for the caller; takes the tree. */
enum status json_result(json_t *tree, char **out);

#endif
