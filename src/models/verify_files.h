/* Whether the files of a model or an adapter are those that were written. A checkpoint has their checksums next to them
 * (base/checksums.h); a folder without such a list is taken as it is. */
#ifndef MODELS_VERIFY_FILES_H
#define MODELS_VERIFY_FILES_H

#include "base/status.h"

/* Before the files of `dir` are used; NULL is fine. ERR_FORMAT with the name of the first that the list knows with other bytes,
 * of one that it names and that is missing, or of a file with weights that it does not know. It reads all weights once. What only
 * a resumed run reads, its state, is not compared and may be missing, as may a text for readers. */
enum status verify_files_check(const char *dir);

#endif
