/* text: tokenizers. Each test writes a small tokenizer.json: the 256 bytes as ids 0 to 255 and a few merges after them. */
#include "test.h"

#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "failing.h"
#include "text/tokenizer/alphabet.h"
#include "text/tokenizer/tokenizer.h"

#define BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}"
#define BYTES_ONLY "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}"

/* The parts that differ between tests; NULL: the usual. `merges` are "left right" in the byte alphabet, in order. */
struct parts {
    const char *merges, *added, *normalizer, *pre_tokenizer, *decoder, *model_extra, *type;
};

static char path[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(path, "/tmp/hone-tokenizer-XXXXXX");
    if (!mkdtemp(path))
        return 1;
    strcat(path, "/t.json");
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    *strrchr(path, '/') = 0;
    return rmdir(path);
}

/* What the merges "h e,he l" join, as vocabulary entries from id 256 on. */
static void put_merges(struct buffer *vocabulary, struct buffer *list, const char *merges)
{
    int id = 256;
    for (const char *at = merges; at && *at;) {
        const char *space = strchr(at, ' '), *end = space + 1 + strcspn(space + 1, ",");
        assert_ok(buffer_format(vocabulary, ",\"%.*s%.*s\":%d", (int)(space - at), at, (int)(end - space - 1), space + 1, id++));
        assert_ok(buffer_format(list, "%s\"%.*s\"", list->size ? "," : "", (int)(end - at), at));
        at = *end ? end + 1 : end;
    }
}

static void write_file(const char *text, int64_t length)
{
    assert_ok(file_replace(path, text, length));
}

static enum status open_parts(struct tokenizer **out, struct parts p)
{
    struct buffer vocabulary = {0}, list = {0}, file = {0};
    for (int byte = 0; byte < 256; byte++) {
        char utf8[4];
        int n = alphabet_char((uint8_t)byte, utf8);
        assert_ok(buffer_format(&vocabulary, "%s\"%s%.*s\":%d", byte ? "," : "", byte == '"' || byte == '\\' ? "\\" : "", n, utf8,
                                byte));
    }
    put_merges(&vocabulary, &list, p.merges);
    assert_ok(buffer_format(&file,
                            "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[%s],\"normalizer\":%s,"
                            "\"pre_tokenizer\":%s,\"post_processor\":null,\"decoder\":%s,"
                            "\"model\":{\"type\":\"%s\",%s\"vocab\":{%s},\"merges\":[%s]}}",
                            p.added ? p.added : "", p.normalizer ? p.normalizer : "null",
                            p.pre_tokenizer ? p.pre_tokenizer : BYTE_LEVEL, p.decoder ? p.decoder : BYTE_LEVEL,
                            p.type ? p.type : "BPE", p.model_extra ? p.model_extra : "", vocabulary.data,
                            list.size ? list.data : ""));
    write_file(file.data, file.size);
    buffer_free(&vocabulary);
    buffer_free(&list);
    buffer_free(&file);
    return tokenizer_open(out, path);
}

static struct tokenizer *tokenizer_of(struct parts p)
{
    struct tokenizer *t = NULL;
    assert_ok(open_parts(&t, p));
    return t;
}

/* The tokens as "id:begin-end id:begin-end". */
static const char *encoded(const struct tokenizer *t, const char *text)
{
    static char out[4096];
    struct tokens tokens = {0};
    assert_ok(tokenizer_encode(t, text, (int64_t)strlen(text), &tokens));
    int n = 0;
    out[0] = 0;
    for (int64_t i = 0; i < tokens.count; i++)
        n += snprintf(out + n, sizeof out - (size_t)n, "%s%d:%lld-%lld", i ? " " : "", tokens.id[i], (long long)tokens.begin[i],
                      (long long)tokens.end[i]);
    tokens_free(&tokens);
    return out;
}

static void check(struct parts p, const char *text, const char *want)
{
    struct tokenizer *t = tokenizer_of(p);
    assert_string_equal(encoded(t, text), want);
    tokenizer_close(t);
}

