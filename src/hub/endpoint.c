/* Requests to the hub. A fault that may pass is waited for; all others are said in words that lead on. */
#include "hub/endpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "hub/hub_cache.h"

enum { TRIES_MAX = 5, PROGRESS_MIN = 1 << 20, TIMEOUT_DEFAULT = 30, TOKEN_MAX = 4096 };
static const double WAIT_FIRST = 0.5, WAIT_MAX = 120;

static bool endpoint_is_true(const char *variable)
{
    static const char *const words[] = {"1", "on", "yes", "true"};
    const char *value = getenv(variable);
    for (size_t i = 0; value && i < sizeof words / sizeof words[0]; i++)
        if (!strcasecmp(value, words[i]))
            return true;
    return false;
}

static enum status read_url(struct endpoint *e)
{
    const char *url = getenv("HF_ENDPOINT");
    url = url && *url ? url : "https://huggingface.co";
    size_t n = strlen(url);
    while (n && url[n - 1] == '/')
        n--;
    e->url = arena_text(e->arena, url, (int64_t)n);
    if (!e->url)
        return ERR_MEMORY;
    enum status status = http_read(e->http, e->url, &e->read);
    if (status == ERR_FORMAT) /* the text itself, which may have a password in it, is not in the message */
        return fail_at(ERR_ARGUMENT,
                       "HF_ENDPOINT must be an address like https://huggingface.co, with a token in HF_TOKEN, and is ");
    return status;
}

/* The token's text without blanks around it; it goes into a header, so it must be one word. */
static enum status take_token(struct endpoint *e, const char *text, const char *source)
{
    text += strspn(text, " \t\r\n");
    size_t n = strlen(text);
    while (n && strchr(" \t\r\n", text[n - 1]))
        n--;
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return fail(ERR_ARGUMENT, "%s is not a token: it has blanks or control characters inside", source);
    e->token = n ? arena_text(e->arena, text, (int64_t)n) : NULL;
    return n && !e->token ? ERR_MEMORY : OK;
}

static enum status read_token_file(struct endpoint *e, const char *path)
{
    struct buffer text = {0};
    if (!file_exists(path))
        return OK;
    enum status status = file_read(&text, path, TOKEN_MAX);
    if (status == OK)
        status = take_token(e, text.data, path);
    if (text.data)
        memset(text.data, 0, (size_t)text.size);
    buffer_free(&text);
    return status;
}

