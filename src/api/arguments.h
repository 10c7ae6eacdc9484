/* What every function of hone.h does with its arguments before it uses them: a wrong one is a status and a message that begins
 * with the function's name. */
#ifndef API_ARGUMENTS_H
#define API_ARGUMENTS_H

#include "base/handle.h"
#include "base/status.h"
#include "hone.h"

/* In a function of hone.h, whose name begins the message. */
#define CHECK(call)                                                                                                              \
    do {                                                                                                                         \
        enum status check_status = (call);                                                                                       \
        if (check_status != OK)                                                                                                  \
            return (hone_status)check_status;                                                                                    \
    } while (0)
#define GIVEN(argument) CHECK(check_given(argument, #argument, __func__))

/* Begins a call: `given`, a handle as the caller has it, becomes the struct that it belongs to. */
#define ENTER_BY(enters, given, kind, call)                                                                                      \
    do {                                                                                                                         \
        struct handle *entered;                                                                                                  \
        CHECK(enters(&entered, given, kind, call));                                                                              \
        (given) = (void *)entered;                                                                                               \
    } while (0)
#define ENTER(given, kind, call) ENTER_BY(handle_enter, given, kind, call)
#define ENTER_NESTED(given, kind, call) ENTER_BY(handle_enter_nested, given, kind, call)

/* Not NULL; and for a text or path, not empty either. */
enum status check_given(const void *argument, const char *name, const char *call);
enum status check_text(const char *text, const char *name, const char *call);

/* Structs of the caller begin with their size, by the rule of docs/release.md. ERR_ARGUMENT if the struct is NULL, or its size is
 * not set or ends inside a member: no member goes over the end of 8 bytes. check_filled, of one that the caller has filled:
 * ERR_UNSUPPORTED if members that this library does not know are not 0. */
enum status check_struct(const void *given, const char *name, const char *call);
enum status check_filled(const void *given, size_t known_size, const char *name, const char *call);

/* What the library filled is handed over as far as the caller's version goes, and what that has more is 0. What the caller filled
 * is taken as far, and leaves the rest of `taken` as it is. */
void hand_over(void *result, const void *filled, size_t filled_size);
void take_over(void *taken, size_t taken_size, const void *given);

/* So many of something at an address, which may be NULL for none. */
enum status check_count(const void *address, int64_t count, const char *name, const char *call);

/* `flags` has no others than `known`. */
enum status check_flags(unsigned flags, unsigned known, const char *name, const char *call);

#endif
