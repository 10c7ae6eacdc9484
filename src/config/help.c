/* Text made from the table: help, docs/options.md, the manual page and the shell completion. */
#include <stdio.h>
#include <string.h>

#include "config/foreign/foreign.h"

enum { WIDTH = 100, INDENT = 26 };

/* The table in its order, with its titles. */
static const struct line {
    const char *title;
    const struct option_row *row;
} lines[] = {
#define GROUP(title) {title, NULL},
#define OPTION(kind, name, ...) {NULL, &option_table[OPTION_##name]},
#include "config/options.def"
};

enum { LINES = sizeof lines / sizeof *lines };

/* A name as it is typed: --max-length, -h. */
static enum status append_flag(struct buffer *text, const char *name)
{
    TRY(buffer_append(text, "--", name[1] ? 2 : 1));
    int64_t begin = text->size;
    TRY(buffer_append(text, name, (int64_t)strlen(name)));
    for (char *c = text->data + begin; *c; c++)
        if (*c == '_')
            *c = '-';
    return OK;
}

static enum status append_flags(struct buffer *text, const struct option_row *row, const char *between)
{
    TRY(append_flag(text, row->name));
    if (!row->alias)
        return OK;
    TRY(buffer_format(text, "%s", between));
    return append_flag(text, row->alias);
}

/* The default in words, empty where there is none. */
static void default_words(const struct option_row *row, char words[static WORDS_SIZE])
{
    struct arena none = {0};
    struct options options;
    options_init(&options, &none);
    const char *field = (const char *)&options + row->offset;
    const char *text;
    int64_t integer;
    double real;
    bool boolean;
    switch (row->kind) {
    case KIND_TEXT:
    case KIND_PATH:
        memcpy(&text, field, sizeof text);
        snprintf(words, WORDS_SIZE, "%s", text ? text : "");
        break;
    case KIND_CHOICE: snprintf(words, WORDS_SIZE, "%s", row->words[table_choice(&options, row)]); break;
    case KIND_INT:
        memcpy(&integer, field, sizeof integer);
        snprintf(words, WORDS_SIZE, "%lld", (long long)integer);
        break;
    case KIND_REAL:
        memcpy(&real, field, sizeof real);
        snprintf(words, WORDS_SIZE, "%.15g", real);
        break;
    case KIND_BOOL:
        memcpy(&boolean, field, sizeof boolean);
        snprintf(words, WORDS_SIZE, "%s", boolean ? "true" : "false");
        break;
    }
}

/* Appends words, wrapped, with `indent` blanks before every line but the first, which begins at `column`. */
static enum status append_wrapped(struct buffer *text, const char *words, int column, int indent)
{
    for (bool first = true; *words; first = false) {
        int n = (int)strcspn(words, " ");
        if (!first && column + 1 + n > WIDTH) {
            TRY(buffer_format(text, "\n%*s", indent, ""));
            column = indent;
        } else if (!first) {
            TRY(buffer_append(text, " ", 1));
            column++;
        }
        TRY(buffer_append(text, words, n));
        column += n;
        words += n + (words[n] == ' ');
    }
    return buffer_append(text, "\n", 1);
}

static enum status append_option(struct buffer *text, const struct option_row *row)
{
    int64_t begin = text->size;
    TRY(buffer_append(text, "  ", 2));
    TRY(append_flags(text, row, ", "));
    if (row->placeholder)
        TRY(buffer_format(text, " %s", row->placeholder));
    int used = (int)(text->size - begin);
    if (used > INDENT - 2)
        TRY(buffer_format(text, "\n%*s", INDENT, ""));
    else
        TRY(buffer_format(text, "%*s", INDENT - used, ""));

    char takes[WORDS_SIZE], otherwise[WORDS_SIZE], words[1024];
    table_takes(row, takes);
    default_words(row, otherwise);
    if (row->words)
        snprintf(words, sizeof words, "%s (%s; default %s)", row->help, takes, otherwise);
    else if (otherwise[0] && strcmp(otherwise, "false") != 0)
        snprintf(words, sizeof words, "%s (default %s)", row->help, otherwise);
    else
        snprintf(words, sizeof words, "%s", row->help);
    return append_wrapped(text, words, INDENT, INDENT);
}

enum status options_help(enum user_command command, struct buffer *text)
{
    const struct command_row *self = &command_table[command];
    TRY(buffer_format(text, "Usage: hone %s %s\n\n", self->name, self->usage));
    char summary[512];
    snprintf(summary, sizeof summary, "%c%s.", self->summary[0] - 'a' + 'A', self->summary + 1);
    TRY(append_wrapped(text, summary, 0, 0));
    const char *title = NULL; /* printed when the command has an option below it */
    for (int i = 0; i < LINES; i++) {
        if (lines[i].title)
            title = lines[i].title;
        else if (table_has(lines[i].row, command)) {
            if (title)
                TRY(buffer_format(text, "\n%s:\n", title));
            title = NULL;
            TRY(append_option(text, lines[i].row));
        }
    }
    return buffer_format(text,
                         "\nWords that other tools have for these are taken too, as in --lr; docs/options.md lists them.\n");
}

