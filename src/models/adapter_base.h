/* Which weights an adapter was made for. adapter_config.json has a name; adapter_model.safetensors has digests among its
 * metadata, which PEFT passes over. On other weights of the same shapes an adapter computes something, but not what it was
 * trained to. */
#ifndef MODELS_ADAPTER_BASE_H
#define MODELS_ADAPTER_BASE_H

#include "models/model.h"
#include "models/weights_digest.h"

/* Of a base (models/weights_digest.h). */
struct base_digests {
    char form[HASH_TEXT], sketch[HASH_TEXT], weights[HASH_TEXT];
};

/* What the user named as the base. */
struct base_asked {
    const char *model, *hub_name; /* as it was given; and on the hub, or NULL */
    bool any;                     /* any other will do, and nothing is compared */
};

/* The metadata of an adapter's file, for safetensors_write. `digests` may be NULL: not known. It must outlive the pairs. */
enum { BASE_PAIRS = 9 };
void adapter_base_pairs(const struct base_digests *digests, const char *pairs[static BASE_PAIRS]);

/* Whether the adapter of a model says what its base was. */
bool adapter_base_read(const struct model *m, struct base_digests *digests);

/* ERR_ARGUMENT if the sketch says that the adapter was made for others of the same form; a warning if the form is another, or if
 * there are no digests and the names differ. */
enum status adapter_base_check(const struct model *m, const struct base_asked *asked);

/* The digest that all of the base's weights must have, into `weights`; false: none is known, or it is of another form. */
bool adapter_base_wants(const struct model *m, const struct base_asked *asked, char weights[HASH_TEXT]);

/* The error if they have another one. */
enum status fail_other_base(const struct model *m, const struct base_asked *asked);

#endif
