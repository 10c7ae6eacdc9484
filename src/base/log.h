/* Messages for the user of the library. The library prints nothing itself: the program that embeds it says where they go. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARNING };

typedef void log_sink(void *context, enum log_level level, const char *message);

/* For the whole process; NULL, the initial value, drops messages. */
void log_set_sink(log_sink *sink, void *context);

/* Drops the messages of the calling thread, or no longer. Returns whether it did so before. */
bool log_mute(bool mute);

void log_message(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
