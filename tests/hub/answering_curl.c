/* See the header. What libcurl 7.88 does with a Location that it does not follow is done here by its own URL API (Curl_follow
 * with FOLLOW_FAKE): it is joined to the address that was asked, and if that fails it is given on as it is. */
#include "answering_curl.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "hub/curl.h"

enum { FOLLOWLOCATION = 52, UNRESTRICTED_AUTH = 105, GUESS_SCHEME = 1 << 2, BODY = 5 };

struct curl_slist {
    char *data;
    struct curl_slist *next;
};

typedef size_t callback(char *bytes, size_t size, size_t count, void *context);

answering_server *answering;

static struct curl_functions real;

/* The one handle. */
static struct {
    char *url, *next;
    const struct curl_slist *lines;
    bool http_only, separate, follows;
    callback *head, *body;
    void *head_context, *body_context;
    long code;
} handle;

int curl_global_init(long flags)
{
    void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        library = dlopen("libcurl-gnutls.so.4", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return CURLE_UNKNOWN_OPTION;
#define SYMBOL(result, name, arguments)                                                                                          \
    *(void **)&real.name = dlsym(library, #name);                                                                                \
    if (!real.name)                                                                                                              \
        return CURLE_UNKNOWN_OPTION;
    CURL_SYMBOLS(SYMBOL)
#undef SYMBOL
    return real.curl_global_init(flags);
}

/* --- what is the real one's ------------------------------------------------------------------------------------------------- */

const char *curl_easy_strerror(int code)
{
    return real.curl_easy_strerror(code);
}

CURLU *curl_url(void)
{
    return real.curl_url();
}

int curl_url_set(CURLU *url, int part, const char *text, unsigned flags)
{
    return real.curl_url_set(url, part, text, flags);
}

int curl_url_get(CURLU *url, int part, char **text, unsigned flags)
{
    return real.curl_url_get(url, part, text, flags);
}

void curl_url_cleanup(CURLU *url)
{
    real.curl_url_cleanup(url);
}

void curl_free(void *text)
{
    real.curl_free(text);
}

struct curl_slist *curl_slist_append(struct curl_slist *list, const char *text)
{
    return real.curl_slist_append(list, text);
}

void curl_slist_free_all(struct curl_slist *list)
{
    real.curl_slist_free_all(list);
}

/* --- the handle ------------------------------------------------------------------------------------------------------------- */

CURL *curl_easy_init(void)
{
    return &handle;
}

void curl_easy_reset(CURL *given)
{
    (void)given;
    free(handle.url);
    free(handle.next);
    memset(&handle, 0, sizeof handle);
}

void curl_easy_cleanup(CURL *given)
{
    curl_easy_reset(given);
}

int curl_easy_setopt(CURL *given, int option, ...)
{
    va_list values;
    (void)given;
    va_start(values, option);
    if (option == CURLOPT_URL) {
        free(handle.url);
        handle.url = strdup(va_arg(values, const char *));
    } else if (option == CURLOPT_HTTPHEADER) {
        handle.lines = va_arg(values, struct curl_slist *);
    } else if (option == CURLOPT_PROTOCOLS_STR) {
        handle.http_only = !strcmp(va_arg(values, const char *), "http,https");
    } else if (option == CURLOPT_HEADEROPT) {
        handle.separate = va_arg(values, long) == CURLHEADER_SEPARATE;
    } else if (option == FOLLOWLOCATION || option == UNRESTRICTED_AUTH) {
        handle.follows |= va_arg(values, long) != 0;
    } else if (option == CURLOPT_HEADERFUNCTION) {
        handle.head = va_arg(values, callback *);
    } else if (option == CURLOPT_HEADERDATA) {
        handle.head_context = va_arg(values, void *);
    } else if (option == CURLOPT_WRITEFUNCTION) {
        handle.body = va_arg(values, callback *);
    } else if (option == CURLOPT_WRITEDATA) {
        handle.body_context = va_arg(values, void *);
    }
    va_end(values);
    return CURLE_OK;
}

int curl_easy_getinfo(CURL *given, int info, ...)
{
    va_list values;
    (void)given;
    va_start(values, info);
    if (info == CURLINFO_RESPONSE_CODE)
        *va_arg(values, long *) = handle.code;
    else if (info == CURLINFO_REDIRECT_URL)
        *va_arg(values, const char **) = handle.next;
    va_end(values);
    return CURLE_OK;
}

/* --- a request -------------------------------------------------------------------------------------------------------------- */

static const char *token(void)
{
    static const char before[] = "Authorization: ";
    for (const struct curl_slist *line = handle.lines; line; line = line->next)
        if (!strncasecmp(line->data, before, sizeof before - 1))
            return line->data + sizeof before - 1;
    return NULL;
}

/* Takes over what a line says of the next address; the first line of this name counts. */
static void keep_location(const char *line, size_t size, char **location)
{
    static const char name[] = "Location:";
    size_t at = sizeof name - 1;
    if (*location || size < at || strncasecmp(line, name, at) != 0)
        return;
    while (at < size && strchr(" \t\v\f", line[at]) && line[at])
        at++;
    for (size_t i = at; i < size; i++)
        if (line[i] == '\r')
            size = i;
    while (size > at && strchr(" \t\v\f", line[size - 1]) && line[size - 1])
        size--;
    if (at == size)
        return;
    *location = calloc(size - at + 1, 1);
    if (!*location)
        abort();
    memcpy(*location, line + at, size - at);
}

/* Gives one line to the program, in memory of its own so that a read beyond it is seen. */
static bool tell_line(const char *line, size_t size)
{
    char *own = malloc(size + 2);
    if (!own)
        abort();
    memcpy(own, line, size);
    memcpy(own + size, "\r\n", 2);
    bool taken = handle.head(own, 1, size + 2, handle.head_context) == size + 2;
    free(own);
    return taken;
}

/* Returns the Location, or NULL. */
static char *tell_head(const struct answering_reply *reply)
{
    char *location = NULL;
    tell_line("HTTP/1.1 000", 12);
    for (size_t at = 0, n; at < reply->size; at += n + 1) {
        const char *line = reply->head + at, *end = memchr(line, '\n', reply->size - at);
        n = end ? (size_t)(end - line) : reply->size - at;
        tell_line(line, n);
        keep_location(line, n, &location);
    }
    tell_line("", 0);
    return location;
}

static char *join(CURLU *asked, const char *location)
{
    char *text = NULL, *own;
    if (real.curl_url_set(asked, CURLUPART_URL, location, CURLU_NON_SUPPORT_SCHEME) != CURLUE_OK)
        return strdup(location);
    if (real.curl_url_get(asked, CURLUPART_URL, &text, 0) != CURLUE_OK)
        return NULL;
    own = strdup(text);
    real.curl_free(text);
    return own;
}

static char *part_of(CURLU *url, int part)
{
    char *text = NULL;
    bool has = real.curl_url_get(url, part, &text, CURLU_DEFAULT_PORT) == CURLUE_OK;
    char *own = strdup(has ? text : "");
    real.curl_free(text);
    return own;
}

static int ask(CURLU *url)
{
    enum { PARTS = 4 };
    static const int parts[PARTS] = {CURLUPART_SCHEME, CURLUPART_HOST, CURLUPART_ZONEID, CURLUPART_PORT};
    char *texts[PARTS], body[BODY] = "body";
    struct answering_reply reply = {.code = 200};
    if (real.curl_url_set(url, CURLUPART_URL, handle.url, GUESS_SCHEME | CURLU_NON_SUPPORT_SCHEME) != CURLUE_OK)
        return CURLE_URL_MALFORMAT;
    for (int i = 0; i < PARTS; i++)
        texts[i] = part_of(url, parts[i]);
    struct answering_request request = {
        handle.url, texts[0], texts[1], texts[2], texts[3], token(), handle.http_only && handle.separate && !handle.follows};
    answering(&request, &reply);
    for (int i = 0; i < PARTS; i++)
        free(texts[i]);
    char *location = tell_head(&reply);
    handle.code = reply.code;
    if (reply.code >= 300 && reply.code < 400 && location)
        handle.next = join(url, location);
    free(location);
    return handle.body(body, 1, sizeof body, handle.body_context) == sizeof body ? CURLE_OK : CURLE_WRITE_ERROR;
}

int curl_easy_perform(CURL *given)
{
    CURLU *url = real.curl_url();
    (void)given;
    int code = ask(url);
    real.curl_url_cleanup(url);
    return code;
}
