/* Building and running one case. */
#include "case.h"

#include "base/rng.h"

enum status case_build(struct op_case *c, const struct op_example *example, const int64_t *d, uint64_t seed,
                       const struct op *const *table, enum run_type run)
{
    *c = (struct op_case){.example = example, .seed = seed};
    memcpy(c->d, d, sizeof c->d);
    TRY(store_init(&c->store));
    program_init(&c->program, table, run);
    c->result = example->build(&c->program, d);
    TRY(program_status(&c->program));
    for (struct value *v = c->program.values; v; v = v->next)
        if (v->lifetime == LIFE_INPUTS) {
            if (c->input_count == CASE_VALUES)
                return fail(ERR_INTERNAL, "a case of more than %d inputs", CASE_VALUES);
            c->input[c->input_count++] = v;
        }
    const struct node *n = c->result->producer;
    for (int i = 0; i < n->out_count; i++)
        if (value_root(n->out[i])->lifetime == LIFE_ACTIVATIONS)
            program_output(&c->program, n->out[i], n->op->outputs[i]);
    return OK;
}

enum status case_prepare(struct op_case *c, struct device *device)
{
    engine_init(&c->engine, device, &c->store);
    c->prepared = true;
    TRY(engine_add(&c->engine, &c->program, &c->index));
    TRY(engine_place(&c->engine));
    return engine_prepare(&c->engine);
}

void case_free(struct op_case *c)
{
    if (c->prepared)
        engine_free(&c->engine);
    program_free(&c->program);
    store_free(&c->store);
}

void case_fill(struct op_case *c)
{
    for (int k = 0; k < c->input_count; k++) {
        const struct value *v = c->input[k];
        void *to = engine_input(&c->engine, v);
        int64_t count = value_elements(v);
        if (v->dtype == DTYPE_I32) {
            c->example->fill(v->name, to, count, c->d);
            continue;
        }
        double scale = c->example->scale > 0 ? (double)c->example->scale : 1;
        if (!strcmp(v->name, "w"))
            scale /= sqrt((double)v->shape[v->rank - 1]);
        for (int64_t i = 0; i < count; i += 2) {
            struct philox r = philox(c->seed, (uint64_t)k, (uint64_t)i);
            float pair[2];
            philox_normal(r.word[0], r.word[1], pair);
            for (int64_t j = 0; j < 2 && i + j < count; j++) {
                double x = scale * (double)pair[j];
                if (c->example->adjust)
                    x = c->example->adjust(v->name, i + j, x);
                dtype_convert((char *)to + (i + j) * dtype_size(v->dtype), v->dtype, &x, DTYPE_F64, 1);
            }
        }
    }
}

void case_copy_inputs(struct op_case *to, const struct op_case *from)
{
    for (int k = 0; k < from->input_count; k++)
        dtype_convert(engine_input(&to->engine, to->input[k]), to->input[k]->dtype,
                      engine_input((struct engine *)&from->engine, from->input[k]), from->input[k]->dtype,
                      value_elements(from->input[k]));
}

double *case_input_values(const struct op_case *c, const struct value *input)
{
    double *out = memory_alloc(value_elements(input) * 8);
    if (out)
        dtype_convert(out, DTYPE_F64, engine_input((struct engine *)&c->engine, input), input->dtype, value_elements(input));
    return out;
}

enum status case_read(struct op_case *c, const struct value *v, double **out)
{
    void *raw = memory_alloc(value_bytes(v));
    *out = memory_alloc(value_elements(v) * 8);
    if (!raw || !*out)
        return ERR_MEMORY;
    enum status status = engine_read(&c->engine, v, raw);
    dtype_convert(*out, DTYPE_F64, raw, v->dtype, value_elements(v));
    for (int64_t i = 0; v->dtype == DTYPE_I32 && i < value_elements(v); i++)
        (*out)[i] = ((const int32_t *)raw)[i];
    memory_free(raw);
    return status;
}

void case_want_inputs(struct op_case *c)
{
    for (int k = 0; k < c->input_count; k++)
        if (c->input[k]->dtype != DTYPE_I32)
            program_want(&c->program, c->input[k]);
    for (const struct node *n = c->program.first; n; n = n->next)
        for (int i = 0; i < n->in_count && n->op->gradient; i++)
            for (int o = 0; n->in[i] && n->in[i]->wants_gradient && o < n->out_count; o++)
                n->out[o]->wants_gradient = true;
}

enum status case_build_gradient(struct op_case *c, const struct op_example *e, const int64_t *d, uint64_t seed,
                                const struct op *const *table, enum run_type run)
{
    TRY(case_build(c, e, d, seed, table, run));
    case_want_inputs(c);
    struct value *ct = program_input(&c->program, "cotangent", ROLE_STATISTIC, 1, value_elements(c->result));
    c->input[c->input_count++] = ct;
    TRY(program_gradient(&c->program, &c->result, &ct, 1));
    const struct node *n = c->result->producer;
    for (int i = 0; i < n->in_count - n->op->constants; i++)
        if (n->in[i] && !strchr(n->op->inputs[i], '?') && n->in[i]->lifetime == LIFE_INPUTS && n->in[i]->dtype != DTYPE_I32 &&
            !n->in[i]->gradient)
            return fail(ERR_DATA, "no gradient reaches %s", n->op->inputs[i]);
    for (int k = 0; k < c->input_count; k++)
        if (c->input[k]->gradient && value_root(c->input[k]->gradient)->lifetime == LIFE_ACTIVATIONS)
            program_output(&c->program, c->input[k]->gradient, "gradient");
    return OK;
}
