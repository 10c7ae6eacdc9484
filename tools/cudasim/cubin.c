/* See cubin.h. The layout of .nv.info is not documented by NVIDIA: the numbers here are what NVRTC 12 and 13 write. */
#include "cubin.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>

enum { MACHINE = 190, HAS_HALF = 3, HAS_BYTES = 4 }; /* of an attribute: 16 bits in place of a size, or that many bytes */
enum { MAX_THREADS = 0x05, PARAMETER = 0x17, PARAMETER_BYTES = 0x19 }; /* attributes of a kernel */

bool cubin_is(const void *image)
{
    return !memcmp(image, ELFMAG, SELFMAG);
}

static const Elf64_Ehdr *header(const unsigned char *image)
{
    return (const Elf64_Ehdr *)(const void *)image;
}

static const Elf64_Shdr *section(const unsigned char *image, size_t i)
{
    return (const Elf64_Shdr *)(const void *)(image + header(image)->e_shoff) + i;
}

static const char *section_name(const unsigned char *image, const Elf64_Shdr *s)
{
    return (const char *)image + section(image, header(image)->e_shstrndx)->sh_offset + s->sh_name;
}

static const Elf64_Shdr *find(const unsigned char *image, const char *prefix, const char *name)
{
    size_t length = strlen(prefix);
    for (size_t i = 1; i < header(image)->e_shnum; i++) {
        const char *text = section_name(image, section(image, i));
        if (!strncmp(text, prefix, length) && !strcmp(text + length, name))
            return section(image, i);
    }
    return NULL;
}

static uint64_t end_of_file(const unsigned char *image)
{
    const Elf64_Ehdr *e = header(image);
    uint64_t end = sizeof *e,
             tables[] = {e->e_shoff + (uint64_t)e->e_shnum * e->e_shentsize, e->e_phoff + (uint64_t)e->e_phnum * e->e_phentsize};
    for (size_t i = 0; i < 2; i++)
        end = tables[i] > end ? tables[i] : end;
    for (size_t i = 0; i < e->e_shnum; i++) {
        const Elf64_Shdr *s = section(image, i);
        uint64_t last = s->sh_type == SHT_NOBITS ? 0 : s->sh_offset + s->sh_size;
        end = last > end ? last : end;
    }
    return end;
}

CUresult cubin_open(const unsigned char *image, const char **ptx)
{
    const Elf64_Ehdr *e = header(image);
    int version, target;
    char suffix;
    if (e->e_machine != MACHINE || e->e_ident[EI_CLASS] != ELFCLASS64)
        return state_report(CUDA_ERROR_INVALID_IMAGE, "cuModuleLoadData: an ELF file for machine %d is not a cubin",
                            e->e_machine);
    target = (int)(e->e_ident[EI_ABIVERSION] >= 8 ? e->e_flags >> 8 & 255 : e->e_flags & 255);
    if (target != state_capability())
        return state_report(CUDA_ERROR_NO_BINARY_FOR_GPU, "cuModuleLoadData: a cubin for sm_%d on a device of sm_%d", target,
                            state_capability());
    if (e->e_shnum < 2 || e->e_shentsize != sizeof(Elf64_Shdr) || e->e_shstrndx >= e->e_shnum)
        return state_report(CUDA_ERROR_INVALID_IMAGE, "cuModuleLoadData: a cubin without sections");
    *ptx = (const char *)image + end_of_file(image);
    if (memcmp(*ptx, "//", 2) != 0 || !ptx_target(*ptx, &version, &target, &suffix))
        return state_report(CUDA_ERROR_NOT_SUPPORTED,
                            "cuModuleLoadData: no PTX lies after the cubin, and the simulator executes no machine code");
    if (target != state_capability())
        return state_report(CUDA_ERROR_INVALID_IMAGE, "cuModuleLoadData: the PTX after a cubin for sm_%d is for sm_%d",
                            state_capability(), target);
    return CUDA_SUCCESS;
}

