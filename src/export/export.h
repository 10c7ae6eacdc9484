/* Models and adapters for other programs: written under another name, read back, compared, and only then given their name. */
#ifndef EXPORT_EXPORT_H
#define EXPORT_EXPORT_H

#include "base/json.h"
#include "export/file_type.h"

enum { FILE_TYPE_AUTO = -1 }; /* the type of the model's own weights */

struct export_options {
    const char *model, *adapter; /* directories; the adapter may be NULL */
    const char *hub_name;        /* of the model, or NULL */
    bool any_base;               /* the adapter may be of another base (models/adapter_base.h) */
    const char *output;          /* a file if its name ends in .gguf, else a directory */
    int type;                    /* an enum file_type, or FILE_TYPE_AUTO */
    bool overwrite;
    bool dry; /* checks and reports everything that it would write, and writes nothing */
};

/* Both report the files and their sizes, which are known before the first is written and compared with the disk's room.
 *
 * The model with the adapter's change in its weights, or as it is. */
enum status export_model(const struct export_options *o, json_t **report);

/* Only the adapter: a GGUF adapter, or PEFT's layout. */
enum status export_adapter(const struct export_options *o, json_t **report);

#endif
