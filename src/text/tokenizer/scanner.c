/* The published patterns are variations of one: contractions, words with one character before them, numbers, other characters,
 * and spaces, the last of which goes to the next word. The variations are a row of PATTERNS; a new one is a new row.
 *
 * A class is looked up in a table for ASCII, and by unicode_class for the rest.
 */
#include "text/tokenizer/scanner.h"

#include <string.h>

#include "base/utf8.h"
#include "text/tokenizer/patterns.h"
#include "text/unicode.h"

enum class { OTHER, LETTER, MARK, NUMBER, SPACE, NEWLINE }; /* NEWLINE: \r and \n, which are space too */

enum contractions { NO_CONTRACTIONS, LOWER_CONTRACTIONS, ANY_CONTRACTIONS };

enum only { ALL, DEEPSEEK, NUMBERS, HAN_AND_KANA, RUST_NUMBERS, RUST_PUNCTUATION };

struct scanner {
    const char *pattern;
    enum contractions contractions; /* 's 't 're 've 'm 'll 'd */
    bool any_in_front;              /* of a word: any character that is not a newline, letter or number; else a space */
    bool marks_in_words;            /* [\p{L}\p{M}]+ is a word; else \p{L}+, and marks are other characters */
    bool cased;                     /* words end where small letters end and capitals begin; contractions belong to them */
    int digits;                     /* max of a number; 0: any, and a space before it belongs to it */
    bool lines;                     /* [\r\n]* after other characters, and \s*[\r\n]+ */
    bool slashes;                   /* [\r\n/]* there */
    enum only only;                 /* all the above, DeepSeek's words, or characters of one kind and nothing else */
};

static const struct scanner PATTERNS[] = {
    {.pattern = CUT_GPT2, .contractions = LOWER_CONTRACTIONS},
    {.pattern = CUT_LLAMA3, .contractions = ANY_CONTRACTIONS, .any_in_front = true, .digits = 3, .lines = true},
    {.pattern = CUT_QWEN2, .contractions = ANY_CONTRACTIONS, .any_in_front = true, .digits = 1, .lines = true},
    {.pattern = CUT_QWEN35,
     .contractions = ANY_CONTRACTIONS,
     .any_in_front = true,
     .marks_in_words = true,
     .digits = 1,
     .lines = true},
    {.pattern = CUT_WORD CUT_DIGITS CUT_REST, .any_in_front = true, .digits = 3, .lines = true},
    {.pattern = CUT_WORD CUT_DIGIT CUT_REST, .any_in_front = true, .digits = 1, .lines = true},
    {.pattern = CUT_O200K,
     .contractions = ANY_CONTRACTIONS,
     .any_in_front = true,
     .cased = true,
     .digits = 3,
     .lines = true,
     .slashes = true},
    {.pattern = CUT_TEKKEN, .any_in_front = true, .cased = true, .digits = 1, .lines = true, .slashes = true},
    {.pattern = CUT_DEEPSEEK3_RAW, .lines = true, .only = DEEPSEEK},
    {.pattern = CUT_DEEPSEEK3, .lines = true, .only = DEEPSEEK},
    {.pattern = CUT_HAN_AND_KANA, .only = HAN_AND_KANA},
    {.pattern = CUT_DIGITS, .digits = 3, .only = NUMBERS},
    {.pattern = CUT_DIGIT, .digits = 1, .only = NUMBERS},
};

enum { PATTERN_COUNT = sizeof PATTERNS / sizeof *PATTERNS };

const struct scanner SCANNER_DIGITS = {.only = RUST_NUMBERS};
const struct scanner SCANNER_PUNCTUATION = {.only = RUST_PUNCTUATION};

const struct scanner *scanner_find(const char *pattern, int64_t length)
{
    for (int i = 0; i < PATTERN_COUNT; i++)
        if ((int64_t)strlen(PATTERNS[i].pattern) == length && memcmp(PATTERNS[i].pattern, pattern, (size_t)length) == 0)
            return &PATTERNS[i];
    return NULL;
}

const char *scanner_pattern(int i)
{
    return i < PATTERN_COUNT ? PATTERNS[i].pattern : NULL;
}

