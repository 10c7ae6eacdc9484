/* Loops of different length in neighbouring lanes: Collatz steps, and a switch inside. */
extern "C" __global__ void collatz(int *steps, const unsigned long long *start, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned long long v = start[i];
    int count = 0;
    while (v != 1) {
        if (v & 1)
            v = 3 * v + 1;
        else
            v >>= 1;
        count++;
        if (count > 1000)
            break;
    }
    steps[i] = count;
}
extern "C" __global__ void switches(int *y, const int *x, int n)
{
    __shared__ int seen[128];
    int i = blockIdx.x * blockDim.x + threadIdx.x, v = i < n ? x[i] : 0, r = 0;
    for (int k = 0; k < (v & 7); k++) {
        switch ((v >> k) % 5) {
        case 0: r += 3; break;
        case 1: r ^= v; break;
        case 2: r = r * 7 - k; continue;
        case 3: if (r > 1000) goto out; r <<= 1; break;
        default: r -= v / (k + 1); break;
        }
        r += k;
    }
out:
    seen[threadIdx.x] = r;
    __syncthreads();
    if (i < n)
        y[i] = r + seen[threadIdx.x ^ 1];
}
