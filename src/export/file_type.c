/* Which tensor is written in which type. */
#include "export/file_type.h"

#include <string.h>

#include "base/name.h"

const struct file_kind file_kinds[FILE_TYPES] = {
    [FILE_F32] = {"f32", OUT_f32, 0, 1e-4},
    [FILE_F16] = {"f16", OUT_f16, 1, 1e-2},
    [FILE_BF16] = {"bf16", OUT_bf16, 32, 5e-2},
    [FILE_Q8_0] = {"q8_0", OUT_q8_0, 7, 5e-2},
};

enum out_id file_tensor_type(enum file_type type, const char *name, int rank, int64_t columns, bool output, int64_t layer,
                             int64_t layers)
{
    enum out_id stored = file_kinds[type].main;
    (void)output, (void)layer, (void)layers;
    if (rank < 2 || strstr(name, "norm.weight"))
        return OUT_f32;
    return columns % out_types[stored].block == 0 ? stored : OUT_f16;
}
