/* Which format the weights of a quantised model have. */
#include <string.h>

#include "models/weights_safetensors.h"

enum status weights_quantised(struct weights *w, const struct hf_config *hf)
{
    w->packed = !strcmp(hf->quantization, "mxfp4");
    if (w->packed)
        return OK;
    if (weights_is_fp8(hf->quantization))
        return weights_fp8(w, hf);
    if (!strcmp(hf->quantization, "bitsandbytes"))
        return weights_bitsandbytes(w, hf);
    return fail(ERR_UNSUPPORTED,
                "%s: weights quantised by \"%s\" are not supported; by \"bitsandbytes\" to NF4, by \"mxfp4\" and to FP8 by "
                "\"fp8\", \"fbgemm_fp8\" and \"compressed-tensors\" they are",
                hf->path, hf->quantization);
}

enum status weights_list_quantised(struct weights *w, const struct safetensors *files)
{
    if (w->packed)
        return weights_list_mxfp4(w, files);
    if (w->quantise == WEIGHT_fp8 || w->quantise == WEIGHT_fp8_block)
        return weights_list_fp8(w, files);
    return weights_list_bitsandbytes(w, files);
}
