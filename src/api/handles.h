/* What is behind the public handles. */
#ifndef API_HANDLES_H
#define API_HANDLES_H

#include "config/options.h"
#include "hone.h"
#include "text/chat.h"
#include "train/generate.h"

struct hone_options {
    struct arena arena;
    struct options values;
    enum user_command command;
    struct buffer text[OPTIONS];        /* hone_options_get's answers */
};

struct hone_model {
    struct hone_options *options;
    struct chat *chat;
};

/* A new handle with the same values. */
enum status options_copy(struct hone_options **out, const struct hone_options *from);

/* The session that the options ask for. */
enum status open_session(struct session *s, const struct options *values, bool weights);

/* A JSON object as text for the caller; takes the tree. */
enum status json_result(json_t *tree, char **out);

#endif
