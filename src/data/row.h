/* What a row says, recognised by its keys, and its tokens.
 *
 * The idea: every kind of row becomes either a conversation that the model's chat template writes, or plain text of which a part
 * is trained. Keys decide, never values, and a row that could be two kinds is none.
 */
#ifndef DATA_ROW_H
#define DATA_ROW_H

#include "text/chat/chat.h"

enum row_kind { ROW_MESSAGES, ROW_PROMPT, ROW_TEXT, ROW_ALPACA, ROW_SHAREGPT, ROW_PREFERENCE, ROW_KINDS };

const char *row_kind_name(enum row_kind kind);

/* Parses one row and encodes it; what `out` held before is replaced. ERR_DATA with the cause and, where it is one of JSON, the
 * column; the caller puts file and line in front. */
enum status row_encode(const struct chat *chat, const char *text, int64_t length, struct chat_row *out, enum row_kind *kind);

#endif
