/* Lines of a data set to ids and mask without a JSON tree. It takes only conversations of plain texts, with the same result as
 * chat.c; everything else is left to chat.c. */
#include <string.h>

#include "text/chat/chat_inside.h"

static bool is_system(const struct jinja_message *message)
{
    return message->role_length == 6 && memcmp(message->role, "system", 6) == 0;
}

/* At least one message must be the assistant's, and every role a known one. */
static bool take_messages(void *context, const struct jinja_message *messages, int64_t count)
{
    struct chat_row *out = context;
    bool answered = false;
    out->messages = count;
    if (memory_grow(&out->message, &out->message_capacity, count, (int64_t)sizeof *out->message) != OK)
        return false;
    for (int64_t i = 0; i < count; i++) {
        enum speaker speaker = speaker_of(messages[i].role, messages[i].role_length);
        out->message[i] = (struct chat_message){speaker, speaker == SPEAKER_ASSISTANT};
        if (speaker == SPEAKER_OTHER && !is_system(&messages[i]))
            return false;
        answered |= speaker == SPEAKER_ASSISTANT;
    }
    return answered;
}

bool chat_encode_line(const struct chat *chat, const char *text, int64_t length, struct chat_row *out)
{
    const struct chat_template *template = &chat->plain;
    const struct jinja_row row = {text, length, take_messages, out};
    struct jinja_variable variables[TEMPLATE_VARIABLES];
    out->tokens.count = out->trained = 0;
    if (!template->jinja)
        return false;
    template_variables(template, NULL, NULL, false, variables);
    return jinja_render_row(template->jinja, &row, variables, TEMPLATE_VARIABLES, &out->text) &&
           chat_finish(chat, template, false, out) == OK;
}
