/* A graphics card that is not there: what its maker publishes (cards.def), and how much of that each kind of work is assumed to
 * reach (work.def). Or a device that was measured: a file of `hone bench --calibrate` has its rates in place of the assumptions.
 *
 * The device that computes nothing (device/kernel_list.h) can stand for a card: device_open("kernels:rtx4090").
 */
#ifndef DEVICE_GPU_SPEC_H
#define DEVICE_GPU_SPEC_H

#include "base/json.h"
#include "device/device.h"

enum work {
#define WORK(kind, words, rate, share, source) WORK_##kind,
#include "device/work.def"
#undef WORK
    WORK_COUNT
};

/* TENSOR: that of the tensor cores for the type of the operands. SHARED: multiply-adds that each need a word of shared memory.
 * BYTES: only those of the card's memory count. LINK: those that come from the host. */
enum gpu_spec_rate { CARD_BF16, CARD_F16, CARD_TF32, CARD_F32, CARD_TENSOR, CARD_SHARED, CARD_BYTES, CARD_LINK };

struct work_kind {
    const char *id, *words;
    enum gpu_spec_rate rate;
    double share; /* assumed; 0: the card's for matmuls */
    const char *source;
};

extern const struct work_kind work_kinds[WORK_COUNT];

/* Whether a kind of work has no FLOPs that count. */
static inline bool work_moves(enum work work)
{
    return work_kinds[work].rate >= CARD_BYTES;
}

struct gpu_spec {
    char name[64], words[128]; /* as the user names it, and its name for people */
    int target;
    bool bf16;
    int64_t memory; /* bytes */
    int units, lanes;
    double peak[CARD_BYTES]; /* FLOP/s by rate; TENSOR is 0: it depends on the type. 0: not known, or there is none */
    double bandwidth, link;  /* bytes a second, of its memory and from the host; 0: not known */
    double matmul;           /* the assumed share for matmuls */
    double gap, issue;       /* seconds between two commands of a captured graph, and of the host to issue one without it */
    const char *source, *matmul_source; /* of the figures above; "": a card that is not in cards.def */
    bool measured, stand_in;            /* from a file; and of a device whose times mean nothing */
    double rate[WORK_COUNT];            /* measured: FLOPs, or bytes where only those count, a second; 0: not measured */
};

/* The card of this name in cards.def, or in a file that --calibrate wrote. ERR_ARGUMENT names all cards. */
enum status gpu_spec_open(struct gpu_spec *card, const char *name);

/* The index-th card of cards.def; false: there are no more. */
bool gpu_spec_at(int index, struct gpu_spec *card);

/* FLOP/s that a kind of work could reach at most, for operands of this type; 0: only its bytes count. */
double gpu_spec_peak(const struct gpu_spec *card, enum work work, enum dtype dtype);

/* FLOP/s and bytes/s that it is taken to reach: measured, or assumed, which copies from the host always are. 0: they do not
 * count, or the link is not known. */
double gpu_spec_flops(const struct gpu_spec *card, enum work work, enum dtype dtype);
double gpu_spec_bytes(const struct gpu_spec *card, enum work work);

/* The share of its multiprocessors that a matmul keeps busy, and of its tiles that are not padding. 1 for a measured card: its
 * rates have it in them. */
double gpu_spec_filled(const struct gpu_spec *card, const struct gemm *gemm);

/* A measured card as a JSON object, and a file of it as a card. */
json_t *gpu_spec_json(const struct gpu_spec *card);
enum status gpu_spec_read(struct gpu_spec *card, const char *path);

/* What CUDA's driver and libraries take besides blocks, on a card of this target. CUDA does not say: these are typical values. */
void card_costs(int target, bool cublas, bool graphs, int64_t kernels, int64_t commands, struct device_costs *out);

/* Bytes of cuBLAS's workspace: what NVIDIA recommends, more for devices whose tensor cores work on larger tiles. */
int64_t card_workspace(int target);

#endif
