/* Compiling a kernel, checking its code, and keeping it in the cache. */
#include "device/cuda_code.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/log.h"

enum { LOG_MAX = 1500, OPTIONS_MAX = 64, TARGETS_MAX = 128, TARGET_MIN = 75, NOTE_MAX = 32 };

struct head { /* an entry of the cache: this, then the cubin, then the PTX with its zero byte */
    int64_t target, cubin_bytes, ptx_bytes;
};

/* --- targets ------------------------------------------------------------------------------------------------------------ */

/* The first CUDA release with a target. */
static const char *release_of(int target)
{
    static const struct {
        int target;
        const char *release;
    } known[] = {{75, "12.0"},  {80, "12.0"},  {86, "12.0"},  {87, "12.0"},  {89, "12.0"}, {90, "12.0"},
                 {100, "12.8"}, {120, "12.8"}, {103, "12.9"}, {121, "12.9"}, {88, "13.0"}, {110, "13.0"}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].target == target)
            return known[i].release;
    return NULL;
}

/* The compiler's targets, and their list as text: "sm_75, sm_80". */
static enum status known_targets(int targets[TARGETS_MAX], int *count, char words[1024])
{
    int at = 0;
    if (cu.nvrtcGetNumSupportedArchs(count) || *count < 1 || *count > TARGETS_MAX || cu.nvrtcGetSupportedArchs(targets))
        return fail(ERR_DEVICE, "NVRTC does not report which devices it compiles for: pip install --upgrade nvidia-cuda-nvrtc%s",
                    cuda_wheel_end());
    *words = 0;
    for (int i = 0; i < *count && at < 1000; i++)
        if (targets[i] >= TARGET_MIN)
            at += snprintf(words + at, (size_t)(1024 - at), "%ssm_%d", at ? ", " : "", targets[i]);
    return OK;
}

static enum status knows_target(const struct cuda_code *c, const char *card)
{
    int count, targets[TARGETS_MAX];
    char words[1024];
    TRY(known_targets(targets, &count, words));
    for (int i = 0; i < count; i++)
        if (targets[i] == c->target)
            return OK;
    if (!card)
        return fail(ERR_ARGUMENT, "NVRTC %d.%d cannot compile for sm_%d; it knows %s", c->major, c->minor, c->target, words);
    const char *release = release_of(c->target);
    char needed[64];
    snprintf(needed, sizeof needed, release ? "of CUDA %s or later" : "that is newer than this one", release);
    return fail(ERR_DEVICE,
                "NVRTC %d.%d cannot compile for %s (sm_%d): one %s is needed, pip install --upgrade nvidia-cuda-nvrtc%s",
                c->major, c->minor, card, c->target, needed, cuda_wheel_end());
}

enum status cuda_code_target(const char *text, int64_t length, int *target)
{
    int major, minor, count, targets[TARGETS_MAX], end = 0;
    char words[1024], name[16] = "";
    if (length < (int64_t)sizeof name)
        memcpy(name, text, (size_t)length);
    if (sscanf(name, "sm_%3d%n", target, &end) == 1 && !name[end] && *target >= TARGET_MIN)
        return OK;
    TRY(cuda_load_nvrtc(&major, &minor));
    TRY(known_targets(targets, &count, words));
    return fail(ERR_ARGUMENT, "'%.*s' is not a target that hone compiles for; NVRTC %d.%d knows %s",
                (int)(length < 64 ? length : 64), text, major, minor, words);
}

/* sm_<n> of PTX or of a cubin, as text; "" if it is neither. */
static void target_of(const void *code, int64_t bytes, char text[32])
{
    const unsigned char *cubin = code;
    *text = 0;
    if (bytes >= 64 && !memcmp(cubin, "\177ELF", 4)) {
        uint32_t flags; /* e_flags; the place of the target in it depends on the ABI's version */
        memcpy(&flags, cubin + 48, sizeof flags);
        snprintf(text, 32, "sm_%u", cubin[8] >= 8 ? flags >> 8 & 0xff : flags & 0xff);
        return;
    }
    const char *ptx = code, *end = memchr(code, 0, (size_t)bytes), *at = end ? strstr(ptx, ".target ") : NULL;
    if (at)
        snprintf(text, 32, "%.*s", (int)strcspn(at + 8, " ,\t\r\n"), at + 8);
}

