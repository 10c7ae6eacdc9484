/* Addresses by libcurl's URL API, part by part. */
#include "hub/url.h"

#include <stdio.h>
#include <string.h>

/* One part into a text of so many bytes; "" if the address has none. */
static enum status take(const struct curl_functions *curl, CURLU *handle, int part, char *text, size_t size)
{
    char *own = NULL;
    int code = curl->curl_url_get(handle, part, &own, CURLU_DEFAULT_PORT);
    text[0] = 0;
    if (code == CURLUE_OUT_OF_MEMORY)
        return fail(ERR_MEMORY, "out of memory while reading an address");
    bool fits = code != CURLUE_OK || strlen(own) < size;
    if (code == CURLUE_OK && fits)
        strcpy(text, own);
    curl->curl_free(own);
    return fits ? OK : fail(ERR_FORMAT, "an address whose host is too long");
}

/* Whether the part is there, were it empty, or cannot be looked for. */
static bool may_have(const struct curl_functions *curl, CURLU *handle, int part)
{
    char *own = NULL;
    int code = curl->curl_url_get(handle, part, &own, 0);
    curl->curl_free(own);
    return code == CURLUE_OK || code == CURLUE_OUT_OF_MEMORY;
}

/* A name in other letters may look like this one, and a resolver turns it into a third. */
static bool is_plain(const char *host)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_";
    size_t n = host[0] == '[' ? 1 + strspn(host + 1, "0123456789abcdefABCDEF:.") : strspn(host, letters);
    return n && (host[0] == '[' ? !strcmp(host + n, "]") : !host[n]);
}

static enum status read_parts(struct url *url, const struct curl_functions *curl, CURLU *handle, const char *text)
{
    int code = curl->curl_url_set(handle, CURLUPART_URL, text, CURLU_NON_SUPPORT_SCHEME);
    if (code == CURLUE_OUT_OF_MEMORY)
        return fail(ERR_MEMORY, "out of memory while reading an address");
    if (code != CURLUE_OK)
        return fail(ERR_FORMAT, "an address that libcurl does not take for one");
    if (may_have(curl, handle, CURLUPART_USER) || may_have(curl, handle, CURLUPART_PASSWORD))
        return fail(ERR_FORMAT, "an address with a user name or password before an '@'");
    if (take(curl, handle, CURLUPART_SCHEME, url->scheme, sizeof url->scheme) != OK ||
        (strcasecmp(url->scheme, "http") != 0 && strcasecmp(url->scheme, "https") != 0))
        return fail(ERR_FORMAT, "an address that does not begin with https:// or http://");
    TRY(take(curl, handle, CURLUPART_HOST, url->host, sizeof url->host));
    TRY(take(curl, handle, CURLUPART_ZONEID, url->zone, sizeof url->zone));
    TRY(take(curl, handle, CURLUPART_PORT, url->port, sizeof url->port));
    if (!is_plain(url->host))
        return fail(ERR_FORMAT, "an address whose host is not letters, digits, dots and dashes of ASCII");
    return OK;
}

enum status url_read(struct url *url, const struct curl_functions *curl, const char *text)
{
    CURLU *handle = curl->curl_url();
    if (!handle)
        return fail(ERR_MEMORY, "out of memory while reading an address");
    enum status status = read_parts(url, curl, handle, text);
    curl->curl_url_cleanup(handle);
    return status;
}

bool url_is_encrypted(const struct url *url)
{
    return strcasecmp(url->scheme, "https") == 0;
}

bool url_same_origin(const struct url *a, const struct url *b)
{
    return !strcasecmp(a->scheme, b->scheme) && !strcasecmp(a->host, b->host) && !strcmp(a->zone, b->zone) &&
           !strcmp(a->port, b->port);
}

bool url_is_local(const struct url *url)
{
    static const char *const hosts[] = {"127.0.0.1", "localhost", "[::1]"};
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0] && !url_is_encrypted(url); i++)
        if (!strcasecmp(url->host, hosts[i]))
            return true;
    return false;
}

void url_name(const struct url *url, char name[static URL_HOST])
{
    bool usual = !strcmp(url->port, url_is_encrypted(url) ? "443" : "80");
    snprintf(name, URL_HOST, "%s%s%s", url->host, usual ? "" : ":", usual ? "" : url->port);
}
