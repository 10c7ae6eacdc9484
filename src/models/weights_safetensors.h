/* Weights in safetensors: as they are, quantised by bitsandbytes, in FP8, or those of experts in MXFP4. */
#ifndef MODELS_WEIGHTS_SAFETENSORS_H
#define MODELS_WEIGHTS_SAFETENSORS_H

#include "format/hf_config.h"
#include "format/safetensors.h"
#include "models/weights.h"

/* Lists all tensors of files, which must live as long as the list. Those of an adapter must begin with ADAPTER_PREFIX. */
enum status weights_list_files(struct weights *w, const struct safetensors *files);
enum status weights_list_tensor(struct weights *w, const struct safetensors_tensor *t);
int weights_dtype(const struct safetensors_tensor *t); /* an enum dtype; -1: not a type of weights */
enum status weights_list_adapter(struct weights *w, const struct safetensors *files, const char *path);

/* Of a model whose config.json says that its weights are quantised: what they are without files, and listing the files. Only
 * bitsandbytes' NF4, FP8 and experts in MXFP4 can be read. */
enum status weights_quantised(struct weights *w, const struct hf_config *hf);
enum status weights_list_quantised(struct weights *w, const struct safetensors *files);

/* The names of modules that stay dense, from a key of "quantization_config". */
enum status weights_skip(struct weights *w, const struct hf_config *hf, const char *key);

/* The two for bitsandbytes, and for FP8, whose quant_method is one of three. */
enum status weights_bitsandbytes(struct weights *w, const struct hf_config *hf);
enum status weights_list_bitsandbytes(struct weights *w, const struct safetensors *files);
bool weights_is_fp8(const char *method);
enum status weights_fp8(struct weights *w, const struct hf_config *hf);
enum status weights_list_fp8(struct weights *w, const struct safetensors *files);
void weights_expand_fp8(const struct stored *from, void *to); /* the numbers of a weight of experts, in float32 */

/* The second for experts in MXFP4, and the numbers of such a weight in bfloat16. */
enum status weights_list_mxfp4(struct weights *w, const struct safetensors *files);
void weights_expand_mxfp4(const struct stored *from, void *to);

#endif