bool scanner_covers(const struct scanner *s)
{
    return s->only == ALL;
}

#define O OTHER
#define L LETTER
#define N NUMBER
#define S SPACE
static const uint8_t ASCII[128] = {
    O, O, O, O, O, O, O, O, O, S, NEWLINE, S, S, NEWLINE, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O,
    S, O, O, O, O, O, O, O, O, O, O,       O, O, O,       O, O, N, N, N, N, N, N, N, N, N, N, O, O, O, O, O, O,
    O, L, L, L, L, L, L, L, L, L, L,       L, L, L,       L, L, L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O,
    O, L, L, L, L, L, L, L, L, L, L,       L, L, L,       L, L, L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O,
};
#undef O
#undef L
#undef N
#undef S

static enum class wide_class(const char *text, int *bytes) {
    uint32_t code; *bytes = utf8_decode(text, &code); unsigned classes = unicode_class(code);
    return classes & UNICODE_LETTER   ? LETTER
           : classes & UNICODE_NUMBER ? NUMBER
           : classes & UNICODE_MARK   ? MARK
           : classes & UNICODE_SPACE  ? SPACE
                                      : OTHER;
}

/* The class of the character at the start of the text, and how many bytes it takes. */
static inline enum class class_of(const char *text, int *bytes) {
    uint8_t c = (uint8_t)*text; if (c < 0x80){ *bytes = 1; return (enum class)ASCII[c];}
return wide_class(text, bytes);
}

/* How the scanner takes marks: as letters of a word, or as other characters. */
static inline enum class class_in(const struct scanner *s, const char *text, int *bytes) {
    enum class class = class_of(text, bytes); return class != MARK       ? class
                                                     : s->marks_in_words ? LETTER
                                                                         : OTHER;
}

/* The end of a run of one class that continues at `at`, of at most `max_count` characters (negative: any). */
static int64_t run_end(const struct scanner *s, const char *text, int64_t length, int64_t at, enum class class, int max_count)
{
    int n;
    while (at < length && max_count-- != 0 && class_in(s, text + at, &n) == class)
        at += n;
    return at;
}

