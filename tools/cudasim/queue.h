/* Streams, events, captures and the work in them. Work is kept until something must wait for it: it runs as late as is legal. */
#ifndef TOOLS_CUDASIM_QUEUE_H
#define TOOLS_CUDASIM_QUEUE_H

#include "exec.h"
#include "memory.h"
#include "order.h"
#include "state.h"

enum op_kind { OP_LAUNCH, OP_H2D, OP_D2H, OP_D2D, OP_MEMSET, OP_RECORD, OP_WAIT, OP_CALL, OP_GRAPH };

struct op {
    enum op_kind kind;
    uint64_t sequence; /* rises over all streams */
    struct op *next;
    CUfunction function; /* LAUNCH */
    uint32_t grid[3], size[3], dynamic_bytes;
    uint64_t to, from; /* copies and memsets */
    void *host;
    uint64_t bytes;
    const struct allocation *pinned; /* of host; null: pageable */
    uint64_t checksum;               /* of a pinned source when the copy was enqueued */
    uint32_t value;
    uint8_t element;
    CUevent event;   /* RECORD */
    CUstream stream; /* WAIT: until this stream has run its work up to this number */
    uint64_t until;
    void (*run)(const void *args); /* CALL */
    int (*poll)(const void *args); /* CALL: whether it can run; null: always */
    void (*drop)(const void *args);
    const char *what;
    uint8_t *data; /* params, staged bytes or args; owned */
    uint64_t data_size;
    struct op_list *list; /* GRAPH */
    uint64_t *checksums;  /* GRAPH: one for each of the list; owned */
    size_t at;            /* GRAPH: the next of the list to run */
};

/* What a graph holds; shared by the graph, what was instantiated from it, and its launches. */
struct op_list {
    int references;
    struct op **ops;
    size_t count;
};

struct capture {
    struct op_list *list;
    CUstream origin;
    int mode;
    uint64_t thread;
    bool invalid;
    int serial;
};

struct CUstream_st {
    struct object {
        char kind; /* 's', 'e', 'm', 'g', 'x': also tells a handle from a wild pointer */
        bool live;
        void *next;
    } object;
    bool legacy, blocking;
    struct op *head, *tail;
    struct capture *capture; /* null: not capturing */
    uint64_t last;           /* sequence number of the last work */
    int refused;             /* queries answered with "not ready" in a row */
    bool joined;             /* a captured stream other than the origin, whose work the origin waits for */
    int place;               /* in a struct order; -1: none */
    struct order order;      /* what comes before its next work */
};

struct CUevent_st {
    struct object object;
    CUstream stream; /* of the last record; null: never recorded */
    uint64_t sequence;
    int capture_serial; /* the capture with the last record; 0: none */
    bool sleeps;        /* CU_EVENT_BLOCKING_SYNC */
    int refused;
    double time;
    struct order order; /* of the last record */
};

struct CUgraph_st {
    struct object object;
    struct op_list *list;
};

struct CUgraphExec_st {
    struct object object;
    struct op_list *list;
};

struct CUfunc_st {
    struct kernel *kernel;
    CUmodule module;
    CUfunction next;
};

struct CUmod_st {
    struct object object;
    struct ptx *ptx;
    CUfunction functions;
};

/* Objects of the driver live until the simulator is cleared, so that a dead handle is recognised. */
void *object_new(size_t size, char kind);
bool object_is(const void *handle, char kind);
void object_each(char kind, void (*visit)(void *object, void *data), void *data);
void object_clear(void);

/* The stream of a handle (null and CU_STREAM_LEGACY are the legacy one), or null if it is not a stream. */
CUstream stream_of(CUstream handle);
struct op *op_new(enum op_kind kind);
void op_free(struct op *op);
void list_release(struct op_list *list);
/* Enqueues work on a stream, or on its capture; takes ownership of op, also on failure. */
CUresult queue_add(CUstream stream, struct op *op);
/* Runs a stream's work up to this number, and what that waits for. Returns the first fault. */
CUresult queue_run(CUstream stream, uint64_t until);
CUresult queue_run_all(void);
/* The same for a query: CUDA_ERROR_NOT_READY where work waits for other processes. */
CUresult queue_try(CUstream stream, uint64_t until);
bool queue_pending(void);
/* Counts the device's work, including each op of a launched graph. */
void op_count(const struct op *op);
uint64_t op_checksum(const void *bytes, uint64_t size);
/* Executes one op. CUDA_ERROR_NOT_READY: it waits for other processes, and is to be run again. `patient`: the caller waits for
 * it, and what never ends is a fault. */
CUresult op_run(struct op *op, bool patient);
/* Copies in flight whose source the device itself has just written take its new bytes as right. */
void queue_rewritten(const uint8_t *begin, const uint8_t *end);

uint64_t thread_id(void);
/* An open capture that this thread began, or null. */
struct capture *capture_of_thread(void);
/* Fails a call that may not be made while this thread (or, in global mode, another) captures; the capture becomes invalid. */
CUresult capture_forbids(const char *call);
/* Fails a wait for the whole context while any thread captures a stream of it; the captures become invalid. */
CUresult capture_forbids_context(const char *call);
/* Fails a wait or query on a stream that is capturing. */
CUresult capture_forbids_stream(CUstream stream, const char *call);
CUresult capture_begin(CUstream stream, int mode);
CUresult capture_end(CUstream stream, struct op_list **list);
/* A blocking stream is capturing: the legacy stream may not be used. */
CUresult capture_forbids_legacy(const char *call);
void capture_clear(void);

/* Every function of the API begins with it; the failure of an earlier kernel is returned by all that follow. */
#define ENTER_ALWAYS()                                                                                                           \
    state_lock();                                                                                                                \
    state_count("calls", 1)
#define LEAVE_WITH(result)                                                                                                       \
    do {                                                                                                                         \
        CUresult leave = (result);                                                                                               \
        state_unlock();                                                                                                          \
        return leave;                                                                                                            \
    } while (0)
#define ENTER(call)                                                                                                              \
    ENTER_ALWAYS();                                                                                                              \
    do {                                                                                                                         \
        CUresult unready = device_ready(call);                                                                                   \
        if (unready || state_sticky())                                                                                           \
            LEAVE_WITH(unready ? unready : state_sticky());                                                                      \
    } while (0)
/* Whether cuInit was called and the thread has a context; reports if not. */
CUresult device_ready(const char *call);
/* Counts a wait of the host, and whether it burns a core. */
void device_waits(void);
void device_clear(void);

#endif
