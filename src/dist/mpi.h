/* Groups over MPI, by a plug-in object (dist/mpi_table.h) that is opened when a launcher of MPI has started the process. */
#ifndef DIST_MPI_H
#define DIST_MPI_H

#include "device/group.h"
#include "dist/launcher.h"

/* ERR_DEVICE, with what to install, where there is no plug-in for the launcher's MPI. The group stays open until the process
 * ends: MPI cannot be started twice. patience: seconds after which a rank that waits for others to start MPI ends its process, if
 * the program has said how (base/heartbeat.h); 0: never. */
enum status mpi_open(struct group **out, const struct launcher *launcher, int64_t patience);

/* At the end of the process, if the group is whole: all ranks leave together. */
void mpi_finish(struct group *group);

#endif