/* Bytes of the contraction at the start of the text, which is an apostrophe; 0: none. */
static int contraction(enum contractions kind, const char *text, int64_t length)
{
    if (length < 2 || kind == NO_CONTRACTIONS)
        return 0;
    char a = text[1], b = length > 2 ? text[2] : 0;
    if (kind == ANY_CONTRACTIONS) {
        if (a == '\xc5' && b == '\xbf') /* the long s, which folds to s */
            return 3;
        a |= a >= 'A' && a <= 'Z' ? 32 : 0;
        b |= b >= 'A' && b <= 'Z' ? 32 : 0;
    }
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* Space from `at` on: up to the last newline if lines count; else all of it, except the last character if something follows. */
static int64_t space_end(const struct scanner *s, const char *text, int64_t length, int64_t at)
{
    int64_t end = at, last = at, newline = -1;
    for (int n; end < length; end += n) {
        enum class class = class_of(text + end, &n);
        if (class != SPACE && class != NEWLINE)
            break;
        last = end;
        if (class == NEWLINE)
            newline = end + n;
    }
    if (s->lines && newline >= 0)
        return newline;
    return end == length || last == at ? end : last;
}

static int64_t other_end(const struct scanner *s, const char *text, int64_t length, int64_t at)
{
    at = run_end(s, text, length, at, OTHER, -1);
    while (s->lines && at < length && (text[at] == '\r' || text[at] == '\n' || (s->slashes && text[at] == '/')))
        at++;
    return at;
}

static unsigned case_of(const char *text, int *bytes)
{
    uint32_t code;
    *bytes = utf8_decode(text, &code);
    if (code >= 128)
        return unicode_class(code);
    return code >= 'a' && code <= 'z' ? UNICODE_LOWER : code >= 'A' && code <= 'Z' ? UNICODE_UPPER : 0;
}

/* The end of a word whose letters begin at `at`, or -1. Capitals, then small letters; letters without case and marks are both. If
 * no small letter follows the capitals, the word ends after the last of them that is both, or else with them. */
static int64_t cased_end(const char *text, int64_t length, int64_t at, bool *small)
{
    enum {
        BOTH = UNICODE_MODIFIER | UNICODE_LETTER_OTHER | UNICODE_MARK,
        CAPITAL = BOTH | UNICODE_UPPER | UNICODE_TITLE,
        SMALL = BOTH | UNICODE_LOWER
    };
    int64_t both = -1, i = at;
    int n;
    unsigned class = 0;
    for (; i < length && (class = case_of(text + i, &n)) & CAPITAL; i += n)
        if (class & BOTH)
            both = i + n;
    *small = i < length && class & UNICODE_LOWER;
    if (*small) {
        while (i < length && case_of(text + i, &n) & SMALL)
            i += n;
        return i;
    }
    *small = both >= 0;
    return both >= 0 ? both : i > at ? i : -1;
}

/* A cased word at `at`, or -1: with the character before it, without it (a mark can be either), then the same for words of only
 * capitals. */
static int64_t cased_word(const struct scanner *s, const char *text, int64_t length, int64_t at)
{
    int n;
    bool small = false, small_alone = false;
    enum class class = class_of(text + at, &n);
    bool front = class != LETTER && class != NUMBER && class != NEWLINE;
    int64_t with = front && at + n < length ? cased_end(text, length, at + n, &small) : -1;
    int64_t alone = class == LETTER || class == MARK ? cased_end(text, length, at, &small_alone) : -1;
    int64_t end = small ? with : small_alone ? alone : with >= 0 ? with : alone;
    if (end >= 0 && end < length && text[end] == '\'')
        end += contraction(s->contractions, text + end, length - end);
    return end;
}

/* The end of the match that begins at `at`; the branches are in the order of the pattern's alternatives. */
static int64_t scanner_match(const struct scanner *s, const char *text, int64_t length, int64_t at)
{
    int n, next_n;
    enum class class = class_in(s, text + at, &n);
    int64_t cased = s->cased ? cased_word(s, text, length, at) : -1;
    if (cased >= 0)
        return cased;
    if (class == LETTER)
        return run_end(s, text, length, at + n, LETTER, -1);
    if (class == NUMBER)
        return run_end(s, text, length, at + n, NUMBER, s->digits - 1);
    int contracted = text[at] == '\'' && !s->cased ? contraction(s->contractions, text + at, length - at) : 0;
    if (contracted)
        return at + contracted;
    bool space = text[at] == ' ';
    int64_t after = at + n;
    if (after < length && class != NEWLINE && (space || s->any_in_front)) {
        enum class next = class_in(s, text + after, &next_n);
        if (next == LETTER)
            return run_end(s, text, length, after + next_n, LETTER, -1);
        if (space && next == NUMBER && !s->digits)
            return run_end(s, text, length, after + next_n, NUMBER, -1);
        if (space && next == OTHER)
            return other_end(s, text, length, after + next_n);
    }
    return class == OTHER ? other_end(s, text, length, after) : space_end(s, text, length, at);
}

static unsigned scanner_bits_of(const char *text, int *bytes)
{
    static const uint16_t BITS[] = {[OTHER] = UNICODE_PUNCTUATION,
                                    [LETTER] = UNICODE_LOWER,
                                    [NUMBER] = UNICODE_DIGIT,
                                    [SPACE] = UNICODE_SPACE,
                                    [NEWLINE] = UNICODE_SPACE};
    uint32_t code;
    *bytes = utf8_decode(text, &code);
    if (code >= 128)
        return unicode_class(code);
    return ASCII[code] == OTHER && (code < ' ' || code == 127) ? 0 : BITS[ASCII[code]];
}

static int64_t bits_end(const char *text, int64_t length, int64_t at, unsigned bits)
{
    int n;
    while (at < length && scanner_bits_of(text + at, &n) & bits)
        at += n;
    return at;
}

/* The end of the match of DeepSeek's pattern that begins at `at`, or -1: it leaves out numbers and characters without a class,
 * unless they come before a word. */
static int64_t deepseek_end(const struct scanner *s, const char *text, int64_t length, int64_t at)
{
    enum { WORD_BITS = UNICODE_LETTER | UNICODE_MARK, SIGNS = UNICODE_PUNCTUATION | UNICODE_SYMBOL };
    int n, next_n;
    unsigned bits = scanner_bits_of(text + at, &n), next = at + n < length ? scanner_bits_of(text + at + n, &next_n) : 0;
    char c = text[at];
    int64_t end = at + n;
    if (n == 1 && bits & SIGNS) {
        while (end < length && ((text[end] >= 'a' && text[end] <= 'z') || (text[end] >= 'A' && text[end] <= 'Z')))
            end++;
        if (end > at + 1)
            return end;
    }
    if (bits & WORD_BITS || (next & WORD_BITS && !(bits & SIGNS) && c != '\r' && c != '\n'))
        return bits_end(text, length, end, WORD_BITS);
    if (bits & SIGNS || (c == ' ' && next & SIGNS)) {
        end = bits_end(text, length, end, SIGNS);
        while (end < length && (text[end] == '\r' || text[end] == '\n'))
            end++;
        return end;
    }
    return bits & UNICODE_SPACE ? space_end(s, text, length, at) : -1;
}

static bool is_han_or_kana(const char *text, int *bytes)
{
    uint32_t code;
    *bytes = utf8_decode(text, &code);
    return (code >= 0x4e00 && code <= 0x9fa5) || (code >= 0x3040 && code <= 0x30ff);
}

static const struct {
    uint32_t first, last;
} LATE_PUNCTUATION[] = {
#define LATE(first, last) {first, last},
#include "text/tokenizer/punctuation_late.def"
#undef LATE
};

/* Rust's is_ascii_punctuation and the punctuation of Unicode 9. */
static bool is_rust_punctuation(uint32_t code)
{
    if (code < 0x80)
        return code > 0x20 && code < 0x7f && ASCII[code] == OTHER;
    if (code == 0x166d || code == 0x111c9) /* have become symbols and marks since */
        return true;
    if (!(unicode_class(code) & UNICODE_PUNCTUATION) || unicode_is_new(code))
        return false;
    for (size_t i = 0; i < sizeof LATE_PUNCTUATION / sizeof *LATE_PUNCTUATION; i++)
        if (code >= LATE_PUNCTUATION[i].first && code <= LATE_PUNCTUATION[i].last)
            return false;
    return true;
}

/* Rust's is_numeric: numbers of Unicode 17. */
static bool is_rust_number(uint32_t code)
{
    return unicode_class(code) & UNICODE_NUMBER || (code >= 0x11de0 && code <= 0x11de9) || (code >= 0x16ff4 && code <= 0x16ff6);
}

static bool is_only(const struct scanner *s, const char *text, int *bytes)
{
    uint32_t code;
    if (s->only == NUMBERS)
        return class_of(text, bytes) == NUMBER;
    if (s->only == HAN_AND_KANA)
        return is_han_or_kana(text, bytes);
    *bytes = utf8_decode(text, &code);
    return s->only == RUST_NUMBERS ? is_rust_number(code) : is_rust_punctuation(code);
}

int64_t scanner_next(const struct scanner *s, const char *text, int64_t length, int64_t from, int64_t *begin)
{
    int n = 0;
    *begin = from;
    if (s->only == ALL)
        return scanner_match(s, text, length, from);
    if (s->only == DEEPSEEK) {
        int64_t end;
        for (; from < length && (end = deepseek_end(s, text, length, from)) < 0; from += n)
            scanner_bits_of(text + from, &n);
        *begin = from;
        return from < length ? end : -1;
    }
    while (from < length && !is_only(s, text + from, &n))
        from += n;
    *begin = from;
    if (from == length)
        return -1;
    if (s->only == HAN_AND_KANA) {
        for (from += n; from < length && is_only(s, text + from, &n);)
            from += n;
        return from;
    }
    return s->digits > 1 ? run_end(s, text, length, from, NUMBER, s->digits) : from + n;
}
