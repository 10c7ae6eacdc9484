/* text: tokenizers that are not byte-level, decoders, post-processors, and tokenizers from plain lists. */
#include "test.h"

#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "failing.h"
#include "text/tokenizer/tokenizer.h"

#define SP "\xe2\x96\x81" /* U+2581 */

static char dir[64], path[96], config[96];

static int make_folder(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/hone-kinds-XXXXXX");
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    snprintf(config, sizeof config, "%s/tokenizer_config.json", dir);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    unlink(config);
    return rmdir(dir);
}

static enum status open_text(struct tokenizer **out, const char *text)
{
    assert_ok(file_replace(path, text, (int64_t)strlen(text)));
    return tokenizer_open(out, path);
}

/* With the tokenizer_config.json next to it, if there is one. */
static enum status open_folder(struct tokenizer **out)
{
    json_t *tree = NULL;
    if (file_exists(config))
        assert_ok(json_parse_file_reals(&tree, config, 1 << 20));
    enum status status = tokenizer_open_with(out, path, (struct tokenizer_config[TOKENIZER_CONFIGS]){{tree, config}, {NULL, ""}});
    json_decref(tree);
    return status;
}

static struct tokenizer *tokenizer_of(const char *text)
{
    struct tokenizer *t = NULL;
    assert_ok(open_text(&t, text));
    return t;
}

static const char *shown(const struct tokens *tokens)
{
    static char out[1024];
    int n = 0;
    out[0] = 0;
    for (int64_t i = 0; i < tokens->count; i++)
        n += snprintf(out + n, sizeof out - (size_t)n, "%s%d:%lld-%lld", i ? " " : "", tokens->id[i], (long long)tokens->begin[i],
                      (long long)tokens->end[i]);
    return out;
}

static void check(const struct tokenizer *t, const char *text, const char *want)
{
    struct tokens tokens = {0};
    assert_ok(tokenizer_encode(t, text, (int64_t)strlen(text), &tokens));
    assert_string_equal(shown(&tokens), want);
    tokens_free(&tokens);
}

static void check_back(const struct tokenizer *t, const int32_t *ids, int64_t count, const char *want)
{
    struct buffer all = {0}, parts = {0};
    assert_ok(tokenizer_decode(t, ids, count, true, &all));
    assert_string_equal(all.data, want);
    for (int64_t i = 0; i < count; i++)
        assert_ok(tokenizer_decode_more(t, &ids[i], 1, true, i == 0, &parts));
    assert_string_equal(parts.data, want); /* one by one, as an answer is streamed */
    buffer_free(&all);
    buffer_free(&parts);
}

#define MODEL(extra)                                                                                                             \
    "\"model\":{\"type\":\"BPE\"," extra "\"vocab\":{\"<unk>\":0,\"<s>\":1,\"<0xC3>\":2,\"<0xA9>\":3,\
\"" SP "\":4,\"a\":5,\"b\":6,\"ab\":7,\"" SP "ab\":8,\"" SP SP "\":9},\"merges\":[\"a b\",\"" SP " ab\",\"" SP " " SP "\"]}"
#define SPECIAL "\"added_tokens\":[{\"id\":1,\"content\":\"<s>\",\"special\":true}],"
#define TO_SPACES                                                                                                                \
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"" SP "\"},\
{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" SP "\"}]},"
#define FROM_SPACES                                                                                                              \
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"" SP "\"},\
\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},\
{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]},"

