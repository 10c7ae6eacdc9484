/* The "decoder" of a tokenizer.json: how the contents of tokens become text again. */
#ifndef TEXT_TOKENIZER_TOKEN_DECODER_H
#define TEXT_TOKENIZER_TOKEN_DECODER_H

#include "base/json.h"
#include "base/memory.h"

struct decode_step;

struct decoder {
    struct decode_step *steps;
    int64_t count;
    bool spaces; /* the file has no decoder: tokens are joined by spaces */
};

/* json may be NULL or null. On failure decoder_close still has to be called. */
enum status decoder_open(struct decoder *decoder, const json_t *json, const char *where);
void decoder_close(struct decoder *decoder);

/* The contents of tokens, one after the other: token i ends at ends[i] of the text, and plain[i] says that it is an added token,
 * whose content is plain text. Starts as {0}. */
struct decode_pieces {
    struct buffer text;
    int64_t *ends;
    uint8_t *plain;
    int64_t count, capacity, plain_capacity;
};

enum status decode_pieces_add(struct decode_pieces *pieces, const char *text, int64_t length, bool plain);
void decode_pieces_free(struct decode_pieces *pieces);

/* Appends the text. `first`: strips what is stripped from the beginning of a text. The pieces are used up. */
enum status decoder_run(const struct decoder *decoder, struct decode_pieces *pieces, bool first, struct buffer *text);

#endif
