/* docs/configs.md, made from the table of foreign.def. */
#include <string.h>

#include "config/foreign/state.h"
#include "config/option_table.h"

static const char intro[] =
    "<!-- Made from src/config/foreign/foreign.def by `make docs`: edit that file. -->\n"
    "# Configurations of other tools\n\n"
    "```sh\n"
    "hone train config.yaml                # hone's own YAML, or Axolotl's, LLaMA-Factory's, TRL's, MLX-LM's\n"
    "hone plan config.yaml                 # the memory of that run\n"
    "hone config convert config.yaml       # the same in hone's own YAML, with where each line comes from\n"
    "```\n\n"
    "The keys of a file tell which tool it is of; `--config-format axolotl` (`llamafactory`, `trl`, `mlx`, `hone`)\n"
    "says it. The run is the one that the other tool would make:\n\n"
    "- a key means what it means there, and an absent one has the other tool's default\n"
    "- keys that cannot change the trained model are listed as not needed\n"
    "- what the file wants besides and hone leaves undone (an upload, W&B) is listed as not done, with what helps\n"
    "- where hone does something else, the run says so: `changed: optimizer: adamw_8bit: exact, …`\n"
    "- all other keys are refused in one message, each with its line and the nearest that hone has; that of a file for\n"
    "  DPO or another method says first that it is one\n"
    "- flags override the file, which may have hone's own options too\n\n"
    "Paths are relative to the working directory. Models and data sets of a hub must be on this machine. Of data\n"
    "hone looks at [the keys of rows](data.md#rows); the texts of Alpaca rows differ from Axolotl's.\n";

static enum status append_tools(struct buffer *text, unsigned tools)
{
    for (int t = 0, seen = 0; t < FOREIGN_TOOLS; t++)
        if (tools & foreign_tools[t].tool)
            TRY(buffer_format(text, "%s%s", seen++ ? ", " : "", foreign_tools[t].name));
    return OK;
}

/* The keys of a tool that give an option, and the default where it is not hone's. */
static enum status append_cell(struct buffer *text, enum option option, enum foreign_tool tool)
{
    int seen = 0;
    for (int i = 0; i < foreign_row_count; i++)
        if (foreign_rows[i].tools & tool && foreign_rows[i].option == option)
            TRY(buffer_format(text, "%s`%s`", seen++ ? ", " : "", foreign_rows[i].key));
    for (int i = 0; i < foreign_default_count; i++)
        if (foreign_defaults[i].tools & tool && foreign_defaults[i].option == option)
            TRY(buffer_format(text, "%s%s", seen++ ? "; " : "", foreign_defaults[i].value));
    return buffer_append(text, " |", 2);
}

static bool foreign_page_is_named(enum option option)
{
    for (int i = 0; i < foreign_row_count; i++)
        if (foreign_rows[i].option == option)
            return true;
    for (int i = 0; i < foreign_default_count; i++)
        if (foreign_defaults[i].option == option)
            return true;
    return false;
}

static enum status append_options(struct buffer *text)
{
    TRY(buffer_format(text, "\n## Options\n\nWhat is not in `code` is the tool's default, where hone's differs.\n\n| hone |"));
    for (int t = 0; t < FOREIGN_TOOLS; t++)
        TRY(buffer_format(text, " %s |", foreign_tools[t].name));
    TRY(buffer_format(text, "\n|---|---|---|---|---|\n"));
    for (int o = 0; o < OPTIONS; o++) {
        if (!foreign_page_is_named((enum option)o))
            continue;
        TRY(buffer_format(text, "| `%s` |", option_table[o].name));
        for (int t = 0; t < FOREIGN_TOOLS; t++) {
            TRY(buffer_append(text, " ", 1));
            TRY(append_cell(text, (enum option)o, foreign_tools[t].tool));
        }
        TRY(buffer_append(text, "\n", 1));
    }
    for (int i = 0; i < foreign_default_count; i++)
        if (*foreign_defaults[i].why) {
            TRY(buffer_format(text, "\n`%s` of ", option_table[foreign_defaults[i].option].name));
            TRY(append_tools(text, foreign_defaults[i].tools));
            TRY(buffer_format(text, ": %s.\n", foreign_defaults[i].why));
        }
    return OK;
}

/* The rows of some rules as a table: key, tools, `middle` and the text. */
static enum status append_rules(struct buffer *text, const char *title, const char *middle, const char *last, unsigned rules)
{
    TRY(buffer_format(text, "\n## %s\n\n| key | tools |%s%s%s %s |\n|---|---|%s---|\n", title, *middle ? " " : "", middle,
                      *middle ? " |" : "", last, *middle ? "---|" : ""));
    for (int i = 0; i < foreign_row_count; i++) {
        const struct foreign_row *row = &foreign_rows[i];
        if (!(rules >> row->rule & 1))
            continue;
        TRY(buffer_format(text, "| `%s` | ", row->key));
        TRY(append_tools(text, row->tools));
        if (row->option != OPTIONS)
            TRY(buffer_format(text, " | `%s`", option_table[row->option].name));
        if (row->words)
            TRY(buffer_format(text, " | %s", row->words));
        TRY(buffer_format(text, " | %s |\n", row->text));
    }
    return OK;
}

enum status foreign_markdown(struct buffer *text)
{
    TRY(buffer_append(text, intro, (int64_t)strlen(intro)));
    TRY(append_options(text));
    TRY(append_rules(text, "What is converted", "hone", "how", 1u << RULE_CONVERT | 1u << RULE_READ));
    TRY(append_rules(text, "What hone does otherwise, and says", "", "what it does", 1u << RULE_WARN));
    TRY(append_rules(text, "What may have only some values", "which", "otherwise", 1u << RULE_ONLY | 1u << RULE_METHOD));
    TRY(append_rules(text, "What must be off or absent", "", "the nearest that hone has", 1u << RULE_OFF));
    TRY(append_rules(text, "What only other methods have", "", "which", 1u << RULE_METHOD_OF));
    TRY(append_rules(text, "What is not done", "", "what helps", 1u << RULE_UNDONE));
    return append_rules(text, "What is not needed", "", "why", 1u << RULE_IDLE);
}
