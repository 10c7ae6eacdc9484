/* The table of names. */
#include "models/gguf_names.h"

#include <stdio.h>
#include <string.h>

enum norms { EITHER, BEFORE, AROUND };

static const struct gguf_arch ARCHS[] = {
#define ARCH(model_type, name, permuted, plus_one, norms) {model_type, name, permuted, plus_one, (norms) == AROUND},
#define NAME(norms, model, file)
#include "models/gguf_names.def"
#undef ARCH
#undef NAME
};

static const struct {
    enum norms norms;
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

/* Whether a name is the pattern with a number for "%d", and then ".weight" or another end, which begins at *end. */
static bool matches(const char *pattern, const char *name, int64_t *number, const char **end)
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

static bool translate(const struct gguf_arch *arch, const char *from, bool to_file, char to[static NAME_SIZE])
{
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        int64_t layer;
        const char *end;
        if (NAMES[i].norms != EITHER && (NAMES[i].norms == AROUND) != arch->norms_around)
            continue;
        if (!matches(to_file ? NAMES[i].model : NAMES[i].file, from, &layer, &end) || strchr(end + 1, '.'))
            continue;
        name_fill(to, to_file ? NAMES[i].file : NAMES[i].model, layer, 0, end);
        return true;
    }
    return false;
}

bool gguf_name_in_file(const struct gguf_arch *arch, const char *tensor, char name[static NAME_SIZE])
{
    return translate(arch, tensor, true, name);
}

bool gguf_name_in_model(const struct gguf_arch *arch, const char *name, char tensor[static NAME_SIZE])
{
    return translate(arch, name, false, tensor);
}

int64_t gguf_permuted_heads(const struct gguf_arch *arch, const char *tensor, int64_t heads, int64_t kv_heads)
{
    return !arch->permuted ? 0 : strstr(tensor, ".q_proj.") ? heads : strstr(tensor, ".k_proj.") ? kv_heads : 0;
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
