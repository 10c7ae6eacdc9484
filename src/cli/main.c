/* hone: finds the command, reads its options, runs it, and turns its status into the exit code. */
#include <math.h>
#include <string.h>

#include "base/confine.h"
#include "base/process.h"
#include "cli/cli.h"
#include "cli/helper.h"
#include "cli/signals.h"
#include "cli/view/out.h"
#include "cli/view/progress.h"
#include "config/options.h"

/* A command may have a second word, its subject; without one, the first row of that name is taken. */
static const struct command {
    const char *name, *about;
    cli_command *run;
    int uses; /* CLI_... */
} commands[] = {
    {"pull", NULL, cli_pull, 0},
    {"init", NULL, cli_init, CLI_TEMPORARY},
    {"train", NULL, cli_train, CLI_STARTS_RANKS | CLI_TEMPORARY},
    {"eval", NULL, cli_eval, CLI_TEMPORARY},
    {"generate", NULL, cli_generate, CLI_TEMPORARY},
    {"chat", NULL, cli_chat, CLI_TEMPORARY},
    {"plan", NULL, cli_plan, CLI_TEMPORARY},
    {"inspect", "model", cli_inspect_model, CLI_TEMPORARY},
    {"inspect", "data", cli_inspect_data, CLI_TEMPORARY},
    {"inspect", "adapter", cli_inspect_adapter, CLI_TEMPORARY},
    {"inspect", "checkpoint", cli_inspect_checkpoint, CLI_TEMPORARY},
    {"kernels", "list", cli_kernels_list, 0},
    {"kernels", "build", cli_kernels_build, 0},
    {"merge", NULL, cli_merge, 0},
    {"export", NULL, cli_export, 0},
    {"quantize", NULL, cli_quantize, 0},
    {"report", NULL, cli_report_run, 0},
    {"watch", NULL, cli_watch, 0},
    {"verify", NULL, cli_verify, 0},
    {"devices", NULL, cli_devices, 0},
    {"bench", NULL, cli_bench, CLI_STARTS_RANKS | CLI_TEMPORARY},
    {"config", "convert", cli_config_convert, CLI_READS_CONFIG},
};

static const struct command *find_command(const char *name, const char *about)
{
    const struct command *found = NULL;
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (!strcmp(commands[i].name, name) && (!found || (about && commands[i].about && !strcmp(commands[i].about, about))))
            found = &commands[i];
    return found;
}

static bool only_warnings, verbose, repeated; /* repeated: rank 0, with the same options, says it */

void cli_only_warnings(void)
{
    only_warnings = true;
}

/* Prints warnings, and what the library is doing while the user waits. */
static void print_message(void *context, hone_log_level level, const char *message)
{
    (void)context;
    if (repeated)
        return;
    if (level >= HONE_LOG_WARNING)
        progress_say("hone: warning: %s", message);
    else if (level == HONE_LOG_INFO ? !only_warnings : verbose)
        progress_say("%s", message);
}

bool cli_flag(hone_options *options, const char *key)
{
    const char *value;
    return hone_options_get(options, key, &value) == HONE_OK && !strcmp(value, "true");
}

hone_status cli_report(hone_options *options, hone_status (*make)(const hone_options *options, char **json),
                       void (*print)(const json_t *report))
{
    char *json = NULL;
    json_t *tree = NULL;
    hone_status status = make(options, &json);
    if (status != HONE_OK)
        return status;
    if (make == hone_bench && hone_rank()) /* rank 0 prints it; other commands know nothing of ranks */
        tree = NULL;
    else if (cli_flag(options, "json"))
        out_json(json);
    else
        status = (hone_status)json_parse(&tree, json, (int64_t)strlen(json), "report");
    if (tree) {
        print(tree);
        if (json_refused())
            status = (hone_status)fail(ERR_MEMORY, "out of memory: the report above is not whole");
    }
    json_decref(tree);
    hone_text_destroy(json);
    return status;
}

hone_status cli_print_json(json_t *object)
{
    char *text = json_write(object, JSON_REAL_PRECISION(17));
    if (text)
        out_json(text);
    json_text_free(text);
    json_decref(object);
    return text ? HONE_OK : HONE_ERR_MEMORY;
}

const char *cli_memory(char text[static CLI_MEMORY_SIZE], const json_t *report)
{
    const char *limit = json_string_value(json_object_get(report, "limit"));
    bool limited = limit && strcmp(limit, "free memory") != 0;
    char total[32], left[32];
    cli_bytes(total, (double)json_integer_value(json_object_get(report, "memory_bytes")));
    json_int_t unused = json_integer_value(json_object_get(report, "free_bytes"));
    if (unused)
        snprintf(text, CLI_MEMORY_SIZE, "%s of %s free%s%s", cli_bytes(left, (double)unused), total, limited ? " by " : "",
                 limited ? limit : "");
    else
        snprintf(text, CLI_MEMORY_SIZE, "%s, and does not say how much of it is free", total);
    return text;
}

static int main_finish(hone_status status)
{
    if (status == HONE_OK && (fflush(stdout) != 0 || ferror(stdout))) {
        out_error("hone: the result cannot be written to standard output\n");
        return (int)HONE_ERR_IO;
    }
    progress_clear();
    if (status == HONE_ERR_STOPPED && hone_rank()) /* rank 0 says where it is saved */
        return (int)status;
    if (status != HONE_OK && hone_rank())
        out_error("hone: rank %d: %s\n", hone_rank(), hone_error());
    else if (status != HONE_OK)
        out_error("hone: %s\n", hone_error());
    return (int)status;
}

