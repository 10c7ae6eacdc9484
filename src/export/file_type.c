/* Which tensor is written in which type. */
#include "export/file_type.h"

#include <string.h>

const struct file_kind file_kinds[FILE_TYPES] = {
    [FILE_F32] = {"f32", OUT_f32, 0, 1e-4},     [FILE_F16] = {"f16", OUT_f16, 1, 1e-2},
    [FILE_BF16] = {"bf16", OUT_bf16, 32, 5e-2}, [FILE_Q8_0] = {"q8_0", OUT_q8_0, 7, 5e-2},
    [FILE_Q4_0] = {"q4_0", OUT_q4_0, 2, 0.5},   [FILE_Q4_K_M] = {"q4_k_m", OUT_q4_k, 15, 0.5},
};

/* Layers that get more bits: the first and the last eighth, and every third between. */
static bool more_bits(int64_t layer, int64_t layers)
{
    return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

/* llama.cpp's choice for Q4_0 and Q4_K_M. */
static enum out_id mixed(enum file_type type, const char *name, const struct tensor_place *p)
{
    bool v = strstr(name, "attn_v.weight") || strstr(name, "attn_qkv.weight");
    if (p->output)
        return OUT_q6_k;
    if (type != FILE_Q4_K_M)
        return file_kinds[type].main;
    if ((v || strstr(name, "ffn_down")) && more_bits(p->layer, p->layers))
        return OUT_q6_k;
    return v && p->shared ? OUT_q5_k : OUT_q4_k;
}

/* What is written instead where rows are no whole blocks. */
static enum out_id fallback(enum out_id type)
{
    switch (type) {
    case OUT_q4_k: return OUT_q5_0;
    case OUT_q5_k: return OUT_q5_1;
    case OUT_q6_k: return OUT_q8_0;
    default: return OUT_f16;
    }
}

enum out_id file_tensor_type(enum file_type type, const char *name, int rank, int64_t columns, const struct tensor_place *place)
{
    if (rank < 2 || strstr(name, "norm.weight"))
        return OUT_f32;
    enum out_id out = type == FILE_Q4_0 || type == FILE_Q4_K_M ? mixed(type, name, place) : file_kinds[type].main;
    while (columns % out_types[out].block)
        out = fallback(out);
    return out;
}

enum out_id file_instead_of(enum file_type type, enum out_id out)
{
    enum out_id main = file_kinds[type].main;
    if (out_types[main].block == 1 || out == main)
        return OUT_TYPES;
    if (out == OUT_f16)
        return main;
    for (int of = 0; type != FILE_Q8_0 && of < OUT_TYPES; of++)
        if (fallback((enum out_id)of) == out)
            return (enum out_id)of;
    return OUT_TYPES;
}