static void characters_without_a_token_become_bytes_or_unknown(void **state)
{
    (void)state;
    struct tokenizer *t = tokenizer_of("{" SPECIAL TO_SPACES FROM_SPACES MODEL("\"byte_fallback\":true,") "}");
    check(t, "ab", "8:0-2");
    check(t, "ab ab", "8:0-2 8:2-5");
    check(t, "a\u00e9b", "4:0-1 5:0-1 2:1-2 3:2-3 6:3-4");
    check(t, "  ab", "9:0-1 8:1-4");
    check(t, "<s>ab", "1:0-3 8:3-5");
    check(t, "x", "4:0-1"); /* neither a token nor bytes, and no unknown one */
    int32_t ids[] = {8, 2, 3, 8, 9};
    check_back(t, ids, 5, "ab\u00e9 ab  ");
    tokenizer_close(t);
    t = tokenizer_of("{" TO_SPACES MODEL("\"unk_token\":\"<unk>\",\"fuse_unk\":true,") "}");
    check(t, "xya", "4:0-1 0:0-2 5:2-3");
    tokenizer_close(t);
    t = tokenizer_of("{" TO_SPACES MODEL("\"unk_token\":\"<unk>\",") "}");
    check(t, "xy ", "4:0-1 0:0-1 0:1-2 4:2-3");
    tokenizer_close(t);
    assert_fails(open_text(&t, "{" MODEL("\"unk_token\":\"?\",") "}"), ERR_FORMAT, "unk_token");
}

#define METASPACE(scheme, split)                                                                                                 \
    "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"" SP "\",\
\"prepend_scheme\":\"" scheme "\",\"split\":" split "},\
\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"" SP "\",\"prepend_scheme\":\"" scheme "\"},"

static void spaces_are_written_as_the_scheme_says(void **state)
{
    (void)state;
    struct tokenizer *t = tokenizer_of("{" SPECIAL METASPACE("first", "true") MODEL("") "}");
    check(t, "ab<s>ab", "8:0-2 1:2-5 7:5-7");
    check(t, " ab  ab", "8:0-3 4:3-4 8:4-7"); /* split: two spaces never become one token */
    int32_t ids[] = {8, 1, 7, 8};
    check_back(t, ids, 4, "ab<s>ab ab");
    tokenizer_close(t);
    t = tokenizer_of("{" SPECIAL METASPACE("always", "false") MODEL("") "}");
    check(t, "ab<s>ab", "8:0-2 1:2-5 8:5-7");
    check(t, "ab  b", "8:0-2 9:2-4 6:4-5");
    tokenizer_close(t);
    t = tokenizer_of("{" SPECIAL METASPACE("never", "false") MODEL("") "}");
    check(t, "ab ab", "7:0-2 8:2-5");
    check_back(t, ids, 4, " ab<s>ab ab");
    tokenizer_close(t);
    assert_fails(open_text(&t, "{" METASPACE("often", "true") MODEL("") "}"), ERR_FORMAT, "often");
}

#define UNIGRAM(extra)                                                                                                           \
    "\"model\":{\"type\":\"Unigram\"," extra "\"vocab\":[[\"<unk>\",0],[\"a\",-1.5],[\"b\",-1.5],\
[\"ab\",-3.5],[\"abc\",-2],[\"c\",-2],[\"<0xC3>\",-9],[\"<0xA9>\",-9e0]]}"

static void the_best_sum_of_scores_wins(void **state)
{
    (void)state;
    struct tokenizer *t = tokenizer_of("{" UNIGRAM("\"unk_id\":0,") "}");
    check(t, "ab", "1:0-1 2:1-2");
    check(t, "abcab", "4:0-3 1:3-4 2:4-5");
    check(t, "axyb", "1:0-1 0:1-3 2:3-4"); /* unknown characters are one token */
    check(t, "a\u00e9", "1:0-1 0:1-3");
    tokenizer_close(t);
    t = tokenizer_of("{" UNIGRAM("\"unk_id\":0,\"byte_fallback\":true,") "}");
    check(t, "a\u00e9", "1:0-1 6:1-2 7:2-3");
    tokenizer_close(t);
    t = tokenizer_of("{" UNIGRAM("\"unk_id\":null,") "}");
    struct tokens tokens = {0};
    assert_fails(tokenizer_encode(t, "ax", 2, &tokens), ERR_DATA, "U+0078");
    tokenizer_close(t);
    assert_fails(open_text(&t, "{" UNIGRAM("\"unk_id\":8,") "}"), ERR_FORMAT, "unknown token");
    assert_fails(open_text(&t, "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",1e999]]}}"), ERR_FORMAT, "too large");
    assert_fails(open_text(&t, "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}"), ERR_FORMAT, "column");
    assert_fails(open_text(&t, "{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}"), ERR_FORMAT, "no tokens");
}

