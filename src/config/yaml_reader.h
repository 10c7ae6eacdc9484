/* libyaml's events, one at a time, with hone's messages. Aliases and tags are refused, so nothing is expanded, and memory stays
 * within a small multiple of the file. */
#ifndef CONFIG_YAML_READER_H
#define CONFIG_YAML_READER_H

#include <yaml.h>

#include "base/memory.h"

enum { YAML_FILE_MAX = 1 << 20 };

struct yaml_reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the current one; freed when the next is read */
    const char *path;
};

/* The text must outlive the reader. */
enum status yaml_reader_open(struct yaml_reader *r, const struct buffer *text, const char *path);
void yaml_reader_close(struct yaml_reader *r);

enum status yaml_next(struct yaml_reader *r);

/* The line of the current event, from 1. */
int yaml_line(const struct yaml_reader *r);

/* ERR_FORMAT at the current event. */
enum status yaml_fail(const struct yaml_reader *r, const char *what);

/* Fails unless the current event is a scalar without a tag whose text holds no zero byte. */
enum status yaml_check_scalar(const struct yaml_reader *r);

/* Whether the current event is one of YAML's words for nothing. */
bool yaml_is_null(const struct yaml_reader *r);

#endif
