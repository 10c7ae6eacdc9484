/* The input is the note next to the kernels of a target and, after a zero byte, an entry: the file as it is, or what the file
 * holds under a right hash. No code but that of the target is taken, and none beyond the entry's end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/directory.h"
#include "device/cuda_code.h"
#include "fuzz.h"

enum { TARGET = 89 };

static const char magic[] = "hone-kr1";

static void check_file(struct fuzz_part entry)
{
    struct kernel_cache cache;
    struct digest key = kernel_cache_key((const char *[]){"fuzz"}, 1);
    char name[HASH_TEXT], path[128];
    struct buffer bytes = {0};
    bool found;
    digest_text(key, name);
    snprintf(path, sizeof path, "kernels/%s.kernel", name);
    fuzz_put(path, entry.data, entry.size);
    PROMISE(kernel_cache_open(&cache, fuzz_dir()) == OK);
    PROMISE(kernel_cache_read(&cache, key, &bytes, &found) == OK);
    if (found)
        fuzz_accept();
    PROMISE(!found || bytes.size + 48 == (int64_t)entry.size);
    buffer_free(&bytes);
    kernel_cache_close(&cache);
}

static void check_code(const struct fuzz_part content)
{
    static const struct kernel kernel = {.name = "gemm", .file = "gemm"};
    struct cuda_code code;
    struct buffer put = {0}, got = {0};
    bool found;
    if (cuda_code_open(&code, TARGET, fuzz_dir(), "card") != OK)
        return;
    PROMISE(!code.compiles && code.major >= 0 && code.minor >= 0);
    PROMISE(buffer_append(&put, content.data, (int64_t)content.size) == OK);
    cuda_code_keep(&code, &kernel, "", &put);
    enum status status = cuda_code_get(&code, &kernel, "", &got, &found);
    PROMISE((status == OK) == found);
    if (found) {
        fuzz_accept();
        const char *cubin = cuda_code_module(&got, false), *ptx = cuda_code_module(&got, true);
        PROMISE(got.size == (int64_t)content.size && cubin >= got.data && cubin <= ptx && ptx <= got.data + got.size);
        PROMISE(cuda_check_target("gemm", ptx, got.data + got.size - ptx, TARGET) == OK);
    }
    buffer_free(&put);
    buffer_free(&got);
    cuda_code_close(&code);
}

void fuzz_input(const uint8_t *data, size_t size)
{
    static bool ready;
    if (!ready) {
        PROMISE(directory_make(fuzz_path("kernels")) == OK);
        setenv("HONE_NVRTC_LIBRARY", "none", 1);
        setenv("HONE_CUDA_LIBRARY", "none", 1);
        ready = true;
    }
    struct fuzz_part input = {data, size}, note = fuzz_next(&input);
    fuzz_put("kernels/sm_89.nvrtc", note.data, note.size);
    if (input.size >= sizeof magic - 1 && !memcmp(input.data, magic, sizeof magic - 1))
        check_file(input);
    else
        check_code(input);
}