static void tokens_surround_a_text(void **state)
{
    (void)state;
#define TEMPLATE(single)                                                                                                         \
    "\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},\
{\"type\":\"TemplateProcessing\",\"single\":[" single "],\"special_tokens\":{\"<s>\":{\"ids\":[1]}}}]},"
#define TOKEN "{\"SpecialToken\":{\"id\":\"<s>\"}}"
#define TEXT "{\"Sequence\":{\"id\":\"A\"}}"
    struct tokenizer *t = tokenizer_of("{" SPECIAL TEMPLATE(TOKEN "," TEXT "," TOKEN) MODEL("") "}");
    struct tokens tokens = {0};
    assert_ok(tokenizer_encode_surrounded(t, "ab", 2, &tokens));
    assert_string_equal(shown(&tokens), "1:0-0 7:0-2 1:2-2");
    tokens.count = 0;
    assert_fails(tokenizer_encode_surrounded(t, "\xff", 1, &tokens), ERR_DATA, "UTF-8");
    assert_int_equal(tokens.count, 0);
    tokens_free(&tokens);
    tokenizer_close(t);
    assert_fails(open_text(&t, "{" TEMPLATE(TEXT "," TEXT) MODEL("") "}"), ERR_UNSUPPORTED, "twice");
    assert_fails(open_text(&t, "{" TEMPLATE(TOKEN) MODEL("") "}"), ERR_UNSUPPORTED, "without the text");
    assert_fails(open_text(&t, "{\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"x\",99],"
                               "\"sep\":[\"y\",1]}," MODEL("") "}"),
                 ERR_FORMAT, "id 99");
    assert_fails(open_text(&t, "{\"post_processor\":{\"type\":\"Other\"}," MODEL("") "}"), ERR_UNSUPPORTED, "Other");
}

/* A token that tokenizer.json does not add is added by tokenizer_config.json; one that it has gets other flags, but stays
 * special. */
static void the_config_adds_tokens(void **state)
{
    (void)state;
    static const char CONFIG[] = "{\"added_tokens_decoder\":{\"10\":{\"content\":\"<new>\",\"special\":true},"
                                 "\"1\":{\"content\":\"<s>\",\"special\":false},\"7\":{\"content\":\"ab\"}}}";
    struct tokenizer *t = tokenizer_of("{" SPECIAL MODEL("\"unk_token\":\"<unk>\",") "}");
    check(t, "<new>", "0:0-1 0:1-2 0:2-3 0:3-4 0:4-5");
    tokenizer_close(t);
    assert_ok(file_replace(config, CONFIG, sizeof CONFIG - 1));
    assert_ok(open_folder(&t));
    check(t, "a<new>", "5:0-1 10:1-6");
    assert_true(tokenizer_is_special(t, 10) && tokenizer_is_special(t, 1) && tokenizer_is_added(t, 7));
    check(t, "a <s>", "5:0-1 0:1-2 1:2-5");
    tokenizer_close(t);
    static const char STRIPS[] = "{\"added_tokens_decoder\":{\"1\":{\"content\":\"<s>\",\"lstrip\":true}}}";
    assert_ok(file_replace(config, STRIPS, sizeof STRIPS - 1));
    assert_ok(open_folder(&t));
    check(t, "a <s>", "5:0-1 1:1-5");
    tokenizer_close(t);
    unlink(config);
    assert_ok(open_folder(&t));
    assert_false(tokenizer_is_added(t, 7));
    tokenizer_close(t);
    static const char WRONG[] = "{\"added_tokens_decoder\":{\"x\":{\"content\":\"<new>\"}}}";
    assert_ok(file_replace(config, WRONG, sizeof WRONG - 1));
    assert_fails(open_folder(&t), ERR_FORMAT, "cannot have the id -1");
    unlink(config);
}

