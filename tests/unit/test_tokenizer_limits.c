/* Tokenizers that somebody made to be slow or large: small files and texts that would take much time or memory end with an error,
 * and what only looks like them works. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "text/tokenizer/tokenizer.h"

static char dir[64], path[96];

static int make_folder(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/hone-tokenizer-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(dir);
}

static struct tokenizer *tokenizer_of(const struct buffer *text)
{
    struct tokenizer *t = NULL;
    assert_ok(file_replace(path, text->data, text->size));
    assert_ok(tokenizer_open(&t, path));
    return t;
}

static void put_many(struct buffer *out, const char *text, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        assert_ok(buffer_format(out, "%s", text));
}

/* A vocabulary of a, b, c and of others, which are in the model or added to it: count times the letter a, up to `last` times, and
 * b or c. */
static struct tokenizer *of_long_tokens(bool added, int first, int last)
{
    struct buffer text = {0}, more = {0};
    int id = 3;
    for (int n = first; n <= last; n++)
        for (char c = 'b'; c <= 'c'; c++) {
            if (added)
                assert_ok(buffer_format(&more, "%s{\"id\":%d,\"content\":\"", id > 3 ? "," : "", id));
            else
                assert_ok(buffer_format(&more, ",[\""));
            put_many(&more, "a", n);
            assert_ok(buffer_format(&more, added ? "%c\"}" : "%c\",-1]", c));
            id++;
        }
    assert_ok(buffer_format(&text,
                            "{\"added_tokens\":[%s],\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1],[\"b\",-1],"
                            "[\"c\",-1]%s]}}",
                            added ? more.data : "", added ? "" : more.data));
    struct tokenizer *t = tokenizer_of(&text);
    buffer_free(&text);
    buffer_free(&more);
    return t;
}

/* Fails if a search may look at each byte of a long token at every byte of a text. */
static void tokens_with_a_long_beginning_do_not_slow_a_text(void **state)
{
    (void)state;
    for (int added = 0; added < 2; added++) {
        struct tokenizer *t = of_long_tokens(added, 4000, 4000);
        struct buffer text = {0};
        struct tokens tokens = {0};
        put_many(&text, "a", 100001);
        put_many(&text, "c", 2);
        assert_ok(tokenizer_encode(t, text.data, text.size, &tokens));
        assert_int_equal(tokens.count, 96003);
        assert_int_equal(tokens.id[96000], 0);
        assert_int_equal(tokens.id[96001], 4);
        assert_int_equal(tokens.id[96002], 2);
        tokenizer_close(t);

        t = of_long_tokens(added, 1, 800);
        assert_ok(tokenizer_encode(t, text.data, 1000, &tokens));
        assert_fails(tokenizer_encode(t, text.data, 100000, &tokens), ERR_LIMIT, "takes too long");
        tokens_free(&tokens);
        buffer_free(&text);
        tokenizer_close(t);
    }
}

/* A normalizer's steps and what they make of a text, letter by letter: the ids. */
static enum status normalised(const char *steps, const char *letter, int64_t count, struct tokens *tokens)
{
    struct buffer json = {0}, text = {0};
    assert_ok(buffer_format(&json,
                            "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[%s]},\"model\":{\"type\":\"Unigram\","
                            "\"unk_id\":0,\"vocab\":[[\"?\",-1],[\"a\",-1],[\"\u2581\",-1]]}}",
                            steps));
    put_many(&text, letter, count);
    tokens->count = 0;
    struct tokenizer *t = tokenizer_of(&json);
    enum status status = tokenizer_encode(t, text.data, text.size, tokens);
    tokenizer_close(t);
    buffer_free(&text);
    buffer_free(&json);
    return status;
}

#define REPLACE(from, to) "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" from "\"},\"content\":\"" to "\"}"

/* Fails if a rule may make more of a text than writing systems need, or less: U+FDFA is 18 letters, 3 of them spaces. */
static void a_normalizer_makes_texts_only_as_long_as_writing_does(void **state)
{
    (void)state;
    struct tokens tokens = {0};
    assert_ok(normalised(REPLACE(" ", "\u2581"), " ", 20000, &tokens));
    assert_int_equal(tokens.count, 20000);
    assert_ok(normalised("{\"type\":\"NFKC\"}," REPLACE(" ", "\u2581"), "\ufdfa", 20000, &tokens));
    assert_int_equal(tokens.count, 20000 * 6 + 1); /* the last word and the next first are one */
    assert_ok(normalised(REPLACE("b", "aaaaaaaaaaaaaaaa"), "b", 100, &tokens));
    assert_int_equal(tokens.count, 1600);
    assert_fails(normalised(REPLACE("b", "aaaaaaaaaaaaaaaa"), "b", 20000, &tokens), ERR_LIMIT, "longer than 84096 bytes");
    assert_fails(normalised(REPLACE("b", "\ufdfa") ",{\"type\":\"NFKD\"}", "b", 20000, &tokens), ERR_LIMIT, "longer than 244096");
    tokens_free(&tokens);
}

static uint32_t next_random(uint32_t *seed)
{
    return (*seed = *seed * 1664525 + 1013904223) >> 16;
}

/* Fails if what tokens share is skipped by a byte too much or too little: they are looked for one by one here. */
static void the_longest_added_token_is_found(void **state)
{
    (void)state;
    enum { TOKENS = 12, BYTES_MAX = 9, TEXT = 300 };
    uint32_t seed = 1;
    for (int again = 0; again < 40; again++) {
        char token[TOKENS][BYTES_MAX + 1] = {{0}}, text[TEXT + 1] = {0};
        struct buffer json = {0};
        struct tokens tokens = {0};
        assert_ok(buffer_format(&json, "{\"added_tokens\":["));
        for (int i = 0; i < TOKENS; i++) {
            for (int n = 2 + (int)(next_random(&seed) % 3), b = 0; b < n; b++)
                token[i][b] = "ab"[next_random(&seed) % 8 == 0];
            token[i][strlen(token[i])] = (char)('c' + i % 6); /* no two are the same */
            if (i >= 6)
                token[i][strlen(token[i])] = 'a';
            assert_ok(buffer_format(&json, "%s{\"id\":%d,\"content\":\"%s\"}", i ? "," : "", 8 + i, token[i]));
        }
        assert_ok(buffer_format(&json, "],\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1],[\"b\",-1],[\"c\",-1],"
                                       "[\"d\",-1],[\"e\",-1],[\"f\",-1],[\"g\",-1],[\"h\",-1]]}}"));
        for (int i = 0; i < TEXT; i++)
            text[i] = "aaaaabcdefgh"[next_random(&seed) % 12];
        struct tokenizer *t = tokenizer_of(&json);
        assert_ok(tokenizer_encode(t, text, TEXT, &tokens));
        int64_t count = 0;
        for (int64_t at = 0, longest; at < TEXT; at += longest) {
            int32_t id = text[at] - 'a';
            longest = 1;
            for (int i = 0; i < TOKENS; i++)
                if (strncmp(text + at, token[i], strlen(token[i])) == 0 && (int64_t)strlen(token[i]) > longest) {
                    id = 8 + i;
                    longest = (int64_t)strlen(token[i]);
                }
            assert_true(count < tokens.count);
            assert_int_equal(tokens.id[count++], id);
        }
        assert_int_equal(count, tokens.count);
        tokens_free(&tokens);
        buffer_free(&json);
        tokenizer_close(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_with_a_long_beginning_do_not_slow_a_text),
        cmocka_unit_test(a_normalizer_makes_texts_only_as_long_as_writing_does),
        cmocka_unit_test(the_longest_added_token_is_found),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
