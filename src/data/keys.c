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

/* Keys that some kinds have besides. */
static const char *const MORE[] = {"system", "tools",  "functions", "input", "history", "chat_template_kwargs",
                                   "label",  "kto_tag"};

const char *row_key_name(int number)
{
    for (int k = 0; k < ROW_KINDS; k++)
        for (int i = 0; i < KIND_KEYS && row_kinds[k].key[i]; i++)
            if (number-- == 0)
                return row_kinds[k].key[i];
    return number < (int)(sizeof MORE / sizeof *MORE) ? MORE[number] : NULL;
}

bool row_key_known(const char *name, int64_t length)
{
    for (int i = 0; row_key_name(i); i++)
        if ((int64_t)strlen(row_key_name(i)) == length && memcmp(row_key_name(i), name, (size_t)length) == 0)
            return true;
    return false;
}
