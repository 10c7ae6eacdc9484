/* What NVRTC makes of the math library: slow paths, tables, local arrays, double precision. */
extern "C" __global__ void math_forms(float *y, const float *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float v = x[i], *o = y + (long long)i * 20;
    o[0] = expf(v);
    o[1] = logf(fabsf(v) + 1e-3f);
    o[2] = sinf(v * 1000.0f);
    o[3] = cosf(v * 1e6f);
    o[4] = tanhf(v);
    o[5] = erff(v);
    o[6] = powf(fabsf(v) + 0.1f, 1.7f);
    o[7] = rsqrtf(fabsf(v) + 0.5f);
    o[8] = sqrtf(fabsf(v));
    o[9] = 1.0f / (v + 20.0f);
    o[10] = v / 3.0f;
    o[11] = __expf(v);
    o[12] = __fdividef(v, 7.0f);
    o[13] = floorf(v) + ceilf(v) + truncf(v) + rintf(v);
    o[14] = (float)(int)(v * 100.0f) + (float)__float2uint_rz(fabsf(v)) + (float)(long long)(v * 3.0f);
    o[15] = (float)(exp((double)v) * 1.0000001);
    o[16] = copysignf(3.0f, v) + fminf(v, 0.5f);
    o[17] = isnan(v) || isinf(v) ? 1.0f : ldexpf(v, 3);
    o[18] = log1pf(fabsf(v)) + expm1f(v * 0.1f);
    o[19] = fmodf(v, 0.7f) + roundf(v);
}
static __constant__ float table[4] = {0.25f, -1.5f, 3.0f, 7.75f};
__device__ int counter_start = 41;
static __device__ __noinline__ float polynomial(float x, int degree)
{
    float sum = 0;
    for (int i = degree; i >= 0; i--)
        sum = sum * x + table[i & 3];
    return sum;
}
extern "C" __global__ void calls(float *y, const float *x, const int *index, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float work[8];
    for (int k = 0; k < 8; k++)
        work[k] = x[i] * (float)k;
    y[i] = polynomial(x[i], i & 3) + polynomial(x[i] + 1.0f, 2) + work[index[i] & 7] + (float)counter_start;
}
/* Bits: fields, permutations, counts, dot products, funnel shifts. */
extern "C" __global__ void bits(unsigned *y, const unsigned *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned v = x[i], w = x[n - 1 - i], *o = y + i * 10, field, signed_field, inserted;
    asm("bfe.u32 %0, %1, 5, 9;" : "=r"(field) : "r"(v));
    asm("bfe.s32 %0, %1, 3, 7;" : "=r"(signed_field) : "r"(v));
    asm("bfi.b32 %0, %1, %2, 8, 12;" : "=r"(inserted) : "r"(v), "r"(w));
    o[0] = field;
    o[1] = signed_field;
    o[2] = inserted;
    o[3] = __byte_perm(v, w, 0x6170);
    o[4] = __brev(v);
    o[5] = __clz(v);
    o[6] = __popc(v) + __ffs(v);
    o[7] = __funnelshift_l(v, w, 11);
    o[8] = (unsigned)__mul24((int)v, (int)w);
    o[9] = v < w ? (v & 0xff00ffu) | (w << (v & 31)) : ~v >> (w & 31);
}
/* Integer counters in shared and global memory. */
extern "C" __global__ void atomics(int *total, unsigned *highest, const int *x, int n)
{
    __shared__ int sum;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x == 0)
        sum = 0;
    __syncthreads();
    if (i < n) {
        atomicAdd(&sum, x[i]);
        atomicMax(highest, (unsigned)x[i]);
    }
    __syncthreads();
    if (threadIdx.x == 0)
        atomicAdd(total, sum);
}