static void merges_go_by_rank_then_from_the_left(void **state)
{
    (void)state;
    check((struct parts){.merges = "l l,h e,he ll,hell o"}, "hello", "259:0-5");
    check((struct parts){.merges = "a a"}, "aaaaa", "256:0-2 256:2-4 97:4-5");
    check((struct parts){.merges = "b c,a b"}, "abc", "97:0-1 256:1-3");
    check((struct parts){.merges = "a b,b c"}, "abc", "256:0-2 99:2-3");
    check((struct parts){.merges = "Ġ w"}, "a w", "97:0-1 256:1-3");
    check((struct parts){0}, "", "");
}

/* Words long enough for the heap give the same as the simple algorithm. */
static void long_words_merge_like_short_ones(void **state)
{
    (void)state;
    struct tokenizer *t =
        tokenizer_of((struct parts){.merges = "a b,ab ab,abab abab,b a,abababab abababab", .pre_tokenizer = BYTES_ONLY});
    for (int length = 1; length <= 400; length++) {
        char text[401];
        for (int i = 0; i < length; i++)
            text[i] = "ab"[i % 2];
        struct tokens tokens = {0};
        assert_ok(tokenizer_encode(t, text, length, &tokens));
        int64_t at = 0, wholes = length / 16;
        for (int64_t i = 0; i < tokens.count; i++) {
            assert_int_equal(tokens.begin[i], at);
            at = tokens.end[i];
            assert_int_equal(tokens.id[i] == 260, i < wholes);
        }
        assert_int_equal(at, length);
        tokens_free(&tokens);
    }
    tokenizer_close(t);
}

static void characters_without_a_token_are_bytes(void **state)
{
    (void)state;
    struct tokenizer *t = tokenizer_of((struct parts){.merges = "Ã ©"});
    assert_string_equal(encoded(t, "é€"), "256:0-2 226:2-3 130:3-4 172:4-5");
    int32_t cut[] = {256, 226, 130};
    struct buffer text = {0};
    assert_ok(tokenizer_decode(t, cut, 3, true, &text));
    assert_int_equal(text.size, 4);
    assert_memory_equal(text.data, "é\xe2\x82", 4);
    buffer_free(&text);
    tokenizer_close(t);
}

static void every_text_comes_back(void **state)
{
    (void)state;
    struct tokenizer *t =
        tokenizer_of((struct parts){.merges = "Ġ t,h e,Ġt he", .added = "{\"id\":259,\"content\":\"<x>\",\"special\":true}"});
    static const char *const texts[] = {"the <x> the\n\n  'tis 12'000 \t", "日本語 🙂 e\u0301\u00a0\u180e", "<x><x>", "  "};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct tokens tokens = {0};
        struct buffer back = {0};
        assert_ok(tokenizer_encode(t, texts[i], (int64_t)strlen(texts[i]), &tokens));
        assert_ok(tokenizer_decode(t, tokens.id, tokens.count, true, &back));
        assert_string_equal(back.data, texts[i]);
        int64_t at = 0;
        for (int64_t k = 0; k < tokens.count; at = tokens.end[k++])
            assert_int_equal(tokens.begin[k], at);
        assert_int_equal(at, (int64_t)strlen(texts[i]));
        buffer_free(&back);
        tokens_free(&tokens);
    }
    int32_t ids[] = {'a', 259, 'b'};
    struct buffer text = {0};
    assert_ok(tokenizer_decode(t, ids, 3, false, &text));
    assert_string_equal(text.data, "ab");
    int32_t wrong[] = {260, -1};
    assert_fails(tokenizer_decode(t, wrong, 1, true, &text), ERR_DATA, "id 260");
    assert_fails(tokenizer_decode(t, wrong + 1, 1, true, &text), ERR_DATA, "id -1");
    buffer_free(&text);
    tokenizer_close(t);
}

