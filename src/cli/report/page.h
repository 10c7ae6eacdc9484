/* Pages for a browser: one file each, without scripts and without anything from elsewhere. Text that comes from a file is
 * escaped by these functions, and is written by no others. */
#ifndef CLI_REPORT_PAGE_H
#define CLI_REPORT_PAGE_H

#include "base/json.h"
#include "base/memory.h"

/* The head of every page, with a policy for the browser, a title and a style. */
enum status page_begin(struct buffer *page, const char *title, const char *style);

/* Text with &, <, > and quotes as entities, and without what would change the direction of text or hide in it. */
enum status page_escaped(struct buffer *page, const char *text, int64_t length);

/* HTML as a format of printf; the texts among its values are escaped. */
enum status page_format(struct buffer *page, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* HTML, a text that is escaped, and HTML. */
enum status page_put(struct buffer *page, const char *before, const char *text, const char *after);

/* 1234567 as 1,234,567. */
enum status page_count(struct buffer *page, long long value);

/* A member of an object: "" or 0 where it is missing or of another type. */
const char *page_text(const json_t *object, const char *key);
long long page_number(const json_t *object, const char *key);

#endif