enum status cuda_check_target(const char *kernel, const void *code, int64_t bytes, int target)
{
    char want[32], have[32];
    snprintf(want, sizeof want, "sm_%d", target);
    target_of(code, bytes, have);
    if (!strcmp(want, have))
        return OK;
    return fail(ERR_DEVICE, "kernel %s is code for %s, the device is %s: not loaded", kernel, *have ? have : "nothing known",
                want);
}

/* --- opening ------------------------------------------------------------------------------------------------------------ */

/* Next to the entries: the version of the compiler that made those of a target. */
static const char *note_path(const struct kernel_cache *cache, int target, struct arena *arena)
{
    return arena_format(arena, "%s/sm_%d.nvrtc", cache->dir, target);
}

static void read_note(struct code_place *place, int target)
{
    struct arena arena = {0};
    struct buffer note = {0};
    const char *path = place->cache.dir ? note_path(&place->cache, target, &arena) : NULL;
    bool read = path && file_exists(path) && file_read(&note, path, NOTE_MAX) == OK &&
                sscanf(note.data, "%4d.%4d", &place->major, &place->minor) == 2 && place->major > 0 && place->minor >= 0;
    if (!read)
        place->major = place->minor = 0;
    buffer_free(&note);
    arena_free(&arena);
}

enum status cuda_code_note(const struct cuda_code *c)
{
    const struct kernel_cache *cache = &c->place[CODE_CACHE].cache;
    struct arena arena = {0};
    char text[NOTE_MAX];
    int length = snprintf(text, sizeof text, "%d.%d\n", c->major, c->minor);
    const char *path = note_path(cache, c->target, &arena);
    enum status status = path ? directory_make(cache->dir) : ERR_MEMORY;
    if (status == OK)
        status = file_replace(path, text, length);
    arena_free(&arena);
    return status;
}

/* Without a compiler: what the places have. `missing` is the answer if none has any. */
static enum status use_notes(struct cuda_code *c, enum status missing)
{
    c->major = c->minor = 0;
    for (int i = 0; i < CODE_PLACES; i++) {
        struct code_place *p = &c->place[i];
        read_note(p, c->target);
        enum status status = !p->major ? missing
                                       : cuda_check_release("the NVRTC that made the cache's kernels", p->cache.dir, p->major,
                                                            p->minor, "nvidia-cuda-nvrtc");
        if (status != OK) {
            missing = status;
            p->major = p->minor = 0;
        } else if (!c->major) {
            c->major = p->major;
            c->minor = p->minor;
        }
    }
    return c->major ? OK : missing;
}

/* With one: entries that the same version has made. */
static enum status use_compiler(struct cuda_code *c, const char *card)
{
    c->compiles = true;
    for (int i = 0; i < CODE_PLACES; i++) {
        c->place[i].major = c->major;
        c->place[i].minor = c->minor;
    }
    return knows_target(c, card);
}

enum status cuda_code_open(struct cuda_code *c, int target, const char *dir, const char *card)
{
    *c = (struct cuda_code){.target = target};
    if (target < TARGET_MIN)
        return fail(ERR_DEVICE, "%s has compute capability %d.%d, hone needs 7.5 or later: use --device cpu",
                    card ? card : "the target", target / 10, target % 10);
    enum status status = kernel_cache_open(&c->place[CODE_CACHE].cache, dir);
    if (status == OK && !dir)
        status = kernel_cache_open_installed(&c->place[CODE_INSTALLED].cache);
    if (status == OK) {
        status = cuda_load_nvrtc(&c->major, &c->minor);
        if (status == OK)
            status = use_compiler(c, card);
        else if (status == ERR_DEVICE)
            status = use_notes(c, status);
    }
    if (status != OK)
        cuda_code_close(c);
    return status;
}

void cuda_code_close(struct cuda_code *c)
{
    for (int i = 0; i < CODE_PLACES; i++)
        kernel_cache_close(&c->place[i].cache);
}

/* --- compiling ---------------------------------------------------------------------------------------------------------- */

