/* What hone uses of libcurl, with libcurl's names and numbers (a test compares them with <curl/curl.h>). Its interface has been
 * stable since 2006, and the library is opened at run time. */
#ifndef HUB_CURL_H
#define HUB_CURL_H

#include <stddef.h>

typedef void CURL;
typedef struct Curl_URL CURLU;
struct curl_slist;

/* NUMBER(name, value) */
#define CURL_NUMBERS(NUMBER)                                                                                                     \
    NUMBER(CURLE_OK, 0)                                                                                                          \
    NUMBER(CURLE_COULDNT_RESOLVE_HOST, 6)                                                                                        \
    NUMBER(CURLE_OUT_OF_MEMORY, 27)                                                                                              \
    NUMBER(CURLE_UNKNOWN_OPTION, 48)                                                                                             \
    NUMBER(CURLE_WRITE_ERROR, 23)                                                                                                \
    NUMBER(CURLE_ABORTED_BY_CALLBACK, 42)                                                                                        \
    NUMBER(CURLE_PEER_FAILED_VERIFICATION, 60)                                                                                   \
    NUMBER(CURLE_SSL_CACERT_BADFILE, 77)                                                                                         \
    NUMBER(CURLE_UNSUPPORTED_PROTOCOL, 1)                                                                                        \
    NUMBER(CURLE_URL_MALFORMAT, 3)                                                                                               \
    NUMBER(CURL_GLOBAL_ALL, 3)                                                                                                   \
    NUMBER(CURLHEADER_SEPARATE, 1)                                                                                               \
    NUMBER(CURLPROTO_HTTP, 1)                                                                                                    \
    NUMBER(CURLPROTO_HTTPS, 2)                                                                                                   \
    NUMBER(CURLOPT_LOW_SPEED_LIMIT, 19)                                                                                          \
    NUMBER(CURLOPT_LOW_SPEED_TIME, 20)                                                                                           \
    NUMBER(CURLOPT_NOPROGRESS, 43)                                                                                               \
    NUMBER(CURLOPT_CONNECTTIMEOUT, 78)                                                                                           \
    NUMBER(CURLOPT_BUFFERSIZE, 98)                                                                                               \
    NUMBER(CURLOPT_NOSIGNAL, 99)                                                                                                 \
    NUMBER(CURLOPT_PROTOCOLS, 181)                                                                                               \
    NUMBER(CURLOPT_HEADEROPT, 229)                                                                                               \
    NUMBER(CURLOPT_WRITEDATA, 10001)                                                                                             \
    NUMBER(CURLOPT_URL, 10002)                                                                                                   \
    NUMBER(CURLOPT_RANGE, 10007)                                                                                                 \
    NUMBER(CURLOPT_ERRORBUFFER, 10010)                                                                                           \
    NUMBER(CURLOPT_USERAGENT, 10018)                                                                                             \
    NUMBER(CURLOPT_HTTPHEADER, 10023)                                                                                            \
    NUMBER(CURLOPT_HEADERDATA, 10029)                                                                                            \
    NUMBER(CURLOPT_XFERINFODATA, 10057)                                                                                          \
    NUMBER(CURLOPT_CAINFO, 10065)                                                                                                \
    NUMBER(CURLOPT_NOPROXY, 10177)                                                                                               \
    NUMBER(CURLOPT_PROTOCOLS_STR, 10318)                                                                                         \
    NUMBER(CURLOPT_WRITEFUNCTION, 20011)                                                                                         \
    NUMBER(CURLOPT_HEADERFUNCTION, 20079)                                                                                        \
    NUMBER(CURLOPT_XFERINFOFUNCTION, 20219)                                                                                      \
    NUMBER(CURLINFO_RESPONSE_CODE, 0x200002)                                                                                     \
    NUMBER(CURLINFO_REDIRECT_URL, 0x10001f)                                                                                      \
    NUMBER(CURLUE_OK, 0)                                                                                                         \
    NUMBER(CURLUE_OUT_OF_MEMORY, 7)                                                                                              \
    NUMBER(CURLUPART_URL, 0)                                                                                                     \
    NUMBER(CURLUPART_SCHEME, 1)                                                                                                  \
    NUMBER(CURLUPART_USER, 2)                                                                                                    \
    NUMBER(CURLUPART_PASSWORD, 3)                                                                                                \
    NUMBER(CURLUPART_HOST, 5)                                                                                                    \
    NUMBER(CURLUPART_PORT, 6)                                                                                                    \
    NUMBER(CURLUPART_ZONEID, 10)                                                                                                 \
    NUMBER(CURLU_DEFAULT_PORT, 1)                                                                                                \
    NUMBER(CURLU_NON_SUPPORT_SCHEME, 8)                                                                                          \
    NUMBER(CURL_ERROR_SIZE, 256)

#ifndef CURLINC_CURL_H /* libcurl's own header has them already */
enum {
#define NUMBER(name, value) name = value,
    CURL_NUMBERS(NUMBER)
#undef NUMBER
};
#endif

/* SYMBOL(result, name, arguments) */
#define CURL_SYMBOLS(SYMBOL)                                                                                                     \
    SYMBOL(int, curl_global_init, (long flags))                                                                                  \
    SYMBOL(CURL *, curl_easy_init, (void))                                                                                       \
    SYMBOL(void, curl_easy_reset, (CURL *))                                                                                      \
    SYMBOL(int, curl_easy_setopt, (CURL *, int option, ...))                                                                     \
    SYMBOL(int, curl_easy_perform, (CURL *))                                                                                     \
    SYMBOL(int, curl_easy_getinfo, (CURL *, int info, ...))                                                                      \
    SYMBOL(const char *, curl_easy_strerror, (int code))                                                                         \
    SYMBOL(void, curl_easy_cleanup, (CURL *))                                                                                    \
    SYMBOL(CURLU *, curl_url, (void))                                                                                            \
    SYMBOL(int, curl_url_set, (CURLU *, int part, const char *text, unsigned flags))                                             \
    SYMBOL(int, curl_url_get, (CURLU *, int part, char **text, unsigned flags))                                                  \
    SYMBOL(void, curl_url_cleanup, (CURLU *))                                                                                    \
    SYMBOL(void, curl_free, (void *))                                                                                            \
    SYMBOL(struct curl_slist *, curl_slist_append, (struct curl_slist *, const char *text))                                      \
    SYMBOL(void, curl_slist_free_all, (struct curl_slist *))

/* Its functions, once it is open. */
struct curl_functions {
#define SYMBOL(result, name, arguments) result(*name) arguments;
    CURL_SYMBOLS(SYMBOL)
#undef SYMBOL
};

#endif
