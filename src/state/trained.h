/* What is trained, tensor by tensor as files have it: under PEFT's names for an adapter, else under the model's. */
#ifndef STATE_TRAINED_H
#define STATE_TRAINED_H

#include "base/json.h"
#include "job/build.h"

struct trained {
    const char *name;
    const struct tensor *tensor; /* that it is, or is a piece of */
    int64_t first;               /* element of that */
    int rank;
    int64_t shape[RANK];
};

struct trained_list {
    struct arena arena;
    struct trained *row;
    int64_t count;
};

/* To be freed by trained_free, also after an error. */
enum status trained_list(struct trained_list *list, const struct build *b);
void trained_free(struct trained_list *list);

/* An array of {"name", "shape"}. */
enum status trained_json(const struct build *b, json_t **out);

/* The weights of one of them, in float32 where there are masters of them, or the sums of its gradients as the losses gave them.
 * *count is the room in `values`, and becomes the number of elements; `values` NULL: only that. */
enum status trained_read(struct build *b, const char *name, bool gradient, float *values, int64_t *count);

#endif
