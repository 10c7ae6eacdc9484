/* Calibration: the rates that each kind of work reaches on the present device, as a card (device/card.h) that `hone plan --gpu
 * FILE` takes in place of what is assumed. */
#ifndef TRAIN_CALIBRATE_H
#define TRAIN_CALIBRATE_H

#include "device/card.h"
#include "train/measure.h"

/* From the last round of measure_profile on this trainer. */
void calibrate_card(const struct trainer *t, const struct profile *p, struct card *card);

#endif
