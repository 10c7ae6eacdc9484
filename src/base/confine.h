/* A process that gives up what it will not need, before it parses bytes of others: whatever a parser's fault lets somebody do, it
 * then starts no program, opens no connection, and reads and writes no file but those that were named before.
 *
 *     confine_begin(&c);
 *     confine_allow(&c, "/data/chats.jsonl", CONFINE_READ);      any number of times; what is not there is passed over
 *     TRY(confine_end(&c, refused));                             for good, for this thread and all that it makes
 *
 * Files are kept back by Landlock, programs and sockets by seccomp. A kernel that has only one of them gives one. Nothing else in
 * hone depends on it: what is refused fails as if the system forbade it.
 */
#ifndef BASE_CONFINE_H
#define BASE_CONFINE_H

#include <stdbool.h>

#include "base/status.h"

/* What may be done with a file, or with all below a directory. */
enum confine_right {
    CONFINE_LIST,   /* names, of directories only */
    CONFINE_READ,   /* and contents */
    CONFINE_WRITE,  /* and writing, making, renaming and removing */
    CONFINE_DEVICE, /* reading, writing and ioctl, of devices */
    CONFINE_RUN,    /* reading, and being started as a program */
};

enum confine_sockets { CONFINE_NO_SOCKETS, CONFINE_CLIENT, CONFINE_LOCAL, CONFINE_ALL_SOCKETS };

struct confine {
    int files;                    /* Landlock's ruleset; -1: none */
    int cause;                    /* errno, where there should be one and is not */
    bool programs;                /* are not kept back: those of CONFINE_RUN may be started, all of them without a ruleset */
    enum confine_sockets sockets; /* which may be opened: to the internet, to this machine's services, or any */
    bool memory;                  /* is not limited: drivers reserve more than there is */
    bool peers;                   /* memory of other processes of this user, as ranks of one machine share it */
};

/* Nothing is allowed yet. `files` false: all files stay as they are. */
void confine_begin(struct confine *c, bool files);

void confine_allow(struct confine *c, const char *path, enum confine_right right);

/* In a directory, one level below it too: the files that links in it lead to may be read, if they have the link's name, or that
 * of a blob in a Hugging Face cache. */
void confine_allow_links(struct confine *c, const char *path);

/* From now on; and no more memory than the machine has, nor more open files than any model needs. `refused` is called with the
 * name of a call for a program or a socket that was refused, in a signal's handler of the thread that made it; the call then
 * fails with EPERM. NULL: it only fails. Releases c. */
enum status confine_end(struct confine *c, void (*refused)(const char *call));

/* What this kernel can keep back: "files (Landlock 7), programs and sockets (seccomp)", or what is missing, as a text. */
enum { CONFINE_TEXT = 160 };
void confine_describe(char text[static CONFINE_TEXT]);

/* What this kernel lacks, as the end of a sentence, or NULL. */
const char *confine_lacks(void);

#endif
