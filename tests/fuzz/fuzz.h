/* A fuzz target: one function that gives a parser arbitrary bytes and checks its promises.
 *
 * With clang the function is driven by libFuzzer (./run SECONDS); with any compiler replay.c drives it over the files of
 * corpus/NAME/, which is the test fuzz-NAME. A file that once broke a parser is added to the corpus and stays.
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A directory of this process in memory, removed when it ends. */
const char *fuzz_dir(void);

/* Writes fuzz_dir()/name and returns that path, until the next call. */
const char *fuzz_put(const char *name, const void *bytes, size_t size);

/* Where the first zero byte is, or size: it cuts an input in two for the targets that need two texts. */
size_t fuzz_cut(const uint8_t *data, size_t size);

/* What a parser promised; aborts if not. */
#define PROMISE(condition) fuzz_promise((condition), #condition, __FILE__, __LINE__)
void fuzz_promise(int holds, const char *condition, const char *file, int line);

#endif
