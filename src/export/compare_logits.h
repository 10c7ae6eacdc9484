/* Comparing logits of a model and of what was written from it. */
#ifndef EXPORT_COMPARE_LOGITS_H
#define EXPORT_COMPARE_LOGITS_H

#include "base/status.h"

/* A model that hone opens, perhaps with an adapter. */
struct verify_model {
    const char *model, *adapter;
};

/* Whether a run could begin: every tensor that its programs need is there and has its shape, and every one of the adapter is
 * used. Nothing is computed, and no memory taken for the model. */
enum status verify_fits(const struct verify_model *m);

/* ERR_DATA if its logits after some tokens are not finite. */
enum status verify_finite(const struct verify_model *m);

/* The largest difference of a logit after some tokens, as a part of the range of all. In float32 if that fits into memory. */
enum status verify_logits(const struct verify_model *a, const struct verify_model *b, double *difference);

#endif
