/* Storing the option that a word means. */
#include <stdio.h>

#include "config/foreign/foreign.h"

bool synonym_asks(const struct word *word, const char *value)
{
    const char *taken = word->takes ? synonym_taken(word, table_truth(value)) : NULL;
    return !taken || *taken;
}

enum status synonym_store(struct options *options, const struct word *word, const char *value, const char *source,
                          bool check_only)
{
    const char *given = word->negated ? "false" : value ? value : "true";
    if (!word->takes)
        return table_store(options, word->row, given, source, check_only);
    const char *taken = synonym_taken(word, given);
    if (!taken)
        taken = synonym_taken(word, table_truth(given));
    if (taken)
        return *taken ? table_store(options, word->row, taken, source, check_only) : OK;
    char name[64], words[WORDS_SIZE];
    snprintf(name, sizeof name, "%.*s", (int)(word->length < 60 ? word->length : 60), word->key);
    synonym_takes(word, words);
    return table_fail_value(source, name, given, word->answer ? word->answer : words);
}
