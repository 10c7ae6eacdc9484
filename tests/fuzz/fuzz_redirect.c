/* The input is an endpoint, as HF_ENDPOINT has it, and after a zero byte each what servers answer to one request after the other:
 * a line with the code, and lines of the header as they come. libcurl reads the addresses (tests/hub/answering_curl.c); here a
 * small reader of its own, which takes nothing that two programs could read in two ways, judges where each request goes.
 *
 * Nothing is asked at an address that it does not take, or that libcurl reads as another one. The token is seen only at the
 * endpoint's scheme, host and port, not again once a redirect led elsewhere, and without encryption only on this machine. From
 * https nothing leads to http. */
#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../hub/answering_curl.h"
#include "base/library.h"
#include "fuzz.h"
#include "hub/endpoint.h"

#define TOKEN "hf_(SECRET)" /* no host has such signs, so that a message has them from the token or from the input itself */

enum { TEXT_MAX = 1 << 14, REQUESTS_MAX = 9 };

struct origin {
    char scheme[8], host[256], zone[32];
    long port;
};

/* What an input is about. */
static struct {
    struct fuzz_part rest;
    struct origin endpoint, last;
    bool known; /* the endpoint can be read */
    bool left;  /* a redirect led elsewhere */
    int requests;
} now;

/* --- the reader ------------------------------------------------------------------------------------------------------------- */

static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";

static void lower(char *to, const char *from, size_t size)
{
    for (size_t i = 0; i < size; i++)
        to[i] = (char)tolower((unsigned char)from[i]);
    to[size] = 0;
}

/* Whether some program may take the name for a number that is an address: its last part is one, were there a dot after it. */
static bool is_number(const char *host)
{
    char part[256], *end;
    snprintf(part, sizeof part, "%s", host);
    if (*part && part[strlen(part) - 1] == '.')
        part[strlen(part) - 1] = 0;
    const char *last = strrchr(part, '.') ? strrchr(part, '.') + 1 : part;
    if (!isdigit((unsigned char)*last))
        return false;
    strtoull(last, &end, strncmp(last, "0x", 2) ? 10 : 16);
    return !*end || !strcmp(last, "0x");
}

/* A name, or four numbers as inet_ntop writes them. */
static bool read_name(struct origin *o, const char *text, size_t size)
{
    struct in_addr address;
    char again[INET_ADDRSTRLEN];
    if (!size || size >= sizeof o->host || strspn(text, letters) < size)
        return false;
    lower(o->host, text, size);
    return !is_number(o->host) || (inet_pton(AF_INET, o->host, &address) == 1 &&
                                   inet_ntop(AF_INET, &address, again, sizeof again) && !strcmp(again, o->host));
}

/* What is between brackets; an address can be written in several ways. */
static bool read_number(struct origin *o, const char *text, size_t size)
{
    struct in6_addr address;
    char own[INET6_ADDRSTRLEN];
    size_t n = strspn(text, "0123456789abcdefABCDEF:.");
    if (n > size || n >= sizeof own)
        return false;
    lower(own, text, n);
    if (inet_pton(AF_INET6, own, &address) != 1 || !inet_ntop(AF_INET6, &address, o->host, sizeof o->host))
        return false;
    if (n == size)
        return true;
    if (size - n <= 3 || strncmp(text + n, "%25", 3) != 0 || size - n - 3 >= sizeof o->zone ||
        strspn(text + n + 3, letters) < size - n - 3)
        return false;
    memcpy(o->zone, text + n + 3, size - n - 3);
    return true;
}

/* SCHEME://HOST[:PORT], and then nothing or a path, a query or a fragment of signs that can be seen. */
static bool read_strictly(struct origin *o, const char *text)
{
    *o = (struct origin){0};
    size_t n = strcspn(text, ":");
    if (n >= sizeof o->scheme || strncmp(text + n, "://", 3) != 0)
        return false;
    lower(o->scheme, text, n);
    if (strcmp(o->scheme, "http") != 0 && strcmp(o->scheme, "https") != 0)
        return false;
    text += n + 3;
    for (const char *at = text; *at; at++)
        if ((unsigned char)*at <= ' ' || *at == 0x7f)
            return false;
    bool bracket = *text == '[';
    n = bracket ? strcspn(text, "]/?#") : strcspn(text, ":/?#");
    if (bracket ? text[n] != ']' || !read_number(o, text + 1, n - 1) : !read_name(o, text, n))
        return false;
    text += n + bracket;
    o->port = strcmp(o->scheme, "http") ? 443 : 80;
    if (*text == ':') {
        n = strspn(++text, "0123456789"); /* zeros before a port change nothing for anyone */
        if (n)
            o->port = strtol(text, NULL, 10); /* LONG_MAX if it is too long */
        text += n;
    }
    return o->port < 65536 && (!*text || strchr("/?#", *text));
}

static bool is_same(const struct origin *a, const struct origin *b)
{
    return !strcmp(a->scheme, b->scheme) && !strcmp(a->host, b->host) && !strcmp(a->zone, b->zone) && a->port == b->port;
}

