/* What is found out about a configuration while it is read, and its keys by name. */
#include "config/foreign/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status foreign_set(struct foreign *f, enum option option, const char *text, const struct yaml_node *node, const char *key)
{
    if (!node && f->values[option].text) /* one of hone's own options in the file */
        return OK;
    const char *source = node ? arena_format(f->arena, "%s:%d (%s)", f->path, node->line, key)
                              : arena_format(f->arena, "%s: the default of %s (%s)", f->path, f->tool->name, key);
    const char *copy = arena_text(f->arena, text, (int64_t)strlen(text));
    if (!source || !copy)
        return ERR_MEMORY;
    f->values[option].text = copy;
    f->values[option].source = source;
    return OK;
}

enum status foreign_set_real(struct foreign *f, enum option option, double x, const struct yaml_node *node, const char *key)
{
    char text[32];
    snprintf(text, sizeof text, "%.15g", x);
    return foreign_set(f, option, text, node, key);
}

enum status foreign_refuse(struct foreign *f, const struct yaml_node *node, const char *key, const char *why)
{
    f->refused_count++;
    if (f->refused.size > FOREIGN_REFUSED_MAX) {
        f->refused_more++;
        return OK;
    }
    TRY(buffer_format(&f->refused, "%s%.60s", f->refused.size ? "; " : "", key));
    if (node->kind == YAML_SCALAR)
        TRY(buffer_format(&f->refused, ": %.40s", node->text));
    return buffer_format(&f->refused, " (line %d)%s%.200s", node->line, *why ? ": " : "", why);
}

enum status foreign_say(struct foreign *f, const char *key, const char *value, const char *what)
{
    return buffer_format(&f->said, "changed: %.60s%s%.40s: %s\n", key, *value ? ": " : "", value, what);
}

const struct yaml_node *foreign_find(const struct foreign *f, const char *key)
{
    const struct yaml_node *node = f->root;
    while (node) {
        char part[FOREIGN_KEY_SIZE];
        size_t n = strcspn(key, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, key);
        node = yaml_member(node, part);
        if (!key[n])
            break;
        key += n + 1;
    }
    return node && node->kind != YAML_NULL ? node : NULL;
}

const char *foreign_text(const struct foreign *f, const char *key, const char *otherwise)
{
    const struct yaml_node *node = foreign_find(f, key);
    return node && node->kind == YAML_SCALAR ? node->text : otherwise;
}

double foreign_number(const struct foreign *f, const char *key, double otherwise)
{
    const char *text = foreign_text(f, key, NULL);
    char *end;
    double x = text ? strtod(text, &end) : otherwise;
    return text && (end == text || *end) ? otherwise : x;
}

bool foreign_in_words(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = words; *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == length && strncasecmp(at, word, length) == 0)
            return true;
    return false;
}

bool foreign_is_true(const struct foreign *f, const char *key)
{
    return foreign_in_words("true,yes,on", foreign_text(f, key, ""));
}

bool foreign_is_off(const struct yaml_node *node)
{
    switch (node->kind) {
    case YAML_NULL: return true;
    case YAML_SCALAR: {
        char *end;
        bool zero = strtod(node->text, &end) == 0 && end != node->text && !*end;
        return !*node->text || zero || foreign_in_words("false,no,off,none", node->text);
    }
    default: return !node->first;
    }
}

enum status foreign_append(struct foreign *f, struct foreign_list *l, const char *text, int64_t length)
{
    int64_t needed = l->size + length + 1;
    if (needed > FOREIGN_JOINED_MAX)
        return fail(ERR_LIMIT, "%s: its lists make more than %d MB of paths or names: that is no configuration", f->path,
                    FOREIGN_JOINED_MAX >> 20);
    if (needed > l->room) {
        int64_t room = 2 * needed;
        char *larger = arena_array(f->arena, room, 1);
        if (!larger)
            return ERR_MEMORY;
        if (l->size)
            memcpy(larger, l->text, (size_t)l->size);
        l->text = larger;
        l->room = room;
    }
    memcpy(l->text + l->size, text, (size_t)length);
    l->size += length;
    l->text[l->size] = 0;
    return OK;
}

enum status foreign_join(struct foreign *f, struct foreign_list *l, const char *text, int64_t length)
{
    if (l->size)
        TRY(foreign_append(f, l, ",", 1));
    return foreign_append(f, l, text, length);
}

enum status foreign_leave(struct foreign *f, const char *key, const char *value, const char *helps)
{
    struct foreign_undone **at = &f->undone;
    char text[FOREIGN_KEY_SIZE];
    while (*at && strcmp((*at)->helps, helps) != 0)
        at = &(*at)->next;
    if (!*at) {
        *at = arena_alloc(f->arena, sizeof **at);
        if (!*at)
            return ERR_MEMORY;
        **at = (struct foreign_undone){.helps = helps};
    }
    snprintf(text, sizeof text, "%s%.60s%s%.40s", (*at)->keys.size ? " " : "", key, *value ? ": " : "", value);
    return foreign_join(f, &(*at)->keys, text, (int64_t)strlen(text));
}

enum status foreign_joined(struct foreign *f, const struct yaml_node *node, const char **text)
{
    struct foreign_list list = {0};
    *text = node->kind == YAML_SCALAR || node->kind == YAML_LIST ? node->text : NULL;
    for (const struct yaml_node *n = node->kind == YAML_LIST ? node->first : NULL; n; n = n->next) {
        if (n->kind != YAML_SCALAR) {
            *text = NULL;
            return OK;
        }
        TRY(foreign_join(f, &list, n->text, (int64_t)strlen(n->text)));
        *text = list.text;
    }
    return OK;
}
