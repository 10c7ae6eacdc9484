/* An adapter as a GGUF file, which llama.cpp applies to a model (--lora). */
#ifndef EXPORT_GGUF_ADAPTER_H
#define EXPORT_GGUF_ADAPTER_H

#include "export/out_type.h"
#include "export/sum.h"
#include "export/target.h"

struct adapter_written {
    int64_t tensors;
    double worst; /* the largest relative error of a tensor that was read back */
};

/* Writes the file and compares it with what it should be, or makes sure that it could. An adapter that such a file cannot hold is
 * ERR_UNSUPPORTED. */
enum status gguf_adapter_write(struct sums *w, struct target *t, enum out_id type, struct adapter_written *written);

#endif
