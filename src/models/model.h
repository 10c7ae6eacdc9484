/* A model directory or a GGUF file, perhaps with an adapter: its configuration, its weight files, and the tensors that its
 * programs use. */
#ifndef MODELS_MODEL_H
#define MODELS_MODEL_H

#include "format/safetensors.h"
#include "models/gguf_base.h"
#include "models/net.h"

/* Weights of the model itself, without pairs of LoRA, and the bytes that they are stored in. */
struct weight_count {
    int64_t elements, bytes;
};

struct model {
    struct hf_config hf;
    const struct family *family;
    struct model_config config;
    struct gguf_base *gguf;    /* NULL: a directory */
    struct safetensors *files; /* NULL: a GGUF file, or opened for planning, without weights */
    struct weights weights;    /* of the files, and of the adapter's */
    bool adapted;              /* by the adapter below */
    struct adapter_config adapter;
    const char *adapter_path; /* of its tensors */
    struct safetensors *adapter_files;
    struct store store;
    int64_t parameters;                                         /* set by model_attach: elements of all weights */
    struct weight_count weights_in[LIFE_COUNT], weights_mapped; /* the same by where they lie, for the plan */
};

/* Reads config.json and, with `weights`, opens the safetensors files; a GGUF file has both, and its tensors are always listed.
 * `adapter` may be NULL, or a directory in PEFT's layout. */
enum status model_open(struct model *m, const char *dir, const char *adapter, bool weights);
void model_close(struct model *m);

/* Before programs are built: the matrices of linear layers other than the head are quantised when they are loaded. */
enum status model_quantise(struct model *m, enum weight_id type);

/* The element type of the weights in their files, from config.json or the files themselves. */
enum status model_dtype(const struct model *m, enum dtype *dtype);

/* Where a tensor's numbers come from: the adapter's file, the model's, or NULL for a new pair of LoRA. */
const struct stored *model_source(const struct model *m, const struct tensor *t);

/* Whether a tensor is a weight of the model or of an adapter: as a whole, with numbers that come from files or are drawn. */
bool model_is_weight(const struct tensor *t);

/* The row of a tensor whose pieces the files hold, or that will be made of such where there are none yet; NULL: any other. */
const struct stacked *model_pieces(const struct model *m, const struct tensor *t);

/* Finds every weight of the programs so far in the files, checks its shape, and leaves it mapped if it can be used in place. */
enum status model_place(struct model *m, const struct device_info *device);

/* The same after all programs are built: weights that no program uses are reported; in an adapter's file they are an error. */
enum status model_attach(struct model *m, const struct device_info *device);

/* Whether a program so far uses this weight, dense or in parts. */
bool model_uses(const struct model *m, const char *name);

/* Reads all weights that programs use from their files, or only those of an adapter, and fails with the name of the first that
 * has a number that is not finite. An adapter is small, and looked at before it is used; the base once a run has met such
 * numbers: it says whether the files are at fault. */
enum status model_check_finite(const struct model *m, bool only_adapter);

/* After engine_prepare: fills the weights that do not stay in their files, trained ones and their masters too. */
enum status model_upload(struct model *m, struct engine *e);

/* `count` elements of a tensor from `first` on, and of its master, which are all that `f` stores. */
enum status model_upload_part(struct engine *e, const struct tensor *t, int64_t first, int64_t count, const struct stored *f);

#endif