/* What the files next to tokenizer.json name is special, if the vocabulary has it. Fails if "ab" is found only by its merge. */
static void named_tokens_are_special(void **state)
{
    (void)state;
    static const char *const configs[] = {
        "{\"eos_token\":\"ab\"}", "{\"pad_token\":{\"content\":\"ab\",\"special\":false}}",
        "{\"additional_special_tokens\":[\"<none>\",\"ab\"]}", "{\"extra_special_tokens\":[{\"content\":\"ab\"}]}",
        "{\"extra_special_tokens\":{\"image_token\":\"ab\"},\"additional_special_tokens\":null}"};
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        struct tokenizer *t = tokenizer_of("{" SPECIAL MODEL("\"unk_token\":\"<unk>\",") "}");
        assert_false(tokenizer_is_special(t, 7));
        tokenizer_close(t);
        assert_ok(file_replace(config, configs[i], (int64_t)strlen(configs[i])));
        assert_ok(open_folder(&t));
        assert_true(tokenizer_is_special(t, 7));
        check(t, "aab", "5:0-1 7:1-3");
        tokenizer_close(t);
    }
    unlink(config);
}

/* A table with one entry: A becomes b. */
static void a_table_replaces_text(void **state)
{
    (void)state;
    static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    enum { UNITS = 834, BYTES = 4 + 4 * UNITS + 2 };
    uint32_t units[1 + UNITS] = {4 * UNITS};
    units[1] = 256 << 10;                              /* the root's children are at 256 ^ byte */
    units[1 + (256 ^ 'A')] = 'A' | 1 << 8 | 512 << 10; /* ends an entry, whose value is at 512 ^ its place */
    uint8_t bytes[BYTES + 2] = {0};
    memcpy(bytes, units, sizeof units);
    bytes[BYTES - 2] = 'b';
    char base64[(BYTES + 2) / 3 * 4 + 1];
    for (int i = 0, k = 0; i < BYTES; i += 3) {
        uint32_t three = (uint32_t)bytes[i] << 16 | (uint32_t)bytes[i + 1] << 8 | bytes[i + 2];
        for (int shift = 18; shift >= 0; shift -= 6)
            base64[k++] = DIGITS[three >> shift & 63];
        base64[k] = 0;
    }
    base64[(BYTES * 8 + 5) / 6] = 0; /* the rest of the last three bytes */
    struct buffer file = {0};
    assert_ok(buffer_format(
        &file, "{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"%s\"}," UNIGRAM("\"unk_id\":0,") "}",
        base64));
    struct tokenizer *t = tokenizer_of(file.data);
    check(t, "aA", "1:0-1 2:1-2");
    check(t, "aAc", "4:0-3");
    check(t, "A\u0301c", "2:0-3 5:3-4"); /* a short cluster is replaced as a whole */
    tokenizer_close(t);
    assert_fails(open_text(&t, "{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}," UNIGRAM("") "}"),
                 ERR_FORMAT, "truncated");
    assert_fails(open_text(&t, "{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"A*AA\"}," UNIGRAM("") "}"),
                 ERR_FORMAT, "base64");
    buffer_free(&file);
}

static const struct tokenizer_text PIECES[] = {{"<unk>", 5}, {"<s>", 3}, {SP, 3},      {"a", 1},
                                               {"b", 1},     {"ab", 2},  {SP "ab", 5}, {"ba", 2}};

static const float SCORES[] = {0, 0, -9, -9, -9, -2, -3, -1};

/* What a file says nothing of is -1. */
static struct tokenizer_lists scored(const struct tokenizer_text *tokens, const float *scores, int64_t count)
{
    return (struct tokenizer_lists){.model = "llama",
                                    .tokens = tokens,
                                    .scores = scores,
                                    .count = count,
                                    .unknown = 0,
                                    .bos = -1,
                                    .eos = -1,
                                    .add_bos = -1,
                                    .add_eos = -1,
                                    .space_prefix = -1};
}

