/* The contexts of a process: one for each device of OpenCL. */
#include "device/opencl.h"

static enum status opencl_context_make(void *context, void **thing)
{
    struct opencl *o = context;
    cl_int code;
    *thing = cl.clCreateContext(NULL, 1, &o->id, NULL, NULL, &code);
    return opencl_check(code, "creating a context");
}

enum status opencl_context_open(struct opencl *o)
{
    static const char what[] = "a context of OpenCL";
    struct hash hash;
    hash_init(&hash);
    hash_add(&hash, what, sizeof what);
    hash_add(&hash, &o->id, sizeof o->id);
    TRY(shared_take(&o->shared_context, hash_end(&hash), o, opencl_context_make, o));
    shared_filled(o->shared_context, o);
    o->context = shared_thing(o->shared_context);
    return OK;
}

void opencl_context_close(struct opencl *o)
{
    void *context;
    if (o->shared_context && shared_give(o->shared_context, o, &context))
        cl.clReleaseContext(context);
}