static enum status endpoint_read_token(struct endpoint *e)
{
    static const char *const variables[] = {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"};
    for (int i = 0; i < 2 && !e->token; i++)
        if (getenv(variables[i]))
            TRY(take_token(e, getenv(variables[i]), variables[i]));
    const char *path = getenv("HF_TOKEN_PATH"), *home;
    if (!e->token && !(path && *path) && hub_home(e->arena, &home) == OK)
        path = file_join(e->arena, home, "token");
    if (!e->token && path && *path)
        TRY(read_token_file(e, path));
    if (e->token && !url_is_encrypted(&e->read) && !url_is_local(&e->read)) {
        log_message(LOG_WARNING, "the token is not sent: HF_ENDPOINT is http://, without encryption");
        e->token = NULL;
    }
    return OK;
}

enum status endpoint_open(struct endpoint *e, struct arena *arena, const char *model, const char *revision)
{
    const char *seconds = getenv("HF_HUB_DOWNLOAD_TIMEOUT");
    long timeout = seconds ? strtol(seconds, NULL, 10) : 0;
    *e = (struct endpoint){.arena = arena, .model = model, .revision = revision};
    if (endpoint_is_true("HF_HUB_OFFLINE") || endpoint_is_true("TRANSFORMERS_OFFLINE"))
        return fail(ERR_ARGUMENT, "%s: not downloaded, because HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set", model);
    TRY(http_open(&e->http, timeout > 0 ? timeout : TIMEOUT_DEFAULT));
    TRY(read_url(e));
    return endpoint_read_token(e);
}

void endpoint_close(struct endpoint *e)
{
    http_close(e->http);
    e->http = NULL;
}

/* --- answers ------------------------------------------------------------------------------------------------------------ */

static bool may_pass(const struct http_reply *reply)
{
    return reply->broken || reply->code == 408 || reply->code == 429 || reply->code >= 500;
}

/* What an answer that will not change means. */
static enum status fail_answer(const struct endpoint *e, const struct http_reply *reply)
{
    const char *model = e->model, *host = reply->host;
    if (!strcmp(reply->cause, "GatedRepo"))
        return fail(ERR_IO, "%s is gated: accept its terms at %s/%s, then %s", model, e->url, model,
                    e->token ? "pull again: this token's account has not been let in"
                             : "put a token of your account into HF_TOKEN");
    if (!strcmp(reply->cause, "RevisionNotFound"))
        return fail(ERR_IO, "%s has no revision '%s': --revision takes a branch, a tag or a commit's 40 digits", model,
                    e->revision);
    if (!strcmp(reply->cause, "RepoNotFound") || reply->code == 404)
        return fail(ERR_IO, "%s: no such model at %s, or a private one: check the spelling%s", model, host,
                    e->token ? ", and whether the token's account may see it" : "; for a private one put a token into HF_TOKEN");
    if (reply->code == 401)
        return fail(ERR_IO, "%s: %s asks for a %s (401): put one into HF_TOKEN, from %s/settings/tokens", model, host,
                    e->token ? "valid token; the one that was sent is not" : "token", e->url);
    if (reply->code == 403)
        return fail(ERR_IO, "%s: %s does not let %s read it (403)", model, host,
                    e->token ? "the token's account" : "anyone without a token");
    return fail(ERR_IO, "%s: %s answers %ld; is HF_ENDPOINT a Hugging Face hub?", model, host, reply->code);
}

static enum status fail_tries(const struct endpoint *e, const struct http_reply *reply)
{
    if (reply->broken)
        return fail(
            ERR_IO,
            "%s: the connection to %s failed %d times (%s). %sWhat was downloaded stays: the same command goes on from there",
            e->model, reply->host, TRIES_MAX, reply->why,
            reply->unknown_host ? "Is the network up, and HF_ENDPOINT right, if it is set? " : "");
    if (reply->code == 429)
        return fail(ERR_IO, "%s: %s answers that there were too many requests (429): wait some minutes%s", e->model, reply->host,
                    e->token ? "" : ", or put a token into HF_TOKEN, which raises the limit");
    return fail(ERR_IO, "%s: %s had a fault of its own (%ld) %d times: try later; the same command goes on where this one ended",
                e->model, reply->host, reply->code, TRIES_MAX);
}

static enum status endpoint_wait_for(double seconds)
{
    double end = clock_seconds() + seconds;
    do {
        TRY(cancel_check());
        clock_wait(0.1);
    } while (clock_seconds() < end);
    return OK;
}

/* --- requests ----------------------------------------------------------------------------------------------------------- */

static enum status append_encoded(struct buffer *url, const char *path, bool slashes)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    for (; *path; path++)
        TRY(strchr(plain, *path) || (slashes && *path == '/') ? buffer_append(url, path, 1)
                                                              : buffer_format(url, "%%%02X", (unsigned char)*path));
    return OK;
}

static enum status persist(const struct endpoint *e, const char *url, http_sink *sink, void *context, const int64_t *have,
                           int64_t size)
{
    struct http_reply reply;
    int64_t mark = *have; /* tries are counted from here; a sink that begins again does not move it back */
    for (int tries = 0;;) {
        struct http_request request = {.url = url, .token = e->token, .from = *have, .sink = sink, .context = context};
        enum status status = http_get(e->http, &request, &reply);
        if (status != OK && !reply.broken)
            return status;
        if (*have == size || (status == OK && (reply.code == 200 || reply.code == 206)))
            return OK;
        if (!may_pass(&reply))
            return fail_answer(e, &reply);
        if (*have - mark >= PROGRESS_MIN) {
            mark = *have;
            tries = 0;
        }
        if (++tries >= TRIES_MAX)
            return fail_tries(e, &reply);
        double pause = reply.retry_after > 0 ? reply.retry_after : WAIT_FIRST * (double)(1 << (tries - 1));
        pause = pause < WAIT_MAX ? pause : WAIT_MAX;
        if (pause > 5)
            log_message(LOG_INFO, "%s asks to wait: going on in %.0f s", reply.host, pause);
        TRY(endpoint_wait_for(pause));
    }
}

enum status endpoint_get(const struct endpoint *e, const char *path, const char *last, const char *query, http_sink *sink,
                         void *context, const int64_t *have, int64_t size)
{
    struct buffer url = {0};
    enum status status = buffer_format(&url, "%s", e->url);
    if (status == OK)
        status = append_encoded(&url, path, true);
    if (status == OK)
        status = append_encoded(&url, last, false);
    if (status == OK)
        status = buffer_format(&url, "%s", query);
    if (status == OK)
        status = persist(e, url.data, sink, context, have, size);
    buffer_free(&url);
    return status;
}
