/* What the files of the chat share. */
#ifndef TEXT_CHAT_CHAT_INSIDE_H
#define TEXT_CHAT_CHAT_INSIDE_H

#include "text/chat/chat.h"

/* A piece of text that the chat keeps. */
struct piece {
    const char *text;
    int64_t size;
};

/* A message with calls: their arguments are objects, or the JSON of one; and its content. */
enum call_arguments { CALL_OBJECT, CALL_TEXT, CALL_ARGUMENTS };
enum call_content { CALL_WITHOUT, CALL_EMPTY, CALL_NULL, CALL_FILLED, CALL_CONTENTS };

/* A template, the forms of messages that it takes, and how it opens the assistant's turn when asked for an answer: the text after
 * the last byte of a user's or a tool's message, and the part of the first that is there only because an answer was asked for. */
struct chat_template {
    struct chat_forms {
        bool calls[CALL_ARGUMENTS][CALL_CONTENTS];
        bool one_call;  /* of several calls in a message it prints the first */
        bool parts;     /* contents that are lists of texts */
        bool developer; /* a role of its own */
    } forms;
    struct jinja *jinja;                        /* NULL: there is none */
    int64_t messages, tools, documents, prompt; /* the numbers of its variables */
    struct piece after_user, after_tool, added;
};

struct chat {
    struct arena arena;
    struct digest files; /* that it was opened from */
    struct tokenizer *tokenizer;
    struct chat_template plain, tools; /* the second is for rows with tools, if the model has one */
    json_t *special;                   /* bos_token, eos_token, ... as strings */
    int32_t *eos;
    int64_t eos_count;
    int32_t bos; /* -1: none */
    bool raw;
};

/* The role of a message, as far as it matters here. */
enum speaker { SPEAKER_OTHER, SPEAKER_USER, SPEAKER_TOOL, SPEAKER_ASSISTANT };

struct chat_message {
    enum speaker speaker;
    bool target; /* an assistant's message that is trained */
};

enum speaker speaker_of(const char *role, int64_t length);

/* template.c: gives a template what is the same in every row, the special tokens, and finds the numbers of its variables. */
enum status template_bind(const struct chat *chat, struct chat_template *template);

/* What a template is given, under transformers' names. Messages that are NULL are left out; tools that are NULL are none. */
enum { TEMPLATE_VARIABLES = 4 };
void template_variables(const struct chat_template *template, const json_t *messages, const json_t *tools, bool generation_prompt,
                        struct jinja_variable out[static TEMPLATE_VARIABLES]);

/* Renders checked messages. */
enum status template_render(const struct chat_template *template, const json_t *messages, const json_t *tools,
                            bool generation_prompt, struct jinja_output *out);

/* chat.c: one more id that ends the assistant's turn; one that the tokenizer does not have, or which is known, is none. */
enum status chat_add_eos(struct chat *chat, int64_t id);

/* The ids of row->text, and for a row to train its mask; row->message is filled in. */
enum status chat_finish(const struct chat *chat, const struct chat_template *template, bool prompt, struct chat_row *row);

/* open_gguf.c: all that a GGUF file has; and the digest of it, and whether its template asks for the date. */
enum status chat_read_gguf(struct chat *chat, const char *path);
enum status chat_hash_gguf(struct digest *files, const char *path, bool *dated);

/* forms.c: fills in which forms of messages the templates take. */
enum status forms_learn(struct chat *chat);

/* chat.c: the template for a row: the one for tools where the row has some. */
const struct chat_template *chat_choose(const struct chat *chat, const json_t *tools);

/* prompt.c: a tool's definition, to ask templates with. */
extern const char prompt_tools[];

/* prompt.c: fills in what the templates put before an answer. What a template refuses to render stays empty. */
enum status prompt_learn(struct chat *chat);

/* Where the prompt of an assistant's turn ends in a rendered text. `anchor`: the end of the last message before it, and its
 * role; `turn`: where the turn itself begins, if that is known, else the anchor; `first`: its first own byte. The
 * prompt may end after `first`, where the message repeats its last words. -1: there is none. */
int64_t prompt_end(const struct chat_template *template, const struct buffer *text, int64_t anchor, int64_t turn, int64_t first,
                   enum speaker before);

/* mask.c: sets row->mask for its tokens and text. */
enum status mask_make(const struct chat *chat, const struct chat_template *template, struct chat_row *row);

#endif
