/* What there is to compile: every variant of a kernel that the op driver's cases, forward and backward, and the programs of
 * models need.
 *
 *     variants list [MODEL DIRECTORY]...   a line each: file, function, work-items of a group, lowest target, options
 *     variants text FILE                   the text of a file, as a compiler gets it
 *
 * Nothing is computed: programs are prepared on a device that only keeps a list (device/kernel_list.h).
 */
#include <stdio.h>
#include <stdlib.h>

#include "../ops/case.h"
#include "device/kernel_list.h"
#include "job/optimizer.h"

static struct kernel_list all;

static enum status add_list(const struct device *device)
{
    const struct kernel_list *list = kernel_list_of(device);
    for (int64_t i = 0; i < list->count; i++)
        TRY(kernel_list_add(&all, &list->need[i]));
    return OK;
}

static void print_list(void)
{
    for (int64_t i = 0; i < all.count; i++)
        printf("%s\t%s\t%d\t%d\t%s\n", all.need[i].kernel->file, all.need[i].kernel->name, all.need[i].kernel->group,
               all.need[i].from, all.need[i].options);
}

/* --- the op driver's cases ------------------------------------------------------------------------------------------------ */

static struct device *asked;

static enum status add_case(const struct op *op, const struct op_example *e, const int64_t *d, enum run_type run, bool backward)
{
    struct op_case c;
    enum status status = case_build(&c, e, d, 1, ops_table, run);
    if (status == OK && backward) {
        case_want_inputs(&c);
        struct value *ct = program_input(&c.program, "cotangent", ROLE_STATISTIC, 1, value_elements(c.result));
        status = program_gradient(&c.program, &c.result, &ct, 1);
    }
    if (status == OK)
        status = case_prepare(&c, asked);
    case_free(&c);
    return status == OK ? OK : fail_at(status, "%s: ", op->name);
}

static enum status add_example(const struct op *op, const struct op_example *e)
{
    int at[EXAMPLE_AXES] = {0};
    for (;;) {
        int64_t d[EXAMPLE_AXES] = {0};
        int a = 0;
        for (; a < EXAMPLE_AXES && e->axes[a].name; a++)
            d[a] = example_value(e, a, at[a]);
        for (int run = RUN_FLOAT32; run <= RUN_FLOAT16; run++)
            for (int backward = 0; backward < (op->gradient && !e->forward_only ? 2 : 1); backward++)
                TRY(add_case(op, e, d, (enum run_type)run, backward));
        for (a = 0; a < EXAMPLE_AXES && e->axes[a].name; a++) {
            if (example_value(e, a, ++at[a]))
                break;
            at[a] = 0;
        }
        if (a == EXAMPLE_AXES || !e->axes[a].name)
            return OK;
    }
}

static enum status add_ops(void)
{
    for (int op = 0; op < OP_COUNT; op++)
        for (const struct op_example *e = ops_table[op]->examples; e && e->build; e++)
            TRY(add_example(ops_table[op], e));
    return add_list(asked);
}

/* --- models --------------------------------------------------------------------------------------------------------------- */

enum { T = 64 };

static enum status add_programs(struct session *s, bool train, struct optimizer *optimizer)
{
    int64_t index;
    TRY(session_add(s, NET_LOSS, T, T, 0, &index));
    TRY(session_add(s, NET_LOGITS, T, 1, T, &index));
    TRY(session_add(s, NET_LOGITS, 1, 1, T, &index));
    if (train) {
        TRY(session_add(s, NET_TRAIN, T, T, 0, &index));
        if (!s->tuning.lora || s->tuning.lora->dropout == 0)
            TRY(session_add(s, NET_TRAIN_LOGITS, T, T, 0, &index));
        TRY(optimizer_build(optimizer, s, optimizer_kind(CHOICE_optim_adamw), false, false));
    }
    TRY(session_plan(s));
    TRY(engine_prepare(&s->engine));
    return add_list(s->device);
}

static enum status add_session(struct session *s, bool train)
{
    struct optimizer optimizer = {0};
    enum status status = add_programs(s, train, &optimizer);
    optimizer_free(&optimizer);
    return status;
}

enum method { EVALUATED, ADAPTER, ADAPTER_AND_NORMS, WHOLE, METHODS };

static enum status add_model(const char *dir, enum run_type run, enum method method)
{
    struct session_options options = {.dir = dir, .device = "kernels", .run = (int)run};
    struct adapter_config lora = {.rank = 8, .alpha = 16, .dropout = method == ADAPTER_AND_NORMS ? 0.1 : 0};
    struct session s = {0};
    enum status status = adapter_parse_targets(&lora, "all-linear", "variants");
    if (status == OK)
        status = session_open(&s, &options);
    if (status == OK) {
        s.tuning.train = method != EVALUATED;
        s.tuning.lora = method == ADAPTER || method == ADAPTER_AND_NORMS ? &lora : NULL;
        s.tuning.norms = method == ADAPTER_AND_NORMS;
        status = add_session(&s, method != EVALUATED);
        session_close(&s);
    }
    arena_free(&lora.arena);
    return status == OK ? OK : fail_at(status, "%s: ", dir);
}

static enum status add_all(int count, char **models)
{
    TRY(device_open(&asked, "kernels"));
    asked->panel_bytes = CASE_PANEL_BYTES;
    asked->chunk_bytes = CASE_CHUNK_BYTES;
    TRY(add_ops());
    for (int i = 0; i < count; i++)
        for (int method = 0; method < METHODS; method++) {
            TRY(add_model(models[i], RUN_FLOAT32, (enum method)method));
            TRY(add_model(models[i], RUN_BFLOAT16, (enum method)method));
        }
    return OK;
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "text") && kernel_text(argv[2])) {
        fputs(kernel_text(argv[2]), stdout);
        return 0;
    }
    if (argc < 2 || strcmp(argv[1], "list")) {
        fprintf(stderr, "usage: variants list [MODEL DIRECTORY]... | variants text FILE\n");
        return 2;
    }
    enum status status = add_all(argc - 2, argv + 2);
    if (status == OK)
        print_list();
    kernel_list_free(&all);
    device_close(asked);
    if (status != OK)
        fprintf(stderr, "variants: %s\n", status_message());
    return (int)status;
}
