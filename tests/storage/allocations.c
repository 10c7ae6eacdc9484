/* A layer under the allocator of a program, loaded before libc: it notes where allocations come from, lets them fail, and knows
 * which of them were never freed. It counts from the first line of main to the last.
 *
 *     ALLOCATIONS_LOG     a file that gets the lines below, when main returns or the program crashes
 *     ALLOCATIONS_FAIL    "N": the N-th allocation from 0 fails; "N+": all from there on. Without it, every call stack is noted;
 *                         with it, those of the next 2000 after the N-th
 *
 *     stack ID FRAME...       each FRAME is FILE+OFFSET, the innermost first
 *     order ID...             the stack of each allocation in turn, where all are noted
 *     left NUMBER ID          the NUMBER-th allocation was not freed; ID is -1 where its stack was not noted
 *     count N                 how many there were
 *     crash FRAME...          where the program was when it crashed
 *
 * A mapping counts as an allocation, and so does a thread, whose stack is one.
 */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FRAMES = 100, STACKS = 1 << 15, NUMBERS = 1 << 22, BLOCKS = 1 << 20, EARLY = 1 << 16, AFTER = 2000 };

struct block {
    void *at; /* NULL: no block was ever here */
    int64_t number;
    bool freed;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int inside; /* the layer's own work is not counted */
static volatile bool on;
static bool has_target, from_then_on;
static int64_t target, made;
static uint64_t stack_hash[STACKS];
static int stack_id[STACKS], stacks;
static int order[NUMBERS];
static struct block blocks[BLOCKS];
static int log_file = -1;
static char early[EARLY]; /* what dlsym asks for while the real functions are looked up */
static size_t early_used;

static void *(*real_malloc)(size_t);
static void *(*real_calloc)(size_t, size_t);
static void *(*real_realloc)(void *, size_t);
static void *(*real_memalign)(size_t, size_t);
static void (*real_free)(void *);
static void *(*real_mmap)(void *, size_t, int, int, int, off_t);
static int (*real_thread)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

static void look_up(void)
{
    static bool looking;
    if (real_free || looking)
        return;
    looking = true;
    *(void **)&real_malloc = dlsym(RTLD_NEXT, "malloc");
    *(void **)&real_calloc = dlsym(RTLD_NEXT, "calloc");
    *(void **)&real_realloc = dlsym(RTLD_NEXT, "realloc");
    *(void **)&real_memalign = dlsym(RTLD_NEXT, "memalign");
    *(void **)&real_mmap = dlsym(RTLD_NEXT, "mmap");
    *(void **)&real_thread = dlsym(RTLD_NEXT, "pthread_create");
    *(void **)&real_free = dlsym(RTLD_NEXT, "free");
}

/* --- the log -------------------------------------------------------------------------------------------------------------- */

static void note(const char *format, ...)
{
    static char text[1 << 16];
    static size_t used;
    va_list list;
    if (log_file < 0)
        return;
    if (format) {
        va_start(list, format);
        used += (size_t)vsnprintf(text + used, sizeof text - used, format, list);
        va_end(list);
    }
    if (!format || used > sizeof text / 2) {
        for (size_t at = 0; at < used;) {
            ssize_t n = write(log_file, text + at, used - at);
            if (n <= 0)
                break;
            at += (size_t)n;
        }
        used = 0;
    }
}

static void note_frames(void **frame, int count)
{
    Dl_info self, info;
    dladdr(&log_file, &self);
    for (int i = 0; i < count; i++) {
        if (!dladdr(frame[i], &info) || !info.dli_fname)
            note(" ?");
        else if (info.dli_fbase != self.dli_fbase)
            note(" %s+%zx", info.dli_fname, (size_t)((char *)frame[i] - (char *)info.dli_fbase));
    }
    note("\n");
}

/* The number of the stack that called the layer, which is noted when it is met first. */
static int find_stack(void)
{
    void *frame[FRAMES];
    int count = backtrace(frame, FRAMES);
    uint64_t hash = 14695981039346656037u;
    for (int i = 0; i < count; i++)
        hash = (hash ^ (uint64_t)(uintptr_t)frame[i]) * 1099511628211u;
    hash += !hash;
    size_t at = hash >> 40;
    for (; stack_hash[at % STACKS] && stack_hash[at % STACKS] != hash; at++)
        ;
    at %= STACKS;
    if (!stack_hash[at]) {
        if (stacks == STACKS - 1)
            _exit(99);
        stack_hash[at] = hash;
        stack_id[at] = stacks++;
        note("stack %d", stack_id[at]);
        note_frames(frame, count);
    }
    return stack_id[at];
}

static struct block *find_block(const void *p)
{
    size_t at = ((uintptr_t)p >> 4) * 11400714819323198485u >> 40;
    for (; blocks[at % BLOCKS].at && blocks[at % BLOCKS].at != p; at++)
        ;
    return &blocks[at % BLOCKS];
}

/* --- counting ------------------------------------------------------------------------------------------------------------- */

static bool begin(int64_t *number)
{
    *number = -1;
    if (!on || inside)
        return false;
    inside++;
    pthread_mutex_lock(&lock);
    *number = made++;
    if (made == NUMBERS)
        _exit(98);
    bool noted = !has_target || (*number > target && *number < target + AFTER);
    order[*number] = noted ? find_stack() : -1;
    pthread_mutex_unlock(&lock);
    inside--;
    return has_target && (*number == target || (from_then_on && *number > target));
}

static void *keep(void *p, int64_t number)
{
    if (!p || number < 0)
        return p;
    pthread_mutex_lock(&lock);
    *find_block(p) = (struct block){p, number, false};
    pthread_mutex_unlock(&lock);
    return p;
}

static void *refuse(void)
{
    errno = ENOMEM;
    return NULL;
}

void *malloc(size_t size)
{
    int64_t number;
    look_up();
    if (!real_malloc) {
        void *p = early + early_used;
        early_used += (size + 15) / 16 * 16;
        return early_used <= EARLY ? p : refuse();
    }
    return begin(&number) ? refuse() : keep(real_malloc(size), number);
}

void *calloc(size_t count, size_t size)
{
    int64_t number;
    look_up();
    if (!real_calloc)
        return malloc(count * size);
    return begin(&number) ? refuse() : keep(real_calloc(count, size), number);
}

static void let_go(void *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&lock);
    find_block(p)->freed = true;
    pthread_mutex_unlock(&lock);
}

