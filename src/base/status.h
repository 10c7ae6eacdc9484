/* Errors. What can fail returns an enum status; the message of the last failure stays with the thread.
 *
 *     return fail(ERR_FORMAT, "%s: tensor %s ends beyond the file", path, name);
 *     TRY(file_map(&map, path));
 */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

enum status {
    OK = 0,
#define STATUS(name, number, text) name = number,
#include "base/status.def"
#undef STATUS
};

/* Sets the thread's message and returns the code, so that it can stand in a return statement. */
enum status fail(enum status code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts the place ("chats.jsonl:12: ") before the message that is set, and returns the code. */
enum status fail_at(enum status code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The message of the thread's last failure; never NULL, and with its zero byte never longer than this. */
enum { STATUS_MESSAGE_SIZE = 4096 };
const char *status_message(void);

/* What a code means in general. */
const char *status_text(enum status code);

#define TRY(call)                                                                                                                \
    do {                                                                                                                         \
        enum status try_status = (call);                                                                                         \
        if (try_status != OK)                                                                                                    \
            return try_status;                                                                                                   \
    } while (0)

#endif
