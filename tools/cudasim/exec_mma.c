/* The tensor cores: mma.sync m16n8kK with float32 sums, and ldmatrix. Fragments are laid out as in the PTX manual: with g = lane
 * / 4 and t = lane % 4, a lane holds rows g and g + 8 of A and D, column g of B; 16-bit elements come in pairs at k = 2t, 2t + 1
 * of every 8, TF32 ones singly at k = t of every 4. Sums are float32 in order of k; hardware may sum in another order. */
#include "half.h"
#include "handler.h"

static float element(uint32_t bits, int high, enum type type)
{
    uint16_t half = (uint16_t)(high ? bits >> 16 : bits & 0xffff);
    if (type == T_TF32)
        return float_of_bits(bits & 0xffffe000u);
    return type == T_F16 ? float_of_f16(half) : float_of_bf16(half);
}

void run_mma(struct block *b, const struct insn *n, int warp, int lanes)
{
    (void)lanes;
    float a[16][16], w[16][8], d[16][8];
    int depth = n->vector, first = warp * 32;
    enum type type = (enum type)n->type2;
    bool pairs = type != T_TF32;
    banks_mma();
    int a_count = pairs ? depth / 4 : depth / 2, b_count = a_count / 2, group = pairs ? 8 : 4;
    for (int lane = 0; lane < 32; lane++) {
        int g = lane >> 2, t = lane & 3;
        for (int i = 0; i < a_count; i++) {
            uint32_t bits = REG(const uint32_t, 4 + i)[first + lane];
            int row = g + (i & 1) * 8, k = (i >> 1) * group + (pairs ? 2 * t : t);
            a[row][k] = element(bits, 0, type);
            if (pairs)
                a[row][k + 1] = element(bits, 1, type);
        }
        for (int i = 0; i < b_count; i++) {
            uint32_t bits = REG(const uint32_t, 4 + a_count + i)[first + lane];
            int k = i * group + (pairs ? 2 * t : t);
            w[k][g] = element(bits, 0, type);
            if (pairs)
                w[k + 1][g] = element(bits, 1, type);
        }
        for (int i = 0; i < 4; i++)
            d[g + (i >> 1) * 8][2 * t + (i & 1)] = REG(const float, 4 + a_count + b_count + i)[first + lane];
    }
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 8; column++) {
            float sum = d[row][column];
            for (int k = 0; k < depth; k++)
                sum += a[row][k] * w[k][column];
            d[row][column] = sum;
        }
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++)
            REG(float, i)[first + lane] = d[(lane >> 2) + (i >> 1) * 8][2 * (lane & 3) + (i & 1)];
}

/* Lanes 8m..8m+7 give the addresses of the rows of matrix m; every lane gets two neighbouring elements of row (or column) lane
 * / 4. */
void run_ldmatrix(struct block *b, const struct insn *n, int warp, int lanes)
{
    (void)lanes;
    int first = warp * 32;
    for (int m = 0; m < n->vector; m++) {
        uint16_t rows[8][8];
        for (int r = 0; r < 8; r++) {
            int lane = first + 8 * m + r;
            uint64_t base = n->width[0] == 8 ? REG(const uint64_t, 0)[lane] : REG(const uint32_t, 0)[lane];
            const uint8_t *from = shared_access(b, n, lane, base + (uint64_t)n->offset, 16, 0);
            if (!from)
                return;
            memcpy(rows[r], from, 16);
        }
        banks_access(b, first + 8 * m, first + 8 * m + 8, 16, m == 0);
        for (int lane = 0; lane < 32; lane++) {
            int r = lane >> 2, c = 2 * (lane & 3);
            uint16_t low = n->select ? rows[c][r] : rows[r][c], high = n->select ? rows[c + 1][r] : rows[r][c + 1];
            REG(uint32_t, 1 + m)[first + lane] = (uint32_t)high << 16 | low;
        }
    }
}
