/* The table of kinds, and the names of keys. */
#include "data/keys.h"

#include <string.h>

const struct row_kind_keys row_kinds[ROW_KINDS] = {
    [ROW_MESSAGES] = {"messages", {"messages"}},
    [ROW_PROMPT] = {"prompt and completion", {"prompt", "completion"}},
    [ROW_TEXT] = {"text", {"text"}},
    [ROW_ALPACA] = {"Alpaca", {"instruction", "output"}},
    [ROW_SHAREGPT] = {"ShareGPT", {"conversations"}},
    [ROW_PREFERENCE] = {"preference", {"chosen", "rejected"}},
    [ROW_PAIR] = {"OpenAI's preference", {"input", "preferred_output"}},
};

#define OF(kind) (1u << (kind))
#define ALL (OF(ROW_KINDS) - 1)

/* Keys that kinds have besides, of which the last are looked for in all to refuse the row. */
static const struct {
    const char *key;
    unsigned kinds;
} MORE[] = {{"system", OF(ROW_ALPACA) | OF(ROW_SHAREGPT)},
            {"tools", ALL & ~OF(ROW_TEXT)},
            {"functions", ALL & ~OF(ROW_TEXT)},
            {"input", OF(ROW_ALPACA)},
            {"history", OF(ROW_ALPACA)},
            {"chat_template_kwargs", ALL},
            {"label", ALL},
            {"kto_tag", ALL}};

const char *row_key_name(int number)
{
    for (int k = 0; k < ROW_KINDS; k++)
        for (int i = 0; i < KIND_KEYS && row_kinds[k].key[i]; i++)
            if (number-- == 0)
                return row_kinds[k].key[i];
    return number < (int)(sizeof MORE / sizeof *MORE) ? MORE[number].key : NULL;
}

bool row_key_known(const char *name, int64_t length)
{
    for (int i = 0; row_key_name(i); i++)
        if ((int64_t)strlen(row_key_name(i)) == length && memcmp(row_key_name(i), name, (size_t)length) == 0)
            return true;
    return false;
}

bool row_kind_reads(enum row_kind kind, const char *key)
{
    for (int i = 0; i < KIND_KEYS && row_kinds[kind].key[i]; i++)
        if (strcmp(row_kinds[kind].key[i], key) == 0)
            return true;
    for (size_t i = 0; i < sizeof MORE / sizeof *MORE; i++)
        if (strcmp(MORE[i].key, key) == 0 && MORE[i].kinds & OF(kind))
            return true;
    return kind == ROW_PREFERENCE && strcmp(key, "prompt") == 0;
}
