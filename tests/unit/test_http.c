/* What hone tells libcurl, as a library sees it that keeps it (tests/hub/fake_curl.c): the program's own requests are in
 * tests/e2e/pull.py. */
#include "test.h"

#include <signal.h>
#include <stdio.h>

#include "base/library.h"
#include "hub/curl.h"
#include "hub/http.h"

static int *refused, *performed;
static long *numbers;
static char (*texts)[256];

static int open_fake(void **state)
{
    (void)state;
    const char *why, *const names[] = {FAKE_CURL, NULL};
    setenv("HONE_CURL_LIBRARY", FAKE_CURL, 1);
    void *library = library_open(names, &why);
    assert_non_null(library);
    refused = library_symbol(library, "fake_refused");
    performed = library_symbol(library, "fake_performed");
    numbers = library_symbol(library, "fake_numbers");
    texts = library_symbol(library, "fake_texts");
    return refused && performed && numbers && texts ? 0 : -1;
}

static enum status nothing(void *context, const struct http_reply *reply, const char *bytes, int64_t count)
{
    (void)context, (void)reply, (void)bytes, (void)count;
    return OK;
}

static enum status ask(const char *url, const char *token, int64_t from)
{
    struct http *http;
    struct http_reply reply;
    struct http_request request = {.url = url, .token = token, .from = from, .sink = nothing};
    assert_ok(http_open(&http, 30));
    enum status status = http_get(http, &request, &reply);
    http_close(http);
    return status;
}

/* Fails if the signal of a closed connection, which ends a process, is let through in a request or at its end; or if it waits for
 * the process afterwards. */
static void a_closed_connection_does_not_end_the_process(void **state)
{
    (void)state;
    sigset_t set;
    signal(SIGPIPE, SIG_DFL);
    assert_ok(ask("https://example.com/x", NULL, 0));
    assert_int_equal(sigpending(&set), 0);
    assert_false(sigismember(&set, SIGPIPE));
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &set), 0);
    assert_false(sigismember(&set, SIGPIPE)); /* and it is the process's own again */
}

static volatile sig_atomic_t came;

static void count(int number)
{
    (void)number;
    came++;
}

/* Fails if a signal that waited before the request is swallowed, or one that the process blocks is unblocked. */
static void the_processs_own_signals_stay(void **state)
{
    (void)state;
    sigset_t pipe, now;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    signal(SIGPIPE, count);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &pipe, NULL), 0);
    raise(SIGPIPE);
    assert_ok(ask("https://example.com/x", NULL, 0));
    assert_int_equal(pthread_sigmask(SIG_UNBLOCK, &pipe, &now), 0);
    assert_true(sigismember(&now, SIGPIPE));
    assert_int_equal(came, 1);
    signal(SIGPIPE, SIG_DFL);
}

/* Fails if a request is sent though libcurl did not take one of its options. */
static void an_option_that_is_refused_ends_the_request(void **state)
{
    (void)state;
    static const int options[] = {CURLOPT_URL,      CURLOPT_HTTPHEADER, CURLOPT_HEADEROPT,
                                  CURLOPT_NOSIGNAL, CURLOPT_NOPROXY,    CURLOPT_LOW_SPEED_TIME,
                                  CURLOPT_RANGE,    CURLOPT_CAINFO,     CURLOPT_ERRORBUFFER};
    setenv("SSL_CERT_FILE", "/certificates", 1);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        int before = *performed;
        *refused = options[i];
        assert_fails(ask("http://localhost:1/x", "hf_token", 1), ERR_UNSUPPORTED, "unknown option");
        assert_int_equal(*performed, before);
    }
    *refused = -1;
    unsetenv("SSL_CERT_FILE");
}

/* Fails if an older libcurl, which has no list of protocols in words, is left free to use all of them. */
static void other_protocols_are_off(void **state)
{
    (void)state;
    assert_ok(ask("https://example.com/x", NULL, 0));
    assert_string_equal(texts[CURLOPT_PROTOCOLS_STR % 10000], "http,https");
    *refused = CURLOPT_PROTOCOLS_STR;
    assert_ok(ask("https://example.com/x", NULL, 0));
    assert_int_equal(numbers[CURLOPT_PROTOCOLS], CURLPROTO_HTTP | CURLPROTO_HTTPS);
    *refused = -1;
}

/* Fails if what is sent to this machine without encryption may go to a proxy, or if others are asked past theirs. */
static void this_machine_is_asked_without_a_proxy(void **state)
{
    (void)state;
    static const struct {
        const char *url, *no_proxy;
    } cases[] = {{"http://127.0.0.1:8080/x", "*"}, {"http://localhost/x", "*"},           {"http://[::1]:9/x", "*"},
                 {"https://localhost/x", ""},      {"http://localhost.example.com/", ""}, {"https://huggingface.co/x", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_ok(ask(cases[i].url, "hf_token", 0));
        assert_string_equal(texts[CURLOPT_NOPROXY % 10000], cases[i].no_proxy);
        assert_int_equal(numbers[CURLOPT_HEADEROPT],
                         CURLHEADER_SEPARATE); /* and a proxy gets no token when it is asked to connect */
    }
}

/* Fails if a variable that names certificates is not read, or read in another order. */
static void certificates_are_those_of_the_variables(void **state)
{
    (void)state;
    static const char *const variables[] = {"CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"};
    for (int i = 0; i < 3; i++)
        unsetenv(variables[i]);
    assert_ok(ask("https://example.com/x", NULL, 0));
    assert_string_equal(texts[CURLOPT_CAINFO % 10000], "");
    for (int i = 0; i < 3; i++) {
        setenv(variables[i], variables[i], 1);
        assert_ok(ask("https://example.com/x", NULL, 0));
        assert_string_equal(texts[CURLOPT_CAINFO % 10000], variables[i]);
    }
    for (int i = 0; i < 3; i++)
        setenv(variables[i], "", 1);
    assert_ok(ask("https://example.com/x", NULL, 0));
    assert_string_equal(texts[CURLOPT_CAINFO % 10000], "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_closed_connection_does_not_end_the_process), cmocka_unit_test(the_processs_own_signals_stay),
        cmocka_unit_test(an_option_that_is_refused_ends_the_request),   cmocka_unit_test(other_protocols_are_off),
        cmocka_unit_test(this_machine_is_asked_without_a_proxy),        cmocka_unit_test(certificates_are_those_of_the_variables),
    };
    return cmocka_run_group_tests(tests, open_fake, NULL);
}
