/* What a run is: its id, and the digests of the base model, of its adapter and of the data that it trains on. A checkpoint
 * has them, so that a run goes on with nothing else than it began with.
 *
 * The id is drawn when a run begins, and kept when it is resumed. The digests are of what is computed with: of the weights'
 * numbers in whatever files they lie, of what is read of config.json, of the rows' tokens and targets in their order.
 */
#ifndef STATE_IDENTITY_H
#define STATE_IDENTITY_H

#include "base/hash.h"
#include "base/status.h"
#include "format/checkpoint_dir.h"

struct adapter_config;
struct data;
struct model;

struct identity {
    char run[RUN_ID_SIZE];
    bool hashed; /* the digests are there: */
    char base[HASH_TEXT], config[HASH_TEXT], data[HASH_TEXT], eval_data[HASH_TEXT];
    char base_form[HASH_TEXT], base_sketch[HASH_TEXT]; /* of the base's weights too, for the adapter (models/adapter_base.h) */
    char adapter[HASH_TEXT];                           /* of ranks, scales and modules, not of weights; empty: there is none */
    char init_adapter[HASH_TEXT];                      /* of the weights that an adapter came with; empty: they are drawn */
};

/* A new run's. */
enum status identity_draw(struct identity *identity);

/* Fills in the digests, once: reads all weights of the base and of an adapter, on all cores. */
enum status identity_hash(struct identity *identity, const struct model *model, const struct adapter_config *adapter,
                          const struct data *data, const struct data *eval_data);

/* The same of only data; and a sketch of a model, which reads its configuration, of each weight of the base its name, its shape
 * and the first bytes, and an adapter as a whole. It tells models apart, not every change of one. */
void identity_of_data(const struct data *data, char text[HASH_TEXT]);
enum status identity_of_base(const struct model *model, char base[HASH_TEXT], char config[HASH_TEXT]); /* and of only a model */
void identity_sketch(const struct model *model, char text[HASH_TEXT]);

#endif
