/* The sum of a row by a fixed tree in shared memory; and the same without its barrier, which the simulator must detect. */
#define TREE(name, barrier)                                                              \
    extern "C" __global__ void __launch_bounds__(256) name(float *y, const float *x, int C) \
    {                                                                                    \
        __shared__ float part[256];                                                      \
        int lane = threadIdx.x;                                                          \
        float sum = 0;                                                                   \
        for (int c = lane; c < C; c += 256)                                              \
            sum += x[(long long)blockIdx.x * C + c];                                     \
        part[lane] = sum;                                                                \
        __syncthreads();                                                                 \
        for (int half = 128; half > 0; half >>= 1) {                                     \
            if (lane < half)                                                             \
                part[lane] += part[lane + half];                                         \
            barrier;                                                                     \
        }                                                                                \
        if (lane == 0)                                                                   \
            y[blockIdx.x] = part[0];                                                     \
    }
TREE(row_sum, __syncthreads())
TREE(row_sum_race, (void)0)
/* Every thread reads its neighbour's value and then overwrites its own, which the one before may not have read yet. */
extern "C" __global__ void read_then_write(float *y)
{
    __shared__ float part[64];
    part[threadIdx.x] = (float)threadIdx.x;
    __syncthreads();
    float v = part[(threadIdx.x + 1) % 64];
    part[threadIdx.x] = v * 2.0f;
    __syncthreads();
    y[threadIdx.x] = part[63 - threadIdx.x];
}
/* Threads of one block that wait at different barriers. */
extern "C" __global__ void split_barrier(float *y)
{
    __shared__ float part[64];
    part[threadIdx.x] = (float)threadIdx.x;
    if (threadIdx.x < 32) {
        __syncthreads();
        y[threadIdx.x] = part[threadIdx.x + 32];
    } else {
        asm volatile("bar.sync 1;");
        y[threadIdx.x] = part[threadIdx.x - 32];
    }
}
/* Reads one float beyond the end of its shared array, if asked to. */
extern "C" __global__ void shared_bounds(float *y, int last)
{
    extern __shared__ float dynamic[];
    dynamic[threadIdx.x] = (float)threadIdx.x;
    __syncthreads();
    y[threadIdx.x] = dynamic[threadIdx.x + last];
}
