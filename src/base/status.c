/* The thread's error message. It may quote a file's bytes, and is made for terminals: what would control one is replaced. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

static _Thread_local char message[STATUS_MESSAGE_SIZE];

enum status fail(enum status code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    utf8_clean_line(message); /* also where it quotes a name of several lines */
    return code;
}

enum status fail_at(enum status code, const char *format, ...)
{
    char rest[sizeof message];
    memcpy(rest, message, sizeof rest);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof message)
        snprintf(message + n, sizeof message - (size_t)n, "%s", rest);
    utf8_clean_line(message);
    return code;
}

const char *status_message(void)
{
    return message;
}

const char *status_text(enum status code)
{
    switch (code) {
    case OK: return "success";
#define STATUS(name, number, text)                                                                                               \
    case name:                                                                                                                   \
        return text;
#include "base/status.def"
#undef STATUS
    }
    return "unknown status";
}