/* Splits `text` in place: options are separated by blanks. */
static int cuda_code_split(char *text, const char *options[OPTIONS_MAX])
{
    int count = 0;
    for (char *at = text; *at && count < OPTIONS_MAX;) {
        at += strspn(at, " ");
        size_t length = strcspn(at, " ");
        if (length)
            options[count++] = at;
        at += length;
        if (*at)
            *at++ = 0;
    }
    return count;
}

static enum status compile_failed(nvrtcProgram program, const struct kernel *kernel, int code)
{
    size_t size = 0;
    struct buffer words = {0};
    if (cu.nvrtcGetProgramLogSize(program, &size) == 0 && size && buffer_reserve(&words, (int64_t)size + 1) == OK &&
        cu.nvrtcGetProgramLog(program, words.data) == 0)
        words.data[size] = 0;
    enum status status =
        fail(ERR_DEVICE, "NVRTC cannot compile kernel %s (%d): %.*s", kernel->name, code, LOG_MAX, words.data ? words.data : "");
    buffer_free(&words);
    return status;
}

static enum status take_code(const struct cuda_code *c, nvrtcProgram program, const struct kernel *kernel, struct buffer *entry)
{
    size_t cubin = 0, ptx = 0;
    if (cu.nvrtcGetCUBINSize(program, &cubin) || !cubin || cu.nvrtcGetPTXSize(program, &ptx) || !ptx)
        return fail(ERR_DEVICE, "NVRTC made no code for kernel %s", kernel->name);
    struct head head = {c->target, (int64_t)cubin, (int64_t)ptx};
    TRY(buffer_append(entry, &head, (int64_t)sizeof head));
    TRY(buffer_reserve(entry, (int64_t)(cubin + ptx)));
    if (cu.nvrtcGetCUBIN(program, entry->data + entry->size) || cu.nvrtcGetPTX(program, entry->data + entry->size + cubin))
        return fail(ERR_DEVICE, "NVRTC does not give the code of kernel %s", kernel->name);
    entry->size += (int64_t)(cubin + ptx);
    return OK;
}

static enum status cuda_code_compile(const struct cuda_code *c, const struct kernel *kernel, const char *options,
                                     struct buffer *entry)
{
    char text[KERNEL_OPTIONS + 64], name[64];
    const char *each[OPTIONS_MAX];
    nvrtcProgram program;
    double start = clock_seconds();
    const char *cache = c->place[CODE_CACHE].cache.dir;
    if (!c->compiles)
        return fail(ERR_DEVICE,
                    "kernel %s is not in the cache (%s), and there is no NVRTC here that could compile it: pip install "
                    "nvidia-cuda-nvrtc%s, or make it elsewhere with the options of this run: hone kernels build --target sm_%d",
                    kernel->name, cache ? cache : "there is none", cuda_wheel_end(), c->target);
    log_message(LOG_DEBUG, "kernel %s is compiled: %s", kernel->name, options);
    snprintf(text, sizeof text, "%s", options);
    snprintf(name, sizeof name, "%s.kl", kernel->file);
    if (cu.nvrtcCreateProgram(&program, kernel_text(kernel->file), name, 0, NULL, NULL))
        return fail(ERR_DEVICE, "NVRTC cannot start on kernel %s", kernel->name);
    int code = cu.nvrtcCompileProgram(program, cuda_code_split(text, each), each);
    enum status status = code ? compile_failed(program, kernel, code) : take_code(c, program, kernel, entry);
    cu.nvrtcDestroyProgram(&program);
    if (status == OK)
        log_message(LOG_DEBUG, "kernel %s compiled in %.2f s", kernel->name, clock_seconds() - start);
    return status;
}

/* --- entries ------------------------------------------------------------------------------------------------------------ */

static bool cuda_code_is_entry(const struct buffer *entry, struct head *head)
{
    if (entry->size < (int64_t)sizeof *head)
        return false;
    memcpy(head, entry->data, sizeof *head);
    int64_t left = entry->size - (int64_t)sizeof *head;
    return head->cubin_bytes >= 0 && head->cubin_bytes <= left && head->ptx_bytes == left - head->cubin_bytes;
}

