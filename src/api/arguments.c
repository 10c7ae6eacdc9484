/* Checks of arguments. */
#include "api/arguments.h"

#include <string.h>

enum { WORD = 8 }; /* bytes */

enum status check_given(const void *argument, const char *name, const char *call)
{
    return argument ? OK : fail(ERR_ARGUMENT, "%s: %s is NULL", call, name);
}

enum status check_text(const char *text, const char *name, const char *call)
{
    TRY(check_given(text, name, call));
    return *text ? OK : fail(ERR_ARGUMENT, "%s: %s is empty", call, name);
}

static size_t arguments_size_of(const void *counted)
{
    size_t size;
    memcpy(&size, counted, sizeof size);
    return size;
}

enum status check_struct(const void *given, const char *name, const char *call)
{
    TRY(check_given(given, name, call));
    size_t size = arguments_size_of(given);
    if (size <= sizeof size)
        return fail(ERR_ARGUMENT, "%s: the size of %s is not set: it is the sizeof of its struct", call, name);
    return size % WORD == 0 ? OK
                            : fail(ERR_ARGUMENT,
                                   "%s: the size of %s is %zu, which ends inside a member: it is the sizeof of its "
                                   "struct",
                                   call, name, size);
}

enum status check_filled(const void *given, size_t known_size, const char *name, const char *call)
{
    TRY(check_struct(given, name, call));
    const char *bytes = given;
    for (size_t i = known_size; i < arguments_size_of(given); i++)
        if (bytes[i])
            return fail(ERR_UNSUPPORTED,
                        "%s: %s has %zu bytes, and this libhone knows the first %zu: what is set after them it cannot do. Take a "
                        "newer libhone, or leave it 0",
                        call, name, arguments_size_of(given), known_size);
    return OK;
}

static size_t arguments_smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

void hand_over(void *result, const void *filled, size_t filled_size)
{
    size_t begin = sizeof(size_t), size = arguments_size_of(result), end = arguments_smaller(size, filled_size);
    memcpy((char *)result + begin, (const char *)filled + begin, end - begin);
    memset((char *)result + end, 0, size - end);
}

void take_over(void *taken, size_t taken_size, const void *given)
{
    memcpy(taken, given, arguments_smaller(arguments_size_of(given), taken_size));
}

enum status check_count(const void *address, int64_t count, const char *name, const char *call)
{
    if (count < 0)
        return fail(ERR_ARGUMENT, "%s: a count of %lld %s", call, (long long)count, name);
    return count ? check_given(address, name, call) : OK;
}

enum status check_flags(unsigned flags, unsigned known, const char *name, const char *call)
{
    return flags & ~known ? fail(ERR_ARGUMENT, "%s: %s has bits that mean nothing: 0x%x", call, name, flags & ~known) : OK;
}