static void added_tokens_come_first(void **state)
{
    (void)state;
    struct parts p = {
        .merges = "< x",
        .pre_tokenizer = BYTES_ONLY,
        .added =
            "{\"id\":257,\"content\":\"<x>\",\"special\":true},{\"id\":258,\"content\":\"<x>y\"},{\"id\":97,\"content\":\"a\"}"};
    check(p, "<x>", "257:0-3");
    check(p, "<x>yz", "258:0-4 122:4-5");
    check(p, "<x<x>", "256:0-2 257:2-5");
    check(p, "<x", "256:0-2");
    struct tokenizer *t = tokenizer_of(p);
    assert_int_equal(tokenizer_vocabulary(t), 259);
    assert_int_equal(tokenizer_id(t, "<x>", 3), 257);
    assert_int_equal(tokenizer_id(t, "<x", 2), 256);
    assert_int_equal(tokenizer_id(t, "nothing", 7), -1);
    assert_true(tokenizer_is_added(t, 258) && !tokenizer_is_special(t, 258) && tokenizer_is_special(t, 257));
    assert_true(tokenizer_is_added(t, 97) && !tokenizer_is_added(t, 98));
    assert_false(tokenizer_is_added(t, -1) || tokenizer_is_added(t, 1000000));
    tokenizer_close(t);
}

static const char *guarded(const struct tokenizer *t, const char *text, int64_t begin, int64_t end)
{
    static char out[1024];
    struct tokens tokens = {0};
    const struct text_range plain = {begin, end};
    assert_ok(tokenizer_encode_guarded(t, text, (int64_t)strlen(text), &plain, 1, &tokens));
    int n = 0;
    for (int64_t i = 0; i < tokens.count; i++)
        n += snprintf(out + n, sizeof out - (size_t)n, "%s%d:%lld-%lld", i ? " " : "", tokens.id[i], (long long)tokens.begin[i],
                      (long long)tokens.end[i]);
    tokens_free(&tokens);
    return out;
}

static void text_of_a_user_has_no_special_tokens(void **state)
{
    (void)state;
    struct parts p = {.merges = "a b",
                      .pre_tokenizer = BYTES_ONLY,
                      .normalizer = "{\"type\":\"Lowercase\"}",
                      .added = "{\"id\":257,\"content\":\"<x>\",\"special\":true},{\"id\":258,\"content\":\"<y>\"},"
                               "{\"id\":259,\"content\":\"<x>ab\",\"special\":true},"
                               "{\"id\":260,\"content\":\"<N>\",\"special\":true,\"normalized\":true}"};
    struct tokenizer *t = tokenizer_of(p);
    assert_string_equal(guarded(t, "<x><x><x>", 3, 6), "257:0-3 60:3-4 120:4-5 62:5-6 257:6-9");
    assert_string_equal(guarded(t, "<x><y><x>", 3, 6), "257:0-3 258:3-6 257:6-9"); /* not special: still one token */
    assert_string_equal(guarded(t, "<x>", 2, 3), "60:0-1 120:1-2 62:2-3");         /* its last byte was typed */
    assert_string_equal(guarded(t, "<x>ab", 3, 4), "257:0-3 256:3-5");             /* the shorter token, then a merge across */
    assert_string_equal(guarded(t, "<x>ab", 5, 5), "259:0-5");
    assert_string_equal(guarded(t, "<n><N>", 0, 3), "60:0-1 110:1-2 62:2-3 260:3-6");
    const struct text_range wrong[] = {{0, 2}, {1, 3}};
    struct tokens tokens = {0};
    assert_fails(tokenizer_encode_guarded(t, "abc", 3, wrong, 2, &tokens), ERR_ARGUMENT, "range 1");
    assert_fails(tokenizer_encode_guarded(t, "ab", 2, wrong + 1, 1, &tokens), ERR_ARGUMENT, "range 0");
    tokenizer_close(t);
}

static void flags_of_added_tokens_hold(void **state)
{
    (void)state;
    check((struct parts){.added = "{\"id\":256,\"content\":\"ok\",\"single_word\":true}"}, "ok tok ok2 ok",
          "256:0-2 32:2-3 116:3-4 111:4-5 107:5-6 32:6-7 111:7-8 107:8-9 50:9-10 32:10-11 256:11-13");
    check((struct parts){.added = "{\"id\":256,\"content\":\"ok\",\"single_word\":true}"}, "éok",
          "195:0-1 169:1-2 111:2-3 107:3-4");
    check((struct parts){.added = "{\"id\":256,\"content\":\"<m>\",\"lstrip\":true}"}, "a \u2003<m> b",
          "97:0-1 256:1-8 32:8-9 98:9-10");
    check((struct parts){.added = "{\"id\":256,\"content\":\"<m>\",\"rstrip\":true}"}, "a <m> \n b",
          "97:0-1 32:1-2 256:2-8 98:8-9");
    check((struct parts){.added = "{\"id\":256,\"content\":\" \",\"lstrip\":true,\"rstrip\":true}"}, "a    b",
          "97:0-1 256:1-5 98:5-6");
    struct parts lower = {
        .normalizer = "{\"type\":\"Lowercase\"}",
        .added = "{\"id\":256,\"content\":\"DAY\",\"normalized\":true},{\"id\":257,\"content\":\"SUN\",\"normalized\":false}"};
    check(lower, "dAySUN", "256:0-3 257:3-6");
    check(lower, "sun", "115:0-1 117:1-2 110:2-3");
}