static bool is_function(const unsigned char *image, const char *name)
{
    const Elf64_Shdr *table = find(image, ".symtab", "");
    if (!table || table->sh_link >= header(image)->e_shnum)
        return false;
    const Elf64_Sym *symbol = (const Elf64_Sym *)(const void *)(image + table->sh_offset);
    const char *names = (const char *)image + section(image, table->sh_link)->sh_offset;
    for (size_t i = 0; i < table->sh_size / sizeof *symbol; i++)
        if (ELF64_ST_TYPE(symbol[i].st_info) == STT_FUNC && ELF64_ST_BIND(symbol[i].st_info) == STB_GLOBAL &&
            !strcmp(names + symbol[i].st_name, name))
            return true;
    return false;
}

struct seen {
    uint32_t params, bytes, threads;
    char wrong[160];
};

/* {index, number, offset, size in the upper bits} */
static void see_parameter(struct seen *s, const struct kernel *k, const uint8_t *bytes)
{
    uint16_t number, offset;
    uint32_t size;
    memcpy(&number, bytes + 4, 2);
    memcpy(&offset, bytes + 6, 2);
    memcpy(&size, bytes + 8, 4);
    size >>= 18;
    s->params++;
    if (number >= k->param_count)
        snprintf(s->wrong, sizeof s->wrong, "parameter %d in the cubin, the PTX has %u", number, k->param_count);
    else if (k->params[number].offset != offset || k->params[number].size != size)
        snprintf(s->wrong, sizeof s->wrong, "parameter %d has %u bytes at %d in the cubin, %u at %u in the PTX", number, size,
                 offset, k->params[number].size, k->params[number].offset);
}

static void see_attributes(struct seen *s, const struct kernel *k, const uint8_t *at, const uint8_t *end)
{
    while (end - at >= 4) {
        uint8_t form = at[0], attribute = at[1];
        uint32_t half = (uint32_t)(at[2] | at[3] << 8), bytes = form == HAS_BYTES ? half : 0;
        at += 4;
        if ((uint64_t)(end - at) < bytes)
            return;
        if (form == HAS_BYTES && attribute == PARAMETER && bytes == 12)
            see_parameter(s, k, at);
        if (form == HAS_HALF && attribute == PARAMETER_BYTES)
            s->bytes = half;
        if (form == HAS_BYTES && attribute == MAX_THREADS && bytes == 12) {
            uint32_t d[3];
            memcpy(d, at, 12);
            s->threads = d[0] * d[1] * d[2];
        }
        at += bytes;
    }
}

CUresult cubin_check(const unsigned char *image, struct ptx *ptx)
{
    for (uint32_t i = 0; i < ptx->kernel_count; i++) {
        struct kernel *k = &ptx->kernels[i];
        struct seen s = {.wrong = ""};
        const Elf64_Shdr *code = find(image, ".text.", k->name), *info = find(image, ".nv.info.", k->name);
        if (!is_function(image, k->name) || !code || !info)
            return state_report(CUDA_ERROR_INVALID_IMAGE, "cuModuleLoadData: kernel %s of the PTX is not in the cubin", k->name);
        see_attributes(&s, k, image + info->sh_offset, image + info->sh_offset + info->sh_size);
        if (!s.wrong[0] && (s.params != k->param_count || s.bytes != k->param_bytes))
            snprintf(s.wrong, sizeof s.wrong, "%u parameters of %u bytes in the cubin, %u of %u in the PTX", s.params, s.bytes,
                     k->param_count, k->param_bytes);
        if (!s.wrong[0] && k->max_threads && s.threads != k->max_threads)
            snprintf(s.wrong, sizeof s.wrong, "launch bounds of %u threads in the cubin, %u in the PTX", s.threads,
                     k->max_threads);
        if (s.wrong[0])
            return state_report(CUDA_ERROR_INVALID_IMAGE, "cuModuleLoadData: kernel %s: %s", k->name, s.wrong);
        k->registers = code->sh_info >> 24;
    }
    return CUDA_SUCCESS;
}