enum status options_start(struct buffer *text)
{
    return buffer_format(text, "hone fine-tunes language models. From a model and chats to an adapter:\n\n"
                               "  hone pull HuggingFaceTB/SmolLM2-135M-Instruct\n"
                               "  hone train --model HuggingFaceTB/SmolLM2-135M-Instruct \\\n"
                               "    --data chats.jsonl --output out\n"
                               "  hone chat out\n\n"
                               "--model is a name on the hub, a directory or a GGUF file; chats.jsonl has lines\n\n"
                               "  {\"messages\": [{\"role\": \"user\", \"content\": \"…\"},\n"
                               "                {\"role\": \"assistant\", \"content\": \"…\"}]}\n\n"
                               "  pull           download a model\n"
                               "  init           a file of options that fit the model, the data and this machine\n"
                               "  plan           what memory a run takes, before it starts\n"
                               "  inspect data   what the model will see of the data, and what is wrong\n"
                               "  train          make an adapter; the same command again resumes\n"
                               "  watch, report  follow a run; a page about it\n"
                               "  chat, eval     try it; measure it\n"
                               "  merge          a whole model, also as GGUF for llama.cpp and Ollama\n"
                               "  devices        what this machine has\n\n"
                               "hone --help lists all commands, hone COMMAND --help a command's options.\n");
}

enum status options_overview(struct buffer *text)
{
    TRY(buffer_format(text, "Usage: hone COMMAND [options]\n\nCommands:\n"));
    for (int c = 0; c < COMMANDS; c++) {
        TRY(buffer_format(text, "  %-10s  ", command_table[c].name));
        TRY(append_wrapped(text, command_table[c].summary, 14, 14));
    }
    return buffer_format(text, "\nhone COMMAND --help lists a command's options; hone --version prints the version.\n"
                               "hone completion bash completes them in a shell; hone man prints the manual page.\n");
}

static enum status append_commands(struct buffer *text, const struct option_row *row)
{
    if (row->commands == (1u << COMMANDS) - 1)
        return buffer_format(text, "all");
    for (int c = 0, seen = 0; c < COMMANDS; c++)
        if (table_has(row, (enum user_command)c))
            TRY(buffer_format(text, "%s%s", seen++ ? ", " : "", command_table[c].name));
    return OK;
}

enum status options_markdown(struct buffer *text)
{
    TRY(buffer_format(text,
                      "<!-- Made from src/config/options.def by `make docs`: edit that file. -->\n# Options\n\n"
                      "A name below is the key in a YAML file (`--config FILE`) and, with dashes or underscores, the flag\n"
                      "on the command line. A flag overrides the file. Unknown names are errors. `same` in the column resume:\n"
                      "a run that resumes from a checkpoint must have the same value, because its numbers depend on it.\n\n"
                      "| Command | what it is for |\n|---|---|\n"));
    for (int c = 0; c < COMMANDS; c++) {
        TRY(buffer_format(text, "| `hone %s ", command_table[c].name));
        for (const char *usage = command_table[c].usage; *usage; usage++) /* a bar would end the cell */
            TRY(buffer_format(text, *usage == '|' ? "\\%c" : "%c", *usage));
        TRY(buffer_format(text, "` | to %s |\n", command_table[c].summary));
    }
    for (int i = 0; i < LINES; i++) {
        const struct option_row *row = lines[i].row;
        if (!row) {
            TRY(buffer_format(text,
                              "\n## %s\n\n| Name | flag | takes | default | commands | resume | meaning |\n"
                              "|---|---|---|---|---|---|---|\n",
                              lines[i].title));
            continue;
        }
        char takes[WORDS_SIZE], otherwise[WORDS_SIZE];
        table_takes(row, takes);
        default_words(row, otherwise);
        TRY(buffer_format(text, "| `%s` | `", row->name));
        TRY(append_flags(text, row, "`, `"));
        TRY(buffer_format(text, "` | %s | %s | ", takes, otherwise));
        TRY(append_commands(text, row));
        TRY(buffer_format(text, " | %s | %s%s |\n", row->decides ? "same" : "", row->help,
                          row->flag_only ? " (command line only)" : ""));
    }
    return synonym_markdown(text);
}

/* The script's case for an option that takes a value: what may be that value, or nothing to offer. */
static enum status append_case(struct buffer *text, const struct option_row *row)
{
    TRY(buffer_format(text, "    "));
    TRY(append_flags(text, row, "|"));
    if (row->kind == KIND_PATH)
        return buffer_format(text, ") COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n");
    if (!row->words)
        return buffer_format(text, ") return ;;\n");
    TRY(buffer_format(text, ") COMPREPLY=($(compgen -W \""));
    for (const char *const *word = row->words; *word; word++)
        TRY(buffer_format(text, word[1] ? "%s " : "%s", *word));
    return buffer_format(text, "\" -- \"$word\")); return ;;\n");
}

