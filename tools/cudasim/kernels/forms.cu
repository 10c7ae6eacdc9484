/* Forms that the other kernels do not use, written out as PTX. */
extern "C" __global__ void forms(unsigned *y, const unsigned *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned a = x[i], b = x[n - 1 - i], c = x[(i + 1) % n], *o = y + i * 20;
    float fa = (float)(int)a * 1e-6f, fb = (float)(int)b * 1e-6f;
    unsigned r0, r1, r2, r3;
    float f;
    asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(r0) : "r"(a), "r"(b), "r"(c));
    o[0] = r0;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(r0) : "r"(a), "r"(b), "r"(c));
    o[1] = r0;
    asm("{ .reg .pred p, q, s; setp.gt.u32 s, %2, %4; setp.lt.and.u32 p|q, %2, %3, !s; selp.u32 %0, 1, 0, p; "
        "selp.u32 %1, 1, 0, q; }"
        : "=r"(r0), "=r"(r1) : "r"(a), "r"(b), "r"(c));
    o[2] = r0;
    o[3] = r1;
    asm("cvt.sat.u8.s32 %0, %1;" : "=r"(r0) : "r"((int)a >> 20));
    o[4] = r0;
    asm("cvt.s32.s8 %0, %1;" : "=r"(r0) : "r"(a));
    o[5] = r0;
    asm("add.rp.f32 %0, %1, %2;" : "=f"(f) : "f"(fa), "f"(1e-12f));
    o[6] = __float_as_uint(f);
    asm("fma.rn.sat.f32 %0, %1, %1, %2;" : "=f"(f) : "f"(fa), "f"(0.25f));
    o[7] = __float_as_uint(f);
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(f) : "f"(fa), "f"(__uint_as_float(0x7fffffffu)));
    o[8] = f != f;
    asm("{ .reg .u32 l; mad.lo.cc.u32 l, %4, %5, %6; madc.hi.u32 %1, %4, %5, 0; add.cc.u32 %0, l, %7; addc.cc.u32 %1, %1, %4; "
        "addc.u32 %2, 0, 0; sub.cc.u32 %3, %4, %5; subc.u32 %3, %6, %7; }"
        : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(a), "r"(b), "r"(c), "r"(a ^ c));
    o[9] = r0;
    o[10] = r1;
    o[11] = r2;
    o[12] = r3;
    asm("set.gt.u32.f32 %0, %1, %2;" : "=r"(r0) : "f"(fa), "f"(fb));
    o[13] = r0;
    asm("slct.u32.s32 %0, %1, %2, %3;" : "=r"(r0) : "r"(b), "r"(c), "r"(a));
    o[14] = r0;
    asm("mul.ftz.f32 %0, %1, 0f00000010;" : "=f"(f) : "f"(fa));
    o[15] = __float_as_uint(f);
    asm("prmt.b32 %0, %1, %2, 0xba98;" : "=r"(r0) : "r"(a), "r"(b));
    o[16] = r0;
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {h, l}; }" : "=r"(r0) : "r"(a));
    o[17] = r0;
    asm("add.sat.s32 %0, %1, %2;" : "=r"(r0) : "r"(a), "r"(a));
    o[18] = r0;
    asm("cvt.rni.sat.u8.f32 %0, %1;" : "=r"(r0) : "f"(fa));
    o[19] = r0;
}
/* Copies past the registers, sums of integers over a warp, and generic addresses of shared memory. */
static __device__ __noinline__ float generic_sum(const float *p, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += p[i];
    return sum;
}
extern "C" __global__ void copies(float *y, int *total, const float *x)
{
    __shared__ __align__(16) float part[128];
    unsigned to = (unsigned)__cvta_generic_to_shared(part + threadIdx.x * 4);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" : : "r"(to), "l"(x + threadIdx.x * 4));
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group 0;");
    __syncthreads();
    int sum;
    asm volatile("redux.sync.add.s32 %0, %1, 0xffffffff;" : "=r"(sum) : "r"((int)threadIdx.x * 3));
    total[threadIdx.x] = sum;
    y[threadIdx.x] = generic_sum(threadIdx.x & 1 ? part + threadIdx.x * 4 : x + threadIdx.x * 4, 4);
}
/* A jump by a table. */
extern "C" __global__ void table(int *y)
{
    int r;
    asm volatile("{ ts: .branchtargets L0, L1, L2; .reg .u32 i; and.b32 i, %1, 3; min.u32 i, i, 2; brx.idx i, ts; "
                 "L0: mov.u32 %0, 100; bra LE; L1: mov.u32 %0, 200; bra LE; L2: mov.u32 %0, 300; LE: }"
                 : "=r"(r) : "r"(threadIdx.x));
    y[threadIdx.x] = r;
}
