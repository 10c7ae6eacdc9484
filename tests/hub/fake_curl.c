/* A libcurl that asks nobody: it keeps the options that it is given, refuses one on demand, and while it performs does what a
 * closed connection does. tests/unit/test_http.c opens it in the place of the real one. */
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
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

/* --- addresses: SCHEME://HOST[:PORT][/...], which is all that the test has ---------------------------------------------- */

struct Curl_URL {
    char scheme[TEXT_MAX], host[TEXT_MAX], port[TEXT_MAX];
};

CURLU *curl_url(void)
{
    return calloc(1, sizeof(CURLU));
}

int curl_url_set(CURLU *url, int part, const char *text, unsigned flags)
{
    (void)part, (void)flags;
    const char *host = strstr(text, "://");
    if (!host)
        return 3;
    snprintf(url->scheme, sizeof url->scheme, "%.*s", (int)(host - text), text);
    host += 3;
    size_t n = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":/");
    snprintf(url->host, sizeof url->host, "%.*s", (int)n, host);
    snprintf(url->port, sizeof url->port, "%.*s", host[n] == ':' ? (int)strspn(host + n + 1, "0123456789") : 0, host + n + 1);
    return CURLUE_OK;
}

int curl_url_get(CURLU *url, int part, char **text, unsigned flags)
{
    (void)flags;
    const char *found = part == CURLUPART_SCHEME ? url->scheme : part == CURLUPART_HOST ? url->host : "";
    if (part == CURLUPART_PORT)
        found = *url->port ? url->port : !strcmp(url->scheme, "http") ? "80" : "443";
    *text = *found ? strdup(found) : NULL;
    return *found ? CURLUE_OK : 11;
}

void curl_url_cleanup(CURLU *url)
{
    free(url);
}

void curl_free(void *text)
{
    free(text);
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
