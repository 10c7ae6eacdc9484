/* HTTP by libcurl, which is opened at run time: only `hone pull` needs it. One request at a time.
 *
 * Redirects are followed here and not by libcurl, so that one place decides who gets the token: the host that was asked, and no
 * other, nor that one again after another. Messages never have a token in them, nor the part of an address after its path, where
 * signatures are.
 */
#ifndef HUB_HTTP_H
#define HUB_HTTP_H

#include "base/memory.h"
#include "hub/url.h"

struct http;

struct http_reply {
    long code;            /* of the last answer; 0: there was none */
    int64_t from;         /* where the bytes of a 206 begin */
    int64_t received;     /* bytes of its body so far; 0 when the sink gets the first of them */
    double retry_after;   /* seconds that the server asks to wait; 0: it does not ask */
    char cause[64];       /* the hub's word for an error: "GatedRepo" */
    bool unknown_host;    /* of `broken`: its name has no address */
    bool broken, refused; /* no answer, or not all of it: another try may help; its certificate or redirect is not accepted */
    char host[URL_HOST], why[256]; /* the last host that was asked, and libcurl's words for what broke */
};

/* Gets the body of a 200 or 206 in pieces; what it returns ends the request. */
typedef enum status http_sink(void *context, const struct http_reply *reply, const char *bytes, int64_t count);

struct http_request {
    const char *url;
    const char *token; /* NULL: none */
    int64_t from;      /* ask for the bytes from here on */
    http_sink *sink;
    void *context;
};

/* `timeout`: seconds without a byte after which a connection counts as broken. */
enum status http_open(struct http **out, int64_t timeout);
void http_close(struct http *http); /* NULL is fine */

/* OK with any answer of the server, also an error's code. ERR_IO: `broken` or `refused`. */
enum status http_get(struct http *http, const struct http_request *request, struct http_reply *reply);

/* An address as the requests will read it (hub/url.h). */
enum status http_read(const struct http *http, const char *text, struct url *url);

#endif
