/* The Hugging Face hub: names, the cache, the list of a model's files, and who gets a token. tests/e2e/pull.py downloads. */
#include "failing.h"

#if __has_include(<curl/curl.h>)
#define CURL_DISABLE_DEPRECATION /* hone is to run with older ones too */
#include <curl/curl.h>
#endif

#include <stdio.h>

#include "base/directory.h"
#include "base/file.h"
#include "hub/curl.h"
#include "hub/http.h"
#include "hub/hub_cache.h"
#include "hub/listing.h"

#define SHA1 "da39a3ee5e6b4b0d3255bfef95601890afd80709"
#define SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define COMMIT "0123456789abcdef0123456789abcdef01234567"

/* Fails if a path on this machine could be taken for a name of the hub, or a name lead out of the cache. */
static void names_of_models_are_told_from_paths(void **state)
{
    (void)state;
    static const char *const good[] = {"org/name", "HuggingFaceTB/SmolLM2-135M-Instruct", "a/b", "a_b/c.d-e_f", "0/1"};
    static const char *const bad[] = {"",      "name",   "/name", "org/",  "org//name", "a/b/c",  "../name", "org/..",
                                      "org/.", "./name", "~/x",   "a b/c", "org/-x",    "org/x-", "a--b/c",  "a/b..c"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(hub_is_name(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(hub_is_name(bad[i]));
}

/* Fails if a part of a name from a server could leave the directory. */
static void names_of_files_stay_below_their_directory(void **state)
{
    (void)state;
    static const char *const good[] = {"a", "a/b.json", "...", "..a/b", "a b", "ü.json", "\xc2\xa0"};
    static const char *const bad[] = {"",   ".",    "..",  "../a", "a/..", "a/../b", "/a",   "a\xc2\x9b",
                                      "a/", "a//b", "./a", "a\\b", "a\nb", "\x7f",   "\xff", "\xc2\x80"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(hub_is_below(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(hub_is_below(bad[i]));
}

/* Fails if a path that only looks like one of the cache gives a commit. */
static void a_path_into_the_cache_says_its_commit(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "model",
                                      "/snapshots/" COMMIT,
                                      "/c/models--a/snapshots/" COMMIT,
                                      "/c/xmodels--a--b/snapshots/" COMMIT,
                                      "/c/models--a--b/snapshots/main",
                                      "/c/models--a--b/snapshots/" COMMIT "0",
                                      "/c/models--a--../snapshots/" COMMIT,
                                      "/c/models--a--b/x/snapshots/" COMMIT};
    static const char *const good[] = {"/c/models--org--a-b/snapshots/" COMMIT, "models--org--a-b/snapshots/" COMMIT "/",
                                       "/c/models--org--a-b/snapshots/" COMMIT "/x.gguf"};
    struct arena arena = {0};
    const char *name, *commit;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_ok(hub_origin(&arena, bad[i], &name, &commit));
        assert_true(!name && !commit);
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_ok(hub_origin(&arena, good[i], &name, &commit));
        assert_string_equal(name, "org/a-b");
        assert_string_equal(commit, COMMIT);
    }
    arena_free(&arena);
}

/* Fails if another host, scheme or port counts as the one that was asked, which would get the token; or if hone reads an address
 * in another way than libcurl, which asks it. */
static void origins_are_compared_as_libcurl_reads_them(void **state)
{
    (void)state;
    static const char *const same[] = {"https://hub.co",          "https://hub.co/",      "HTTPS://HUB.co/x?y",
                                       "https://hub.co?x",        "https://hub.co#x",     "https://hub.co:443/",
                                       "https://hub.co/\\@evil/", "https://hub.co/@evil", "https://hub.co?@evil"};
    static const char *const other[] = {
        "http://hub.co/",       "https://hub.co.evil.net/", "https://hub.com/", "https://hub.co:8443/",
        "http://hub.co:443/",   "https://evil.net/",        "https://hub.co./", "https://evil/@hub.co",
        "https://[::1]/hub.co", "https://127.0.0.1/",       "https://0x7g/",    "https://[fe80::1%25eth0]/"};
    static const char *const refused[] = {"https://x@hub.co/",
                                          "https://hub.co@evil.net/",
                                          "https://hub.co\\@evil.net/",
                                          "https://evil.net\\@hub.co/",
                                          "https://:@hub.co/",
                                          "https://a@b@hub.co/",
                                          "//hub.co/",
                                          "hub.co",
                                          "ftp://hub.co/",
                                          "file:///hub.co",
                                          "https://hub.co:x/",
                                          "https://hub.co:65536/",
                                          ("https://h\xc3\xbc"
                                           "b.co/"),
                                          "https://hub.co\t/",
                                          "https://hub co/",
                                          "https://hub%2fco/",
                                          "https://[hub.co]/",
                                          "https:/hub.co/",
                                          "https:///hub.co/",
                                          "https://%68ub.co/",
                                          "https://2130706433/",
                                          "https://127.1/",
                                          "https://127.0.0.1./",
                                          "https://1.2.3.4.5/",
                                          "https://hub.0x7f/",
                                          "https://[fe80::1%25a\\b]/",
                                          "https://",
                                          ""};
    struct http *http;
    struct url hub, url;
    if (http_open(&http, 1) == ERR_UNSUPPORTED)
        skip(); /* no libcurl here */
    assert_ok(http_read(http, "https://hub.co/api", &hub));
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        assert_ok(http_read(http, same[i], &url));
        assert_true(url_same_origin(&url, &hub));
    }
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        assert_ok(http_read(http, other[i], &url));
        assert_false(url_same_origin(&url, &hub));
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_fails(http_read(http, refused[i], &url), ERR_FORMAT, "an address");
    http_close(http);
}

static enum status read(struct hub_listing *listing, struct arena *arena, const char *text)
{
    return listing_read(listing, arena, text, (int64_t)strlen(text), "org/name");
}

#define PLAIN(name) "{\"rfilename\": \"" name "\", \"size\": 3, \"blobId\": \"" SHA1 "\"}"
#define LARGE(name)                                                                                                              \
    "{\"rfilename\": \"" name "\", \"size\": 9, \"blobId\": \"" SHA1 "\", \"lfs\": {\"sha256\": \"" SHA256 "\", \"size\": 9}}"
#define LIST(files) "{\"sha\": \"" COMMIT "\", \"siblings\": [" files "]}"

/* The names of the wanted files, in order. */
static const char *wanted(const struct hub_listing *listing)
{
    static char names[512];
    names[0] = 0;
    for (int64_t i = 0; i < listing->count; i++)
        if (listing->files[i].wanted)
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s ", listing->files[i].name);
    return names;
}

/* Fails if something that hone does not need is downloaded, or something that it needs is not. */
static void what_hone_needs_is_chosen(void **state)
{
    (void)state;
    static const struct {
        const char *text, *include, *wanted;
    } cases[] = {
        {LIST(PLAIN("config.json") "," LARGE("model.safetensors") "," LARGE("consolidated.safetensors") "," PLAIN("README.md")),
         NULL, "config.json model.safetensors "},
        {LIST(LARGE("a.safetensors") "," LARGE("b.safetensors") "," LARGE("x/c.safetensors") "," PLAIN("x/config.json")), NULL,
         "a.safetensors b.safetensors "},
        {LIST(PLAIN("model.safetensors.index.json") "," LARGE("model.safetensors") "," PLAIN("tokenizer.json")), NULL,
         "model.safetensors.index.json tokenizer.json "},
        {LIST(LARGE("q4.gguf") "," LARGE("q8.gguf") "," PLAIN("config.json")), "*4.gguf", "q4.gguf "},
        {LIST(LARGE("q4.gguf") "," LARGE("x/q8.gguf") "," PLAIN("config.json")), "q4*,*q8*", "q4.gguf x/q8.gguf "},
        {LIST(PLAIN("adapter_config.json") "," LARGE("adapter_model.safetensors") "," LARGE("optimizer.pt")), NULL,
         "adapter_config.json adapter_model.safetensors "},
        {LIST(LARGE("a.safetensors") "," LARGE(".b.safetensors")), NULL, "a.safetensors "},
        {LIST(PLAIN("a") "," PLAIN(".bashrc") "," PLAIN("b/.c/d") "," PLAIN("b/c.d")), "*,.bashrc", "a b/c.d "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena arena = {0};
        struct hub_listing listing;
        assert_ok(read(&listing, &arena, cases[i].text));
        assert_string_equal(listing.commit, COMMIT);
        assert_ok(listing_choose(&listing, cases[i].include, "org/name"));
        assert_string_equal(wanted(&listing), cases[i].wanted);
        arena_free(&arena);
    }
}

static void what_cannot_be_used_is_said(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct hub_listing listing;
    assert_ok(read(&listing, &arena, LIST(LARGE("a.gguf") "," LARGE("b.gguf"))));
    assert_fails(listing_choose(&listing, NULL, "org/name"), ERR_ARGUMENT, "--include");
    assert_fails(listing_choose(&listing, "c*", "org/name"), ERR_ARGUMENT, "no file matches");
    assert_ok(read(&listing, &arena, LIST(LARGE("pytorch_model.bin"))));
    assert_fails(listing_choose(&listing, NULL, "org/name"), ERR_UNSUPPORTED, "pickled");
    assert_ok(read(&listing, &arena, LIST(PLAIN("README.md"))));
    assert_fails(listing_choose(&listing, NULL, "org/name"), ERR_UNSUPPORTED, "not a model");
    assert_fails(read(&listing, &arena, LIST(PLAIN("../x"))), ERR_FORMAT, "a file's name");
    assert_fails(read(&listing, &arena, LIST(PLAIN("x") "," PLAIN("y") "," LARGE("x"))), ERR_FORMAT, "x is there twice");
    assert_ok(read(&listing, &arena, LIST(PLAIN(".bashrc"))));
    assert_fails(listing_choose(&listing, ".bashrc", "org/name"), ERR_ARGUMENT, "never downloaded");
    assert_fails(read(&listing, &arena, "[]"), ERR_FORMAT, "HF_ENDPOINT");
    assert_fails(read(&listing, &arena, "{\"sha\": \"main\", \"siblings\": []}"), ERR_FORMAT, "HF_ENDPOINT");
    assert_fails(read(&listing, &arena, LIST("{\"rfilename\": \"a\", \"size\": 1}")), ERR_FORMAT, "checksum");
    assert_fails(read(&listing, &arena, LIST("{\"rfilename\": \"a\", \"blobId\": \"" SHA1 "\"}")), ERR_FORMAT, "size");
    arena_free(&arena);
}

/* Fails if an index's files are not downloaded. */
static void an_index_adds_its_files(void **state)
{
    (void)state;
    static const char index[] = "{\"weight_map\": {\"x\": \"a.safetensors\", \"y\": \"b.safetensors\"}}";
    struct arena arena = {0};
    struct hub_listing listing;
    assert_ok(read(&listing, &arena, LIST(PLAIN(HUB_INDEX) "," LARGE("a.safetensors") "," LARGE("b.safetensors"))));
    assert_ok(listing_choose(&listing, NULL, "org/name"));
    assert_ok(listing_add(&listing, index, sizeof index - 1, "index"));
    assert_string_equal(wanted(&listing), HUB_INDEX " a.safetensors b.safetensors ");
    assert_ok(read(&listing, &arena, LIST(PLAIN(HUB_INDEX) "," LARGE("a.safetensors"))));
    assert_fails(listing_add(&listing, index, sizeof index - 1, "index"), ERR_FORMAT, "not in the repository");
    arena_free(&arena);
}

/* Fails if an index, which a server wrote, can ask for a file that is not weights. */
static void an_index_names_weights_only(void **state)
{
    (void)state;
    static const char *const bad[] = {"Makefile",           ".git/config", ".x.safetensors",
                                      "a/.b/x.safetensors", "x.so",        "x.safetensors.so"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct arena arena = {0};
        struct hub_listing listing;
        const char *list = arena_format(&arena, LIST("{\"rfilename\": \"%s\", \"size\": 3, \"blobId\": \"" SHA1 "\"}"), bad[i]);
        const char *index = arena_format(&arena, "{\"weight_map\": {\"x\": \"%s\"}}", bad[i]);
        assert_ok(read(&listing, &arena, list));
        assert_fails(listing_add(&listing, index, (int64_t)strlen(index), "index"), ERR_FORMAT, "an index may name");
        assert_string_equal(wanted(&listing), "");
        arena_free(&arena);
    }
}

/* Takes minutes if each tensor is compared with each file. */
static void a_large_index_takes_no_time(void **state)
{
    (void)state;
    enum { FILES = 40000, TENSORS = 200000 };
    struct arena arena = {0};
    struct buffer text = {0};
    struct hub_listing listing;
    assert_ok(buffer_format(&text, "{\"sha\": \"" SHA1 "\", \"siblings\": ["));
    for (int i = 0; i < FILES; i++)
        assert_ok(buffer_format(&text, "%s{\"rfilename\": \"model-%d.safetensors\", \"size\": 1, \"blobId\": \"" SHA1 "\"}",
                                i ? "," : "", i));
    assert_ok(buffer_format(&text, "]}"));
    assert_ok(read(&listing, &arena, text.data));
    text.size = 0;
    assert_ok(buffer_format(&text, "{\"weight_map\": {\"x\": \"model-0.safetensors\""));
    for (int i = 0; i < TENSORS; i++)
        assert_ok(buffer_format(&text, ", \"%d\": \"model-%d.safetensors\"", i, FILES - 1));
    assert_ok(buffer_format(&text, "}}"));
    assert_ok(listing_add(&listing, text.data, text.size, "index"));
    assert_true(listing.files[0].wanted && !listing.files[1].wanted && listing.files[FILES - 1].wanted);
    buffer_free(&text);
    arena_free(&arena);
}

static void every_allocation_of_a_list_may_fail(void **state)
{
    (void)state;
    struct failing f = {0};
    while (failing_next(&f)) {
        struct arena arena = {0};
        struct hub_listing listing;
        failing_begin(&f);
        enum status status = read(&listing, &arena, LIST(PLAIN("config.json") "," LARGE("model.safetensors")));
        if (status == OK)
            status = listing_choose(&listing, NULL, "org/name");
        failing_end(&f, status);
        arena_free(&arena);
    }
    assert_true(f.failed > 0);
}

static void make_file(const char *dir, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    char *slash = strrchr(path, '/');
    *slash = 0;
    assert_ok(directory_make(path));
    *slash = '/';
    assert_ok(file_replace(path, text, (int64_t)strlen(text)));
}

/* Fails if a model in the cache is not found, or one that is not complete is. */
static void a_model_is_found_by_its_branch(void **state)
{
    (void)state;
    struct arena arena = {0};
    const char *dir, *path;
    char hub[256];
    assert_ok(directory_make_temporary(&arena, &dir));
    snprintf(hub, sizeof hub, "%s/hub/models--org--name", dir);
    setenv("HF_HOME", dir, 1);
    unsetenv("HF_HUB_CACHE");
    unsetenv("HUGGINGFACE_HUB_CACHE");
    assert_ok(hub_find(&arena, "org/name", "main", &path));
    assert_null(path);
    make_file(hub, "refs/main", COMMIT);
    assert_ok(hub_find(&arena, "org/name", "main", &path));
    assert_null(path);
    make_file(hub, "snapshots/" COMMIT "/model.gguf", "x");
    assert_ok(hub_find(&arena, "org/name", "main", &path));
    assert_non_null(strstr(path, "/model.gguf"));
    make_file(hub, "snapshots/" COMMIT "/model.safetensors", "x");
    struct failing f = {0};
    while (failing_next(&f)) {
        struct arena own = {0};
        failing_begin(&f);
        enum status status = hub_find(&own, "org/name", "main", &path);
        failing_end(&f, status);
        if (status == OK && path)
            assert_string_equal(path + strlen(path) - strlen(COMMIT), COMMIT);
        arena_free(&own);
    }
    make_file(hub, "refs/main", "../../elsewhere");
    assert_fails(hub_find(&arena, "org/name", "main", &path), ERR_FORMAT, "not the hash of a commit");
    assert_ok(directory_remove(dir));
    arena_free(&arena);
}

#ifdef CURLINC_CURL_H
/* Fails if one of libcurl's numbers is another one in hone's own list. */
static void the_numbers_are_those_of_libcurl(void **state)
{
    (void)state;
#define NUMBER(name, value) assert_int_equal((long)(name), value);
    CURL_NUMBERS(NUMBER)
#undef NUMBER
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_models_are_told_from_paths),
        cmocka_unit_test(names_of_files_stay_below_their_directory),
        cmocka_unit_test(a_path_into_the_cache_says_its_commit),
        cmocka_unit_test(origins_are_compared_as_libcurl_reads_them),
        cmocka_unit_test(what_hone_needs_is_chosen),
        cmocka_unit_test(what_cannot_be_used_is_said),
        cmocka_unit_test(an_index_adds_its_files),
        cmocka_unit_test(an_index_names_weights_only),
        cmocka_unit_test(a_large_index_takes_no_time),
        cmocka_unit_test(every_allocation_of_a_list_may_fail),
        cmocka_unit_test(a_model_is_found_by_its_branch),
#ifdef CURLINC_CURL_H
        cmocka_unit_test(the_numbers_are_those_of_libcurl),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
