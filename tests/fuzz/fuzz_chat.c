/* The input is a tokenizer_config.json, and after zero bytes a special_tokens_map.json, a generation_config.json and a row, next
 * to a good tokenizer.json. A conversation that can be encoded has tokens of the vocabulary, and as many trained ones as its mask
 * says; without a tree of it, it has the same. */
#include "model.h"

#include "text/chat/chat.h"

static const char ROW[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"<|im_end|> 1?\"}, "
                          "{\"role\": \"assistant\", \"content\": \"One.\"}]}";

static void check_row(const struct chat *chat, const struct chat_row *row)
{
    int64_t trained = 0;
    for (int64_t i = 0; i < row->tokens.count; i++) {
        PROMISE(row->tokens.id[i] >= 0 && row->tokens.id[i] < tokenizer_vocabulary(chat_tokenizer(chat)));
        trained += row->mask[i];
    }
    PROMISE(trained == row->trained);
}

static void check_line(const struct chat *chat, const char *text, int64_t length, const struct chat_row *row)
{
    struct chat_row line = {0};
    if (chat_encode_line(chat, text, length, &line)) {
        size_t count = (size_t)row->tokens.count;
        PROMISE(line.tokens.count == row->tokens.count && line.trained == row->trained);
        PROMISE(!count || !memcmp(line.tokens.id, row->tokens.id, count * sizeof *row->tokens.id));
        PROMISE(!count || !memcmp(line.mask, row->mask, count * sizeof *row->mask));
    }
    chat_row_free(&line);
}

static void check(const struct chat *chat, const char *text, int64_t length)
{
    struct chat_row row = {0}, prompt = {0};
    json_t *tree;
    if (json_parse(&tree, text, length, "row") != OK)
        return;
    if (chat_encode(chat, tree, &row) == OK) {
        fuzz_accept();
        check_row(chat, &row);
        check_line(chat, text, length, &row);
    }
    if (chat_encode_prompt(chat, tree, &prompt) == OK) {
        check_row(chat, &prompt);
        PROMISE(prompt.trained == 0);
    }
    chat_row_free(&row);
    chat_row_free(&prompt);
    json_decref(tree);
}

void fuzz_input(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"tokenizer_config.json", "special_tokens_map.json", "generation_config.json"};
    struct fuzz_part input = {data, size};
    struct chat *chat;
    fuzz_model();
    unlink(fuzz_path("model/chat_template.jinja"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct fuzz_part part = fuzz_next(&input);
        char name[64];
        snprintf(name, sizeof name, "model/%s", names[i]);
        if (part.size)
            fuzz_put(name, part.data, part.size);
        else
            unlink(fuzz_path(name));
    }
    if (chat_open(&chat, model.dir) != OK)
        return;
    if (input.size)
        check(chat, (const char *)input.data, (int64_t)input.size);
    else
        check(chat, ROW, sizeof ROW - 1);
    chat_close(chat);
}
