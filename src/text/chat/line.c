/* Lines of a data set to ids and mask without a JSON tree: most of the time of an ordinary row would be spent on the tree. Only
 * conversations of plain texts are taken, and become what chat.c makes of them; all else is left to it. */
#include <string.h>

#include "text/chat/inside.h"
#include "text/jinja/run.h"

static bool is_system(const struct value *role)
{
    return role->text->size == 6 && memcmp(role->text->data, "system", 6) == 0;
}

static bool usable(struct render *render, const struct dict *message, struct chat_message *out)
{
    const struct value *role, *content, *calls;
    if (dict_find(render, message, "role", 4, &role) != OK || dict_find(render, message, "content", 7, &content) != OK ||
        dict_find(render, message, "tool_calls", 10, &calls) != OK)
        return false;
    if (!role || role->kind != VALUE_TEXT || !content || content->kind != VALUE_TEXT || calls)
        return false;
    out->speaker = speaker_of(role->text->data, role->text->size);
    out->target = out->speaker == SPEAKER_ASSISTANT;
    return out->speaker != SPEAKER_OTHER || is_system(role);
}

/* At least one message has to be the assistant's. */
static bool take_messages(struct render *render, const struct list *messages, struct chat_row *out)
{
    bool answered = false;
    out->messages = messages->count;
    if (memory_grow(&out->message, &out->message_capacity, messages->count, (int64_t)sizeof *out->message) != OK)
        return false;
    for (int64_t i = 0; i < messages->count; i++) {
        if (!usable(render, messages->item[i].dict, &out->message[i]))
            return false;
        answered |= out->message[i].target;
    }
    return answered;
}

static void set(struct render *render, int64_t number, struct value value)
{
    if (number >= 0)
        render->global[number] = value;
}

static bool run(const struct chat *chat, struct render *render, const char *text, int64_t length, struct chat_row *out,
                const struct chat_template **template)
{
    struct value messages, tools;
    if (!json_row(render, text, length, &messages, &tools) || !take_messages(render, messages.list, out))
        return false;
    if (tools.kind != VALUE_ABSENT && tools.kind != VALUE_NONE)
        return false;
    *template = &chat->plain;
    if (!(*template)->jinja || render_use(render, (*template)->jinja) != OK)
        return false;
    set(render, (*template)->messages, messages);
    set(render, (*template)->tools, value_none());
    set(render, (*template)->documents, value_none());
    set(render, (*template)->prompt, value_bool(false));
    return render_body(render, &out->text) == OK;
}

bool chat_encode_line(const struct chat *chat, const char *text, int64_t length, struct chat_row *out)
{
    struct render render;
    const struct chat_template *template = NULL;
    out->tokens.count = out->trained = 0;
    render_begin(&render, NULL, &out->text);
    bool good = run(chat, &render, text, length, out, &template);
    render_end(good ? OK : ERR_DATA, &out->text);
    return good && chat_finish(chat, template, false, out) == OK;
}
