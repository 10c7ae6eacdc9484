/* Blocks whose memory several devices of a process use: what is the same for all of them is there once (base/shared.h).
 *
 * Devices share if they are of one class and stand for one piece of hardware. A shared block is written by the holder that fills
 * it, and then only read.
 */
#ifndef DEVICE_SHARE_H
#define DEVICE_SHARE_H

#include "base/shared.h"
#include "device/device.h"

/* What a class does for it. Memory is zeroed, and outlives the device that has made it. */
struct device_sharing {
    const void *(*where)(const struct device *device); /* the same address for all devices that can use each other's memory */
    enum status (*make)(struct device *device, int64_t bytes, void **memory);
    void (*free)(struct device *device, void *memory, int64_t bytes);
    enum status (*use)(struct device *device, void *memory, int32_t *block); /* device_release leaves the memory as it is */
};

/* The block with this key, of so many bytes; the device is its holder. The memory counts as this device's own. */
enum status device_share(struct device *device, struct digest key, int64_t bytes, int32_t *block, struct shared **shared);

/* After device_release. */
void device_unshare(struct device *device, struct shared *shared, int64_t bytes);

/* Whether this process has a block with this key that the device can use. */
bool device_has_shared(const struct device *device, struct digest key);

/* This device has filled a block that it had to fill: once all that was written is there. */
enum status device_fill_shared(struct device *device, struct shared *shared, int32_t block);

#endif
