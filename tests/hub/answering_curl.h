/* A libcurl whose network is a function: tests/fuzz/fuzz_redirect.c opens it in the place of the real one, which it asks for all
 * that has to do with addresses. */
#ifndef TESTS_HUB_ANSWERING_CURL_H
#define TESTS_HUB_ANSWERING_CURL_H

#include <stdbool.h>
#include <stddef.h>

/* A request as it would leave the machine. */
struct answering_request {
    const char *url;                         /* as it was given */
    const char *scheme, *host, *zone, *port; /* as the real libcurl reads it when it asks; zone "": none */
    const char *token;                       /* NULL: none */
    bool bounded;                            /* no protocol but HTTP, no redirect followed by libcurl, no header for a proxy */
};

struct answering_reply {
    long code;
    const char *head; /* lines of the header, each of which ends with a line feed or with the head */
    size_t size;
};

/* What the symbol "answering" of the library points to. */
typedef void answering_server(const struct answering_request *request, struct answering_reply *reply);

#endif