/* Whether libcurl reads the same, which asks. */
static bool is_asked(const struct origin *o, const struct answering_request *r)
{
    char text[TEXT_MAX];
    struct origin asked;
    snprintf(text, sizeof text, *r->zone ? "%s://%.*s%%25%s]:%s" : "%s://%.*s%s:%s", r->scheme,
             (int)strlen(r->host) - (*r->zone != 0), r->host, r->zone, r->port);
    return read_strictly(&asked, text) && is_same(o, &asked);
}

static bool is_private(const struct origin *o)
{
    return !strcmp(o->scheme, "https") || !strcmp(o->host, "localhost") || !strcmp(o->host, "127.0.0.1") ||
           (!strcmp(o->host, "::1") && !*o->zone);
}

/* --- the servers ------------------------------------------------------------------------------------------------------------ */

/* Codes that hone tries again after a pause are others here. */
static long code_of(long number)
{
    number = number < 0 ? 0 : number % 600;
    return number == 408 || number == 429 || number >= 500 ? 404 : number;
}

static void answer(const struct answering_request *request, struct answering_reply *reply)
{
    static char line[8];
    struct origin to;
    PROMISE(request->bounded && ++now.requests <= REQUESTS_MAX);
    PROMISE(now.known && read_strictly(&to, request->url) && is_asked(&to, request));
    PROMISE(now.requests > 1 || is_same(&to, &now.endpoint));
    PROMISE(now.requests == 1 || !strcmp(now.last.scheme, to.scheme) || !strcmp(to.scheme, "https"));
    now.left |= !is_same(&to, &now.endpoint);
    now.last = to;
    PROMISE(!request->token || (!now.left && is_private(&to) && !strcmp(request->token, "Bearer " TOKEN)));
    PROMISE(request->token || now.left || !is_private(&to));
    struct fuzz_part head = fuzz_next(&now.rest);
    const uint8_t *end = head.size ? memchr(head.data, '\n', head.size) : NULL;
    size_t n = end ? (size_t)(end - head.data) : head.size;
    if (!n)
        return;
    snprintf(line, sizeof line, "%.*s", (int)n, (const char *)head.data);
    reply->code = code_of(strtol(line, NULL, 10));
    reply->head = (const char *)head.data + n + (end != NULL);
    reply->size = head.size - n - (end != NULL);
}

static enum status sink(void *context, const struct http_reply *reply, const char *bytes, int64_t count)
{
    (void)context, (void)bytes;
    PROMISE(count > 0 && (reply->code == 200 || reply->code == 206));
    return OK;
}

/* --- the client ------------------------------------------------------------------------------------------------------------- */

/* False: there is no libcurl on this machine. */
static bool open_library(void)
{
    const char *why, *const names[] = {ANSWERING_CURL, NULL};
    static char curl[] = "HONE_CURL_LIBRARY=" ANSWERING_CURL, token[] = "HF_TOKEN=" TOKEN;
    static const char *const others[] = {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DOWNLOAD_TIMEOUT"};
    void *library = library_open(names, &why);
    answering_server **server = library ? library_symbol(library, "answering") : NULL;
    PROMISE(server && putenv(curl) == 0 && putenv(token) == 0);
    *server = answer;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        unsetenv(others[i]);
    struct http *http;
    bool opens = http_open(&http, 1) == OK;
    PROMISE(opens || strstr(status_message(), "libcurl does not start"));
    if (opens)
        http_close(http);
    else
        fprintf(stderr, "no libcurl here: no redirect is judged\n");
    return opens;
}

/* The environment keeps each text that setenv gives it. */
static void set_endpoint(struct fuzz_part text)
{
    static char variable[] = "HF_ENDPOINT", value[sizeof variable + TEXT_MAX];
    size_t n = text.size < TEXT_MAX - 1 ? text.size : TEXT_MAX - 1;
    snprintf(value, sizeof value, "%s=%.*s", variable, (int)n, (const char *)text.data);
    PROMISE(putenv(value) == 0);
    now.known = read_strictly(&now.endpoint, n ? value + sizeof variable : "https://huggingface.co");
}

void fuzz_input(const uint8_t *data, size_t size)
{
    static int ready = -1;
    if (ready < 0)
        ready = open_library();
    if (!ready) {
        fuzz_accept();
        return;
    }
    const int64_t none = 0;
    struct arena arena = {0};
    struct endpoint endpoint;
    memset(&now, 0, sizeof now);
    now.rest = (struct fuzz_part){data, size};
    set_endpoint(fuzz_next(&now.rest));
    enum status status = endpoint_open(&endpoint, &arena, "org/name", "main");
    if (status == OK)
        status = endpoint_get(&endpoint, "/org/name/resolve/main/x", "", "", sink, NULL, &none, -1);
    PROMISE(status == OK || !strstr(status_message(), TOKEN) || memmem(data, size, TOKEN, sizeof TOKEN - 1));
    if (status == OK && now.requests > 1)
        fuzz_accept();
    endpoint_close(&endpoint);
    arena_free(&arena);
}