void *realloc(void *old, size_t size)
{
    int64_t number;
    look_up();
    if (begin(&number))
        return refuse();
    let_go(old);
    return keep(real_realloc(old, size), number);
}

void *memalign(size_t step, size_t size)
{
    int64_t number;
    look_up();
    return begin(&number) ? refuse() : keep(real_memalign(step, size), number);
}

void *aligned_alloc(size_t step, size_t size)
{
    int64_t number;
    look_up();
    return begin(&number) ? refuse() : keep(real_memalign(step, size), number);
}

int posix_memalign(void **out, size_t step, size_t size)
{
    int64_t number;
    look_up();
    if (begin(&number))
        return ENOMEM;
    *out = keep(real_memalign(step, size), number);
    return *out ? 0 : ENOMEM;
}

void free(void *p)
{
    look_up();
    if ((char *)p >= early && (char *)p < early + EARLY)
        return;
    let_go(p);
    real_free(p);
}

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    int64_t number;
    look_up();
    if (begin(&number)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return real_mmap(at, size, protection, flags, fd, offset);
}

void *mmap64(void *at, size_t size, int protection, int flags, int fd, off_t offset) __attribute__((alias("mmap")));

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *context)
{
    int64_t number;
    look_up();
    return begin(&number) ? EAGAIN : real_thread(thread, attributes, run, context);
}

/* --- beginning and end ---------------------------------------------------------------------------------------------------- */

static int (*real_main)(int, char **, char **);

static void on_crash(int signal_number)
{
    void *frame[FRAMES];
    inside++;
    on = false;
    int count = backtrace(frame, FRAMES);
    note("crash");
    note_frames(frame, count);
    note(NULL);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static int counted_main(int argc, char **argv, char **environment)
{
    const char *fail = getenv("ALLOCATIONS_FAIL"), *path = getenv("ALLOCATIONS_LOG");
    void *frame[FRAMES];
    char *end;
    backtrace(frame, FRAMES); /* it allocates the first time */
    setvbuf(stdout, NULL, _IOFBF, 0);
    if (path)
        log_file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    signal(SIGSEGV, on_crash);
    signal(SIGABRT, on_crash);
    has_target = fail != NULL;
    target = fail ? strtoll(fail, &end, 10) : 0;
    from_then_on = fail && *end == '+';
    on = true;
    int code = real_main(argc, argv, environment);
    on = false;
    if (!has_target) {
        note("order");
        for (int64_t i = 0; i < made; i++)
            note(" %d", order[i]);
        note("\n");
    }
    for (int64_t i = 0; i < BLOCKS; i++)
        if (blocks[i].at && !blocks[i].freed && (!has_target || blocks[i].number < target + AFTER))
            note("left %lld %d\n", (long long)blocks[i].number, order[blocks[i].number]);
    note("count %lld\n", (long long)made);
    note(NULL);
    return code;
}

typedef int start(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void), void (*fini)(void),
                  void (*finish)(void), void *stack);
start __libc_start_main;

int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*finish)(void), void *stack)
{
    start *real;
    *(void **)&real = dlsym(RTLD_NEXT, "__libc_start_main");
    real_main = main;
    return real(counted_main, argc, argv, init, fini, finish, stack);
}
