/* Calibration: the rates that each kind of work reaches on the present device, as a card (device/gpu_spec.h) that `hone plan
 * --gpu FILE` takes in place of what is assumed. */
#ifndef PERF_CALIBRATE_H
#define PERF_CALIBRATE_H

#include "device/gpu_spec.h"
#include "perf/measure.h"

/* From the last round of measure_profile over these programs. */
void calibrate_card(const struct build *b, const struct profile *p, struct gpu_spec *card);

#endif
