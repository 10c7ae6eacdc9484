/* Addresses by libcurl's URL API, part by part. */
#include "hub/url.h"

#include <stdio.h>
#include <string.h>

/* One part into a text of so many bytes; "" if the address has none. */
static enum status url_take(const struct curl_functions *curl, CURLU *handle, int part, char *text, size_t size)
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
static bool url_is_plain(const struct url *url)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_";
    const char *host = url->host;
    size_t n = host[0] == '[' ? 1 + strspn(host + 1, "0123456789abcdefABCDEF:.") : strspn(host, letters);
    return n && (host[0] == '[' ? !strcmp(host + n, "]") : !host[n]) && !url->zone[strspn(url->zone, letters)];
}

/* Four numbers up to 255, without a zero before them. */
static bool is_quad(const char *at)
{
    for (int i = 0; i < 4; i++) {
        size_t n = strspn(at, "0123456789");
        if (!n || n > 3 || (n > 1 && *at == '0') || (n == 3 && strncmp(at, "255", 3) > 0) || at[n] != (i < 3 ? '.' : 0))
            return false;
        at += n + 1;
    }
    return true;
}

/* Whether the last part of the host is a number, which some programs take for an address and others for a name. */
static bool ends_in_number(const char *host)
{
    size_t end = strlen(host), begin;
    end -= end && host[end - 1] == '.';
    for (begin = end; begin && host[begin - 1] != '.';)
        begin--;
    const char *part = host + begin;
    bool hex = part[0] == '0' && (part[1] == 'x' || part[1] == 'X');
    return end > begin && (hex ? 2 + strspn(part + 2, "0123456789abcdefABCDEF") : strspn(part, "0123456789")) >= end - begin;
}

/* Whether the text says what libcurl read, with no sign left out, added or decoded: other programs read it in the same way. */
static bool url_is_written(const struct url *url, const char *text)
{
    char start[sizeof *url];
    size_t n = strlen(url->host);
    if (*url->zone)
        snprintf(start, sizeof start, "%s://%.*s%%25%s]", url->scheme, (int)n - 1, url->host, url->zone);
    else
        snprintf(start, sizeof start, "%s://%s", url->scheme, url->host);
    n = strlen(start);
    return !strncasecmp(text, start, n) && (!text[n] || strchr(":/?#", text[n])) &&
           (url->host[0] == '[' || !ends_in_number(url->host) || is_quad(url->host));
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
    if (url_take(curl, handle, CURLUPART_SCHEME, url->scheme, sizeof url->scheme) != OK ||
        (strcasecmp(url->scheme, "http") != 0 && strcasecmp(url->scheme, "https") != 0))
        return fail(ERR_FORMAT, "an address that does not begin with https:// or http://");
    TRY(url_take(curl, handle, CURLUPART_HOST, url->host, sizeof url->host));
    TRY(url_take(curl, handle, CURLUPART_ZONEID, url->zone, sizeof url->zone));
    TRY(url_take(curl, handle, CURLUPART_PORT, url->port, sizeof url->port));
    if (!url_is_plain(url))
        return fail(ERR_FORMAT, "an address whose host is not letters, digits, dots and dashes of ASCII");
    if (!url_is_written(url, text))
        return fail(ERR_FORMAT, "an address whose host can be read in several ways");
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
        if (!strcasecmp(url->host, hosts[i]) && !*url->zone) /* a zone names another way out */
            return true;
    return false;
}

void url_name(const struct url *url, char name[static URL_HOST])
{
    bool usual = !strcmp(url->port, url_is_encrypted(url) ? "443" : "80");
    snprintf(name, URL_HOST, "%s%s%s", url->host, usual ? "" : ":", usual ? "" : url->port);
}
