/* bf16 in, bf16 out: once by shifts as hone's dialect may do it, once by the hardware's conversions. */
static __device__ float load(const unsigned short *p, long long i) { return __uint_as_float((unsigned)p[i] << 16); }
static __device__ unsigned short round16(float f)
{
    unsigned u = __float_as_uint(f);
    return f != f ? 0x7fff : (unsigned short)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
extern "C" __global__ void bf16_scale(unsigned short *y, const unsigned short *x, float scale, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = round16(load(x, i) * scale);
}
extern "C" __global__ void bf16_hardware(unsigned short *y, float *back, const float *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        unsigned short h;
        float f;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x[i]));
        y[i] = h;
        asm("cvt.f32.bf16 %0, %1;" : "=f"(f) : "h"(h));
        back[i] = f;
    }
}
/* f16 both ways, and fused multiply-adds of packed bf16 and f16 pairs. */
extern "C" __global__ void half_forms(unsigned short *h, float *back, unsigned *pair, unsigned *fused, const float *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        unsigned short v;
        float f;
        unsigned two, sum;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(v) : "f"(x[i]));
        h[i] = v;
        asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v));
        back[i] = f;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(x[i]), "f"(x[n - 1 - i]));
        pair[i] = two;
        asm("fma.rn.bf16x2 %0, %1, %1, %1;" : "=r"(sum) : "r"(two));
        fused[i] = sum;
    }
}
