/* Comparing the base of an adapter with the one that it is used with. */
#include "models/adapter_base.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

#define FORM_KEY "hone_base_form"
#define SKETCH_KEY "hone_base_sketch"
#define WEIGHTS_KEY "hone_base_weights"

void adapter_base_pairs(const struct base_digests *digests, const char *pairs[static BASE_PAIRS])
{
    const char *const all[BASE_PAIRS] = {"format",
                                         "pt",
                                         digests ? FORM_KEY : NULL,
                                         digests ? digests->form : NULL,
                                         SKETCH_KEY,
                                         digests ? digests->sketch : NULL,
                                         WEIGHTS_KEY,
                                         digests ? digests->weights : NULL,
                                         NULL};
    memcpy(pairs, all, sizeof all);
}

static bool read_digest(const struct model *m, const char *key, char digest[HASH_TEXT])
{
    const char *text = safetensors_metadata(m->adapter_files, key);
    bool whole = text && strlen(text) == HASH_TEXT - 1;
    if (whole)
        memcpy(digest, text, HASH_TEXT);
    return whole;
}

bool adapter_base_read(const struct model *m, struct base_digests *digests)
{
    return m->adapter_files && read_digest(m, FORM_KEY, digests->form) && read_digest(m, SKETCH_KEY, digests->sketch) &&
           read_digest(m, WEIGHTS_KEY, digests->weights);
}

static bool is_of_digest(struct digest digest, const char *text)
{
    char is[HASH_TEXT];
    digest_text(digest, is);
    return strcmp(is, text) == 0;
}

/* --- names -------------------------------------------------------------------------------------------------------------- */

/* Whether the last parts of two paths or names are the same, in any case. */
static bool ends_same(const char *a, const char *b)
{
    size_t i = strlen(a), k = strlen(b);
    while (i && a[i - 1] == '/')
        i--;
    while (k && b[k - 1] == '/')
        k--;
    while (i && k && a[i - 1] != '/' && tolower((unsigned char)a[i - 1]) == tolower((unsigned char)b[k - 1])) {
        i--;
        k--;
    }
    return (!i || a[i - 1] == '/') && (!k || b[k - 1] == '/');
}

static void compare_base_names(const struct model *m, const struct base_asked *asked)
{
    const char *was = m->adapter.base_model;
    if (!was || file_same(was, asked->model) || ends_same(was, asked->model) ||
        (asked->hub_name && ends_same(was, asked->hub_name)))
        return;
    log_message(LOG_WARNING,
                "%s: was made for a model called %.200s, and has no digest of its weights: whether %s is the same model is not "
                "known",
                m->adapter_path, was, asked->model);
}

/* --- weights ------------------------------------------------------------------------------------------------------------ */

static const char *made_for(const struct model *m)
{
    return m->adapter.base_model ? m->adapter.base_model : "a model without a name";
}

enum status fail_other_base(const struct model *m, const struct base_asked *asked)
{
    return fail(ERR_ARGUMENT,
                "%s: --model %s has other weights than the adapter was trained on, which were those of %.200s: name that base as "
                "--model, or give --any-base to use the adapter with these",
                m->adapter_path, asked->model, made_for(m));
}

enum status adapter_base_check(const struct model *m, const struct base_asked *asked)
{
    struct base_digests was;
    if (!m->adapter_files || asked->any)
        return OK;
    if (!adapter_base_read(m, &was)) {
        compare_base_names(m, asked);
        return OK;
    }
    if (is_of_digest(weights_form(&m->weights), was.form))
        return is_of_digest(weights_sketch(&m->weights, false), was.sketch) ? OK : fail_other_base(m, asked);
    log_message(LOG_WARNING,
                "%s: was trained on %.200s, whose weights were stored in another form than those of %s: whether they are of the "
                "same model is not known",
                m->adapter_path, made_for(m), asked->model);
    return OK;
}

bool adapter_base_wants(const struct model *m, const struct base_asked *asked, char weights[HASH_TEXT])
{
    struct base_digests was;
    if (asked->any || !adapter_base_read(m, &was) || !is_of_digest(weights_form(&m->weights), was.form))
        return false;
    memcpy(weights, was.weights, HASH_TEXT);
    return true;
}
