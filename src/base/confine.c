/* Landlock's rules and seccomp's filter, by the kernel's own calls: neither has a library that everybody has.
 *
 * The filter names what is refused and lets the rest pass: libraries of others (drivers, oneDNN, libc) differ in the calls that
 * they need, and none of them needs these. */
#include "base/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/confined.h"
#include "base/directory.h"
#include "base/file.h"

#if defined __x86_64__
enum { ARCH = AUDIT_ARCH_X86_64, OTHER_ABI = 0x40000000 }; /* the numbers of x32 begin there */
#elif defined __aarch64__
enum { ARCH = AUDIT_ARCH_AARCH64, OTHER_ABI = 0x40000000 };
#else
#error "base/confine.c: which architecture is this?"
#endif

#ifdef HONE_SANITIZED
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* --- Landlock ------------------------------------------------------------------------------------------------------------- */

/* As in linux/landlock.h, of which an older machine's lacks the last ones. */
enum { CLONE3 = 435, CREATE_RULESET = 444, ADD_RULE = 445, RESTRICT_SELF = 446, VERSION_FLAG = 1, RULE_PATH_BENEATH = 1 };
enum {
    EXECUTE = 1 << 0,
    WRITE_FILE = 1 << 1,
    READ_FILE = 1 << 2,
    READ_DIR = 1 << 3,
    MAKE_CHAR = 1 << 6,
    MAKE_BLOCK = 1 << 11,
    REFER = 1 << 13,
    TRUNCATE = 1 << 14,
    IOCTL_DEV = 1 << 15,
    ABSTRACT_SOCKETS = 1 << 0, /* scopes: only those of this process and its children */
    SIGNALS = 1 << 1,
    VERSION_MIN = 2, /* the first one in which a file can be moved to another directory */
    VERSION_TRUNCATE = 3,
    VERSION_IOCTL = 5,
    VERSION_SCOPES = 6,
};

struct ruleset {
    uint64_t files, ports, scopes;
};

struct __attribute__((packed)) path_rule {
    uint64_t rights;
    int32_t directory;
};

static int landlock_version(void)
{
    static _Atomic int known = -1;
    if (known < 0) {
        long version = syscall(CREATE_RULESET, NULL, (size_t)0, VERSION_FLAG);
        known = version < 0 ? 0 : (int)version;
    }
    return known;
}

/* All that this kernel knows of. */
static uint64_t rights_known(void)
{
    int version = landlock_version();
    uint64_t all = ((uint64_t)REFER << 1) - 1;
    return all | (version >= VERSION_TRUNCATE ? TRUNCATE : 0) | (version >= VERSION_IOCTL ? IOCTL_DEV : 0);
}

/* Of a file only some of them make sense. */
static uint64_t rights_of(enum confine_right right, bool directory)
{
    const uint64_t read = READ_FILE | READ_DIR, of_file = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;
    const uint64_t rights[] = {
        [CONFINE_LIST] = READ_DIR,
        [CONFINE_READ] = read,
        [CONFINE_WRITE] = ~(uint64_t)(EXECUTE | MAKE_CHAR | MAKE_BLOCK | IOCTL_DEV),
        [CONFINE_DEVICE] = read | WRITE_FILE | IOCTL_DEV,
        [CONFINE_RUN] = read | EXECUTE,
    };
    return rights[right] & rights_known() & (directory ? ~(uint64_t)0 : of_file);
}

void confine_begin(struct confine *c, bool files)
{
    struct ruleset r = {.files = rights_known(), .scopes = ABSTRACT_SOCKETS | SIGNALS};
    int version = landlock_version();
    *c = (struct confine){.files = -1};
    if (files && version >= VERSION_MIN)
        c->files = (int)syscall(CREATE_RULESET, &r, version >= VERSION_SCOPES ? sizeof r : sizeof r.files, 0);
    c->cause = files && version >= VERSION_MIN && c->files < 0 ? errno : 0;
}

