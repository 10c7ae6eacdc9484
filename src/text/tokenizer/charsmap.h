/* SentencePiece's table of normalisations, the "precompiled_charsmap" of a tokenizer: which text is replaced by which.
 *
 *     4 bytes    the size of the trie in bytes, little-endian
 *     the trie   units of 4 bytes, a double array: a unit's offset leads to its children, which are told apart by their label
 *     the rest   texts, each ended by a zero byte; a value of the trie is where its text begins
 */
#ifndef TEXT_TOKENIZER_CHARSMAP_H
#define TEXT_TOKENIZER_CHARSMAP_H

#include "base/memory.h"

struct charsmap {
    uint32_t *units;
    int64_t unit_count;
    char *texts;
    int64_t text_bytes;
};

/* Reads the table in base64, as JSON has it. An empty one changes nothing. On failure charsmap_close still has to be called. */
enum status charsmap_open(struct charsmap *map, const char *base64, int64_t length, const char *where);
void charsmap_close(struct charsmap *map);

/* The replacement of the shortest entry that the text begins with; NULL: there is none. */
const char *charsmap_find(const struct charsmap *map, const char *text, int64_t length, int64_t *found);

#endif
