/* The parts of a tokenizer.json that are one step or a Sequence of steps, which may hold Sequences again. A part has a table of
 * the kinds of its steps.
 */
#ifndef TEXT_TOKENIZER_SEQUENCE_H
#define TEXT_TOKENIZER_SEQUENCE_H

#include "base/json.h"

struct sequence_part {
    const char *step;  /* what messages call a step */
    const char *list;  /* the name that the part has for the steps of a Sequence */
    const void *kinds; /* a table whose rows begin with the name of the kind */
    size_t count, size /* of a row */;
};

/* A part with the table `kinds`. */
#define SEQUENCE_PART(step, list, kinds)                                                                                         \
    {                                                                                                                            \
        step, list, kinds, sizeof(kinds) / sizeof *(kinds), sizeof *(kinds)                                                      \
    }

/* Gets each step in order, with the row of its kind. */
typedef enum status sequence_step(void *context, const void *kind, const json_t *json, const char *where);

/* A step of a kind that is not in the table fails. */
enum status sequence_walk(const struct sequence_part *part, const json_t *json, sequence_step *step, void *context,
                          const char *where);

#endif