void confine_allow(struct confine *c, const char *path, enum confine_right right)
{
    struct stat st;
    int fd = c->files < 0 || !path || !*path ? -1 : open(path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0) {
        struct path_rule rule = {rights_of(right, S_ISDIR(st.st_mode)), fd};
        if (rule.rights)
            syscall(ADD_RULE, c->files, RULE_PATH_BENEATH, &rule, 0); /* a pipe has no place, and needs no rule */
    }
    close(fd);
}

/* Whether a link leads to a file of its own name, as people link a model's files to another disk, or to one that is named by its
 * hash in a Hugging Face cache. A stranger's folder may have a link to a private file, which would come into what is made of it.
 */
static bool leads_to_its_like(const char *link)
{
    char target[PATH_MAX];
    struct stat st;
    if (stat(link, &st) != 0 || !S_ISREG(st.st_mode) || !realpath(link, target))
        return false;
    return !strcmp(strrchr(target, '/'), strrchr(link, '/')) || strstr(target, "/blobs/");
}

static void allow_links(struct confine *c, struct arena *arena, const char *path, int depth)
{
    const char **names;
    struct stat st;
    int64_t count;
    if (directory_list(arena, path, &names, &count) != OK)
        return;
    for (int64_t i = 0; i < count; i++) {
        const char *name = file_join(arena, path, names[i]);
        if (!name || lstat(name, &st) != 0)
            continue;
        if (S_ISLNK(st.st_mode) && leads_to_its_like(name))
            confine_allow(c, name, CONFINE_READ);
        else if (S_ISDIR(st.st_mode) && depth > 0)
            allow_links(c, arena, name, depth - 1);
    }
}

void confine_allow_links(struct confine *c, const char *path)
{
    struct arena arena = {0};
    if (c->files >= 0 && file_is_directory(path))
        allow_links(c, &arena, path, 1);
    arena_free(&arena);
}

/* --- seccomp -------------------------------------------------------------------------------------------------------------- */

enum refusal {
    SILENTLY = 0,
    PROGRAM,
    SOCKET,
    PAIR,
    SERVER,
    PEER,
    SHARED,
    TRACE,
    METADATA,
}; /* what is refused, and so by which of a policy's members */

static const struct call {
    int number;
    const char *name;
    enum refusal refusal;
} calls[] = {
#define CALL(name, refusal)                                                                                                      \
    {                                                                                                                            \
        SYS_##name, #name, refusal                                                                                               \
    }
    CALL(execve, PROGRAM),
    CALL(execveat, PROGRAM),
    CALL(socket, SOCKET),
    CALL(connect, SOCKET),
    CALL(socketpair, PAIR),
    CALL(listen, SERVER),
    CALL(accept, SERVER),
    CALL(accept4, SERVER),
    CALL(process_vm_readv, PEER),
    CALL(process_vm_writev, PEER),
    CALL(io_uring_setup, SILENTLY), /* it would open sockets that the filter does not see */
    CALL(io_uring_enter, SILENTLY),
    CALL(io_uring_register, SILENTLY),
    CALL(ptrace, TRACE),
    CALL(pidfd_getfd, SILENTLY),
    CALL(bpf, SILENTLY),
    CALL(userfaultfd, SILENTLY),
    CALL(perf_event_open, SILENTLY),
    CALL(open_by_handle_at, SILENTLY),
    CALL(add_key, SILENTLY),
    CALL(request_key, SILENTLY),
    CALL(keyctl, SILENTLY),
    CALL(mount, SILENTLY),
    CALL(umount2, SILENTLY),
    CALL(pivot_root, SILENTLY),
    CALL(chroot, SILENTLY),
    CALL(unshare, SILENTLY),
    CALL(setns, SILENTLY),
    CALL(init_module, SILENTLY),
    CALL(finit_module, SILENTLY),
    CALL(delete_module, SILENTLY),
    CALL(kexec_load, SILENTLY),
    CALL(reboot, SILENTLY),
    CALL(swapon, SILENTLY),
    CALL(swapoff, SILENTLY),
    CALL(quotactl, SILENTLY),
    CALL(setpriority, SILENTLY),
    CALL(kcmp, SILENTLY),
    CALL(fanotify_init, SILENTLY),
    CALL(kexec_file_load, SILENTLY),
    CALL(shmget, SHARED), /* segments and queues that other processes of the user have */
    CALL(shmat, SHARED),
    CALL(msgget, SHARED),
    CALL(semget, SHARED),
    CALL(pidfd_send_signal, SILENTLY),
    CALL(truncate, SILENTLY), /* the first versions of Landlock let it through; a descriptor's is ftruncate */
    CALL(fchmod, METADATA),   /* Landlock knows no right for these */
    CALL(fchmodat, METADATA),
    CALL(fchown, METADATA),
    CALL(fchownat, METADATA),
    CALL(setxattr, METADATA),
    CALL(lsetxattr, METADATA),
    CALL(fsetxattr, METADATA),
    CALL(removexattr, METADATA),
    CALL(lremovexattr, METADATA),
    CALL(fremovexattr, METADATA),
#ifdef __x86_64__
    CALL(chmod, METADATA),
    CALL(chown, METADATA),
    CALL(lchown, METADATA),
#endif
    {452, "fchmodat2", METADATA},
    {463, "setxattrat", METADATA},
    {466, "removexattrat", METADATA},
    {428, "open_tree", SILENTLY},
    {429, "move_mount", SILENTLY},
    {430, "fsopen", SILENTLY},
    {431, "fsconfig", SILENTLY},
    {432, "fsmount", SILENTLY},
    {433, "fspick", SILENTLY},
    {440, "process_madvise", SILENTLY},
    {442, "mount_setattr", SILENTLY},
    {443, "quotactl_fd", SILENTLY},
#undef CALL
};
enum { CALLS = sizeof calls / sizeof calls[0], FILTER_MAX = 2 * CALLS + 64 };

