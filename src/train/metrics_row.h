/* A row of the metrics, which is a step or a validation, in its three forms: a line of JSON, a line of CSV, and TensorBoard's
 * scalars. One table names its numbers for all of them. Forms are appended to a buffer; if it has room nothing is allocated. */
#ifndef TRAIN_METRICS_ROW_H
#define TRAIN_METRICS_ROW_H

#include "base/json.h"
#include "base/memory.h"

struct metrics_row {
    bool validation; /* has eval_*, and a step has the others; NAN: JSON has null, CSV nothing */
    int64_t step;
    double epoch, loss, grad_norm, learning_rate;
    int64_t tokens, trained_tokens;
    double tokens_per_second, step_seconds, engine_share;
    double eval_loss, eval_seconds;
};

/* An object that is still open, so that more keys can be added: {"step": 1, "epoch": 0.25 */
enum status metrics_row_json(const struct metrics_row *row, struct buffer *to);

/* Reads such an object. False: it is neither a step nor a validation. */
bool metrics_row_read(struct metrics_row *row, const json_t *tree);

/* With the newline. */
enum status metrics_row_csv(const struct metrics_row *row, struct buffer *to);
enum status metrics_csv_header(struct buffer *to);

enum status metrics_row_event(const struct metrics_row *row, double wall_time, struct buffer *to);

#endif
