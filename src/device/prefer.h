/* Which of several cards is taken where no number is said, by remainder: a rank's number among those of its machine. */
#ifndef DEVICE_PREFER_H
#define DEVICE_PREFER_H

void device_prefer(int number);
int device_preferred(int count);

#endif
