/* The render of a template: its budget, its variables, its body, and the text with the origins that it leaves. */
#include <stdatomic.h>
#include <string.h>

#include "base/number.h"
#include "text/jinja/run.h"

/* What a render brings into the purse: far more than templates take, also those that look at every message again and again. */
enum { STEPS_MIN = 10000, STEPS_A_BYTE = 100 };

static enum status render_hand_out(const struct builder *builder, struct jinja_output *out)
{
    int64_t begin = 0;
    TRY(buffer_reserve(&out->text, 0));
    out->text.size = builder->size;
    out->text.data[builder->size] = 0;
    TRY(memory_grow(&out->span, &out->span_capacity, builder->run_count, (int64_t)sizeof *out->span));
    for (int64_t i = 0; i < builder->run_count; i++) {
        const struct run *run = &builder->run[i];
        out->span[out->span_count++] =
            (struct jinja_span){begin, run->end, run->origin, run->place / PLACE_TURN - 1, run->place & PLACE_GENERATION};
        begin = run->end;
    }
    return OK;
}

void render_begin(struct render *render, const struct jinja_budget *budget, struct jinja_output *out)
{
    *render = (struct render){.arena = &out->scratch, .where = "", .line = 1, .left = budget ? *budget : jinja_budget_default};
    render->granted = budget ? 0 : 1; /* render_use says how many */
    out->text.size = out->span_count = 0;
}

enum status render_use(struct render *render, const struct jinja *jinja)
{
    int64_t count = jinja->global_count;
    render->jinja = jinja;
    render->where = jinja->where;
    if (render->granted)
        render->left.steps = render->granted = max(min(atomic_load(jinja->purse), jinja_budget_default.steps), STEPS_MIN);
    TRY(render_alloc(render, count, (int64_t)sizeof *render->global, &render->global));
    if (count)
        memcpy(render->global, jinja->global, (size_t)count * sizeof *render->global);
    return OK;
}

enum status render_body(struct render *render, struct jinja_output *out)
{
    struct frame *frame;
    struct builder *builder;
    enum flow flow = FLOW_ON;
    TRY(frame_new(render, NULL, render->jinja->frame, &frame));
    TRY(builder_new(render, &builder));
    builder->limit = render->left.output > 0 ? render->left.output : 1;
    builder->output = &out->text;
    TRY(exec_nodes(render, frame, &render->jinja->body, builder, &flow));
    return render_hand_out(builder, out);
}

enum status render_end(struct render *render, enum status status, struct jinja_output *out)
{
    int64_t brought = STEPS_MIN + (status == OK ? STEPS_A_BYTE * out->text.size : 0);
    if (render->granted && render->jinja)
        atomic_fetch_add(render->jinja->purse, brought - (render->granted - render->left.steps));
    arena_reset(&out->scratch);
    if (status != OK)
        out->text.size = out->span_count = 0;
    return status;
}

enum status render_set(struct render *render, const struct jinja_variable *variables, int64_t count, const json_t *context)
{
    const char *name;
    json_t *item;
    for (int64_t i = 0; i < count; i++)
        if (variables[i].value)
            TRY(context_set(render, variables[i].number, variables[i].value));
    json_object_foreach((json_t *)(uintptr_t)context, name, item)
        TRY(context_set(render, jinja_number(render->jinja, name), item));
    return OK;
}

enum status jinja_render_with(const struct jinja *jinja, const struct jinja_variable *variables, int64_t count,
                              const json_t *context, const struct jinja_budget *budget, struct jinja_output *out)
{
    struct render render;
    render_begin(&render, budget, out);
    enum status status = render_use(&render, jinja);
    if (status == OK)
        status = render_set(&render, variables, count, context);
    if (status == OK)
        status = render_body(&render, out);
    return render_end(&render, status, out);
}

enum status jinja_render(const struct jinja *jinja, const json_t *context, const struct jinja_budget *budget,
                         struct jinja_output *out)
{
    if (!json_is_object(context))
        return fail(ERR_ARGUMENT, "%s: the context of a template must be an object", jinja->where);
    return jinja_render_with(jinja, NULL, 0, context, budget, out);
}

void jinja_output_free(struct jinja_output *output)
{
    buffer_free(&output->text);
    memory_free(output->span);
    arena_free(&output->scratch);
    *output = (struct jinja_output){0};
}
