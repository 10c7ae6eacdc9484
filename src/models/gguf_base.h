/* A GGUF file as a model: its configuration as the config.json that the family reads, and its tensors under the names that
 * Hugging Face gives them.
 *
 * Matrices stay in the type and, where the device can use host memory, at the place that they have in the file. Two things differ
 * between the file and the model, and are undone when such a weight is loaded (struct stored in weights.h): llama.cpp turns
 * neighbouring channels of a head where Hugging Face turns its two halves, so that some architectures' files have the rows of q
 * and k in another order; and gemma's norms have 1 added. Whole rows of blocks are moved, nothing is quantised again, and
 * adapters are those of the Hugging Face model.
 */
#ifndef MODELS_GGUF_BASE_H
#define MODELS_GGUF_BASE_H

#include "format/gguf.h"
#include "models/family.h"
#include "models/gguf_names.h"
#include "models/weights.h"

struct gguf_base {
    const char *path;
    const struct gguf_arch *arch;
    struct gguf **file; /* the first, with the head of all, and where a model is split the others */
    int64_t files;
    struct arena arena;
};

/* Opens a file, or all files of a split model from its first one ("-00001-of-00003.gguf"). */
enum status gguf_base_open(struct gguf_base **out, const char *path);
void gguf_base_close(struct gguf_base *base); /* NULL is fine */

/* The tensor of one of the files, or NULL. */
const struct gguf_tensor *gguf_base_find(const struct gguf_base *base, const char *name);

/* What config.json would say. hf_config_close releases it. */
enum status gguf_base_config(const struct gguf_base *base, struct hf_config *config);

/* Lists all tensors; one of a type that hone does not compute with is ERR_UNSUPPORTED. */
enum status gguf_base_list(const struct gguf_base *base, const struct model_config *config, struct weights *weights);

#endif
