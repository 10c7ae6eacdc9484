/* Rounding weights to the type that they are written in, and how much of an adapter's change is left of it.
 *
 * With W the model's weight, d the change and R the rounding, the file has R(W + d) where the model without d would have R(W):
 *
 *     lost  ‖R(W + d) − R(W) − d‖ / ‖d‖        0: every digit of the change arrived; 1: as if nothing had
 *     kept  ⟨R(W + d) − R(W), d⟩ / ‖d‖²        1: the change arrived on average, whatever noise is around it
 */
#ifndef EXPORT_ROUNDING_H
#define EXPORT_ROUNDING_H

#include "export/out_type.h"
#include "export/sum.h"

struct change {
    double squares, lost, along; /* sums over elements: of d², of the squared loss, of the product with d */
    int64_t elements;
};

/* How a tensor lies in the file. */
struct layout {
    enum out_id type;
    int64_t heads; /* its rows are permuted in so many heads (models/gguf_names.h); 0: they are not */
    float plus;    /* added to every element */
    float times;   /* what every element is multiplied by then; 0: nothing */
};

/* Elements [from, from + count) of the tensor in the file, whole blocks, into `to`. If the tensor is changed, `change` grows. */
enum status round_piece(const struct sum *w, const struct layout *layout, int64_t from, int64_t count, uint8_t *to,
                        struct change *change);

/* The same numbers before they are rounded. */
void layout_read(const struct sum *w, const struct layout *layout, int64_t from, int64_t count, bool base, float *out);

/* How far a tensor as it was read back is from what it should be: ‖read − want‖ / ‖want‖. */
enum status round_check(const struct sum *w, const struct layout *layout, const uint8_t *read, double *error);

#endif
