/* Sizes, counts and names as people write them. */
#include "cli/view/quantities.h"

#include <string.h>

const char *cli_bytes(char text[static 32], double bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    int unit = 0;
    for (; bytes >= 1000 && unit < 4; unit++)
        bytes /= 1000;
    snprintf(text, 32, "%.*f %s", unit ? 2 : 0, bytes, units[unit]);
    return text;
}

const char *cli_count(char text[static 32], double n)
{
    static const struct {
        double unit;
        int digits;
        const char *name;
    } sizes[] = {{1e3, 1, "thousand"}, {1e6, 1, "million"}, {1e9, 2, "billion"}};
    snprintf(text, 32, "%.0f", n);
    for (int i = 0; i < 3; i++)
        if (n >= 0.99995 * sizes[i].unit) /* what would be printed as 1000.0 of the smaller unit */
            snprintf(text, 32, "%.*f %s", sizes[i].digits, n / sizes[i].unit, sizes[i].name);
    return text;
}

const char *cli_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static const char *block_name(const json_t *table, size_t i)
{
    const char *name = json_string_value(json_object_get(json_array_get(table, i), "block"));
    return name ? name : "";
}

const char *cli_block(const json_t *table, size_t i)
{
    bool mapped = strcmp(block_name(table, 0), "weights in mapped files") == 0;
    return mapped && strcmp(block_name(table, i), "weights") == 0 ? "other weights" : block_name(table, i);
}