/* Checks the form and the target of an entry: the target that NVRTC was asked for, and that of the PTX. The cubin was made from
 * it. Where its header, whose layout NVIDIA may change, says otherwise, hone may have misread it: the driver decides. */
static enum status check_entry(const struct cuda_code *c, const struct kernel *kernel, const struct buffer *entry, bool made_now)
{
    struct head head;
    if (!cuda_code_is_entry(entry, &head))
        return fail(ERR_DEVICE, "kernel %s: its cache entry is malformed", kernel->name);
    const char *cubin = entry->data + sizeof head;
    TRY(cuda_check_target(kernel->name, cubin + head.cubin_bytes, head.ptx_bytes, c->target));
    if (head.target != c->target)
        return fail(ERR_DEVICE, "kernel %s is code for sm_%d, the device is sm_%d: not loaded", kernel->name, (int)head.target,
                    c->target);
    if (made_now && cuda_check_target(kernel->name, cubin, head.cubin_bytes, c->target) != OK)
        log_message(LOG_WARNING,
                    "NVRTC %d.%d was asked for sm_%d, and hone does not find that in the header of what it made (%s); "
                    "the driver decides, or --cuda-code ptx",
                    c->place[CODE_CACHE].major, c->place[CODE_CACHE].minor, c->target, status_message());
    return OK;
}

const char *cuda_code_module(const struct buffer *entry, bool ptx)
{
    struct head head;
    memcpy(&head, entry->data, sizeof head);
    return entry->data + sizeof head + (ptx ? head.cubin_bytes : 0);
}

/* Everything that decides the result of a compilation; `all` becomes the compiler's options. */
static struct digest cuda_code_key_of(const struct cuda_code *c, const struct code_place *place, const struct kernel *kernel,
                                      const char *options, char all[KERNEL_OPTIONS + 64])
{
    char target[16], version[32];
    snprintf(target, sizeof target, "sm_%d", c->target);
    snprintf(all, KERNEL_OPTIONS + 64, "%s --gpu-architecture=%s", options, target);
    snprintf(version, sizeof version, "%d.%d", place->major, place->minor);
    return kernel_cache_key((const char *[]){"cuda", kernel_text(kernel->file), all, target, version}, 5);
}

/* The entry, in the first place that has it. A wrong one is logged and counts as not found. */
static enum status cuda_code_find(const struct cuda_code *c, const struct kernel *kernel, const char *options,
                                  struct buffer *entry, bool *found)
{
    char all[KERNEL_OPTIONS + 64];
    *found = false;
    for (int i = 0; i < CODE_PLACES && !*found; i++) {
        const struct code_place *p = &c->place[i];
        if (p->major)
            TRY(kernel_cache_read(&p->cache, cuda_code_key_of(c, p, kernel, options, all), entry, found));
        if (*found && check_entry(c, kernel, entry, false) != OK) {
            log_message(LOG_WARNING, "%s; it is compiled again", status_message());
            *found = false;
            entry->size = 0;
        }
    }
    return OK;
}

enum status cuda_code_has(const struct cuda_code *c, const struct kernel *kernel, const char *options, bool *found)
{
    struct buffer entry = {0};
    enum status status = cuda_code_find(c, kernel, options, &entry, found);
    buffer_free(&entry);
    return status;
}

enum status cuda_code_get(struct cuda_code *c, const struct kernel *kernel, const char *options, struct buffer *entry,
                          bool *found)
{
    char all[KERNEL_OPTIONS + 64];
    TRY(cuda_code_find(c, kernel, options, entry, found));
    if (*found)
        return OK;
    cuda_code_key_of(c, &c->place[CODE_CACHE], kernel, options, all);
    TRY(cuda_code_compile(c, kernel, all, entry));
    return check_entry(c, kernel, entry, true);
}

void cuda_code_keep(const struct cuda_code *c, const struct kernel *kernel, const char *options, const struct buffer *entry)
{
    char all[KERNEL_OPTIONS + 64];
    const struct code_place *own = &c->place[CODE_CACHE];
    kernel_cache_write(&own->cache, cuda_code_key_of(c, own, kernel, options, all), entry->data, entry->size);
}
