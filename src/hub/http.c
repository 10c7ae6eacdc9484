/* Requests through libcurl's easy interface. */
#include "hub/http.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/code.h"
#include "base/library.h"
#include "base/pipe_signal.h"

enum { REDIRECTS_MAX = 8, CONNECT_SECONDS = 20, PIECE_BYTES = 512 * 1024, ERROR_MAX = 1 << 20 };

static struct curl_functions curl;

struct http {
    CURL *handle;
    int64_t timeout;
    char error[CURL_ERROR_SIZE];
};

/* A request in flight. */
struct transfer {
    const struct http_request *request;
    struct http_reply *reply;
    CURL *handle;
    enum status status; /* of the sink, or a request to stop */
    bool enough;        /* the text of an error, which nobody reads, is too long: its code is the answer */
};

/* Where a request goes. */
struct place {
    const char *text;
    struct url url; /* the same, as it was read */
    bool own;       /* the host that was asked first, and no other between: it may have the token */
};

static enum status http_load(void)
{
    const char *own = code_variable("HONE_CURL_LIBRARY"), *why = "";
    const char *const names[] = {own ? own : "libcurl.so.4", own ? NULL : "libcurl-gnutls.so.4", NULL};
    void *library = library_open(names, &why);
    if (!library)
        return fail(ERR_UNSUPPORTED,
                    "libcurl, which hone pull needs, is not on this machine (%s): install it (Debian: libcurl4 or "
                    "libcurl3-gnutls)",
                    why);
#define SYMBOL(result, name, arguments)                                                                                          \
    *(void **)&curl.name = library_symbol(library, #name);                                                                       \
    if (!curl.name)                                                                                                              \
        return fail(ERR_UNSUPPORTED, "%s has no " #name ": hone pull needs libcurl 7.62 or later", names[0]);
    CURL_SYMBOLS(SYMBOL)
#undef SYMBOL
    if (curl.curl_global_init(CURL_GLOBAL_ALL) != CURLE_OK)
        return fail(ERR_UNSUPPORTED, "libcurl does not start");
    return OK;
}

/* The functions, once for the process, by one thread: older versions of libcurl start in only one. */
static enum status http_load_once(void)
{
    static atomic_flag busy = ATOMIC_FLAG_INIT;
    static bool loaded;
    while (atomic_flag_test_and_set(&busy))
        clock_wait(0.001);
    enum status status = loaded ? OK : http_load();
    loaded = status == OK;
    atomic_flag_clear(&busy);
    return status;
}

enum status http_open(struct http **out, int64_t timeout)
{
    *out = NULL;
    TRY(http_load_once());
    struct http *http = memory_alloc(sizeof *http);
    if (!http)
        return ERR_MEMORY;
    http->timeout = timeout;
    http->handle = curl.curl_easy_init();
    if (!http->handle) {
        memory_free(http);
        return fail(ERR_MEMORY, "out of memory while opening libcurl");
    }
    *out = http;
    return OK;
}

void http_close(struct http *http)
{
    if (!http)
        return;
    struct pipe_signal pipe;
    pipe_signal_block(&pipe);
    curl.curl_easy_cleanup(http->handle); /* says goodbye to servers */
    pipe_signal_restore(&pipe);
    memory_free(http);
}

enum status http_read(const struct http *http, const char *text, struct url *url)
{
    (void)http; /* the caller has one, so libcurl is open */
    return url_read(url, &curl, text);
}

/* --- answers ------------------------------------------------------------------------------------------------------------ */

/* The value of a header of this name, or NULL; `line` ends with a zero byte. */
static const char *header(const char *line, const char *name)
{
    size_t n = strlen(name);
    if (strncasecmp(line, name, n) != 0 || line[n] != ':')
        return NULL;
    return line + n + 1 + strspn(line + n + 1, " \t");
}

static size_t http_take_header(char *bytes, size_t size, size_t count, void *context)
{
    struct http_reply *reply = ((struct transfer *)context)->reply;
    char line[512];
    const char *value;
    snprintf(line, sizeof line, "%.*s", (int)(size * count < sizeof line ? size * count : sizeof line - 1), bytes);
    line[strcspn(line, "\r\n")] = 0;
    if (!strncmp(line, "HTTP/", 5)) { /* an answer begins; a proxy's own may have come before it */
        reply->from = 0;
        reply->received = 0;
        reply->retry_after = 0;
        reply->cause[0] = 0;
    } else if ((value = header(line, "Content-Range"))) {
        reply->from = strncasecmp(value, "bytes ", 6) ? -1 : strtoll(value + 6, NULL, 10);
    } else if ((value = header(line, "Retry-After"))) {
        reply->retry_after = strtod(value, NULL);
    } else if ((value = header(line, "X-Error-Code"))) {
        snprintf(reply->cause, sizeof reply->cause, "%.*s",
                 (int)strspn(value, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"), value);
    }
    return size * count;
}

static size_t take_body(char *bytes, size_t size, size_t count, void *context)
{
    struct transfer *t = context;
    curl.curl_easy_getinfo(t->handle, CURLINFO_RESPONSE_CODE, &t->reply->code);
    if (t->reply->code == 200 || t->reply->code == 206)
        t->status = t->request->sink(t->request->context, t->reply, bytes, (int64_t)(size * count));
    t->reply->received += (int64_t)(size * count);
    t->enough = t->reply->code != 200 && t->reply->code != 206 && t->reply->received > ERROR_MAX;
    return t->status == OK && !t->enough ? size * count : 0;
}

/* Called about once a second, also while nothing comes. */
static int http_look_up(void *context, int64_t total, int64_t now, int64_t upload_total, int64_t upload_now)
{
    struct transfer *t = context;
    (void)total, (void)now, (void)upload_total, (void)upload_now;
    if (t->status == OK)
        t->status = cancel_check();
    return t->status != OK;
}

/* --- one request -------------------------------------------------------------------------------------------------------- */

static enum status http_add_line(struct curl_slist **lines, const char *format, const char *value)
{
    struct buffer text = {0};
    enum status status = buffer_format(&text, "%s%s", format, value);
    struct curl_slist *more = status == OK ? curl.curl_slist_append(*lines, text.data) : NULL;
    if (text.data)
        memset(text.data, 0, (size_t)text.size); /* a token is not left in freed memory */
    buffer_free(&text);
    if (!more)
        return status != OK ? status : fail(ERR_MEMORY, "out of memory while asking a server");
    *lines = more;
    return OK;
}

/* The file of certificates that are trusted, if a variable names one: those that huggingface_hub reads. NULL: libcurl's own. */
static const char *trusted(void)
{
    static const char *const variables[] = {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"};
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *value = getenv(variables[i]);
        if (value && *value)
            return value;
    }
    return NULL;
}

/* What a libcurl refuses is not gone without: it may be what keeps a token secret. */
#define SET(option, value)                                                                                                       \
    do {                                                                                                                         \
        int set_code = curl.curl_easy_setopt(http->handle, option, value);                                                       \
        if (set_code != CURLE_OK)                                                                                                \
            return fail_option(#option, set_code);                                                                               \
    } while (0)

static enum status fail_option(const char *option, int code)
{
    if (code == CURLE_OUT_OF_MEMORY)
        return fail(ERR_MEMORY, "out of memory while asking a server");
    return fail(ERR_UNSUPPORTED, "this libcurl does not take %s (%s): hone pull needs libcurl 7.62 or later", option,
                curl.curl_easy_strerror(code));
}

static enum status set_options(struct http *http, const struct place *place, const char *range, struct curl_slist *lines,
                               struct transfer *t)
{
    const char *certificates = trusted();
    curl.curl_easy_reset(http->handle);
    http->error[0] = 0;
    SET(CURLOPT_ERRORBUFFER, http->error);
    SET(CURLOPT_URL, place->text);
    int code = curl.curl_easy_setopt(http->handle, CURLOPT_PROTOCOLS_STR, "http,https");
    if (code == CURLE_UNKNOWN_OPTION) /* before 7.85 */
        SET(CURLOPT_PROTOCOLS, (long)CURLPROTO_HTTP | CURLPROTO_HTTPS);
    else if (code != CURLE_OK)
        return fail_option("CURLOPT_PROTOCOLS_STR", code);
    SET(CURLOPT_USERAGENT, "hone");
    SET(CURLOPT_HTTPHEADER, lines);
    SET(CURLOPT_HEADEROPT, (long)CURLHEADER_SEPARATE); /* a proxy does not see them */
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    SET(CURLOPT_LOW_SPEED_LIMIT, 1L);
    SET(CURLOPT_LOW_SPEED_TIME, (long)http->timeout);
    curl.curl_easy_setopt(http->handle, CURLOPT_BUFFERSIZE, (long)PIECE_BYTES); /* refused if it has one after a failed attempt */
    SET(CURLOPT_HEADERFUNCTION, http_take_header);
    SET(CURLOPT_HEADERDATA, t);
    SET(CURLOPT_WRITEFUNCTION, take_body);
    SET(CURLOPT_WRITEDATA, t);
    SET(CURLOPT_XFERINFOFUNCTION, http_look_up);
    SET(CURLOPT_XFERINFODATA, t);
    SET(CURLOPT_NOPROGRESS, 0L);
    if (url_is_local(&place->url)) /* a proxy, which is another machine, would get what is not encrypted */
        SET(CURLOPT_NOPROXY, "*");
    if (certificates)
        SET(CURLOPT_CAINFO, certificates);
    if (range)
        SET(CURLOPT_RANGE, range);
    return OK;
}

static enum status http_judge(struct http *http, int code, struct transfer *t)
{
    struct http_reply *reply = t->reply;
    if (t->status != OK)
        return t->status;
    if (code == CURLE_OK || t->enough)
        return OK;
    if (code == CURLE_OUT_OF_MEMORY)
        return fail(ERR_MEMORY, "out of memory while asking %s", reply->host);
    reply->refused = code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE ||
                     code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT;
    reply->broken = !reply->refused;
    reply->unknown_host = code == CURLE_COULDNT_RESOLVE_HOST;
    snprintf(reply->why, sizeof reply->why, "%s", http->error[0] ? http->error : curl.curl_easy_strerror(code));
    if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE)
        return fail(ERR_IO,
                    "%s: its certificate is not accepted: %s; if that is a server or a proxy of your own, name the file of the "
                    "certificates that it is signed by in SSL_CERT_FILE",
                    reply->host, reply->why);
    return fail(ERR_IO, "%s: %s", reply->host, reply->why);
}

static enum status http_ask(struct http *http, const struct place *place, const struct http_request *request,
                            struct http_reply *reply)
{
    struct transfer t = {.request = request, .reply = reply, .handle = http->handle};
    struct curl_slist *lines = NULL;
    char range[32];
    snprintf(range, sizeof range, "%lld-", (long long)request->from);
    enum status status = http_add_line(&lines, "Accept-Encoding: ", "identity");
    if (status == OK && place->own && request->token)
        status = http_add_line(&lines, "Authorization: Bearer ", request->token);
    if (status == OK) {
        reply->code = 0;
        url_name(&place->url, reply->host);
        status = set_options(http, place, request->from ? range : NULL, lines, &t);
    }
    if (status == OK) {
        struct pipe_signal pipe;
        pipe_signal_block(&pipe);
        int code = curl.curl_easy_perform(http->handle);
        pipe_signal_restore(&pipe);
        curl.curl_easy_getinfo(http->handle, CURLINFO_RESPONSE_CODE, &reply->code);
        status = http_judge(http, code, &t);
    }
    curl.curl_slist_free_all(lines);
    return status;
}

/* Goes on to the address that libcurl made of a redirect. */
static enum status http_go_on(struct place *place, const char *next, struct arena *arena)
{
    struct url from = place->url;
    TRY(url_read(&place->url, &curl, next));
    if (url_is_encrypted(&from) && !url_is_encrypted(&place->url))
        return fail(ERR_FORMAT, "an address without encryption");
    place->own = place->own && url_same_origin(&from, &place->url);
    place->text = arena_text(arena, next, (int64_t)strlen(next)); /* libcurl's own text ends with the next request */
    return place->text ? OK : ERR_MEMORY;
}

static enum status http_follow(struct http *http, const struct http_request *request, struct http_reply *reply,
                               struct arena *arena)
{
    struct place place = {.text = request->url, .own = true};
    TRY(url_read(&place.url, &curl, request->url));
    for (int i = 0; i <= REDIRECTS_MAX; i++) {
        const char *next = NULL;
        TRY(http_ask(http, &place, request, reply));
        curl.curl_easy_getinfo(http->handle, CURLINFO_REDIRECT_URL, &next);
        if (reply->code < 300 || reply->code > 399 || !next)
            return OK;
        enum status status = http_go_on(&place, next, arena);
        reply->refused = status == ERR_FORMAT;
        if (reply->refused)
            return fail_at(ERR_IO, "%s: its redirect is refused: it leads to ", reply->host);
        TRY(status);
    }
    reply->refused = true;
    return fail(ERR_IO, "%s: more than %d redirects: refused", reply->host, REDIRECTS_MAX);
}

enum status http_get(struct http *http, const struct http_request *request, struct http_reply *reply)
{
    struct arena arena = {0};
    *reply = (struct http_reply){0};
    enum status status = http_follow(http, request, reply, &arena);
    arena_free(&arena);
    return status;
}
