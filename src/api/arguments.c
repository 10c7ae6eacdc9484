/* Checks of arguments. */
#include "api/arguments.h"

#include <string.h>

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

enum status check_struct(const void *result, const char *name, const char *call)
{
    TRY(check_given(result, name, call));
    return arguments_size_of(result) > sizeof(size_t)
               ? OK
               : fail(ERR_ARGUMENT, "%s: the size of %s is not set: begin with {.size = sizeof %s}", call, name, name);
}

static size_t arguments_smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

void hand_over(void *result, const void *filled, size_t filled_size)
{
    size_t known = sizeof(size_t), end = arguments_smaller(arguments_size_of(result), filled_size);
    memcpy((char *)result + known, (const char *)filled + known, end - known);
}

void take_over(void *taken, size_t taken_size, const void *given)
{
    memset(taken, 0, taken_size);
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
