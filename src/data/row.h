/* A row's tokens.
 *
 * The idea: every kind of row becomes either a conversation that the model's chat template writes, or plain text of which a part
 * is trained.
 */
#ifndef DATA_ROW_H
#define DATA_ROW_H

#include "data/kind.h"
#include "text/chat/chat.h"

/* Recognises, reads and encodes one row; what `out` held before is replaced. ERR_DATA with the cause and, for invalid JSON, the
 * column; the caller adds file and line before it. */
enum status row_encode(const struct chat *chat, const char *text, int64_t length, struct chat_row *out, enum row_kind *kind);

#endif
