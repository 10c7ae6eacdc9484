/* Text for people: what would be invisible or would control a terminal becomes a visible sign. */
#ifndef CLI_VIEW_ESCAPE_H
#define CLI_VIEW_ESCAPE_H

#include "base/json.h"
#include "base/memory.h"

/* Gets a run of text that can be printed as it is, or a newline: "\n", length 1. */
typedef enum status escape_sink(void *context, const char *text, int64_t length);

/* A token of a report: its text, or its bytes as \xe6\x97 where they are a part of a character. A newline comes as its sign and
 * then as itself. */
enum status escape_token(const json_t *token, escape_sink *sink, void *context);

/* A model's answer: what cannot be shown becomes signs, except newlines and tabs, and what joins letters or emoji. */
enum status escape_text(const char *text, int64_t length, escape_sink *sink, void *context);

#endif
