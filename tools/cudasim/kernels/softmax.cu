/* y = exp(x - max) / sum, one block a row; also log-sum-exp, by ex2 and lg2. */
extern "C" __global__ void __launch_bounds__(128) softmax(float *y, float *lse, const float *x, int C)
{
    __shared__ float part[128];
    int lane = threadIdx.x;
    const float *row = x + (long long)blockIdx.x * C;
    float largest = -3.402823466e38f, sum = 0;
    for (int c = lane; c < C; c += 128)
        largest = fmaxf(largest, row[c]);
    part[lane] = largest;
    __syncthreads();
    for (int half = 64; half > 0; half >>= 1) {
        if (lane < half)
            part[lane] = fmaxf(part[lane], part[lane + half]);
        __syncthreads();
    }
    largest = part[0];
    __syncthreads();
    for (int c = lane; c < C; c += 128)
        sum += exp2f((row[c] - largest) * 1.44269504f);
    part[lane] = sum;
    __syncthreads();
    for (int half = 64; half > 0; half >>= 1) {
        if (lane < half)
            part[lane] += part[lane + half];
        __syncthreads();
    }
    sum = part[0];
    for (int c = lane; c < C; c += 128)
        y[(long long)blockIdx.x * C + c] = exp2f((row[c] - largest) * 1.44269504f) / sum;
    if (lane == 0)
        lse[blockIdx.x] = largest + log2f(sum) * 0.69314718f;
}
