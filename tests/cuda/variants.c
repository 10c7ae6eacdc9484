/* What there is to compile: every variant of a kernel that the op driver's cases, forward and backward, and the programs of
 * models need.
 *
 *     variants list [MODEL DIRECTORY]...   a line each: file, function, work-items of a group, options
 *     variants text FILE                   the text of a file, as a compiler gets it
 *
 * Nothing is computed: programs are built and lowered for a device that only answers questions.
 */
#include <stdio.h>
#include <stdlib.h>

#include "../ops/case.h"
#include "device/kernel.h"
#include "train/optimizer.h"

static enum status no_workspace(struct device *device, const struct gemm *gemm, int64_t *workspace)
{
    (void)device;
    (void)gemm;
    *workspace = 0;
    return OK;
}

static const struct device_class asked_class = {.name = "asked", .gemm_query = no_workspace};
static struct device asked = {.class = &asked_class};

/* --- what was printed ---------------------------------------------------------------------------------------------------- */

static char **lines;
static int64_t line_count, line_capacity;

static enum status print_once(const struct command *launch)
{
    const struct kernel *kernel = launch->launch.kernel;
    char options[KERNEL_OPTIONS], line[KERNEL_OPTIONS + 128];
    kernel_options(options, launch);
    snprintf(line, sizeof line, "%s\t%s\t%d\t%s", kernel->file ? kernel->file : "-", kernel->name, kernel->group, options);
    for (int64_t i = 0; i < line_count; i++)
        if (!strcmp(lines[i], line))
            return OK;
    TRY(memory_grow(&lines, &line_capacity, line_count + 1, (int64_t)sizeof *lines));
    lines[line_count] = memory_alloc((int64_t)strlen(line) + 1);
    if (!lines[line_count])
        return ERR_MEMORY;
    strcpy(lines[line_count++], line);
    puts(line);
    return OK;
}

static enum status print_commands(const struct lowering *l)
{
    for (int64_t i = 0; i < l->count; i++) {
        struct command command = l->list[i].command, launch;
        for (int o = 0; o < OPERANDS; o++)
            command.operand[o].block = l->list[i].value[o] ? 0 : -1;
        if (command.kind == COMMAND_LAUNCH)
            TRY(print_once(&command));
        if (command.kind == COMMAND_GEMM) {
            kernel_of_gemm(&launch, &command);
            TRY(print_once(&launch));
        }
    }
    return OK;
}

static enum status print_program(struct program *p)
{
    struct lowering l;
    TRY(lower_program(&l, p, &asked));
    enum status status = print_commands(&l);
    lower_free(&l);
    return status;
}

/* --- the op driver's cases ------------------------------------------------------------------------------------------------ */

static void want_inputs(struct op_case *c)
{
    for (int k = 0; k < c->input_count; k++)
        if (c->input[k]->dtype != DTYPE_I32)
            program_want(&c->program, c->input[k]);
    for (const struct node *n = c->program.first; n; n = n->next)
        for (int i = 0; i < n->in_count && n->op->gradient; i++)
            for (int o = 0; n->in[i] && n->in[i]->wants_gradient && o < n->out_count; o++)
                n->out[o]->wants_gradient = true;
}

static enum status print_case(const struct op *op, const struct op_example *e, const int64_t *d, enum run_type run, bool backward)
{
    struct op_case c;
    enum status status = case_build(&c, e, d, 1, ops_table, run);
    if (status == OK && backward) {
        want_inputs(&c);
        struct value *ct = program_input(&c.program, "cotangent", ROLE_STATISTIC, 1, value_elements(c.result));
        status = program_gradient(&c.program, &c.result, &ct, 1);
    }
    if (status == OK)
        status = print_program(&c.program);
    case_free(&c);
    return status == OK ? OK : fail_at(status, "%s: ", op->name);
}

static enum status print_example(const struct op *op, const struct op_example *e)
{
    int at[EXAMPLE_AXES] = {0};
    for (;;) {
        int64_t d[EXAMPLE_AXES] = {0};
        int a = 0;
        for (; a < EXAMPLE_AXES && e->axes[a].name; a++)
            d[a] = e->axes[a].values[at[a]];
        for (int run = RUN_FLOAT32; run <= RUN_BFLOAT16; run++)
            for (int backward = 0; backward < (op->gradient && !e->forward_only ? 2 : 1); backward++)
                TRY(print_case(op, e, d, (enum run_type)run, backward));
        for (a = 0; a < EXAMPLE_AXES && e->axes[a].name; a++) {
            if (e->axes[a].values[++at[a]])
                break;
            at[a] = 0;
        }
        if (a == EXAMPLE_AXES || !e->axes[a].name)
            return OK;
    }
}

static enum status print_ops(void)
{
    for (int op = 0; op < OP_COUNT; op++)
        for (const struct op_example *e = ops_table[op]->examples; e && e->build; e++)
            TRY(print_example(ops_table[op], e));
    return OK;
}

/* --- models --------------------------------------------------------------------------------------------------------------- */

enum { T = 64 };

static enum status print_session(struct session *s, bool train)
{
    static const struct optimizer_options adamw = {0.9, 0.999, 1e-8, 0};
    struct optimizer optimizer = {0};
    int64_t index;
    enum status status;
    TRY(session_add(s, NET_LOSS, T, T, 0, &index));
    TRY(session_add(s, NET_LOGITS, T, 1, T, &index));
    TRY(session_add(s, NET_LOGITS, 1, 1, T, &index));
    if (train) {
        TRY(session_add(s, NET_TRAIN, T, T, 0, &index));
        if (!s->tuning.lora || s->tuning.lora->dropout == 0)
            TRY(session_add(s, NET_TRAIN_LOGITS, T, T, 0, &index));
        TRY_GOTO(optimizer_build(&optimizer, s, &adamw), done);
    }
    status = OK;
    for (int64_t i = 0; i < s->engine.program_count && status == OK; i++)
        status = print_commands(&s->engine.programs[i].lowering);
done:
    optimizer_free(&optimizer);
    return status;
}

enum method { EVALUATED, ADAPTER, ADAPTER_AND_NORMS, WHOLE, METHODS };

static enum status print_model(const char *dir, const char *dtype, enum method method)
{
    struct session_options options = {.dir = dir, .device = "cpu", .dtype = dtype};
    struct adapter_config lora = {.rank = 8, .alpha = 16, .dropout = method == ADAPTER_AND_NORMS ? 0.1 : 0};
    struct session s = {0};
    enum status status = adapter_parse_targets(&lora, "all-linear", "variants");
    if (status == OK)
        status = session_open(&s, &options);
    if (status == OK) {
        s.tuning.train = method != EVALUATED;
        s.tuning.lora = method == ADAPTER || method == ADAPTER_AND_NORMS ? &lora : NULL;
        s.tuning.norms = method == ADAPTER_AND_NORMS;
        status = print_session(&s, method != EVALUATED);
        session_close(&s);
    }
    arena_free(&lora.arena);
    return status == OK ? OK : fail_at(status, "%s: ", dir);
}

static enum status print_all(int count, char **models)
{
    TRY(print_ops());
    for (int i = 0; i < count; i++)
        for (int method = 0; method < METHODS; method++) {
            TRY(print_model(models[i], "float32", (enum method)method));
            TRY(print_model(models[i], "bfloat16", (enum method)method));
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
    enum status status = print_all(argc - 2, argv + 2);
    if (status != OK)
        fprintf(stderr, "variants: %s\n", status_message());
    return (int)status;
}
