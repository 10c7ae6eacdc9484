/* The table of names. */
#include "models/gguf_names.h"

#include <stdio.h>
#include <string.h>

enum layout { EITHER, BEFORE, AROUND, FUSED };

static const struct gguf_arch ARCHS[] = {
#define ARCH(model_type, name, permuted, plus_one, norms) {model_type, name, permuted, plus_one, norms},
#define NAME(norms, model, file)
#include "models/gguf_names.def"
#undef ARCH
#undef NAME
};

static const struct {
    enum layout norms;
    const char *model, *file;
} NAMES[] = {
#define ARCH(...)
#define NAME(norms, model, file) {norms, model, file},
#include "models/gguf_names.def"
#undef ARCH
#undef NAME
};

const struct gguf_arch *gguf_arch_of(const char *model_type)
{
    for (size_t i = 0; i < sizeof ARCHS / sizeof *ARCHS; i++)
        if (!strcmp(ARCHS[i].model_type, model_type))
            return &ARCHS[i];
    return NULL;
}

const struct gguf_arch *gguf_arch_named(const char *name, char *known, size_t size)
{
    const struct gguf_arch *found = NULL;
    *known = 0;
    for (size_t i = sizeof ARCHS / sizeof *ARCHS; i-- > 0;) {
        found = !strcmp(ARCHS[i].name, name) ? &ARCHS[i] : found;
        size_t used = strlen(known);
        if (i == 0 || strcmp(ARCHS[i].name, ARCHS[i - 1].name) != 0)
            snprintf(known + used, size - used, "%s%s", used ? ", " : "", ARCHS[i].name);
    }
    return found;
}

/* Whether a name is the pattern with a number for "%d", and then ".weight" or another end, which begins at *end. */
static bool gguf_names_matches(const char *pattern, const char *name, int64_t *number, const char **end)
{
    *number = 0;
    for (; *pattern; pattern++) {
        if (*pattern != '%') {
            if (*pattern != *name++)
                return false;
            continue;
        }
        pattern++;
        if (*name < '0' || *name > '9')
            return false;
        for (; *name >= '0' && *name <= '9' && *number < INT32_MAX; name++)
            *number = 10 * *number + (*name - '0');
    }
    *end = name;
    return *name == '.';
}

static bool gguf_names_applies(enum layout to, int arch)
{
    return to == EITHER || (int)to == arch || (to == BEFORE && arch == FUSED);
}

static bool gguf_names_translate(const struct gguf_arch *arch, const char *from, bool to_file, char to[static NAME_SIZE])
{
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        int64_t layer;
        const char *end;
        if (!gguf_names_applies(NAMES[i].norms, arch->norms))
            continue;
        if (!gguf_names_matches(to_file ? NAMES[i].model : NAMES[i].file, from, &layer, &end) || strchr(end + 1, '.'))
            continue;
        name_fill(to, to_file ? NAMES[i].file : NAMES[i].model, layer, 0, end);
        return true;
    }
    return false;
}

bool gguf_name_in_file(const struct gguf_arch *arch, const char *tensor, char name[static NAME_SIZE])
{
    return gguf_names_translate(arch, tensor, true, name);
}

bool gguf_name_in_model(const struct gguf_arch *arch, const char *name, char tensor[static NAME_SIZE])
{
    return gguf_names_translate(arch, name, false, tensor);
}

int64_t gguf_permuted_heads(const struct gguf_arch *arch, const char *tensor, int64_t heads, int64_t kv_heads)
{
    return !arch->permuted ? 0 : strstr(tensor, ".q_proj.") ? heads : strstr(tensor, ".k_proj.") ? kv_heads : 0;
}

enum status gguf_check_heads(const char *tensor, int64_t rows, int64_t heads)
{
    if (!heads || (rows > 0 && rows % (2 * heads) == 0))
        return OK;
    return fail(ERR_FORMAT, "tensor %s has %lld rows, which cannot be %lld heads", tensor, (long long)rows, (long long)heads);
}

int64_t gguf_permuted_row(int64_t row, int64_t rows, int64_t heads)
{
    int64_t size = rows / heads, head = row / size, channel = row % size;
    return head * size + channel % 2 * (size / 2) + channel / 2;
}

bool gguf_adds_one(const struct gguf_arch *arch, const char *tensor)
{
    return arch->norms_plus_one && (strstr(tensor, "norm.weight") != NULL);
}
