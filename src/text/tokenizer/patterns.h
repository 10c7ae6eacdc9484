/* How published tokenizers cut text into words, with the exact patterns of their files. scanner.c knows these patterns by their
 * text and follows them without a regular expression; lists.c gives them to files that only name a tokenizer (pre.def).
 */
#ifndef TEXT_TOKENIZER_PATTERNS_H
#define TEXT_TOKENIZER_PATTERNS_H

/* What the patterns are made of. */
#define CUT_SUFFIX "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define CUT_FRONT "[^\\r\\n\\p{L}\\p{N}]?"
#define CUT_WORD CUT_FRONT "\\p{L}+|"
#define CUT_MARKED_WORD CUT_FRONT "[\\p{L}\\p{M}]+|"
#define CUT_SPACE "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CUT_REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" CUT_SPACE
#define CUT_MARKED_REST "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" CUT_SPACE
#define CUT_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define CUT_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CUT_CASED(end) CUT_FRONT CUT_UPPER "*" CUT_LOWER "+" end "|" CUT_FRONT CUT_UPPER "+" CUT_LOWER "*" end "|"
#define CUT_CASED_REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" CUT_SPACE
#define CUT_SIGN "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"

/* Only numbers: each digit, or three of them. */
#define CUT_DIGIT "\\p{N}"
#define CUT_DIGITS "\\p{N}{1,3}"

#define CUT_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define CUT_LLAMA3 CUT_SUFFIX "|" CUT_WORD CUT_DIGITS CUT_REST /* GPT-4's pattern, written differently */
#define CUT_QWEN2 CUT_SUFFIX "|" CUT_WORD CUT_DIGIT CUT_REST
#define CUT_QWEN35 CUT_SUFFIX "|" CUT_MARKED_WORD CUT_DIGIT CUT_MARKED_REST
#define CUT_O200K CUT_CASED(CUT_SUFFIX "?") CUT_DIGITS CUT_CASED_REST /* GPT-4o, gpt-oss, Llama 4 */
#define CUT_TEKKEN CUT_CASED("") CUT_DIGIT CUT_CASED_REST             /* Mistral */

/* DeepSeek V3, in three steps: numbers of three digits, these characters, and the words. Files have newlines in the words'
 * pattern as escapes or as they are. */
#define CUT_HAN_AND_KANA "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
#define CUT_DEEPSEEK3_LINES(cr, lf)                                                                                              \
    CUT_SIGN "[A-Za-z]+|[^" cr lf "\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[" cr lf "]*"                            \
             "|\\s*[" cr lf "]+|\\s+(?!\\S)|\\s+"
#define CUT_DEEPSEEK3 CUT_DEEPSEEK3_LINES("\\r", "\\n")
#define CUT_DEEPSEEK3_RAW CUT_DEEPSEEK3_LINES("\r", "\n")

#endif
