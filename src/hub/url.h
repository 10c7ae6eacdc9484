/* Addresses, as libcurl reads them. What is judged here is what libcurl asks: a second reading would now and then mean another
 * host, and a token would go there. */
#ifndef HUB_URL_H
#define HUB_URL_H

#include "base/memory.h"
#include "hub/curl.h"

struct url {
    char scheme[8]; /* http or https */
    char host[256]; /* a name, or an IP address as four numbers or in brackets */
    char zone[32];  /* of an address in brackets; "": none */
    char port[8];   /* digits, also where the address leaves it out */
};

/* ERR_FORMAT, with words that end a sentence, for what libcurl does not take, another scheme than http and https, a user name or
 * password, a host that is not written in letters, digits, dots and dashes of ASCII, and one that another program might read in
 * another way: after one slash or three, with a sign that libcurl decodes, or a number that is not four. */
enum status url_read(struct url *url, const struct curl_functions *curl, const char *text);

/* The same scheme, host and port. */
bool url_same_origin(const struct url *a, const struct url *b);

bool url_is_encrypted(const struct url *url);

/* Whether it is this machine without encryption, which is asked without a proxy. */
bool url_is_local(const struct url *url);

/* The host for messages, with its port unless it is the scheme's own. */
enum { URL_HOST = sizeof(struct url) };
void url_name(const struct url *url, char name[static URL_HOST]);

#endif
