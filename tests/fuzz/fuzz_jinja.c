/* The input is a chat template and, after a zero byte, the JSON of its context.
 *
 * What can be rendered is rendered again with budgets that end somewhere on the way: it fails, or is the same text. */
#include <string.h>

#include "fuzz.h"
#include "text/jinja/jinja.h"

static const char CONTEXT[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", \"content\": \"Hi "
    "<b>\\u00e9</b>\"},"
    " {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"type\": \"function\", \"function\": {\"name\": \"f\","
    " \"arguments\": {\"x\": 1, \"y\": [true, null, 2.5]}}}]}, {\"role\": \"tool\", \"content\": \"3\"},"
    " {\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": \" ok \"}]}],"
    " \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\"}}}],"
    " \"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"add_generation_prompt\": true, \"n\": -3, \"r\": 0.5}";

static void check(const struct jinja_output *out)
{
    int64_t at = 0;
    for (int64_t i = 0; i < out->span_count; i++) {
        PROMISE(out->span[i].begin == at && out->span[i].end >= at && out->span[i].message >= -2);
        at = out->span[i].end;
    }
    PROMISE(at == out->text.size);
}

/* A number below `limit` that follows from the input, so that the same input always takes the same way. */
static int64_t draw(const uint8_t *data, size_t size, uint64_t which, int64_t limit)
{
    uint64_t sum = 0xcbf29ce484222325 + which;
    for (size_t i = 0; i < size; i++)
        sum = (sum ^ data[i]) * 0x100000001b3;
    return (int64_t)((sum >> 20) % (uint64_t)limit);
}

static void render_again(const struct jinja *jinja, const json_t *context, const struct jinja_budget *budget,
                         const struct jinja_output *first)
{
    struct jinja_output out = {0};
    if (jinja_render(jinja, context, budget, &out) == OK) {
        PROMISE(out.text.size == first->text.size && out.span_count == first->span_count);
        PROMISE(!out.text.size || memcmp(out.text.data, first->text.data, (size_t)out.text.size) == 0);
    }
    jinja_output_free(&out);
}

void fuzz_input(const uint8_t *data, size_t size)
{
    static const struct jinja_budget budget = {.steps = 20000, .depth = 100, .output = 1 << 16, .memory = 1 << 22};
    size_t cut = fuzz_cut(data, size);
    struct jinja *jinja;
    if (jinja_parse(&jinja, (const char *)data, (int64_t)cut, "template") != OK)
        return;
    json_t *context;
    enum status status = cut < size ? json_parse(&context, (const char *)data + cut + 1, (int64_t)(size - cut - 1), "context")
                                    : json_parse(&context, CONTEXT, sizeof CONTEXT - 1, "context");
    if (status == OK) {
        struct jinja_output out = {0};
        if (json_is_object(context) && jinja_render(jinja, context, &budget, &out) == OK) {
            fuzz_accept();
            PROMISE(out.text.size <= budget.output);
            check(&out);
            struct jinja_budget less[] = {budget, budget, budget, budget};
            less[0].steps = draw(data, size, 0, 256);
            less[1].memory = draw(data, size, 1, 1 << 14);
            less[2].memory = draw(data, size, 2, 1 << 17);
            less[3].depth = draw(data, size, 3, 12);
            for (size_t i = 0; i < sizeof less / sizeof *less; i++)
                render_again(jinja, context, &less[i], &out);
        }
        jinja_output_free(&out);
        json_decref(context);
    }
    jinja_free(jinja);
}
