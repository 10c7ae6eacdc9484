/* Which instructions of the processor hone uses: the best of isa.def that the processor and the system have, or less by
 * HONE_ISA. It is found once; other processors than x86-64 have ISA_plain. */
#ifndef BASE_ISA_H
#define BASE_ISA_H

#include <stdbool.h>

#include "base/status.h"

enum isa {
#define ISA(name, called) ISA_##name,
#include "base/isa.def"
#undef ISA
    ISA_COUNT,
};

enum isa isa(void);
const char *isa_name(enum isa isa);   /* as HONE_ISA has it */
const char *isa_called(enum isa isa); /* as people have it */

/* Whether HONE_ISA is set; an unknown name fails, and so does one that the processor does not have. */
enum status isa_limit(bool *limited);

#endif
