/* The weights that leave: each tensor of a model with what an adapter changes of it, W + s · B · A, in float32.
 *
 * There is one for each weight of the model's files, except copies (a tied head) and buffers. It is opened, read in any pieces by
 * any number of threads, and closed.
 *
 * The experts of a layer share a pair (PEFT's target_parameters): A (E · rank, in) has the rows of one expert after those of
 * another, B (out, rank · E) their columns in turn. A weight of the files is a matrix of one expert, or those of all, each
 * (out, in) or (in, out).
 */
#ifndef EXPORT_SUM_H
#define EXPORT_SUM_H

#include "models/adapter_base.h"

struct sum {
    const char *name;
    const struct stored *base;  /* as the model has it */
    const struct stored *saved; /* in its place, if the adapter has it whole; else NULL */
    const struct stored *a, *b; /* of LoRA; NULL: none */
    double scale;
    int64_t rows, columns, rank;       /* of a matrix; a vector is one row */
    int64_t experts;                   /* that share the pair; 1: it is only of this matrix */
    int64_t expert, first, each;       /* of this weight: its first expert, its first row in B, rows of an expert */
    bool by_input;                     /* rows are inputs, not outputs */
    float *along, *down, *base_values; /* while it is open; the last is NULL for a plain weight */
};

struct sums {
    struct model model;
    struct arena arena;
    struct sum *list;
    int64_t count;
};

/* `adapter` may be NULL. Every tensor of the adapter must belong to a weight of the model. */
enum status sums_open(struct sums *all, const char *dir, const char *adapter);

/* Whether the adapter was made for these weights: reads all of the model's. */
enum status sums_check_base(const struct sums *all, const struct base_asked *asked);
void sums_close(struct sums *all);

enum status sum_open(struct sum *w);
void sum_close(struct sum *w);

/* Elements [from, from + count) of the flattened tensor: the sum, and the model's own. */
void sum_read(const struct sum *w, int64_t from, int64_t count, float *out);
void sum_read_base(const struct sum *w, int64_t from, int64_t count, float *out);

bool sum_changed(const struct sum *w);

/* Elements of a dense tensor as float32. */
void sum_convert(const struct stored *t, int64_t from, int64_t count, float *out);

#endif
