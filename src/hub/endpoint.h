/* The server: its address, the token for it, requests that are tried again, and what its answers mean. */
#ifndef HUB_ENDPOINT_H
#define HUB_ENDPOINT_H

#include "hub/http.h"

struct endpoint {
    const char *url;              /* $HF_ENDPOINT, or the hub's; no slash at its end */
    struct url read;              /* the same, as it is asked */
    const char *token;            /* $HF_TOKEN, or the token's file; NULL: none */
    const char *model, *revision; /* for messages */
    struct http *http;
    struct arena *arena;
};

/* ERR_ARGUMENT if the environment forbids the network (HF_HUB_OFFLINE), or has an address or token that cannot be one. Closed
 * also after it failed. */
enum status endpoint_open(struct endpoint *e, struct arena *arena, const char *model, const char *revision);
void endpoint_close(struct endpoint *e);

/* Gets a path of the server; slashes inside `last`, its last part, are not those between parts. `have` is how many bytes the sink
 * has kept: a broken connection is tried again from there, a few times with growing pauses; each new MB allows as many again.
 * Once it has `size` bytes (-1: it does not know) nothing is asked again. */
enum status endpoint_get(const struct endpoint *e, const char *path, const char *last, const char *query, http_sink *sink,
                         void *context, const int64_t *have, int64_t size);

#endif