static int print_help(enum status (*make)(struct buffer *))
{
    struct buffer text = {0};
    enum status status = make(&text);
    if (status == OK)
        out_text(stdout, text.data);
    buffer_free(&text);
    return main_finish((hone_status)status);
}

static int print_command_help(const char *name)
{
    struct buffer text = {0};
    enum user_command command;
    enum status status = options_command(&command, name);
    if (status == OK)
        status = options_help(command, &text);
    if (status == OK)
        out_text(stdout, text.data);
    buffer_free(&text);
    return main_finish((hone_status)status);
}

static hone_status unknown_word(const char *name, const char *word)
{
    char known[128] = "";
    const char *first = NULL;
    int count = 0;
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (!strcmp(commands[i].name, name)) {
            size_t used = strlen(known);
            snprintf(known + used, sizeof known - used, "%s%s", count++ ? ", " : "", commands[i].about);
            first = first ? first : commands[i].about;
        }
    if (count == 1) /* what has a dot is a file that the word is missing before */
        return (hone_status)fail(ERR_ARGUMENT, "hone %s: '%s' is not %s: write hone %s %s %s; hone %s --help says more", name,
                                 word, first, name, first, strchr(word, '.') ? word : "FILE", name);
    return (hone_status)fail(ERR_ARGUMENT, "hone %s: '%s' is none of %s: as in hone %s %s --model DIR; hone %s --help says more",
                             name, word, known, name, first, name);
}

/* Another tool's configuration is read with the options, and so before them. */
static hone_status confine_early(const char *name, const struct command *command, int argc, char **argv)
{
    hone_options *options = NULL;
    hone_status status = hone_options_create(&options, name);
    for (int i = 0; i < argc && status == HONE_OK; i++)
        if (!strcmp(argv[i], "--confine=off") || (!strcmp(argv[i], "off") && i && !strcmp(argv[i - 1], "--confine")))
            status = hone_options_set(options, "confine", "off");
    if (status == HONE_OK)
        status = cli_confine(options, command->uses);
    hone_options_destroy(options);
    return status;
}

static int main_run(const char *name, const struct command *command, int argc, char **argv)
{
    hone_options *options = NULL;
    const char *flag;
    hone_status status = (hone_status)process_grow_stack();
    if (status == HONE_OK)
        status = hone_options_create(&options, name);
    if (status == HONE_OK && argc && command->about && argv[0][0] != '-') {
        if (strcmp(argv[0], command->about) != 0)
            status = unknown_word(name, argv[0]);
        argc--;
        argv++;
    }
    bool early = command && command->uses & CLI_READS_CONFIG; /* without a command there are no options */
    if (status == HONE_OK && early)
        status = confine_early(name, command, argc, argv);
    repeated = hone_rank() && command->run == cli_train;
    if (status == HONE_OK)
        status = hone_options_parse(options, argc, argv);
    repeated = false;
    if (status == HONE_OK)
        status = hone_options_get(options, "json", &flag); /* the memory of these texts stays: cli_flag then needs none */
    if (status == HONE_OK)
        status = hone_options_get(options, "help", &flag);
    if (status == HONE_OK && cli_flag(options, "help")) {
        hone_options_destroy(options);
        return print_command_help(name);
    }
    verbose = status == HONE_OK && cli_flag(options, "verbose");
    if (status == HONE_OK && command->uses & CLI_STARTS_RANKS)
        status = cli_start_ranks(options);
    if (status == HONE_OK && !early)
        status = cli_confine(options, command->uses);
    if (status == HONE_OK)
        status = command->run(options);
    hone_options_destroy(options);
    helper_end();
    return main_finish(status);
}

static int no_completion(const char *shell)
{
    return main_finish(
        (hone_status)fail(ERR_ARGUMENT,
                          "hone completion: there is none for '%.60s', only for bash; zsh takes that after autoload -U "
                          "bashcompinit; bashcompinit",
                          shell));
}

int main(int argc, char **argv)
{
    hone_set_log(print_message, NULL);
    signals_tell_children();
    signals_name_faults();
    signals_end_hanging();
    if (argc < 2) {
        print_help(options_start);
        return HONE_ERR_ARGUMENT;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
        return argc > 2 ? print_command_help(argv[2]) : print_help(options_overview);
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "version")) {
        char kept[CONFINE_TEXT];
        confine_describe(kept);
        out_print("hone %s\nconfines itself: %s\n", hone_version(), kept);
        return main_finish(HONE_OK);
    }
    if (!strcmp(argv[1], "completion") && argc > 2 && (!strcmp(argv[2], "--help") || !strcmp(argv[2], "-h"))) {
        out_print(
            "Usage: hone completion bash\n\nPrints a script that completes hone's commands and options in bash. To have it in "
            "every "
            "shell:\n\n    echo '. <(hone completion bash)' >> ~/.bashrc\n\n"
            "zsh takes it after autoload -U bashcompinit; bashcompinit\n");
        return main_finish(HONE_OK);
    }
    if (!strcmp(argv[1], "completion"))
        return argc < 3 || !strcmp(argv[2], "bash") ? print_help(options_complete) : no_completion(argv[2]);
    if (!strcmp(argv[1], "man"))
        return print_help(options_manual);
    const struct command *command = find_command(argv[1], argv[2]);
    return main_run(argv[1], command, argc - 2, argv + 2);
}
