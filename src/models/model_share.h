/* What of a model's weights several models of a process may have in one place (tensor/engine_shared.h). */
#ifndef MODELS_MODEL_SHARE_H
#define MODELS_MODEL_SHARE_H

#include "models/model.h"

/* After model_place: marks the frozen matrices of the base that a device copies, and says what decides their bytes. model_attach
 * does it too. A trained weight, an adapter's, and what is small (norms, biases) are a model's own. */
void model_share(struct model *m);

#endif
