/* Messages to the sink that the process set. */
#include "base/log.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include "base/utf8.h"

static log_sink *current;
static void *current_context;
static _Thread_local bool muted;

void log_set_sink(log_sink *sink, void *context)
{
    current = sink;
    current_context = context;
}

bool log_mute(bool mute)
{
    bool before = muted;
    muted = mute;
    return before;
}

void log_message(enum log_level level, const char *format, ...)
{
    if (!current || muted)
        return;
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    utf8_clean_line(text);
    current(current_context, level, text);
}