static void normalisation_keeps_offsets(void **state)
{
    (void)state;
    struct parts nfc = {.merges = "Ã ©", .normalizer = "{\"type\":\"NFC\"}"};
    check(nfc, "xe\u0301y", "120:0-1 256:1-4 121:4-5");
    check(nfc, "xéy", "120:0-1 256:1-3 121:3-4");
    check(nfc, "ascii", "97:0-1 115:1-2 99:2-3 105:3-4 105:4-5");
    check((struct parts){.merges = "e Ì,eÌ ģ", .normalizer = "{\"type\":\"NFD\"}", .pre_tokenizer = BYTES_ONLY}, "xé",
          "120:0-1 257:1-3");
    check((struct parts){.normalizer = "{\"type\":\"NFKC\"}"}, "\ufb01\u2460", "102:0-3 105:0-3 49:3-6");
    check((struct parts){.merges = "ê °,ê° Ģ", .normalizer = "{\"type\":\"NFKC\"}"}, "\u3131\u314f", "257:0-6");
    check((struct parts){.normalizer = "{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}"}, "\u3000 a \n", "97:4-5");
    check(
        (struct parts){
            .normalizer =
                "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Lowercase\"},{\"type\":\"Prepend\",\"prepend\":\"_\"},"
                "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"b+\"},\"content\":\"cd\"}]}"},
        "ABBB", "95:0-1 97:0-1 99:1-4 100:1-4");
}

static void words_are_cut_as_the_file_says(void **state)
{
    (void)state;
    struct parts p = {.merges = "1 2,Ġ x,a -,- b,- -"};
    check(p, "12 x", "256:0-2 257:2-4");
    p.pre_tokenizer =
        "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":true}," BYTE_LEVEL "]}";
    check(p, "12 x", "49:0-1 50:1-2 257:2-4");
    p.pre_tokenizer = "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true}";
    check(p, "x", "257:0-1");
    check(p, " x", "257:0-2");
    static const struct {
        const char *behaviour, *want;
    } splits[] = {
        {"Isolated", "97:0-1 45:1-2 45:2-3 98:3-4"},     {"Removed", "97:0-1 98:3-4"},
        {"MergedWithPrevious", "258:0-2 45:2-3 98:3-4"}, {"MergedWithNext", "97:0-1 45:1-2 259:2-4"},
        {"Contiguous", "97:0-1 260:1-3 98:3-4"},
    };
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        char text[512];
        snprintf(
            text, sizeof text,
            "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"String\":\"-\"},\"behavior\":\"%s\","
            "\"invert\":false}," BYTES_ONLY "]}",
            splits[i].behaviour);
        p.pre_tokenizer = text;
        check(p, "a--b", splits[i].want);
    }
    p.pre_tokenizer =
        "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[ab]\"},\"behavior\":\"Removed\","
        "\"invert\":true}," BYTES_ONLY "]}";
    check(p, "a--b", "97:0-1 98:3-4");
}

static void words_in_the_vocabulary_may_skip_merging(void **state)
{
    (void)state;
    struct parts p = {.merges = "b c,a b,ab c"};
    check(p, "abc", "97:0-1 256:1-3");
    p.model_extra = "\"ignore_merges\":true,";
    check(p, "abc", "258:0-3");
}

