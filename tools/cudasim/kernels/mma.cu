/* One warp, one tile: D = A B + C on the tensor cores. Fragments are loaded as the PTX manual lays them out. */
#define FRAGMENTS int lane = threadIdx.x, g = lane >> 2, t = lane & 3
#define STORE                                                \
    d[g * 8 + t * 2] = r[0];                                 \
    d[g * 8 + t * 2 + 1] = r[1];                             \
    d[(g + 8) * 8 + t * 2] = r[2];                           \
    d[(g + 8) * 8 + t * 2 + 1] = r[3]
#define PAIR(p, i, j) ((unsigned)(p)[i] | (unsigned)(p)[j] << 16)
#define MMA16(name, type)                                                                                                  \
    extern "C" __global__ void name(float *d, const unsigned short *a, const unsigned short *b, const float *c)           \
    {                                                                                                                      \
        FRAGMENTS;                                                                                                         \
        unsigned fa[4], fb[2];                                                                                             \
        float r[4];                                                                                                        \
        for (int i = 0; i < 4; i++) {                                                                                      \
            int row = g + (i & 1) * 8, k = t * 2 + (i >> 1) * 8;                                                           \
            fa[i] = PAIR(a, row * 16 + k, row * 16 + k + 1);                                                               \
        }                                                                                                                  \
        for (int i = 0; i < 2; i++)                                                                                        \
            fb[i] = PAIR(b, (t * 2 + i * 8) * 8 + g, (t * 2 + i * 8 + 1) * 8 + g);                                         \
        asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                                                 \
            "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"                                                    \
            : "=f"(r[0]), "=f"(r[1]), "=f"(r[2]), "=f"(r[3])                                                               \
            : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]), "f"(c[g * 8 + t * 2]),                \
              "f"(c[g * 8 + t * 2 + 1]), "f"(c[(g + 8) * 8 + t * 2]), "f"(c[(g + 8) * 8 + t * 2 + 1]));                    \
        STORE;                                                                                                             \
    }
MMA16(mma_bf16, "bf16")
MMA16(mma_f16, "f16")
extern "C" __global__ void mma_tf32(float *d, const float *a, const float *b, const float *c)
{
    FRAGMENTS;
    unsigned fa[4], fb[2];
    float r[4];
    for (int i = 0; i < 4; i++)
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(fa[i]) : "f"(a[(g + (i & 1) * 8) * 8 + t + (i >> 1) * 4]));
    for (int i = 0; i < 2; i++)
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(fb[i]) : "f"(b[(t + i * 4) * 8 + g]));
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
        : "=f"(r[0]), "=f"(r[1]), "=f"(r[2]), "=f"(r[3])
        : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]), "f"(c[g * 8 + t * 2]),
          "f"(c[g * 8 + t * 2 + 1]), "f"(c[(g + 8) * 8 + t * 2]), "f"(c[(g + 8) * 8 + t * 2 + 1]));
    STORE;
}
/* The same A by ldmatrix from shared memory, B by its transposed form. */
extern "C" __global__ void mma_ldmatrix(float *d, const unsigned short *a, const unsigned short *b, const float *c)
{
    __shared__ __align__(16) unsigned short as[16 * 16], bs[16 * 8];
    FRAGMENTS;
    for (int i = lane; i < 256; i += 32)
        as[i] = a[i];
    for (int i = lane; i < 128; i += 32)
        bs[i] = b[i];
    __syncwarp();
    unsigned fa[4], fb[2];
    float r[4];
    unsigned pa = (unsigned)__cvta_generic_to_shared(as + (lane & 15) * 16 + (lane >> 4) * 8);
    unsigned pb = (unsigned)__cvta_generic_to_shared(bs + (lane & 15) * 8);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]),
                 "=r"(fa[3]) : "r"(pa));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(fb[0]), "=r"(fb[1]) : "r"(pb));
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
        : "=f"(r[0]), "=f"(r[1]), "=f"(r[2]), "=f"(r[3])
        : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]), "f"(c[g * 8 + t * 2]),
          "f"(c[g * 8 + t * 2 + 1]), "f"(c[(g + 8) * 8 + t * 2]), "f"(c[(g + 8) * 8 + t * 2 + 1]));
    STORE;
}
