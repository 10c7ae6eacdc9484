/* Tokenizers from plain lists. Cuts, normalizers and decoders are written as in a tokenizer.json, and read by the same code.
 */
#include "text/tokenizer/tokenizer.h"

#include <string.h>

#include "base/utf8.h"
#include "text/tokenizer/parts.h"
#include "text/tokenizer/patterns.h"

/* letters that have cases, as DeepSeek lists them */
#define CASED                                                                                                                    \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}"                              \
    "\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}"                       \
    "\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}"                              \
    "\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}"                            \
    "\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}"                            \
    "\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}"                    \
    "\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}"                   \
    "\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}"                             \
    "\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}"                              \
    "\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}"                              \
    "\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}"                             \
    "\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}"                            \
    "\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}"                          \
    "\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}"                  \
    "\\x{1e900}-\\x{1e943}"

enum { PATTERNS_MAX = 8 };

static const struct pre {
    const char *name;
    bool ignore_merges, begin;
    const char *patterns[PATTERNS_MAX];
} PRES[] = {
#define PRE(name, ignore, begin, ...) {name, ignore, begin, {__VA_ARGS__}},
#include "text/tokenizer/pre.def"
#undef PRE
};

static const struct pre *find_pre(const char *name)
{
    for (size_t i = 0; i < sizeof PRES / sizeof *PRES; i++)
        if (strcmp(PRES[i].name, name ? name : "default") == 0)
            return &PRES[i];
    return NULL;
}

/* The patterns of one step of a "pre_tokenizer", appended to `found`. False: it is none that has a name. */
static bool add_patterns(const json_t *step, const char **found, int *count)
{
    const char *type = json_string_value(json_object_get(step, "type"));
    size_t i;
    const json_t *inner;
    if (!type)
        return false;
    if (!strcmp(type, "Sequence")) {
        json_array_foreach(json_object_get(step, "pretokenizers"), i, inner) if (!add_patterns(inner, found, count)) return false;
        return true;
    }
    const json_t *regex = json_object_get(step, "use_regex");
    const char *pattern = NULL;
    if (!strcmp(type, "ByteLevel")) {
        if (json_is_false(regex))
            return true;
        pattern = CUT_GPT2;
    } else if (!strcmp(type, "Digits"))
        pattern = json_is_true(json_object_get(step, "individual_digits")) ? CUT_DIGIT : CUT_DIGIT "+";
    else if (!strcmp(type, "Split"))
        pattern = json_string_value(json_object_get(json_object_get(step, "pattern"), "Regex"));
    if (!pattern || *count == PATTERNS_MAX)
        return false;
    found[(*count)++] = pattern;
    return true;
}

const char *tokenizer_pre_name(const json_t *pre_tokenizer, bool ignore_merges)
{
    const char *found[PATTERNS_MAX] = {0};
    int count = 0;
    if (!add_patterns(pre_tokenizer, found, &count))
        return NULL;
    for (size_t i = 0; i < sizeof PRES / sizeof *PRES; i++) {
        bool same = PRES[i].ignore_merges == ignore_merges;
        for (int k = 0; same && k < PATTERNS_MAX; k++)
            same = found[k] && PRES[i].patterns[k] ? !strcmp(found[k], PRES[i].patterns[k]) : found[k] == PRES[i].patterns[k];
        if (same)
            return PRES[i].name;
    }
    return NULL;
}

static enum status lists_out_of_memory(const char *where)
{
    return fail(ERR_MEMORY, "%s: out of memory", where);
}