static void a_hostile_pattern_runs_out_of_budget(void **state)
{
    (void)state;
    struct parts p = {
        .pre_tokenizer =
            "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?:(?:a|aa)+)+$\"},"
            "\"behavior\":\"Isolated\",\"invert\":false}," BYTES_ONLY "]}"};
    struct tokenizer *t = tokenizer_of(p);
    char text[200];
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = 'b';
    struct tokens tokens = {0};
    assert_fails(tokenizer_encode(t, text, sizeof text, &tokens), ERR_LIMIT, "backtracks too much");
    assert_int_equal(tokens.count, 0);
    assert_ok(tokenizer_encode(t, "aa", 2, &tokens));
    tokens_free(&tokens);
    tokenizer_close(t);

    p = (struct parts){.normalizer = "{\"type\":\"Sequence\",\"normalizers\":["
#define DOUBLE "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aa\"}"
                       DOUBLE "," DOUBLE "," DOUBLE "," DOUBLE "," DOUBLE "," DOUBLE "," DOUBLE "," DOUBLE "," DOUBLE "," DOUBLE
                                     "," DOUBLE "," DOUBLE "," DOUBLE "," DOUBLE "," DOUBLE "," DOUBLE "]}"};
    t = tokenizer_of(p);
    assert_fails(tokenizer_encode(t, text, sizeof text, &tokens), ERR_LIMIT, "longer than");
    tokens_free(&tokens);
    tokenizer_close(t);

    t = tokenizer_of((struct parts){.normalizer = "{\"type\":\"NFC\"}"});
    struct buffer marks = {0};
    for (int i = 0; i < 20000; i++)
        assert_ok(buffer_append(&marks, i % 2 ? "\u0301" : "\u0323", 2));
    assert_fails(tokenizer_encode(t, marks.data, marks.size, &tokens), ERR_LIMIT, "combining marks");
    buffer_free(&marks);
    tokens_free(&tokens);
    tokenizer_close(t);
}

/* Each match is cheap, but there is one at every byte and each walks to the end: the deadline of the whole search ends it. */
static void a_pattern_that_crawls_is_stopped(void **state)
{
    (void)state;
    struct parts p = {
        .pre_tokenizer = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?:a|c)*?b|a\"},"
                         "\"behavior\":\"Isolated\",\"invert\":false}," BYTES_ONLY "]}"};
    struct tokenizer *t = tokenizer_of(p);
    enum { LENGTH = 60000 };
    char *text = test_malloc(LENGTH);
    memset(text, 'a', LENGTH);
    struct tokens tokens = {0};
    assert_fails(tokenizer_encode(t, text, LENGTH, &tokens), ERR_LIMIT, "takes too long");
    test_free(text);
    tokens_free(&tokens);
    tokenizer_close(t);
}

static void text_must_be_utf8(void **state)
{
    (void)state;
    struct tokenizer *t = tokenizer_of((struct parts){0});
    struct tokens tokens = {0};
    assert_fails(tokenizer_encode(t, "abc\xff", 4, &tokens), ERR_DATA, "byte 3");
    assert_ok(tokenizer_encode(t, "a\0b", 3, &tokens));
    assert_int_equal(tokens.count, 3);
    tokens_free(&tokens);
    tokenizer_close(t);
}

static void what_is_not_supported_is_named(void **state)
{
    (void)state;
    struct tokenizer *t;
    assert_fails(open_parts(&t, (struct parts){.type = "Unigram"}), ERR_FORMAT, "Unigram");
    assert_fails(open_parts(&t, (struct parts){.type = "WordPiece"}), ERR_UNSUPPORTED, "model of type \"WordPiece\"");
    assert_fails(open_parts(&t, (struct parts){.model_extra = "\"byte_fallback\":true,"}), ERR_UNSUPPORTED, "byte_fallback");
    assert_fails(open_parts(&t, (struct parts){.model_extra = "\"dropout\":0.1,"}), ERR_UNSUPPORTED, "dropout");
    assert_fails(open_parts(&t, (struct parts){.model_extra = "\"end_of_word_suffix\":\"</w>\","}), ERR_UNSUPPORTED,
                 "end_of_word_suffix");
    assert_fails(open_parts(&t, (struct parts){.pre_tokenizer = "{\"type\":\"BertPreTokenizer\"}"}), ERR_UNSUPPORTED,
                 "BertPreTokenizer");
    assert_fails(open_parts(&t, (struct parts){.pre_tokenizer = "{\"type\":\"Sequence\",\"pretokenizers\":[" BYTE_LEVEL
                                                                ",{\"type\":\"Metaspace\"}]}"}),
                 ERR_UNSUPPORTED, "Metaspace");
    assert_fails(open_parts(&t, (struct parts){.normalizer = "{\"type\":\"BertNormalizer\"}"}), ERR_UNSUPPORTED,
                 "BertNormalizer");
    assert_fails(open_parts(&t, (struct parts){.decoder = "{\"type\":\"WordPiece\"}"}), ERR_UNSUPPORTED, "decoder");
}

