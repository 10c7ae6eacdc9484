/* Philox-4x32-10 by 32-bit high products, and the high half of 64-bit products. */
extern "C" __global__ void philox(unsigned *out, unsigned long long seed, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned c0 = (unsigned)i, c1 = 0, c2 = 7, c3 = 0, k0 = (unsigned)seed, k1 = (unsigned)(seed >> 32);
    for (int r = 0; r < 10; r++) {
        unsigned h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0, h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
        c0 = h1 ^ c1 ^ k0;
        c1 = l1;
        c2 = h0 ^ c3 ^ k1;
        c3 = l0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[4 * i] = c0;
    out[4 * i + 1] = c1;
    out[4 * i + 2] = c2;
    out[4 * i + 3] = c3;
}
extern "C" __global__ void wide(unsigned long long *hi, long long *shi, unsigned long long *q, long long *r,
                                const unsigned long long *a,
                                const unsigned long long *b, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    hi[i] = __umul64hi(a[i], b[i]);
    shi[i] = __mul64hi((long long)a[i], (long long)b[i]);
    q[i] = a[i] / (b[i] | 1);
    r[i] = (long long)a[i] % (long long)(b[i] | 1);
}
