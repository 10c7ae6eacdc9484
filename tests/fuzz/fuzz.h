/* A fuzz target: one function that gives a parser arbitrary bytes and checks its promises.
 *
 * With clang libFuzzer drives the function through libfuzzer.c (./run SECONDS); with any compiler replay.c drives it over the
 * files of corpus/NAME/, which is the test fuzz-NAME. A file that once broke a parser is added to the corpus and stays.
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

void fuzz_input(const uint8_t *data, size_t size);

/* So many seeks in an input are enough: one in a packed file reads from its beginning, and few bytes can be many rows. */
enum { FUZZ_SEEKS = 50 };

/* A directory of this process in memory, removed when it ends. */
const char *fuzz_dir(void);

/* fuzz_dir()/name, until the next call; and the same with these bytes in it. */
const char *fuzz_path(const char *name);
const char *fuzz_put(const char *name, const void *bytes, size_t size);

/* Where the first zero byte is, or size: it cuts an input in two for the targets that need two texts. */
size_t fuzz_cut(const uint8_t *data, size_t size);

/* A part of an input. */
struct fuzz_part {
    const uint8_t *data;
    size_t size;
};

/* Takes off the front of an input what is before its first zero byte, and that byte. */
struct fuzz_part fuzz_next(struct fuzz_part *input);

/* Writes a safetensors file: the input as it is or, if it begins with '{', a header and, after a zero byte, the data, so that a
 * mutation of the header need not guess the length before it. */
const char *fuzz_put_safetensors(const char *name, struct fuzz_part input);

/* Says that the parser took the input. replay.c expects it of every file of a corpus whose name begins with "good": else a
 * corpus of an older version of a format would test nothing but the check of the version. */
void fuzz_accept(void);
int fuzz_accepted(void); /* since it was asked before */

/* Of a function that takes an input apart or only checks what a parser has made: libFuzzer need not follow it byte by byte, which
 * takes more time than the parser. */
#ifdef __clang__
#define UNFOLLOWED __attribute__((noinline, no_sanitize("coverage")))
#else
#define UNFOLLOWED
#endif

/* What a parser promised; aborts if not. */
#define PROMISE(condition) fuzz_promise((condition), #condition, __FILE__, __LINE__)
void fuzz_promise(int holds, const char *condition, const char *file, int line);

#endif
