/* Pulling a model when memory runs out, from a server in a thread of this program; opening libcurl in many. tests/e2e/pull.py and
 * pull_server.py have everything else. */
#include "failing.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/file.h"
#include "hub/http.h"
#include "hub/hub_cache.h"
#include "hub/pull.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define CONFIG "{\"model_type\": \"none\"}"
#define WEIGHTS "not really weights"

static char list[1024];
static int server;

static void answer(int client)
{
    char request[4096] = "", reply[2048];
    size_t have = 0;
    while (have < sizeof request - 1 && !strstr(request, "\r\n\r\n")) {
        ssize_t n = read(client, request + have, sizeof request - 1 - have);
        if (n <= 0)
            return;
        have += (size_t)n;
    }
    const char *body = strstr(request, "/api/") ? list : strstr(request, "config.json") ? CONFIG : WEIGHTS;
    int n = snprintf(reply, sizeof reply, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s", strlen(body),
                     body);
    for (ssize_t done = 0, more; done < n && (more = write(client, reply + done, (size_t)(n - done))) > 0;)
        done += more;
}

static void *serve(void *context)
{
    (void)context;
    for (int client; (client = accept(server, NULL, NULL)) >= 0; close(client))
        answer(client);
    return NULL;
}

static void hash(enum sha_kind kind, const char *text, char hex[static SHA_TEXT])
{
    struct sha sha;
    char head[32];
    sha_init(&sha, kind);
    if (kind == SHA_1)
        sha_add(&sha, head, snprintf(head, sizeof head, "blob %zu", strlen(text)) + 1);
    sha_add(&sha, text, (int64_t)strlen(text));
    sha_end(&sha, hex);
}

static int start(void **state)
{
    (void)state;
    static char url[64];
    pthread_t thread;
    char small[SHA_TEXT], large[SHA_TEXT];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    hash(SHA_1, CONFIG, small);
    hash(SHA_256, WEIGHTS, large);
    snprintf(list, sizeof list,
             "{\"sha\": \"" COMMIT "\", \"siblings\": [{\"rfilename\": \"config.json\", \"size\": %zu, \"blobId\": \"%s\"}, "
             "{\"rfilename\": \"model.safetensors\", \"lfs\": {\"sha256\": \"%s\", \"size\": %zu}}]}",
             strlen(CONFIG), small, large, strlen(WEIGHTS));
    server = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(server, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(server, 16), 0);
    assert_int_equal(getsockname(server, (struct sockaddr *)&address, &length), 0);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", (int)ntohs(address.sin_port));
    setenv("HF_ENDPOINT", url, 1);
    setenv("HF_TOKEN", "hf_token", 1);
    setenv("no_proxy", "*", 1);
    unsetenv("HF_HUB_CACHE");
    unsetenv("HUGGINGFACE_HUB_CACHE");
    unsetenv("HF_HUB_OFFLINE");
    unsetenv("TRANSFORMERS_OFFLINE");
    return pthread_create(&thread, NULL, serve, NULL);
}

static void *open_and_close(void *context)
{
    struct http *http;
    enum status *status = context;
    *status = http_open(&http, 1);
    http_close(http);
    return NULL;
}

/* Fails if one thread uses libcurl while another one still opens it: `loaded` set before the functions are there. */
static void threads_may_open_libcurl_at_once(void **state)
{
    (void)state;
    pthread_t threads[8];
    enum status status[8];
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, open_and_close, &status[i]), 0);
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < 8; i++)
        assert_true(status[i] == OK || status[i] == ERR_UNSUPPORTED);
    for (int i = 1; i < 8; i++)
        assert_int_equal(status[i], status[0]);
}

/* Fails if an allocation that fails is not noticed, or a branch is there before all of its files are. */
static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    struct arena arena = {0};
    const char *home, *found;
    struct http *http;
    if (http_open(&http, 1) == ERR_UNSUPPORTED)
        skip(); /* no libcurl here */
    http_close(http);
    assert_ok(directory_make_temporary(&arena, &home));
    setenv("HF_HOME", home, 1);
    struct pull_request request = {.name = "org/name", .revision = "main"};
    struct pull_result result;
    struct failing f = {0};
    while (failing_next(&f)) {
        struct arena own = {0};
        failing_begin(&f);
        enum status status = pull_model(&request, &own, &result);
        failing_end(&f, status);
        arena_free(&own);
        assert_ok(hub_find(&arena, "org/name", "main", &found));
        assert_true(status != OK || found);
        if (found) { /* also if only making its name durable failed */
            char path[512];
            snprintf(path, sizeof path, "%s/model.safetensors", found);
            assert_int_equal(file_size(path), strlen(WEIGHTS));
            snprintf(path, sizeof path, "%s/config.json", found);
            assert_int_equal(file_size(path), strlen(CONFIG));
        }
        assert_ok(directory_remove(home));
    }
    assert_true(f.failed > 20);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_may_open_libcurl_at_once), /* first: nothing has opened it yet */
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
