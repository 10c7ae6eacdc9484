/* A model that stays on its device between calls, for sampling and for log-probabilities.
 *
 * Its programs have sizes: the key/value cache, and a micro-batch. A call that needs more opens it again with at least twice as
 * much, so this becomes rare.
 */
#ifndef API_MODEL_SESSION_H
#define API_MODEL_SESSION_H

#include "api/handles.h"

/* Ready for a prompt of so many tokens and, as far as the window goes, an answer of up to max_new_tokens. */
enum status model_session_generator(struct hone_model *m, int64_t prompt, int64_t max_new_tokens);

/* Ready for the log-probabilities of sequences of up to so many tokens. */
enum status model_session_scorer(struct hone_model *m, int64_t longest);

/* Opens the model with no programs, if it is not open: for what must be known of it before. */
enum status model_session_open(struct hone_model *m);

void model_session_close(struct model_session *k);

#endif
