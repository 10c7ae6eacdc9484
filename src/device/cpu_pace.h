/* How long the matmuls of the CPU device take at best: the limit that no step of a run on it can beat. */
#ifndef DEVICE_CPU_PACE_H
#define DEVICE_CPU_PACE_H

#include "device/device.h"

/* Seconds of all matmuls that were run so far, each counted as the fastest of its shape until then. 0 on other devices, where
 * commands are not waited for one by one. */
double cpu_gemm_seconds(const struct device *device);

#endif
