/* The variables of a chat template, under the names that transformers gives them, and its render. */
#include "text/chat/chat_inside.h"

enum status template_bind(const struct chat *chat, struct chat_template *template)
{
    const char *name;
    json_t *token;
    if (!template->jinja)
        return OK;
    json_object_foreach(chat->special, name, token)
        TRY(jinja_constant(template->jinja, name, json_string_value(token), (int64_t)json_string_length(token)));
    template->messages = jinja_number(template->jinja, "messages");
    template->tools = jinja_number(template->jinja, "tools");
    template->documents = jinja_number(template->jinja, "documents");
    template->prompt = jinja_number(template->jinja, "add_generation_prompt");
    return OK;
}

void template_variables(const struct chat_template *template, const json_t *messages, const json_t *tools, bool generation_prompt,
                        struct jinja_variable out[static TEMPLATE_VARIABLES])
{
    out[0] = (struct jinja_variable){template->messages, messages};
    out[1] = (struct jinja_variable){template->tools, tools ? tools : json_null()};
    out[2] = (struct jinja_variable){template->documents, json_null()};
    out[3] = (struct jinja_variable){template->prompt, json_boolean(generation_prompt)};
}

enum status template_render(const struct chat_template *template, const json_t *messages, const json_t *tools,
                            bool generation_prompt, struct jinja_output *out)
{
    struct jinja_variable variables[TEMPLATE_VARIABLES];
    template_variables(template, messages, tools, generation_prompt, variables);
    return jinja_render_with(template->jinja, variables, TEMPLATE_VARIABLES, NULL, NULL, out);
}