static enum status open_cut(struct tokenizer *t, const struct pre *pre, const char *where)
{
    json_t *list = json_array();
    int wrong = 0;
    for (int i = 0; i < PATTERNS_MAX && pre->patterns[i]; i++)
        wrong |= json_array_append_new(list, json_pack("{s:s, s:{s:s}, s:s}", "type", "Split", "pattern", "Regex",
                                                       pre->patterns[i], "behavior", "Isolated"));
    wrong |=
        json_array_append_new(list, json_pack("{s:s, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "use_regex", 0));
    json_t *cut = wrong ? NULL : json_pack("{s:s, s:O}", "type", "Sequence", "pretokenizers", list);
    json_t *decoder = json_pack("{s:s}", "type", "ByteLevel");
    enum status status = cut && decoder ? pretokenizer_open(&t->pretokenizer, cut, true, where) : lists_out_of_memory(where);
    if (status == OK)
        status = decoder_open(&t->decoder, decoder, where);
    json_decref(list);
    json_decref(cut);
    json_decref(decoder);
    return status;
}

/* Spaces become U+2581, with one before the text if `prefix`, and back. */
static enum status open_spaces(struct tokenizer *t, bool prefix, const char *where)
{
    static const char PREFIX[] = "{\"type\":\"Prepend\",\"prepend\":\"\u2581\"},";
    static const char SPACES[] = "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\u2581\"}";
    static const char BACK[] = "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\u2581\"},"
                               "\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}";
    static const char STRIP[] = ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}";
    struct buffer text = {0};
    json_t *normalizer = NULL, *decoder = NULL;
    enum status status = buffer_format(&text, "{\"type\":\"Sequence\",\"normalizers\":[%s%s]}", prefix ? PREFIX : "", SPACES);
    if (status == OK)
        status = json_parse(&normalizer, text.data, text.size, where);
    text.size = 0;
    if (status == OK)
        status = buffer_format(&text, "%s%s]}", BACK, prefix ? STRIP : "");
    if (status == OK)
        status = json_parse(&decoder, text.data, text.size, where);
    if (status == OK)
        status = normalizer_open(&t->normalizer, normalizer, where);
    if (status == OK)
        status = decoder_open(&t->decoder, decoder, where);
    json_decref(normalizer);
    json_decref(decoder);
    buffer_free(&text);
    return status;
}

static enum status copy_vocabulary(struct tokenizer *t, const struct tokenizer_lists *w, struct arena *arena, const char *where)
{
    struct vocabulary_item *items = arena_array(arena, w->count + 1, sizeof *items);
    if (!items)
        return ERR_MEMORY;
    for (int64_t i = 0; i < w->count; i++) {
        if (utf8_invalid(w->tokens[i].text, w->tokens[i].length) >= 0)
            return fail(ERR_FORMAT, "%s: token %lld is not UTF-8", where, (long long)i);
        items[i] = (struct vocabulary_item){w->tokens[i].text, w->tokens[i].length, i};
    }
    return vocabulary_init(&t->vocabulary, items, w->count, where);
}

/* "left right", where the first may begin with a space. */
static enum status open_merges(struct tokenizer *t, const struct tokenizer_lists *w, struct bpe_options options,
                               struct arena *arena, const char *where)
{
    struct bpe_pair *pairs = arena_array(arena, w->merge_count + 1, sizeof *pairs);
    if (!pairs)
        return ERR_MEMORY;
    for (int64_t i = 0; i < w->merge_count; i++) {
        const char *text = w->merges[i].text, *end = text + w->merges[i].length;
        const char *space = end - text > 1 ? memchr(text + 1, ' ', (size_t)(end - text - 1)) : NULL;
        if (!space)
            return fail(ERR_FORMAT, "%s: merge %lld must be two tokens", where, (long long)i);
        pairs[i] = (struct bpe_pair){text, space + 1, space - text, end - space - 1};
    }
    return bpe_init(&t->bpe, &t->vocabulary, options, pairs, w->merge_count, where);
}

static enum status add_tokens(struct tokenizer *t, const struct tokenizer_lists *w, const char *where)
{
    for (int64_t i = 0; w->types && i < w->count; i++) {
        int32_t type = w->types[i];
        struct added_token token = {.content = w->tokens[i].text,
                                    .length = w->tokens[i].length,
                                    .id = (int32_t)i,
                                    .special = type == WORD_CONTROL || type == WORD_UNKNOWN || i == w->bos || i == w->eos};
        if (token.special || type == WORD_USER)
            TRY(added_add(&t->added, &token, where));
    }
    return added_build(&t->added, &t->vocabulary, &t->normalizer, where);
}

/* The tokens around a text. */
static enum status open_ends(struct tokenizer *t, const struct tokenizer_lists *w, bool begin, const char *where)
{
    if (w->add_bos >= 0)
        begin = w->add_bos;
    bool end = w->add_eos > 0;
    if ((begin && w->bos >= t->limit) || (end && w->eos >= t->limit))
        return fail(ERR_FORMAT, "%s: the bos or eos token is not in the vocabulary", where);
    if (begin && w->bos >= 0)
        t->post.before[t->post.before_count++] = (int32_t)w->bos;
    if (end && w->eos >= 0)
        t->post.after[t->post.after_count++] = (int32_t)w->eos;
    return OK;
}

static enum status lists_build(struct tokenizer *t, const struct tokenizer_lists *w, struct arena *arena, const char *where)
{
    bool bytes = strcmp(w->model, "gpt2") == 0, scored = strcmp(w->model, "llama") == 0;
    const struct pre *pre = bytes ? find_pre(w->pre) : NULL;
    if (!bytes && !scored && strcmp(w->model, "gemma4") != 0)
        return fail(ERR_UNSUPPORTED, "%s: a tokenizer of the kind \"%s\" is not supported", where, w->model);
    if (bytes && !pre)
        return fail(ERR_UNSUPPORTED, "%s: text cut as \"%s\" is not supported", where, w->pre);
    if (scored ? !w->scores : !w->merges)
        return fail(ERR_FORMAT, "%s: the vocabulary has no %s", where, scored ? "scores" : "merges");
    if (!w->count || w->unknown >= w->count)
        return fail(ERR_FORMAT, "%s: the vocabulary has no tokens, or not the unknown one", where);
    struct bpe_options options = {.bytes = bytes,
                                  .byte_fallback = !bytes,
                                  .gaps = true,
                                  .fuse_unknown = !bytes,
                                  .ignore_merges = pre && pre->ignore_merges,
                                  .unknown = bytes || w->unknown < 0 ? -1 : (int32_t)w->unknown};
    TRY(copy_vocabulary(t, w, arena, where));
    TRY(bytes ? open_cut(t, pre, where) : open_spaces(t, w->space_prefix < 0 ? scored : w->space_prefix, where));
    TRY(scored ? bpe_init_scores(&t->bpe, &t->vocabulary, options, w->scores, where) : open_merges(t, w, options, arena, where));
    TRY(add_tokens(t, w, where));
    TRY(tokenizer_finish(t));
    return open_ends(t, w, scored || (pre && pre->begin), where);
}

enum status tokenizer_open_lists(struct tokenizer **out, const struct tokenizer_lists *words, const char *where)
{
    struct arena arena = {0};
    struct tokenizer *t = memory_alloc(sizeof *t);
    enum status status = t ? lists_build(t, words, &arena, where) : ERR_MEMORY;
    arena_free(&arena);
    if (status != OK) {
        tokenizer_close(t);
        return status;
    }
    *out = t;
    return OK;
}