#define WHOLE(model, added)                                                                                                      \
    "{\"added_tokens\":" added ",\"pre_tokenizer\":" BYTE_LEVEL ",\"decoder\":" BYTE_LEVEL ",\"model\":" model "}"

static void broken_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum status code;
        const char *message;
    } files[] = {
        {"", ERR_FORMAT, "t.json"},
        {"[]", ERR_FORMAT, "an object is expected"},
        {"{\"model\":{}]", ERR_FORMAT, "comma"},
        {"{\"model\":{},\"model\":{}}", ERR_FORMAT, "a repeated member"},
        {"{\"decoder\":null,\"decoder\":null}", ERR_FORMAT, "a repeated member"},
        {"{\"a\":1} x", ERR_FORMAT, "after the end"},
        {"{\"a\":[1}", ERR_FORMAT, "brackets"},
        {"{\"\xff\":1}", ERR_FORMAT, "byte 2"},
        {WHOLE("{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}", "[]"), ERR_FORMAT, "occurs twice"},
        {WHOLE("{\"type\":\"BPE\",\"vocab\":{\"\\ud800x\":0},\"merges\":[]}", "[]"), ERR_FORMAT, "surrogate"},
        {WHOLE("{\"type\":\"BPE\",\"vocab\":{\"\\q\":0},\"merges\":[]}", "[]"), ERR_FORMAT, "escape"},
        {WHOLE("{\"type\":\"BPE\",\"vocab\":{\"a\":0,},\"merges\":[]}", "[]"), ERR_FORMAT, "string is expected"},
        {WHOLE("{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\" 1},\"merges\":[]}", "[]"), ERR_FORMAT, "colon"},
        {WHOLE("{\"type\":\"BPE\",\"vocab\":{\"a\":\"0\"},\"merges\":[]}", "[]"), ERR_FORMAT, "whole number"},
        {WHOLE("{\"type\":\"BPE\",\"vocab\":{\"a\":01},\"merges\":[]}", "[]"), ERR_FORMAT, "number"},
        {"{\"pre_tokenizer\":" BYTE_LEVEL ",\"decoder\":" BYTE_LEVEL "}", ERR_FORMAT, "\"model\" is missing"},
        {WHOLE("{\"type\":\"BPE\"}", "[]"), ERR_FORMAT, "\"vocab\""},
        {WHOLE("{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}", "[]"), ERR_FORMAT, "\"vocab\""},
        {WHOLE("{\"type\":\"BPE\",\"vocab\":{\"a\":0}}", "[]"), ERR_FORMAT, "\"merges\""},
        {WHOLE("{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}", "[]"), ERR_FORMAT, "whole number"},
        {WHOLE("{\"type\":\"BPE\",\"vocab\":{\"a\":2147483647},\"merges\":[]}", "[]"), ERR_FORMAT, "whole number"},
        {WHOLE("{\"type\":\"BPE\",\"vocab\":{\"a\":1.5},\"merges\":[]}", "[]"), ERR_FORMAT, "whole number"},
        {WHOLE("{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}", "[]"), ERR_FORMAT, "the same id"},
        {WHOLE("{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a\"]}", "[]"), ERR_FORMAT, "merge 0"},
        {WHOLE("{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a  a\"]}", "[]"), ERR_FORMAT, "merge 0"},
        {WHOLE("{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\",1]]}", "[]"), ERR_FORMAT, "merge 0"},
        {WHOLE("{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}", "[]"), ERR_FORMAT, "\"aa\""},
        {WHOLE("{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"unk_token\":\"u\"}", "[]"), ERR_FORMAT, "unk_token"},
        {WHOLE("{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}", "{}"), ERR_FORMAT, "added_tokens"},
        {WHOLE("{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}", "[{\"id\":1}]"), ERR_FORMAT, "content"},
        {WHOLE("{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}", "[{\"content\":\"x\"}]"), ERR_FORMAT, "\"id\""},
        {WHOLE("{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}", "[{\"content\":\"x\",\"id\":-1}]"), ERR_FORMAT, "-1"},
        {WHOLE("{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}", "[{\"content\":\"x\",\"id\":7}]"), ERR_FORMAT,
         "makes it 1"},
        {WHOLE("{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}", "[{\"content\":\"x\",\"id\":1,\"special\":1}]"),
         ERR_FORMAT, "special"},
    };
    struct tokenizer *t;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        write_file(files[i].text, (int64_t)strlen(files[i].text));
        assert_fails(tokenizer_open(&t, path), files[i].code, files[i].message);
    }
    assert_fails(tokenizer_open(&t, "/nonexistent/tokenizer.json"), ERR_IO, "/nonexistent");

    struct buffer nested = {0};
    for (int i = 0; i < 100; i++)
        assert_ok(buffer_format(&nested, "{\"type\":\"Sequence\",\"pretokenizers\":["));
    assert_ok(buffer_format(&nested, BYTE_LEVEL));
    for (int i = 0; i < 100; i++)
        assert_ok(buffer_format(&nested, "]}"));
    assert_fails(open_parts(&t, (struct parts){.pre_tokenizer = nested.data}), ERR_FORMAT, "too deep");
    buffer_free(&nested);
}

