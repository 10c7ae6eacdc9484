/* LoRA: a pair of small matrices beside a linear layer, y = x · wᵀ + s · (x · Aᵀ) · Bᵀ.
 *
 * B is stored unscaled; the scale s belongs to the forward and the backward pass. The pair is named as in adapter files,
 * without their prefix: <module>.lora_A.weight (rank, in) and <module>.lora_B.weight (out, rank).
 */
#ifndef MODELS_LORA_H
#define MODELS_LORA_H

#include "models/model.h"

enum { LORA_NAME_SIZE = 2 * NAME_SIZE + 32 };

/* The linear layer `module` with its pair. In training the x of the pair goes through dropout first. bias: NULL for none. */
struct value *lora_linear(struct net *n, struct value *x, struct value *w, struct value *bias, const char *module);

/* The matrices of the pair of a linear layer (outputs, inputs). */
struct value *lora_a(struct net *n, const char *module, int64_t inputs);
struct value *lora_b(struct net *n, const char *module, int64_t outputs);

/* The pair of a parameter of `module` that holds the matrices of all experts: its names, and the rank and scale of one expert. */
struct lora_pair {
    char a[LORA_NAME_SIZE], b[LORA_NAME_SIZE];
    int64_t rank;
    double scale;
};

/* false: the adapter has none. */
bool lora_experts_pair(const struct adapter_config *config, const char *module, const char *parameter, struct lora_pair *pair);

/* The pair of a parameter of `module` that holds the matrices of all experts, in PEFT's layout of target_parameters: a (E · rank,
 * in), b (out, rank · E), and its scale. Without such a pair nothing is set. */
void lora_experts(struct net *n, const char *module, const char *parameter, int64_t experts, int64_t inputs, int64_t outputs,
                  struct value **a, struct value **b, double *scale);

bool lora_owns(const struct tensor *t);

/* Where the module's name ends in the name of a pair's A; NULL: the tensor is not an A of a linear layer. */
const char *lora_module_end(const struct tensor *t);

/* After the upload: initialises the pairs that no adapter file has filled. A is drawn by the seed and its name, uniform up to
 * 1 / sqrt(in) as in PEFT; B is zero. */
enum status lora_start(const struct model *m, struct engine *e, uint64_t seed);

/* Whether each target is a layer's name in the model's files, or there are none: true before programs are built. A name that is
 * not may still be one of a program's. */
bool lora_in_files(const struct model *m, const struct adapter_config *config);

/* After the programs are built: fails if a target of the configuration is not a linear layer of the model, and names those that
 * are. */
enum status lora_check(const struct model *m, const struct adapter_config *config);

#endif
