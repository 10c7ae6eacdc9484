/* A template from its source: tokens, the tree, and the places of its names. */
#include <stdatomic.h>
#include <string.h>

#include "base/file.h"
#include "text/jinja/ast.h"

static enum status parse_source(struct jinja *jinja, const char *source, int64_t length, const char *where, struct token **tokens)
{
    jinja->where = arena_text(&jinja->arena, where, (int64_t)strlen(where));
    if (!jinja->where)
        return ERR_MEMORY;
    TRY(jinja_lex(jinja, source, length, tokens));
    struct parser parser = {.jinja = jinja, .token = *tokens};
    TRY(parse_statements(&parser, &jinja->body));
    return jinja_resolve(jinja);
}

enum status jinja_parse(struct jinja **out, const char *source, int64_t length, const char *where)
{
    *out = NULL;
    if (length > JINJA_SOURCE_MAX)
        return fail(ERR_LIMIT, "%s: a template of %lld bytes; at most %d are read", where, (long long)length, JINJA_SOURCE_MAX);
    struct jinja *jinja = memory_alloc((int64_t)sizeof *jinja);
    if (!jinja)
        return ERR_MEMORY;
    struct token *tokens = NULL;
    jinja->purse = arena_alloc(&jinja->arena, (int64_t)sizeof *jinja->purse);
    if (jinja->purse)
        atomic_init(jinja->purse, jinja_budget_default.steps);
    enum status status = jinja->purse ? parse_source(jinja, source, length, where, &tokens) : ERR_MEMORY;
    memory_free(tokens);
    if (status == OK)
        *out = jinja;
    else
        jinja_free(jinja);
    return status;
}

enum status jinja_parse_file(struct jinja **out, const char *path)
{
    struct buffer source = {0};
    enum status status = file_read(&source, path, JINJA_SOURCE_MAX);
    if (status == OK)
        status = jinja_parse(out, source.data, source.size, path);
    buffer_free(&source);
    return status;
}

void jinja_set_moment(struct jinja *jinja, int64_t moment)
{
    jinja->moment = moment;
}

bool jinja_marks_generation(const struct jinja *jinja)
{
    return jinja->generation;
}

void jinja_free(struct jinja *jinja)
{
    if (!jinja)
        return;
    map_free(&jinja->names);
    arena_free(&jinja->arena);
    memory_free(jinja);
}