struct filter {
    struct sock_filter code[FILTER_MAX];
    unsigned short size;
};

static void confine_add(struct filter *f, uint16_t code, uint32_t value, uint8_t yes, uint8_t no)
{
    f->code[f->size++] = (struct sock_filter){code, yes, no, value};
}

static bool seccomp_is_there(void)
{
    uint32_t action = SECCOMP_RET_TRAP;
    return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

static bool is_refused(const struct confine *c, const struct call *call)
{
    switch (call->refusal) {
    case PROGRAM: return !c->programs;
    case SOCKET: return c->sockets == CONFINE_NO_SOCKETS;
    case PAIR: return c->sockets == CONFINE_NO_SOCKETS;
    case SERVER: return c->sockets != CONFINE_ALL_SOCKETS;
    case PEER:
    case SHARED: return !c->peers;
    case TRACE: return !SANITIZED;                   /* which look for leaks by it */
    case METADATA: return !c->programs && !c->peers; /* a linker makes what it has written executable */
    case SILENTLY: break;
    }
    return true;
}

/* What a library may try in passing, and do without, is refused without a word: libc asks a cache of names by a Unix socket. */
static bool confine_is_named(enum refusal refusal)
{
    return refusal == PROGRAM || refusal == SOCKET || refusal == SERVER || refusal == PEER;
}

/* Only a part of an argument is looked at, as the kernel does itself. */
static void load_argument(struct filter *f, int i)
{
    confine_add(f, BPF_LD | BPF_W | BPF_ABS, (uint32_t)(offsetof(struct seccomp_data, args) + 8 * (size_t)i), 0, 0);
}

static void confine_answer(struct filter *f, uint32_t how)
{
    confine_add(f, BPF_RET | BPF_K, how, 0, 0);
}

/* The first argument of socket is the family. Connections go through sockets that were made. */
static void add_families(struct filter *f, enum confine_sockets sockets, uint32_t silent, uint32_t named)
{
    static const uint32_t client[] = {AF_INET, AF_INET6, AF_NETLINK}, local[] = {AF_UNIX, AF_NETLINK};
    const uint32_t *families = sockets == CONFINE_CLIENT ? client : local;
    uint8_t count = sockets == CONFINE_CLIENT ? 3 : sockets == CONFINE_LOCAL ? 2 : 0;
    if (sockets == CONFINE_ALL_SOCKETS)
        return;
    confine_add(f, BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, (uint8_t)(count + 5));
    load_argument(f, 0);
    for (uint8_t i = 0; i < count; i++)
        confine_add(f, BPF_JMP | BPF_JEQ | BPF_K, families[i], (uint8_t)(count - i + 2), 0);
    confine_add(f, BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 0, 1);
    confine_answer(f, silent);
    confine_answer(f, named);
    confine_answer(f, SECCOMP_RET_ALLOW);
}

/* A pair of stream sockets reaches nobody else; one of datagrams can be sent to any name. */
static void confine_add_pairs(struct filter *f, enum confine_sockets sockets, uint32_t silent)
{
    if (sockets != CONFINE_CLIENT)
        return;
    confine_add(f, BPF_JMP | BPF_JEQ | BPF_K, SYS_socketpair, 0, 5);
    load_argument(f, 1);
    confine_add(f, BPF_ALU | BPF_AND | BPF_K, 0xf, 0, 0);
    confine_add(f, BPF_JMP | BPF_JEQ | BPF_K, SOCK_STREAM, 1, 0);
    confine_answer(f, silent);
    confine_answer(f, SECCOMP_RET_ALLOW);
}

/* The letters that ioctl(TIOCSTI) types are read by the shell that comes after. */
static void add_terminal(struct filter *f, uint32_t silent)
{
    confine_add(f, BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 5);
    load_argument(f, 1);
    confine_add(f, BPF_JMP | BPF_JEQ | BPF_K, TIOCSTI, 1, 0);
    confine_add(f, BPF_JMP | BPF_JEQ | BPF_K, TIOCLINUX, 0, 1);
    confine_answer(f, silent);
    confine_answer(f, SECCOMP_RET_ALLOW);
}

/* Limits of other processes, by which they can be ended; its own are those of process 0. */
static void add_limits(struct filter *f, uint32_t silent)
{
    confine_add(f, BPF_JMP | BPF_JEQ | BPF_K, SYS_prlimit64, 0, 4);
    load_argument(f, 0);
    confine_add(f, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0);
    confine_answer(f, silent);
    confine_answer(f, SECCOMP_RET_ALLOW);
}

/* A user's own namespaces have all of the kernel to attack. clone3's arguments are not to be seen here: libc then takes clone. */
static void add_namespaces(struct filter *f, uint32_t silent)
{
    const uint32_t new_ones =
        CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
    confine_add(f, BPF_JMP | BPF_JEQ | BPF_K, CLONE3, 0, 1);
    confine_answer(f, SECCOMP_RET_ERRNO | ENOSYS);
    confine_add(f, BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4);
    load_argument(f, 0);
    confine_add(f, BPF_JMP | BPF_JSET | BPF_K, new_ones, 0, 1);
    confine_answer(f, silent);
    confine_answer(f, SECCOMP_RET_ALLOW);
}

static void make_filter(struct filter *f, const struct confine *c, bool reports)
{
    const uint32_t silent = SECCOMP_RET_ERRNO | EPERM, named = reports ? SECCOMP_RET_TRAP : silent;
    *f = (struct filter){.size = 0};
    confine_add(f, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch), 0, 0);
    confine_add(f, BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0);
    confine_add(f, BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS, 0, 0);
    confine_add(f, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
    confine_add(f, BPF_JMP | BPF_JGE | BPF_K, OTHER_ABI, 0, 1);
    confine_add(f, BPF_RET | BPF_K, silent, 0, 0);
    add_families(f, c->sockets, silent, named);
    confine_add_pairs(f, c->sockets, silent);
    add_terminal(f, silent);
    add_limits(f, silent);
    add_namespaces(f, silent);
    for (int i = 0; i < CALLS; i++)
        if (is_refused(c, &calls[i])) {
            confine_add(f, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)calls[i].number, 0, 1);
            confine_add(f, BPF_RET | BPF_K, confine_is_named(calls[i].refusal) ? named : silent, 0, 0);
        }
    confine_answer(f, SECCOMP_RET_ALLOW);
}