static void lists_make_a_tokenizer(void **state)
{
    (void)state;
    static const int32_t types[] = {WORD_UNKNOWN, WORD_CONTROL, 1, 1, 1, 1, 1, 1};
    struct tokenizer_lists w = scored(PIECES, SCORES, 8);
    w.types = types;
    w.bos = 1;
    struct tokenizer *t;
    assert_ok(tokenizer_open_lists(&t, &w, "lists"));
    check(t, "ab", "6:0-2");
    check(t, "aba", "2:0-1 3:0-1 7:1-3"); /* "ba" has the higher score */
    check(t, "<s>", "1:0-3");
    struct tokens tokens = {0};
    assert_ok(tokenizer_encode_surrounded(t, "ab", 2, &tokens));
    assert_string_equal(shown(&tokens), "1:0-0 6:0-2");
    tokens_free(&tokens);
    tokenizer_close(t);

    static const struct tokenizer_text merges[] = {{"a b", 3}, {SP " ab", 6}};
    w.model = "gemma4";
    w.merges = merges;
    w.merge_count = 2;
    assert_ok(tokenizer_open_lists(&t, &w, "lists"));
    check(t, "ab ab", "5:0-2 6:2-5");
    tokenizer_close(t);

    w.model = "bert";
    assert_fails(tokenizer_open_lists(&t, &w, "lists"), ERR_UNSUPPORTED, "\"bert\"");
    w.model = "gpt2";
    w.pre = "strange";
    assert_fails(tokenizer_open_lists(&t, &w, "lists"), ERR_UNSUPPORTED, "\"strange\"");
    w.pre = "gpt-2";
    w.merges = NULL;
    assert_fails(tokenizer_open_lists(&t, &w, "lists"), ERR_FORMAT, "no merges");
}

/* Tokens of one letter, so that each split of each is a pair. Fails if find_scored takes them all. */
static void pairs_of_tokens_are_limited(void **state)
{
    (void)state;
    enum { COUNT = 1024, LENGTH = 256 };
    static char texts[COUNT / LENGTH][LENGTH];
    static struct tokenizer_text tokens[COUNT];
    static float scores[COUNT];
    for (int i = 0; i < COUNT; i++) {
        memset(texts[i / LENGTH], 'a' + i / LENGTH, LENGTH);
        tokens[i] = (struct tokenizer_text){texts[i / LENGTH], i % LENGTH + 1};
    }
    struct tokenizer_lists w = scored(tokens, scores, 512);
    struct tokenizer *t;
    assert_ok(tokenizer_open_lists(&t, &w, "lists"));
    tokenizer_close(t);
    w.count = COUNT;
    assert_fails(tokenizer_open_lists(&t, &w, "lists"), ERR_LIMIT, "lists: more than 69632 pairs make a token");
}

static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    struct tokenizer_lists w = scored(PIECES, SCORES, 8);
    w.space_prefix = 1;
    struct tokenizer *t = NULL;
    for (int kind = 0; kind < 3; kind++) {
        if (kind)
            assert_ok(open_text(&t, kind == 1 ? "{" SPECIAL TO_SPACES FROM_SPACES MODEL("\"byte_fallback\":true,") "}"
                                              : "{" METASPACE("first", "true") UNIGRAM("\"unk_id\":0,") "}"));
        else
            assert_ok(tokenizer_open_lists(&t, &w, "lists"));
        struct failing coding = {0}, opening = {0};
        while (failing_next(&coding)) {
            struct tokens tokens = {0};
            struct buffer text = {0};
            failing_begin(&coding);
            enum status status = tokenizer_encode_surrounded(t, "ab  a<s>b", 9, &tokens);
            if (status == OK)
                status = tokenizer_decode(t, tokens.id, tokens.count, true, &text);
            failing_end(&coding, status);
            tokens_free(&tokens);
            buffer_free(&text);
        }
        tokenizer_close(t);
        while (failing_next(&opening)) {
            failing_begin(&opening);
            enum status status = kind ? tokenizer_open(&t, path) : tokenizer_open_lists(&t, &w, "lists");
            failing_end(&opening, status);
            if (status == OK)
                tokenizer_close(t);
        }
        assert_true(coding.failed > 2 && opening.failed > 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_without_a_token_become_bytes_or_unknown),
        cmocka_unit_test(spaces_are_written_as_the_scheme_says),
        cmocka_unit_test(the_best_sum_of_scores_wins),
        cmocka_unit_test(a_table_replaces_text),
        cmocka_unit_test(tokens_surround_a_text),
        cmocka_unit_test(the_config_adds_tokens),
        cmocka_unit_test(named_tokens_are_special),
        cmocka_unit_test(lists_make_a_tokenizer),
        cmocka_unit_test(pairs_of_tokens_are_limited),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