/* Every prefix of a good file is refused without harm. */
static void cut_files_are_refused(void **state)
{
    (void)state;
    static const char file[] = WHOLE("{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}",
                                     "[{\"content\":\"x\",\"id\":3,\"special\":true}]");
    struct tokenizer *t;
    for (size_t n = 0; n < sizeof file - 1; n++) {
        write_file(file, (int64_t)n);
        assert_int_equal(tokenizer_open(&t, path), ERR_FORMAT);
    }
    write_file(file, sizeof file - 1);
    assert_ok(tokenizer_open(&t, path));
    assert_string_equal(encoded(t, "abxq"), "2:0-2 3:2-3"); /* no token for q, and no unk_token */
    tokenizer_close(t);
}

static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    struct parts p = {.merges = "a b,ab c",
                      .normalizer = "{\"type\":\"NFC\"}",
                      .added = "{\"id\":258,\"content\":\"<x>\",\"single_word\":true}",
                      .pre_tokenizer = "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}"};
    struct tokenizer *t = tokenizer_of(p);
    struct failing encoding = {0}, opening = {0};
    while (failing_next(&encoding)) {
        struct tokens tokens = {0};
        failing_begin(&encoding);
        enum status status = tokenizer_encode(t, "abc <x> \u00e9", 10, &tokens);
        failing_end(&encoding, status);
        assert_true(status == OK || tokens.count == 0);
        tokens_free(&tokens);
    }
    tokenizer_close(t);
    while (failing_next(&opening)) {
        failing_begin(&opening);
        enum status status = tokenizer_open(&t, path);
        failing_end(&opening, status);
        if (status == OK)
            tokenizer_close(t);
    }
    assert_true(encoding.failed > 2 && opening.failed > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_go_by_rank_then_from_the_left),
        cmocka_unit_test(long_words_merge_like_short_ones),
        cmocka_unit_test(characters_without_a_token_are_bytes),
        cmocka_unit_test(every_text_comes_back),
        cmocka_unit_test(added_tokens_come_first),
        cmocka_unit_test(text_of_a_user_has_no_special_tokens),
        cmocka_unit_test(flags_of_added_tokens_hold),
        cmocka_unit_test(normalisation_keeps_offsets),
        cmocka_unit_test(words_are_cut_as_the_file_says),
        cmocka_unit_test(words_in_the_vocabulary_may_skip_merging),
        cmocka_unit_test(a_hostile_pattern_runs_out_of_budget),
        cmocka_unit_test(a_pattern_that_crawls_is_stopped),
        cmocka_unit_test(text_must_be_utf8),
        cmocka_unit_test(what_is_not_supported_is_named),
        cmocka_unit_test(broken_files_are_refused),
        cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