/* --- what was refused ------------------------------------------------------------------------------------------------------ */

static void (*tell)(const char *call);

static const char *call_name(int number)
{
    for (int i = 0; i < CALLS; i++)
        if (calls[i].number == number)
            return calls[i].name;
    return "a system call";
}

static void on_refused(int signal_number, siginfo_t *info, void *context)
{
    ucontext_t *u = context;
    int cause = errno;
    (void)signal_number;
    if (tell)
        tell(call_name(info->si_syscall));
#if defined __x86_64__
    u->uc_mcontext.gregs[REG_RAX] = -EPERM;
#else
    u->uc_mcontext.regs[0] = (unsigned long long)-EPERM;
#endif
    errno = cause;
}

static bool confine_hear(void (*refused)(const char *call))
{
    struct sigaction action = {.sa_sigaction = on_refused, .sa_flags = SA_SIGINFO};
    tell = refused;
    return !refused || sigaction(SIGSYS, &action, NULL) == 0;
}

/* --- memory and open files ----------------------------------------------------------------------------------------------- */

enum { OPEN_FILES_MAX = 1 << 16 };

static void limit(__rlimit_resource_t resource, rlim_t value)
{
    struct rlimit now;
    if (getrlimit(resource, &now) != 0)
        return;
    now.rlim_max = now.rlim_max < value ? now.rlim_max : value;
    now.rlim_cur = now.rlim_cur < value ? now.rlim_cur : value;
    setrlimit(resource, &now);
}

