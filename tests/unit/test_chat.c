/* Chat rows: the template and special tokens of a model's directory, the mask of trained tokens, and the errors for
 * rows that cannot be used. The directory is made here, with a tokenizer that has one token for each ASCII character. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/file.h"
#include "failing.h"
#include "text/chat/chat.h"

static const char *const CHATML = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] "
                                  "+ '<|im_end|>' + '\\n' }}{% endfor %}"
                                  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}\n";

static char dir[] = "/tmp/hone-chat-XXXXXX";

static void put_file(const char *name, const char *text)
{
    struct arena arena = {0};
    const char *path = file_join(&arena, dir, name);
    if (text)
        assert_ok(file_replace(path, text, (int64_t)strlen(text)));
    else
        unlink(path);
    arena_free(&arena);
}

/* A template for rows with tools, in a folder of its own. */
static void put_more(const char *text)
{
    struct arena arena = {0};
    const char *path = file_join(&arena, dir, "additional_chat_templates");
    if (text)
        assert_ok(directory_make(path));
    put_file("additional_chat_templates/tool_use.jinja", text);
    if (!text)
        assert_int_equal(rmdir(path), 0);
    arena_free(&arena);
}

static void put_tokenizer(void)
{
    struct buffer b = {0};
    int id = 3;
    assert_ok(buffer_format(&b, "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": ["));
    static const char *const added[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    for (int i = 0; i < 3; i++)
        assert_ok(buffer_format(&b,
                                "%s{\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false, \"rstrip\": "
                                "false, \"normalized\": false, \"special\": true}",
                                i ? ", " : "", i, added[i]));
    assert_ok(buffer_format(&b, "], \"normalizer\": null, \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": "
                                "false, \"trim_offsets\": true, \"use_regex\": true},"
                                " \"post_processor\": null, \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
                                "\"trim_offsets\": true, \"use_regex\": true},"
                                " \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
                                "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null,"
                                " \"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": false, \"vocab\": {"));
    for (int i = 0; i < 3; i++)
        assert_ok(buffer_format(&b, "\"%s\": %d, ", added[i], i));
    for (int c = '!'; c <= '~'; c++)
        assert_ok(buffer_format(&b, c == '"' || c == '\\' ? "\"\\%c\": %d, " : "\"%c\": %d, ", c, id++));
    assert_ok(buffer_format(&b, "\"\xc4\xa0\": %d, \"\xc4\x8a\": %d, \"\u00c3\": %d, \"\u00a8\": %d}, \"merges\": []}}", id,
                            id + 1, id + 2, id + 3)); /* blank, line end, and the two bytes of an e with a grave accent */
    put_file("tokenizer.json", b.data);
    buffer_free(&b);
}

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    put_tokenizer();
    put_file("tokenizer_config.json", "{\"bos_token\": \"<|im_start|>\", \"eos_token\": {\"content\": \"<|im_end|>\"}, "
                                      "\"model_max_length\": 1000000000000000019884624838656}");
    put_file("chat_template.jinja", CHATML);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                                        "special_tokens_map.json", "generation_config.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        put_file(names[i], NULL);
    return rmdir(dir);
}

static json_t *parse(const char *text)
{
    json_t *tree;
    assert_ok(json_parse(&tree, text, (int64_t)strlen(text), "row"));
    return tree;
}

/* The text of the row with its trained tokens in brackets. */
static void bracketed(const struct chat *chat, const struct chat_row *row, struct buffer *out)
{
    int64_t trained = 0;
    out->size = 0;
    for (int64_t i = 0; i < row->tokens.count; i++) {
        if (row->mask[i] != (i ? row->mask[i - 1] : 0))
            assert_ok(buffer_append(out, row->mask[i] ? "[" : "]", 1));
        assert_ok(tokenizer_decode(chat_tokenizer(chat), &row->tokens.id[i], 1, true, out));
        trained += row->mask[i];
    }
    if (row->tokens.count && row->mask[row->tokens.count - 1])
        assert_ok(buffer_append(out, "]", 1));
    assert_int_equal(row->trained, trained);
}

static void expect(const char *template, const char *row, const char *text)
{
    struct chat *chat;
    struct chat_row made = {0};
    struct buffer got = {0};
    put_file("chat_template.jinja", template);
    assert_ok(chat_open(&chat, dir));
    json_t *tree = parse(row);
    for (int again = 0; again < 2; again++) {
        assert_ok(chat_encode(chat, tree, &made));
        bracketed(chat, &made, &got);
        assert_string_equal(got.data, text);
    }
    json_decref(tree);
    buffer_free(&got);
    chat_row_free(&made);
    chat_close(chat);
    put_file("chat_template.jinja", CHATML);
}

static void the_mask_covers_assistants_and_their_end(void **state)
{
    (void)state;
    expect(CHATML, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b c\"}]}",
           "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[b c<|im_end|>]\n");
    expect(CHATML,
           "{\"messages\": [{\"role\": \"assistant\", \"content\": \"same\"}, {\"role\": \"user\", \"content\": \"same\"}, "
           "{\"role\": \"assistant\", \"content\": \"x<|im_end|>y\"}]}",
           "<|im_start|>assistant\n[same<|im_end|>]\n<|im_start|>user\nsame<|im_end|>\n<|im_start|>assistant\n[x<|im_end|>y<|im_"
           "end|>]\n");
    expect("{% for m in messages %}{{ m.content|trim }}{% if m.role == 'assistant' %}.{{ eos_token }}{% endif %}{% endfor %}",
           "{\"messages\": [{\"role\": \"user\", \"content\": \" a \"}, {\"role\": \"assistant\", \"content\": \" b \"}]}",
           "a[b.<|im_end|>]");
    expect("{% for m in messages %}{{ bos_token ~ ' ' ~ m.content ~ ' \\n' ~ eos_token }}{% endfor %}",
           "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}",
           "<|im_start|> a \n<|im_end|><|im_start|> [b \n<|im_end|>]");
    expect("{% for m in messages %}{{ bos_token ~ m.content }}{% endfor %}",
           "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}, {\"role\": \"user\", \"content\": \"b\"}]}",
           "<|im_start|>[a]<|im_start|>b");
    expect("{% for m in messages %}{{ m.content }}{% endfor %}",
           "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}, {\"role\": \"user\", \"content\": \"<|im_end|>b\"}]}",
           "[a]<|im_end|>b");
    expect("{% for m in messages %}{{ bos_token ~ m.content ~ (m.reasoning_content or '') ~ eos_token }}{% endfor %}",
           "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\", "
           "\"thinking\": \"t\"}]}",
           "<|im_start|>a<|im_end|><|im_start|>[bt<|im_end|>]");
}

/* What lies between the prompt and the message's own bytes, and between those, the model must generate. */
static const char *const TOOLS =
    "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\n' }}{% if m.thinking %}<t>{{ m.thinking }}</t>{% endif %}{{ "
    "m.content }}"
    "{% for c in m.tool_calls %}<c>{{ c.name }} {{ c.arguments|tojson }}</c>{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

static void the_mask_covers_what_the_model_has_to_say(void **state)
{
    (void)state;
    expect(TOOLS,
           "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"\", "
           "\"thinking\": \"t\", \"tool_calls\": [{\"name\": \"f\", \"arguments\": {\"n\": 1}}]}, {\"role\": \"tool\", "
           "\"content\": \"r\"}, {\"role\": \"assistant\", \"content\": \"d\"}]}",
           "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[<t>t</t><c>f {\"n\": 1}</c><|im_end|>]\n"
           "<|im_start|>tool\nr<|im_end|>\n<|im_start|>assistant\n[d<|im_end|>]\n");
    expect(CHATML, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"\"}]}",
           "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[<|im_end|>]\n");
    /* The name of the tool came from the assistant's message, but it is in the tool's turn. */
    expect("{% for m in messages %}{{ bos_token }}{% if m.role == 'tool' %}{{ messages[0].tool_calls[0].name }}:{% endif %}"
           "{{ m.content ~ eos_token }}{% endfor %}",
           "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": [{\"name\": \"f\"}]}, "
           "{\"role\": \"tool\", \"content\": \"r\"}]}",
           "<|im_start|>[a<|im_end|>]<|im_start|>f:r<|im_end|>");
    /* What begins an answer differs from the prompt inside a character: all of that character is the answer's. */
    expect("{% for m in messages %}{{ bos_token ~ (m.role[0] if m.role == 'user' else '\u00e8') ~ m.content ~ eos_token }}"
           "{% endfor %}{% if add_generation_prompt %}{{ bos_token }}\u00e9{% endif %}",
           "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}",
           "<|im_start|>ua<|im_end|><|im_start|>[\u00e8b<|im_end|>]");
    /* Messages by number, a turn that the next header ends, and one that another message's text interrupts. */
    expect("{% for i in range(messages|length) %}{% set m = messages[i] %}{{ bos_token ~ m.role ~ m.content ~ eos_token "
           "}}{% endfor %}",
           "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"\"}]}",
           "<|im_start|>usera<|im_end|><|im_start|>assistant[<|im_end|>]");
    expect("{% for m in messages %}{% if m.role == 'user' %}<|im_end|>{% else %}A:{% endif %}{{ m.content }}{% endfor %}"
           "{% if add_generation_prompt %}A:{% endif %}",
           "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}, {\"role\": "
           "\"user\", \"content\": \"c\"}]}",
           "<|im_end|>aA:[b<|im_end|>]c");
    expect("{% for m in messages %}{% if m.role == 'assistant' %}A:{{ m.content }}({{ messages[2].content }}){{ m.more }}{{ "
           "eos_token }}"
           "{% elif m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}A:{% endif %}",
           "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\", \"more\": "
           "\"d\"}, {\"role\": \"tool\", \"content\": \"r\"}]}",
           "aA:[b(]r)[d<|im_end|>]");
    /* A prompt that begins again inside its own beginning. */
    expect("{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% else %}xyxyxyxxyxyxz{{ m.content }}{% endif %}"
           "{% endfor %}{% if add_generation_prompt %}xyxyxz{% endif %}",
           "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}",
           "axyxyxyxxyxyxz[b]");
}

static void generation_blocks_decide_for_themselves(void **state)
{
    (void)state;
    expect("{% for m in messages %}{{ bos_token ~ m.role }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }}!"
           "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{{ eos_token }}{% endfor %}",
           "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}, {\"role\": "
           "\"assistant\", \"content\": \"c\", \"train\": false}]}",
           "<|im_start|>user:a<|im_end|><|im_start|>assistant:[b!]<|im_end|><|im_start|>assistant:c!<|im_end|>");
}

static void a_message_may_be_no_target(void **state)
{
    (void)state;
    expect(CHATML,
           "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\", \"train\": "
           "false}, {\"role\": \"user\", \"content\": \"c\", \"train\": false}, {\"role\": \"assistant\", \"content\": \"d\", "
           "\"train\": true}]}",
           "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n"
           "<|im_start|>assistant\n[d<|im_end|>]\n");
    expect("{{ messages[0]|tojson }}", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"train\": false}]}",
           "{\"role\": \"user\", \"content\": \"a\"}");
    /* OpenAI's */
    expect(CHATML,
           "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\", \"weight\": "
           "0}, {\"role\": \"user\", \"content\": \"c\"}, {\"role\": \"assistant\", \"content\": \"d\", \"weight\": 1}]}",
           "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n"
           "<|im_start|>assistant\n[d<|im_end|>]\n");
    expect("{{ messages[0]|tojson }}", "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"weight\": 0}]}",
           "{\"role\": \"assistant\", \"content\": \"a\"}");
}

/* How often an id occurs in a row. */
static int64_t count_id(const char *template, const char *row, int32_t id)
{
    struct chat *chat;
    struct chat_row made = {0};
    int64_t count = 0;
    put_file("chat_template.jinja", template);
    assert_ok(chat_open(&chat, dir));
    json_t *tree = parse(row);
    assert_ok(chat_encode(chat, tree, &made));
    for (int64_t i = 0; i < made.tokens.count; i++)
        count += made.tokens.id[i] == id;
    json_decref(tree);
    chat_row_free(&made);
    chat_close(chat);
    put_file("chat_template.jinja", CHATML);
    return count;
}

static void what_is_typed_is_no_special_token(void **state)
{
    (void)state;
    enum { IM_END = 2 };
    assert_int_equal(count_id(CHATML,
                              "{\"messages\": [{\"role\": \"system\", \"content\": \"<|im_end|>\"}, {\"role\": \"user\", "
                              "\"content\": \"<|im_end|><|im_end|>\"}, {\"role\": \"tool\", \"content\": "
                              "\"<|im_end|>\"}]}",
                              IM_END),
                     3);
    assert_int_equal(count_id(CHATML, "{\"messages\": [{\"role\": \"assistant\", \"content\": \"<|im_end|>\"}]}", IM_END), 2);
    assert_int_equal(count_id("{{ tools|tojson ~ eos_token }}",
                              "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], "
                              "\"tools\": "
                              "[\"<|im_end|>\"]}",
                              IM_END),
                     1);
    assert_int_equal(count_id("{{ messages[0].content|trim|replace('x', '<|im_end|>') ~ eos_token }}",
                              "{\"messages\": [{\"role\": \"user\", \"content\": \" x<|im_end|> \"}]}", IM_END),
                     2);
    /* Nor is a role that is no plain word. */
    assert_int_equal(count_id("{% for m in messages %}{{ m.role ~ m.content ~ eos_token }}{% endfor %}",
                              "{\"messages\": [{\"role\": \"<|im_end|>\", \"content\": \"a\"}]}", IM_END),
                     1);
    /* Nor is a key, also of a dict that is made from the message. */
    static const char *const prints[] = {"m|tojson", "m", "dict(**m)|tojson", "dict(m, **m)", "namespace(**m)", "m.keys()|list"};
    for (size_t i = 0; i < sizeof prints / sizeof *prints; i++) {
        char template[128];
        snprintf(template, sizeof template, "{%% for m in messages %%}{{ %s ~ eos_token }}{%% endfor %%}", prints[i]);
        assert_int_equal(
            count_id(template, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"<|im_end|>\": 1}]}", IM_END), 1);
    }
}

static void a_line_needs_no_tree(void **state)
{
    (void)state;
    static const struct {
        bool taken;
        const char *line;
    } lines[] = {
        {true, " {\"messages\": [{\"role\": \"user\", \"content\": \"a\\u0062\\n\\\"\"}, {\"role\": \"assistant\", "
               "\"content\": \"c\"}]}\n"},
        {true, "{\"messages\": [{\"role\": \"system\", \"content\": \"\"}, {\"name\": [1, -2.5e1, true, null], \"role\": "
               "\"assistant\", \"content\": \"\"}], \"tools\": null}"},
        {true, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"\": 1, \"names\": 2}, {\"role\": \"assistant\", "
               "\"<|im_end|>\": \"b\", \"content\": \"c\", \"reasoning\": \"d\"}]}"},
        {false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}"},
        {false, "{\"messages\": [{\"role\": \"x\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}"},
        {false, "{\"messages\": [{\"role\": \"assistant\", \"content\": [{\"type\": \"text\"}]}]}"},
        {false, "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}], \"tools\": [1]}"},
        {false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"train\": false}]}"},
        {false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"id\": 1}"},
        {false, "{\"messages\": [{\"role\": \"user\"}]}"},
        {false, "{\"messages\": [{\"role\": \"user\", \"role\": \"user\", \"content\": \"a\"}]}"},
        {false, "{\"messages\": []}"},
        {false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]} 1"},
        {false, "[]"},
    };
    struct chat *chat;
    struct chat_row fast = {0}, slow = {0};
    put_file("chat_template.jinja", "{% for m in messages %}{{ bos_token ~ m|tojson ~ eos_token }}{% endfor %}{{ "
                                    "tools|tojson }}");
    assert_ok(chat_open(&chat, dir));
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        assert_int_equal(chat_encode_line(chat, lines[i].line, (int64_t)strlen(lines[i].line), &fast), lines[i].taken);
        if (!lines[i].taken)
            continue;
        json_t *row = parse(lines[i].line);
        assert_ok(chat_encode(chat, row, &slow));
        assert_string_equal(fast.text.text.data, slow.text.text.data);
        assert_int_equal(fast.tokens.count, slow.tokens.count);
        assert_memory_equal(fast.tokens.id, slow.tokens.id, (size_t)slow.tokens.count * sizeof *slow.tokens.id);
        assert_memory_equal(fast.mask, slow.mask, (size_t)slow.tokens.count);
        json_decref(row);
    }
    chat_row_free(&fast);
    chat_row_free(&slow);
    chat_close(chat);
    put_file("chat_template.jinja", CHATML);
}

static void the_clock_can_be_stopped(void **state)
{
    (void)state;
    assert_int_equal(setenv("SOURCE_DATE_EPOCH", "86400", 1), 0);
    expect("{{ strftime_now('%d %b %Y %H:%M') }}", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}",
           "02 Jan "
           "1970 00:00");
    assert_int_equal(unsetenv("SOURCE_DATE_EPOCH"), 0);
}

static void a_prompt_ends_where_the_assistant_begins(void **state)
{
    (void)state;
    struct chat *chat;
    struct chat_row made = {0};
    struct buffer got = {0};
    assert_ok(chat_open(&chat, dir));
    json_t *row = parse("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}");
    assert_ok(chat_encode_prompt(chat, row, &made));
    bracketed(chat, &made, &got);
    assert_string_equal(got.data, "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
    assert_int_equal(made.tokens.id[0], 1);
    json_decref(row);
    buffer_free(&got);
    chat_row_free(&made);
    chat_close(chat);
}

static void eos_ids_come_from_both_places(void **state)
{
    (void)state;
    struct chat *chat;
    int64_t count;
    put_file("generation_config.json", "{\"eos_token_id\": [0, 2, 100000]}");
    assert_ok(chat_open(&chat, dir));
    const int32_t *eos = chat_eos(chat, &count);
    assert_int_equal(count, 2);
    assert_int_equal(eos[0], 2);
    assert_int_equal(eos[1], 0);
    chat_close(chat);
    put_file("generation_config.json", NULL);
}

/* Fails if generation_config.json may have any number of ids, each of which is compared with all others and with every token. */
static void too_many_eos_ids_are_an_error(void **state)
{
    (void)state;
    struct chat *chat;
    put_file("generation_config.json", "{\"eos_token_id\": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]}");
    assert_fails(chat_open(&chat, dir), ERR_UNSUPPORTED, "17 token ids in \"eos_token_id\", at most 16");
    put_file("generation_config.json", NULL);
}

/* Fails if the steps of the mask are not counted: each of the messages looks at all others. */
static void a_mask_that_takes_too_long_is_an_error(void **state)
{
    (void)state;
    struct chat *chat;
    struct chat_row made = {0};
    struct buffer text = {0};
    assert_ok(buffer_format(&text, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}"));
    for (int i = 0; i < 20000; i++)
        assert_ok(buffer_format(&text, ", {\"role\": \"assistant\", \"content\": \"\"}"));
    assert_ok(buffer_format(&text, "]}"));
    json_t *row = parse(text.data);
    assert_ok(chat_open(&chat, dir));
    assert_fails(chat_encode(chat, row, &made), ERR_LIMIT, "the mask of 20001 messages takes too long");
    json_decref(row);
    buffer_free(&text);
    chat_row_free(&made);
    chat_close(chat);
}

static void templates_are_found_where_they_are(void **state)
{
    (void)state;
    struct chat *chat;
    struct jinja_output out = {0};
    json_t *row = parse("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{\"name\": \"f\"}]}");
    put_file("chat_template.jinja", NULL);
    put_file("special_tokens_map.json", "{\"eos_token\": \"never\", \"pad_token\": {\"content\": \"P\"}}");
    put_file("tokenizer_config.json",
             "{\"eos_token\": \"E\", \"chat_template\": [{\"name\": \"default\", \"template\": \"{{ messages[0].content }}\"},"
             " {\"name\": \"tool_use\", \"template\": \"{{ tools[0].name ~ eos_token ~ pad_token }}\"}]}");
    assert_ok(chat_open(&chat, dir));
    assert_ok(chat_render(chat, row, false, &out));
    assert_string_equal(out.text.data, "fEP");
    chat_close(chat);
    put_file("tokenizer_config.json",
             "{\"chat_template\": \"{{ documents is none }}{{ tools|length }}{{ add_generation_prompt }}\"}");
    assert_fails(chat_open(&chat, dir), ERR_UNSUPPORTED, "eos_token \"never\"");
    put_file("special_tokens_map.json", NULL);
    assert_ok(chat_open(&chat, dir));
    assert_ok(chat_render(chat, row, true, &out));
    assert_string_equal(out.text.data, "True1True");
    chat_close(chat);
    put_file("chat_template.jinja", "{{ messages[0].content }}");
    put_more("{{ tools[0].name }} of a file");
    assert_ok(chat_open(&chat, dir));
    assert_ok(chat_render(chat, row, true, &out));
    assert_string_equal(out.text.data, "f of a file");
    chat_close(chat);
    put_more(NULL);
    put_file("chat_template.jinja", NULL);
    put_file("tokenizer_config.json", "{\"eos_token\": \"E\"}");
    assert_ok(chat_open(&chat, dir)); /* a base model: its tokenizer serves without a template */
    assert_fails(chat_render(chat, row, true, &out), ERR_UNSUPPORTED, "no chat template");
    chat_close(chat);
    put_file("tokenizer_config.json", "{\"chat_template\": \"{% if %}\"}");
    assert_fails(chat_open(&chat, dir), ERR_FORMAT, "tokenizer_config.json:1: ");
    put_file("tokenizer_config.json", "[1]");
    assert_fails(chat_open(&chat, dir), ERR_FORMAT, "must be a JSON object");
    put_file("tokenizer_config.json", "{");
    assert_fails(chat_open(&chat, dir), ERR_FORMAT, "tokenizer_config.json: line 1");
    put_file("chat_template.jinja", CHATML);
    put_file("special_tokens_map.json", NULL);
    put_file("tokenizer_config.json", "{\"bos_token\": \"<|im_start|>\", \"eos_token\": {\"content\": \"<|im_end|>\"}}");
    assert_fails(chat_open(&chat, "/nonexistent"), ERR_IO, "/nonexistent/tokenizer.json");
    json_decref(row);
    jinja_output_free(&out);
}

static void rows_that_cannot_be_used_say_why(void **state)
{
    (void)state;
    static const struct {
        const char *row, *message;
    } bad[] = {
        {"[1]", "not an object with \"messages\""},
        {"{}", "no \"messages\""},
        {"{\"messages\": 5}", "\"messages\" is not a list"},
        {"{\"messages\": []}", "\"messages\" is empty"},
        {"{\"messages\": [5]}", "message 1 is not an object"},
        {"{\"messages\": [{\"content\": \"a\"}]}", "message 1 has no \"role\""},
        {"{\"messages\": [{\"role\": 1, \"content\": \"a\"}]}", "message 1 has no \"role\""},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\"}]}",
         "message 2 (assistant) has no \"content\""},
        {"{\"messages\": [{\"role\": \"user\", \"content\": 5}]}", "message 1 (user) has no \"content\""},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": {}}", "\"tools\" is not a list"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"train\": 1}]}", "neither true nor false"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"weight\": 0.5}]}", "neither 0, not trained, nor 1"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"train\": true}]}", "only an assistant's messages"},
    };
    struct chat *chat;
    struct chat_row made = {0};
    assert_ok(chat_open(&chat, dir));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *row = parse(bad[i].row);
        assert_fails(chat_encode(chat, row, &made), ERR_DATA, bad[i].message);
        json_decref(row);
    }
    chat_row_free(&made);
    chat_close(chat);
}

static void running_out_of_memory_is_an_error(void **state)
{
    (void)state;
    json_t *row =
        parse("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}");
    struct chat *chat;
    assert_ok(chat_open(&chat, dir));
    struct failing f = {0};
    while (failing_next(&f)) {
        struct chat_row made = {0};
        failing_begin(&f);
        failing_end(&f, chat_encode(chat, row, &made));
        chat_row_free(&made);
    }
    assert_true(f.failed > 5);
    chat_close(chat);
    json_decref(row);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_mask_covers_assistants_and_their_end),
        cmocka_unit_test(the_mask_covers_what_the_model_has_to_say),
        cmocka_unit_test(generation_blocks_decide_for_themselves),
        cmocka_unit_test(a_message_may_be_no_target),
        cmocka_unit_test(what_is_typed_is_no_special_token),
        cmocka_unit_test(a_line_needs_no_tree),
        cmocka_unit_test(the_clock_can_be_stopped),
        cmocka_unit_test(a_prompt_ends_where_the_assistant_begins),
        cmocka_unit_test(eos_ids_come_from_both_places),
        cmocka_unit_test(too_many_eos_ids_are_an_error),
        cmocka_unit_test(a_mask_that_takes_too_long_is_an_error),
        cmocka_unit_test(templates_are_found_where_they_are),
        cmocka_unit_test(rows_that_cannot_be_used_say_why),
        cmocka_unit_test(running_out_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
