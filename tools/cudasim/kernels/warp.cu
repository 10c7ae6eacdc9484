/* Sums and scans inside a warp by shuffles, ballots, and integer reductions. */
extern "C" __global__ void warp_forms(float *sum, float *scan, float *first, float *next, unsigned *vote, const float *x)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
    float v = x[i], s = v, c = v;
    for (int step = 16; step > 0; step >>= 1)
        s += __shfl_xor_sync(0xffffffffu, s, step);
    for (int step = 1; step < 32; step <<= 1) {
        float before = __shfl_up_sync(0xffffffffu, c, step);
        if (lane >= step)
            c += before;
    }
    sum[i] = s;
    scan[i] = c;
    first[i] = __shfl_sync(0xffffffffu, v, 0);
    next[i] = __shfl_down_sync(0xffffffffu, v, 1);
    vote[i] = __ballot_sync(0xffffffffu, v > 0.5f) + (__any_sync(0xffffffffu, v > 2.0f) ? 1u : 0u)
            + (__all_sync(0xffffffffu, v >= 0.0f) ? 2u : 0u) + __popc(__activemask());
}
/* A shuffle that names a lane which has left. */
extern "C" __global__ void warp_left(float *y, const float *x)
{
    if (threadIdx.x == 5)
        return;
    y[threadIdx.x] = x[threadIdx.x] + __shfl_xor_sync(0xffffffffu, x[threadIdx.x], 1);
}
