/* hone verify: each file with what became of it, what the folder was made from, and who signed it. */
#include <string.h>

#include "cli/cli.h"
#include "cli/view/out.h"

static const char *cli_verify_text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* The same, for a line that is printed also without it. */
static const char *shown(const json_t *object, const char *key)
{
    const char *text = cli_verify_text_of(object, key);
    return text ? text : "?";
}

static void print_digests(const json_t *part)
{
    static const char *const keys[] = {"commit", "weights_xxh128", "rows_xxh128", NULL};
    size_t i;
    const json_t *file;
    for (const char *const *key = keys; *key; key++)
        if (cli_verify_text_of(part, *key))
            out_print("  %-16s %s\n", *key, cli_verify_text_of(part, *key));
    json_array_foreach(json_object_get(part, "files"), i, file)
    {
        const char *fast = cli_verify_text_of(file, "xxh128"), *strong = cli_verify_text_of(file, "sha256");
        out_print("  %-34s %s\n", shown(file, "name"), strong ? strong : fast ? fast : "");
    }
}

static void print_origin(const json_t *report)
{
    static const char *const parts[] = {"model", "init_adapter", "data", "eval_data", NULL};
    const json_t *from = json_object_get(report, "made_from");
    out_print("made by     hone %s, hone %s", shown(report, "hone"), shown(report, "made_by"));
    if (json_object_get(report, "step"))
        out_print(", step %lld", (long long)json_integer_value(json_object_get(report, "step")));
    out_print("\n");
    for (const char *const *key = parts; *key; key++) {
        const json_t *part = json_object_get(from, *key);
        if (!part)
            continue;
        const char *name = cli_verify_text_of(part, "name");
        out_print("%-12s%s\n", *key, name ? name : "");
        print_digests(part);
    }
}

static void print_signature(const json_t *report)
{
    const json_t *signature = json_object_get(report, "signature");
    if (!signature) {
        out_print("signature   none that was checked and holds\n");
        return;
    }
    out_print("signature   by key %s, %s\n", shown(signature, "key"),
              json_is_true(json_object_get(signature, "checked")) ? "which is that of --verify-key"
                                                                  : "not checked: --verify-key KEY does");
    out_print("            %s\n", shown(signature, "comment"));
}

static void verify_print_report(const json_t *report)
{
    size_t i;
    const json_t *entry;
    print_origin(report);
    print_signature(report);
    json_array_foreach(json_object_get(report, "files"), i, entry)
        out_print("%-18s%s\n", shown(entry, "state"), shown(entry, "name"));
    if (cli_verify_text_of(report, "model"))
        out_print("--model     %s\n", cli_verify_text_of(report, "model"));
    if (cli_verify_text_of(report, "data"))
        out_print("--data      %s\n", cli_verify_text_of(report, "data"));
    json_array_foreach(json_object_get(report, "problems"), i, entry)
        out_print("problem     %s\n", json_string_value(entry) ? json_string_value(entry) : "?");
    bool holds = json_is_true(json_object_get(report, "verified"));
    bool by_key = json_is_true(json_object_get(json_object_get(report, "signature"), "checked"));
    out_print("%s\n", !holds ? "NOT VERIFIED" : by_key ? "verified" : "intact; who made it was not checked (--verify-key KEY)");
}

/* The report is there also where the folder does not hold what it says; the message is then kept for the end. */
hone_status cli_verify(hone_options *options)
{
    char *json = NULL, message[2048];
    json_t *report = NULL;
    hone_status status = hone_verify(options, &json), read = HONE_OK;
    snprintf(message, sizeof message, "%s", hone_error());
    if (json && cli_flag(options, "json"))
        out_json(json);
    else if (json)
        read = (hone_status)json_parse(&report, json, (int64_t)strlen(json), "report");
    if (report)
        verify_print_report(report);
    if (read == HONE_OK && json_refused())
        read = (hone_status)fail(ERR_MEMORY, "out of memory: the report above is not whole");
    json_decref(report);
    hone_text_destroy(json);
    return status == HONE_OK ? read : (hone_status)fail((enum status)status, "%s", message);
}
