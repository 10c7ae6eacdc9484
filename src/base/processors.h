/* How many processors this process may use: what the system's scheduler allows it (as set by taskset or a container's cpuset),
 * and not more than the CPU time that its control group gets (cpu.max of cgroup v2, cpu.cfs_quota_us of v1; 1.5 counts as 2). */
#ifndef BASE_PROCESSORS_H
#define BASE_PROCESSORS_H

#include <stdint.h>

int processors_usable(void); /* as it is at the first call; at least 1 */

/* A number for the set of processors that the scheduler allows: processes of one machine with the same number share them. */
uint64_t processors_set(void);

/* The same for only the groups: `groups` is in the form of /proc/self/cgroup, `root` is where the groups' files are. Large where
 * nothing is limited. */
int processors_quota(const char *groups, const char *root);

#endif
