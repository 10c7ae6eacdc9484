/* LoRA: a pair of small matrices next to a linear layer, y = x · wᵀ + s · (x · Aᵀ) · Bᵀ.
 *
 * B is stored unscaled; the scale s belongs to the forward and the backward pass. The pair is named as in adapter files,
 * without their prefix: <module>.lora_A.weight (rank, in) and <module>.lora_B.weight (out, rank).
 */
#ifndef MODELS_LORA_H
#define MODELS_LORA_H

#include "models/net.h"

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

/* Whether a tensor is one of a pair, and whether it is the A. */
bool lora_owns(const struct tensor *t);
bool lora_is_a(const struct tensor *t);

/* Where the module's name ends in the name of a pair's A; NULL: the tensor is not an A of a linear layer. */
const char *lora_module_end(const struct tensor *t);

#endif
