/* C = A B, row-major, by 16x16 tiles in shared memory; no dimension need be a multiple of the tile. */
#define TILE 16
extern "C" __global__ void __launch_bounds__(256) gemm(float *c, const float *a, const float *b, int m, int n, int k)
{
    __shared__ float as[TILE][TILE + 1], bs[TILE][TILE];
    int x = threadIdx.x % TILE, y = threadIdx.x / TILE, row = blockIdx.y * TILE + y, column = blockIdx.x * TILE + x;
    float sum = 0;
    for (int k0 = 0; k0 < k; k0 += TILE) {
        as[y][x] = row < m && k0 + x < k ? a[(long long)row * k + k0 + x] : 0.0f;
        bs[y][x] = column < n && k0 + y < k ? b[(long long)(k0 + y) * n + column] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; i++)
            sum = fmaf(as[y][i], bs[i][x], sum);
        __syncthreads();
    }
    if (row < m && column < n)
        c[(long long)row * n + column] = sum;
}
/* Four floats at a time. */
extern "C" __global__ void copy4(float4 *y, const float4 *__restrict__ x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float4 v = x[i];
        y[i] = make_float4(v.w, v.z, v.y, v.x);
    }
}
