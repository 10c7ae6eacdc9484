/* The parts of a tokenizer.json that are one step or a Sequence of steps, which may hold Sequences again. */
#ifndef TEXT_TOKENIZER_SEQUENCE_H
#define TEXT_TOKENIZER_SEQUENCE_H

#include "base/json.h"

/* Gets each step in order, with its "type". */
typedef enum status sequence_step(void *context, const char *type, const json_t *json, const char *where);

/* `list` is the name that such a part has for the steps of a Sequence. */
enum status sequence_walk(const json_t *json, const char *list, sequence_step *step, void *context, const char *where);

#endif