/* A file that makes a parser ask for more is then an error, before the system has to end some process. */
static void limit_all(const struct confine *c)
{
    struct sysinfo machine;
    limit(RLIMIT_NOFILE, OPEN_FILES_MAX);
    if (!c->memory && !SANITIZED && sysinfo(&machine) == 0)
        limit(RLIMIT_DATA, ((rlim_t)machine.totalram + machine.totalswap) * machine.mem_unit);
}

/* --- both ------------------------------------------------------------------------------------------------------------------ */

/* Threads that are there already have their programs and sockets kept back too; without that only this one. */
static bool filter_calls(const struct sock_fprog *program)
{
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, program) == 0 ||
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, program) == 0;
}

/* Where one of the two fails, the other is applied all the same. */
static enum status confine_apply(const struct confine *c, void (*refused)(const char *call))
{
    struct filter f;
    enum status status = OK;
    int cause = c->cause;
    make_filter(&f, c, refused != NULL);
    const struct sock_fprog program = {f.size, f.code};
    limit_all(c);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return fail(ERR_UNSUPPORTED, "this process cannot give up rights: %s", strerror(errno));
    if (!cause && c->files >= 0 && syscall(RESTRICT_SELF, c->files, 0) != 0)
        cause = errno;
    confined_hold_files(c->files >= 0 && !cause);
    if (cause)
        status = fail(ERR_UNSUPPORTED, "Landlock does not take the rules for files: %s", strerror(cause));
    if (seccomp_is_there() && (!confine_hear(refused) || !filter_calls(&program)))
        status = fail(ERR_UNSUPPORTED, "seccomp does not take the filter of system calls: %s", strerror(errno));
    return status;
}

enum status confine_end(struct confine *c, void (*refused)(const char *call))
{
    enum status status = confine_apply(c, refused);
    if (c->files >= 0)
        close(c->files);
    c->files = -1;
    return status;
}

const char *confine_lacks(void)
{
    bool files = landlock_version() >= VERSION_MIN, rest = seccomp_is_there();
    return !files && !rest ? "files, programs and sockets: this kernel has neither Landlock nor seccomp"
           : !files        ? "files: this kernel has no Landlock"
           : !rest         ? "programs and sockets: this kernel has no seccomp"
                           : NULL;
}

void confine_describe(char text[static CONFINE_TEXT])
{
    char files[64] = "not files (no Landlock)";
    if (landlock_version() >= VERSION_MIN)
        snprintf(files, sizeof files, "files (Landlock %d)", landlock_version());
    snprintf(text, CONFINE_TEXT, "%s, %sprograms and sockets (%s)", files, seccomp_is_there() ? "" : "not ",
             seccomp_is_there() ? "seccomp" : "no seccomp");
}
