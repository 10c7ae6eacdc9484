/* Conversations from rows: every format of data sets becomes a list of messages as chat templates take them. */
#ifndef DATA_CONVERSATION_H
#define DATA_CONVERSATION_H

#include "base/json.h"

/* Checks the list of messages that row[key] is, in place: roles and contents by type; members that are null are removed, and
 * {"from", "value"} becomes {"role", "content"} by ShareGPT's names. ERR_DATA with the cause. */
enum status conversation_check(json_t *messages, const char *key);

/* Where row[key] is a text that begins as the JSON of a list, as tables have lists, it becomes that list. */
enum status conversation_unfold(json_t *row, const char *key);

/* New lists, owned by the caller. ShareGPT's "system" comes first; Alpaca's "input" comes on the line after its "instruction",
 * and "history", pairs of question and answer, before both. */
enum status conversation_sharegpt(const json_t *row, json_t **messages);
enum status conversation_alpaca(const json_t *row, json_t **messages);

/* The row's "tools", NULL without any: a list, or a text that is the JSON of one. Owned by the caller. */
enum status conversation_tools(const json_t *row, json_t **tools);

#endif
