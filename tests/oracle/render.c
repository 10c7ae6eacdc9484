/* The chat code as a filter, for the oracles that compare it with transformers and jinja2.
 *
 *     render MODEL_DIR             rows of a chat data set on stdin, one a line -> {"text", "ids", "mask"} on stdout
 *     render --template FILE       contexts of a template on stdin -> {"text", "spans"} on stdout
 *
 * A row that fails gives {"error": message, "code": number}.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "text/chat.h"

enum { MOST = 4 << 20 };

static void put(json_t *result, enum status status)
{
    if (status != OK) {
        json_decref(result);
        result = json_pack("{s:s, s:i}", "error", status_message(), "code", (int)status);
    }
    json_dumpf(result, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(result);
}

static enum status run_template(const struct jinja *jinja, const json_t *context, json_t **result)
{
    struct jinja_output out = {0};
    enum status status = jinja_render(jinja, context, NULL, &out);
    json_t *spans = json_array();
    for (int64_t i = 0; i < out.span_count; i++)
        json_array_append_new(spans, json_pack("[I, I, I]", (json_int_t)out.span[i].begin, (json_int_t)out.span[i].end,
                                               (json_int_t)out.span[i].message));
    json_t *text = json_stringn(out.text.data ? out.text.data : "", (size_t)out.text.size);
    *result = json_pack("{s:o, s:o}", "text", text, "spans", spans);
    jinja_output_free(&out);
    return status;
}

static enum status run_chat(const struct chat *chat, const json_t *row, struct chat_row *made, json_t **result)
{
    struct jinja_output out = {0};
    enum status status = chat_render(chat, row, false, &out);
    json_t *ids = json_array(), *mask = json_array();
    if (status == OK)
        status = chat_encode(chat, row, made);
    for (int64_t i = 0; status == OK && i < made->tokens.count; i++) {
        json_array_append_new(ids, json_integer(made->tokens.id[i]));
        json_array_append_new(mask, json_integer(made->mask[i]));
    }
    json_t *text = json_stringn(out.text.data ? out.text.data : "", (size_t)out.text.size);
    *result = json_pack("{s:o, s:o, s:o}", "text", text, "ids", ids, "mask", mask);
    jinja_output_free(&out);
    return status;
}

static enum status open_template(struct jinja **jinja, const char *path)
{
    struct buffer source = {0};
    enum status status = file_read(&source, path, MOST);
    if (status == OK)
        status = jinja_parse(jinja, source.data, source.size, path);
    buffer_free(&source);
    return status;
}

int main(int argc, char **argv)
{
    bool template = argc == 3 && strcmp(argv[1], "--template") == 0;
    if (!template && argc != 2) {
        fprintf(stderr, "render MODEL_DIR | render --template FILE\n");
        return (int)ERR_ARGUMENT;
    }
    struct jinja *jinja = NULL;
    struct chat *chat = NULL;
    enum status status = template ? open_template(&jinja, argv[2]) : chat_open(&chat, argv[1]);
    if (status != OK) {
        fprintf(stderr, "%s\n", status_message());
        return (int)status;
    }
    struct chat_row made = {0};
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    while ((length = getline(&line, &capacity, stdin)) > 0) {
        json_t *row = NULL, *result = NULL;
        status = json_parse(&row, line, length, "stdin");
        if (status == OK)
            status = template ? run_template(jinja, row, &result) : run_chat(chat, row, &made, &result);
        put(result, status);
        json_decref(row);
    }
    free(line);
    chat_row_free(&made);
    chat_close(chat);
    jinja_free(jinja);
    return 0;
}
