/* What the public handles are: a caller has a number in place of each (base/handle.h), which ENTER turns into the struct. */
#ifndef API_HANDLES_H
#define API_HANDLES_H

#include "api/arguments.h"
#include "base/json.h"
#include "config/options.h"
#include "run/answer.h"
#include "run/generation.h"
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
    struct model_session session;
    struct answer settings; /* of answers, from the options; its lists are in the arena */
    struct arena arena;
};

struct hone_trainer {
    struct handle handle;
    struct hone_options *options;
    struct trainer trainer;
    double startup_seconds;
};

/* With the same values, and for no caller. */
enum status options_copy(struct hone_options **out, const struct hone_options *from);
void options_free(struct hone_options *o); /* NULL is fine */

/* The chat of a model, opened when it is first needed. */
enum status model_chat(struct hone_model *m);

/* A step as hone.h has it. */
hone_step public_step(const struct step *s);

/* Ends a call of hone.h at a handle, and frees what was released meanwhile. */
hone_status options_leave(const struct hone_options *o, enum status status);
hone_status model_leave(struct hone_model *m, enum status status);
hone_status trainer_leave(struct hone_trainer *t, enum status status);

/* ENTER for a call that is for the trainer's selected slot: ERR_ARGUMENT while none is selected. */
enum status trainer_enter(struct hone_trainer **t, const char *call);
enum status trainer_enter_nested(struct hone_trainer **t, const char *call);

/* A sink of the caller's, and the sink that passes tokens on to it. */
struct caller_sink {
    hone_token_sink sink; /* may be NULL */
    void *context;
};
int caller_token(void *caller, const struct answer_token *token);
struct stream caller_stream(struct caller_sink *caller, bool logprobs);

/* What came of an answer, for the caller. */
void hand_over_answer(hone_generate_result *result, const struct answered *answered);

/* A JSON object as text for the caller; takes the tree. */
enum status json_result(json_t *tree, char **out);

#endif
