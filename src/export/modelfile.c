/* Ollama writes prompts by templates of its own. Those of the common formats are known here; a model has the one whose text of a
 * small conversation is what its own chat template writes, to the letter, except before the conversation: what a message of the
 * system says there is the default one, SYSTEM.
 */
#include "export/modelfile.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "text/chat/chat.h"

/* What stands before a message and after it; a system message is a user's if it has none of its own. */
struct turn {
    const char *before, *after;
};

struct format {
    struct turn system, user, assistant;
    const char *prompt, *stop;
};

static const struct format FORMATS[] = {
    {{"<|im_start|>system<|im_sep|>", "<|im_end|>"}, /* Phi 4 */
     {"<|im_start|>user<|im_sep|>", "<|im_end|>"},
     {"<|im_start|>assistant<|im_sep|>", "<|im_end|>"},
     "<|im_start|>assistant<|im_sep|>",
     "<|im_end|>"},
    {{"<|im_start|>system\n", "<|im_end|>\n"},
     {"<|im_start|>user\n", "<|im_end|>\n"},
     {"<|im_start|>assistant\n", "<|im_end|>\n"},
     "<|im_start|>assistant\n",
     "<|im_end|>"},
    {{"<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"}, /* Llama 3 */
     {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"},
     {"<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"},
     "<|start_header_id|>assistant<|end_header_id|>\n\n",
     "<|eot_id|>"},
    {{0}, /* Gemma */
     {"<start_of_turn>user\n", "<end_of_turn>\n"},
     {"<start_of_turn>model\n", "<end_of_turn>\n"},
     "<start_of_turn>model\n",
     "<end_of_turn>"},
    {{0}, {"[INST] ", " [/INST]"}, {" ", "</s>"}, "", "[INST]"}, /* Mistral's first, its third, and those since Nemo */
    {{0}, {"[INST] ", "[/INST]"}, {" ", "</s>"}, "", "[INST]"},
    {{0}, {"[INST]", "[/INST]"}, {"", "</s>"}, "", "[INST]"},
    {{"<|system|>\n", "<|end|>\n"}, /* Phi 3 */
     {"<|user|>\n", "<|end|>\n"},
     {"<|assistant|>\n", "<|end|>\n"},
     "<|assistant|>\n",
     "<|end|>"},
    {{"<|system|>", "<|end|>"},
     {"<|user|>", "<|end|>"},
     {"<|assistant|>", "<|end|>"},
     "<|assistant|>",
     "<|end|>"},                                                      /* Phi 4 mini */
    {{"<|start_of_role|>system<|end_of_role|>", "<|end_of_text|>\n"}, /* Granite */
     {"<|start_of_role|>user<|end_of_role|>", "<|end_of_text|>\n"},
     {"<|start_of_role|>assistant<|end_of_role|>", "<|end_of_text|>\n"},
     "<|start_of_role|>assistant<|end_of_role|>",
     "<|end_of_text|>"},
};

#define FIRST "One"
#define ANSWER "Two"
#define SECOND "Three"

/* The conversation as a format writes it. */
static enum status write_sample(struct buffer *out, const struct format *f)
{
    return buffer_format(out, "%s" FIRST "%s%s" ANSWER "%s%s" SECOND "%s%s", f->user.before, f->user.after, f->assistant.before,
                         f->assistant.after, f->user.before, f->user.after, f->prompt);
}

/* The same as the model's template does at a moment; empty if it has none, or none that takes such a conversation. */
static enum status render_sample(struct chat *chat, int64_t moment, struct jinja_output *out)
{
    json_t *row = json_pack("{s:[{s:s, s:s}, {s:s, s:s}, {s:s, s:s}]}", "messages", "role", "user", "content", FIRST, "role",
                            "assistant", "content", ANSWER, "role", "user", "content", SECOND);
    chat_set_moment(chat, moment);
    enum status status = row ? chat_render(chat, row, true, out) : ERR_MEMORY;
    json_decref(row);
    if (status != OK)
        out->text.size = 0;
    return status == ERR_MEMORY ? status : OK;
}

/* Today and a hundred days later: a template that writes the date does not write the same. */
static enum status render_samples(const char *dir, struct jinja_output *out, bool *dated)
{
    enum { LATER = 100 * 24 * 60 * 60 };
    struct chat *chat = NULL;
    struct jinja_output later = {0};
    int64_t now = (int64_t)clock_wall();
    enum status status = chat_open(&chat, dir);
    if (status == OK)
        status = chat_need_template(chat);
    if (status == OK)
        status = render_sample(chat, now, out);
    if (status == OK)
        status = render_sample(chat, now + LATER, &later);
    *dated = out->text.size != later.text.size ||
             (later.text.size && memcmp(out->text.data, later.text.data, (size_t)later.text.size) != 0);
    jinja_output_free(&later);
    chat_close(chat);
    return status == ERR_MEMORY ? status : OK;
}

static enum status find_format(const struct buffer *text, const struct format **out)
{
    *out = NULL;
    for (size_t i = 0; !*out && i < sizeof FORMATS / sizeof *FORMATS; i++) {
        struct buffer sample = {0};
        enum status status = write_sample(&sample, &FORMATS[i]);
        if (status == OK && text->size >= sample.size &&
            !memcmp(text->data + text->size - sample.size, sample.data, (size_t)sample.size))
            *out = &FORMATS[i];
        buffer_free(&sample);
        TRY(status);
    }
    return OK;
}

static enum status modelfile_put_format(struct buffer *out, const struct format *f)
{
    TRY(buffer_format(out, "TEMPLATE \"\"\"{{- range .Messages }}{{ if eq .Role \"assistant\" }}%s{{ .Content }}%s",
                      f->assistant.before, f->assistant.after));
    if (f->system.before)
        TRY(buffer_format(out, "{{ else if eq .Role \"system\" }}%s{{ .Content }}%s", f->system.before, f->system.after));
    return buffer_format(out, "{{ else }}%s{{ .Content }}%s{{ end }}{{ end }}%s\"\"\"\nPARAMETER stop \"%s\"\n", f->user.before,
                         f->user.after, f->prompt, f->stop);
}

/* Where a text of `size` bytes has another, or NULL. */
static const char *modelfile_find(const char *text, int64_t size, const char *what)
{
    return size > 0 ? memmem(text, (size_t)size, what, strlen(what)) : NULL;
}

/* The message of the system that the template writes before a conversation without one: it was trained, and Ollama sends none by
 * itself. */
static enum status put_system(struct buffer *out, const char *path, const struct format *f, const struct buffer *text, bool dated)
{
    const char *before = f->system.before;
    struct buffer sample = {0};
    TRY(write_sample(&sample, f));
    int64_t size = text->size - sample.size; /* of what stands before the conversation */
    buffer_free(&sample);
    const char *at = before ? modelfile_find(text->data, size, before) : NULL, *end = NULL;
    if (!at && !modelfile_find(text->data, size, " ")) /* nothing, or a token */
        return OK;
    if (at) {
        at += strlen(before);
        end = modelfile_find(at, text->data + size - at, f->system.after);
    }
    if (dated || !end || end + strlen(f->system.after) != text->data + size || modelfile_find(at, end - at, "\"\"\"")) {
        log_message(
            LOG_WARNING,
            "%s: has no SYSTEM, though the model's chat template begins a chat with a message of the system%s: give Ollama "
            "one like it",
            path, dated ? ", which has the date" : "");
        return OK;
    }
    return buffer_format(out, "SYSTEM \"\"\"%.*s\"\"\"\n", (int)(end - at), at);
}

enum status modelfile_compose(struct buffer *out, const char *path, const char *gguf, const char *dir)
{
    struct jinja_output sample = {0};
    const struct format *format = NULL;
    bool dated = false;
    enum status status = render_samples(dir, &sample, &dated);
    if (status == OK)
        status = find_format(&sample.text, &format);
    if (status == OK)
        status = buffer_format(out, "FROM ./%s\n", gguf);
    if (status == OK && sample.text.size && !format) /* Ollama then looks at the file's own template, and may know it */
        log_message(LOG_WARNING,
                    "%s: has no TEMPLATE, because the model's chat template is of no format that hone knows; ask "
                    "Ollama for the one it takes (ollama show --template), and compare",
                    path);
    if (status == OK && format)
        status = modelfile_put_format(out, format);
    if (status == OK && format)
        status = put_system(out, path, format, &sample.text, dated);
    jinja_output_free(&sample);
    return status;
}
