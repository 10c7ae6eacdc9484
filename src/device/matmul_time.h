/* The time of a matmul on a device, measured within some milliseconds: what one type of weights costs next to another. */
#ifndef DEVICE_MATMUL_TIME_H
#define DEVICE_MATMUL_TIME_H

#include "device/device.h"

/* y = x · wᵀ of 64 rows, 512 numbers in and 512 out: the shortest of some runs. ERR_UNSUPPORTED: not with these types. */
enum status matmul_time(struct device *device, enum dtype x, enum dtype w, double *seconds);

#endif
