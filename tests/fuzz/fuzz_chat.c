/* The input is a tokenizer_config.json, and after zero bytes a special_tokens_map.json and a generation_config.json, beside a
 * good tokenizer.json. A conversation that can be encoded has tokens of the vocabulary, and as many trained ones as its mask
 * says. */
#include "model.h"

#include "text/chat/chat.h"

static void check(const struct chat *chat)
{
    static const char text[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"<|im_end|> 1?\"}, "
                               "{\"role\": \"assistant\", \"content\": \"One.\"}]}";
    struct chat_row row = {0};
    json_t *tree;
    PROMISE(json_parse(&tree, text, sizeof text - 1, "row") == OK);
    if (chat_encode(chat, tree, &row) == OK) {
        int64_t trained = 0;
        for (int64_t i = 0; i < row.tokens.count; i++) {
            PROMISE(row.tokens.id[i] >= 0 && row.tokens.id[i] < tokenizer_vocabulary(chat_tokenizer(chat)));
            trained += row.mask[i];
        }
        PROMISE(trained == row.trained);
    }
    chat_row_free(&row);
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
    check(chat);
    chat_close(chat);
}
