/* c[i] = a[i] + b[i], with 64-bit offsets from a base that may lie beyond 2^31 elements. */
extern "C" __global__ void __launch_bounds__(256) vector_add(float *c, const float *a, const float *b, long long n,
                                                             long long base)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        c[base + i] = a[base + i] + b[base + i];
}
