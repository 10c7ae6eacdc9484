/* A libcurl that asks nobody: it keeps the options that it is given, refuses one on demand, and while it performs does what a
 * closed connection does. tests/unit/test_http.c opens it in the place of the real one. */
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include "hub/curl.h"

enum { OPTIONS_MAX = 400, KINDS = 10000, TEXT_MAX = 256 };

/* What the test sets and reads. */
int fake_refused = -1; /* the option that is not known; -1: none */
int fake_performed;
long fake_numbers[OPTIONS_MAX];
char fake_texts[OPTIONS_MAX][TEXT_MAX];

int curl_global_init(long flags)
{
    return flags == CURL_GLOBAL_ALL ? CURLE_OK : 2;
}

CURL *curl_easy_init(void)
{
    static char handle;
    return &handle;
}

void curl_easy_reset(CURL *handle)
{
    (void)handle;
    memset(fake_numbers, 0, sizeof fake_numbers);
    memset(fake_texts, 0, sizeof fake_texts);
}

int curl_easy_setopt(CURL *handle, int option, ...)
{
    va_list values;
    (void)handle;
    if (option == fake_refused)
        return CURLE_UNKNOWN_OPTION;
    va_start(values, option);
    if (option < KINDS)
        fake_numbers[option] = va_arg(values, long);
    else if (option == CURLOPT_URL || option == CURLOPT_RANGE || option == CURLOPT_NOPROXY || option == CURLOPT_CAINFO ||
             option == CURLOPT_PROTOCOLS_STR)
        strncpy(fake_texts[option % KINDS], va_arg(values, const char *), TEXT_MAX - 1);
    va_end(values);
    return CURLE_OK;
}

int curl_easy_perform(CURL *handle)
{
    (void)handle;
    fake_performed++;
    raise(SIGPIPE);
    return CURLE_OK;
}

int curl_easy_getinfo(CURL *handle, int info, ...)
{
    va_list values;
    (void)handle;
    va_start(values, info);
    if (info == CURLINFO_RESPONSE_CODE)
        *va_arg(values, long *) = 404;
    else
        *va_arg(values, const char **) = NULL;
    va_end(values);
    return CURLE_OK;
}

const char *curl_easy_strerror(int code)
{
    return code == CURLE_UNKNOWN_OPTION ? "An unknown option was passed in to libcurl" : "another fault";
}

void curl_easy_cleanup(CURL *handle)
{
    (void)handle;
    raise(SIGPIPE);
}

struct curl_slist *curl_slist_append(struct curl_slist *list, const char *text)
{
    static char lines;
    (void)list, (void)text;
    return (struct curl_slist *)&lines;
}

void curl_slist_free_all(struct curl_slist *list)
{
    (void)list;
}