enum status options_complete(struct buffer *text)
{
    TRY(buffer_format(text, "# Completion of hone's command line for bash.\n_hone()\n{\n"
                            "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=\n"
                            "    COMPREPLY=()\n    case $before in\n"));
    for (const struct option_row *row = option_table; row < option_table + OPTIONS; row++)
        if (row->kind != KIND_BOOL)
            TRY(append_case(text, row));
    TRY(buffer_format(text, "    esac\n    case $COMP_CWORD,${COMP_WORDS[1]} in\n    1,*) words=\""));
    for (int c = 0; c < COMMANDS; c++)
        TRY(buffer_format(text, "%s ", command_table[c].name));
    TRY(buffer_format(text, "--help --version\" ;;\n"));
    for (int c = 0; c < COMMANDS; c++) {
        TRY(buffer_format(text, "    *,%s) words=\"", command_table[c].name));
        for (const struct option_row *row = option_table; row < option_table + OPTIONS; row++)
            if (table_has(row, (enum user_command)c)) {
                TRY(append_flags(text, row, " "));
                TRY(buffer_append(text, " ", 1));
            }
        TRY(buffer_format(text, "\" ;;\n"));
    }
    return buffer_format(text, "    esac\n    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n}\n"
                               "complete -o filenames -F _hone hone\n");
}

/* --- hone.1 --------------------------------------------------------------------------------------------------------------- */

/* A text for roff: hyphens that can be copied, no escapes, and no line that is a request. */
static enum status append_roff(struct buffer *text, const char *words)
{
    if (*words == '.' || *words == '\'')
        TRY(buffer_format(text, "\\&"));
    for (; *words; words++)
        TRY(*words == '-'    ? buffer_format(text, "\\-")
            : *words == '\\' ? buffer_format(text, "\\e")
                             : buffer_append(text, words, 1));
    return OK;
}

static enum status append_roff_option(struct buffer *text, const struct option_row *row)
{
    char takes[WORDS_SIZE], otherwise[WORDS_SIZE];
    struct buffer flags = {0};
    table_takes(row, takes);
    default_words(row, otherwise);
    TRY(buffer_format(text, ".TP\n\\fB"));
    enum status status = append_flags(&flags, row, ", ");
    if (status == OK)
        status = append_roff(text, flags.data);
    buffer_free(&flags);
    TRY(status);
    TRY(buffer_format(text, "\\fR"));
    if (row->placeholder)
        TRY(buffer_format(text, " \\fI%s\\fR", row->placeholder));
    TRY(buffer_format(text, "\n"));
    TRY(append_roff(text, row->help));
    TRY(buffer_format(text, "\n(takes "));
    TRY(append_roff(text, takes));
    if (otherwise[0]) {
        TRY(buffer_format(text, "; default "));
        TRY(append_roff(text, otherwise));
    }
    TRY(buffer_format(text, "; of "));
    TRY(append_commands(text, row));
    return buffer_format(text, ")\n");
}

enum status options_manual(struct buffer *text)
{
    TRY(buffer_format(text,
                      ".\\\" Made from the table of options by `hone man`.\n"
                      ".TH HONE 1 \"\" \"hone " HONE_VERSION "\"\n"
                      ".SH NAME\nhone \\- fine\\-tune large language models\n"
                      ".SH SYNOPSIS\n\\fBhone\\fR \\fICOMMAND\\fR [\\fIoptions\\fR]\n"
                      ".SH DESCRIPTION\nhone trains an adapter for a language model, or all of its weights, on chats and texts; "
                      "it answers with the result, and writes it for other programs.\n"
                      ".SH COMMANDS\n"));
    for (int c = 0; c < COMMANDS; c++) {
        TRY(buffer_format(text, ".TP\n\\fBhone %s\\fR ", command_table[c].name));
        TRY(append_roff(text, command_table[c].usage));
        TRY(buffer_format(text, "\n"));
        TRY(append_roff(text, command_table[c].summary));
        TRY(buffer_format(text, "\n"));
    }
    TRY(buffer_format(
        text, ".SH OPTIONS\nDashes and underscores are the same. A name without its dashes is a key of the YAML file that "
              "\\fB\\-\\-config\\fR names; what the command line says overrides it.\n"));
    for (int i = 0; i < LINES; i++)
        TRY(lines[i].title ? buffer_format(text, ".SS %s\n", lines[i].title) : append_roff_option(text, lines[i].row));
    TRY(buffer_format(text, ".SH EXIT STATUS\n.TP\n0\nsuccess\n"));
#define STATUS(name, number, words) TRY(buffer_format(text, ".TP\n%d\n%s\n", number, words));
#include "base/status.def"
#undef STATUS
    return buffer_format(text, ".SH ENVIRONMENT\n.TP\nHONE_CACHE\nwhere encoded data and compiled kernels are kept\n"
                               ".TP\nNO_COLOR\nif set, nothing is coloured\n"
                               ".SH SEE ALSO\nThe guides, and the C library that the program is made of, are described in "
                               "/usr/share/doc/hone.\n");
}
