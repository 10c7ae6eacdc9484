/* What a run would take in the other type, bfloat16 or float32: memory by a plan of the same rows, time by a matmul that is
 * measured. Only on a CPU, where people choose between them, and for a model or a run in bfloat16. */
#ifndef JOB_OTHER_DTYPE_H
#define JOB_OTHER_DTYPE_H

#include "job/build.h"

enum { OTHER_DTYPE_WORDS = 384 };

struct other_dtype {
    const char *name; /* "float32"; NULL: there is nothing to choose */
    double seconds, seconds_here;
    char says[OTHER_DTYPE_WORDS]; /* a sentence about the processor and the other type */
};

/* Of a build that is planned and not prepared, whose rows it uses. `peak`: the bytes of the process that this run takes; 0: they
 * are not known, and what is there now is added to the build's. */
enum status other_dtype_measure(struct build *b, int64_t peak, struct other_dtype *other);

/* Whether a run asks for bfloat16 on a processor without units for it, and so warns. */
bool other_dtype_is_slow(const struct build *b);

/* Warns then, with what the other type would take. */
void other_dtype_warn(struct build *b);

#endif
