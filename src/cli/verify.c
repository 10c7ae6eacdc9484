/* hone verify: each file with what became of it, what the folder was made from, and who signed it. */
#include <string.h>

#include "base/memory.h"
#include "base/utf8.h"
#include "cli/cli.h"

/* A text of the record, which may be anybody's: on one line, and without what would control a terminal. */
static void print_text(const char *format, const char *text)
{
    struct buffer shown = {0};
    if (buffer_format(&shown, "%s", text ? text : "?") != OK)
        return; /* the caller asks json_refused */
    utf8_clean(shown.data);
    for (char *at = shown.data; (at = strpbrk(at, "\n\t"));)
        *at = '?';
    printf(format, shown.data);
    buffer_free(&shown);
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static void print_digests(const json_t *part)
{
    static const char *const keys[] = {"commit", "weights_xxh128", "rows_xxh128", NULL};
    size_t i;
    const json_t *file;
    for (const char *const *key = keys; *key; key++)
        if (text_of(part, *key)) {
            printf("  %-16s ", *key);
            print_text("%s\n", text_of(part, *key));
        }
    json_array_foreach(json_object_get(part, "files"), i, file)
    {
        print_text("  %-34s ", text_of(file, "name"));
        const char *fast = text_of(file, "xxh128"), *strong = text_of(file, "sha256");
        print_text("%s\n", strong ? strong : fast ? fast : "");
    }
}

static void print_origin(const json_t *report)
{
    static const char *const parts[] = {"model", "init_adapter", "data", "eval_data", NULL};
    const json_t *from = json_object_get(report, "made_from");
    print_text("made by     hone %s", text_of(report, "hone"));
    print_text(", hone %s", text_of(report, "made_by"));
    if (json_object_get(report, "step"))
        printf(", step %lld", (long long)json_integer_value(json_object_get(report, "step")));
    puts("");
    for (const char *const *key = parts; *key; key++) {
        const json_t *part = json_object_get(from, *key);
        if (!part)
            continue;
        printf("%-12s", *key);
        print_text("%s\n", text_of(part, "name") ? text_of(part, "name") : "");
        print_digests(part);
    }
}

static void print_signature(const json_t *report)
{
    const json_t *signature = json_object_get(report, "signature");
    if (!signature) {
        puts("signature   none that holds");
        return;
    }
    printf("signature   by key %s, %s\n", text_of(signature, "key"),
           json_is_true(json_object_get(signature, "checked")) ? "which is that of --verify-key"
                                                               : "not checked: --verify-key KEY does");
    print_text("            %s\n", text_of(signature, "comment"));
}

static void print_report(const json_t *report)
{
    size_t i;
    const json_t *entry;
    print_origin(report);
    print_signature(report);
    json_array_foreach(json_object_get(report, "files"), i, entry)
    {
        printf("%-18s", text_of(entry, "state"));
        print_text("%s\n", text_of(entry, "name"));
    }
    if (text_of(report, "model"))
        printf("--model     %s\n", text_of(report, "model"));
    if (text_of(report, "data"))
        printf("--data      %s\n", text_of(report, "data"));
    json_array_foreach(json_object_get(report, "problems"), i, entry) print_text("problem     %s\n", json_string_value(entry));
    puts(json_is_true(json_object_get(report, "verified")) ? "verified" : "NOT VERIFIED");
}

/* The report is there also where the folder does not hold what it says; the message is then kept for the end. */
hone_status cli_verify(hone_options *options)
{
    char *json = NULL, message[2048];
    json_t *report = NULL;
    hone_status status = hone_verify(options, &json), read = HONE_OK;
    snprintf(message, sizeof message, "%s", hone_error());
    if (json && cli_flag(options, "json"))
        puts(json);
    else if (json)
        read = (hone_status)json_parse(&report, json, (int64_t)strlen(json), "report");
    if (report)
        print_report(report);
    if (read == HONE_OK && json_refused())
        read = (hone_status)fail(ERR_MEMORY, "out of memory: the report above is not whole");
    json_decref(report);
    hone_text_destroy(json);
    return status == HONE_OK ? read : (hone_status)fail((enum status)status, "%s", message);
}
