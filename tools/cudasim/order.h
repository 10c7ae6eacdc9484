/* The order of work on different streams, by events and by waits of the host, and copies that others use without such an order:
 * an error where the call is made, also in a capture, whose graph would have no order there either. */
#ifndef TOOLS_CUDASIM_ORDER_H
#define TOOLS_CUDASIM_ORDER_H

#include "cudasim.h"

enum { ORDER_STREAMS = 16 }; /* non-blocking ones that are looked at; others are not */

/* Work of each stream up to these numbers comes before what follows. */
struct order {
    uint64_t until[ORDER_STREAMS];
};

struct op;

void order_open(CUstream stream);
void order_close(CUstream stream);

/* Notes an op that a stream or its capture is given. CUDA_ERROR_ILLEGAL_STATE: it uses what a copy on another stream brings, or
 * overwrites by a copy what another stream uses, and nothing orders the two. A use is an address among a kernel's or a product's
 * arguments. */
CUresult order_add(CUstream stream, const struct op *op);
void order_record(CUstream stream, CUevent event);
void order_wait(CUstream stream, CUevent event);

/* Whether an event has all the work of its stream before it. */
int order_is_last(CUevent event);

/* The host has waited for a stream, an event, or (both null) everything. */
void order_host(CUstream stream, CUevent event);
void order_capture_end(int serial);
void order_free(uint64_t begin, uint64_t end); /* memory is freed */
void order_clear(void);

#endif
