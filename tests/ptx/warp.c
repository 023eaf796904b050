/*
 * warp: what lanes do together: shuffles, votes, matrices. Fragments are laid out by the formulas
 * of the PTX ISA (9.7.15, matrix fragments for mma.m16n8k16 and .m16n8k8, ldmatrix).
 */
#include "block.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- shuffles and votes ---- */

enum { SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_BFLY, SHUFFLE_IDX };

/* a: the value, b: lane or mask, c[0]: clamp and segment, c[1]: who takes part. */
static void shuffle(struct ptx_warp *w, const struct ptx_instr *i, uint32_t mask)
{
    const uint32_t *value = ROW(w, i->a[0]), *by = ROW(w, i->b[0]), *clamps = ROW(w, i->c[0]);
    const uint32_t *members = ROW(w, i->c[1]);
    uint32_t r[PTX_LANES], found = 0, *to = ROW(w, i->d[0]);
    for (int l = 0; l < PTX_LANES; l++) {
        int clamp = (int)(clamps[l] & 0x1f), segment = (int)(clamps[l] >> 8 & 0x1f);
        int most = (l & segment) | (clamp & ~segment), least = l & segment, lane = 0;
        int n = (int)(by[l] & 0x1f);
        bool good = false;
        if (!(mask >> l & 1))
            continue;
        if (i->mode == SHUFFLE_UP)
            lane = l - n, good = lane >= most;
        else if (i->mode == SHUFFLE_DOWN)
            lane = l + n, good = lane <= most;
        else if (i->mode == SHUFFLE_BFLY)
            lane = l ^ n, good = lane <= most;
        else
            lane = least | (n & ~segment), good = lane <= most;
        lane = good ? lane : l;
        if ((members[l] & w->live & mask) != (members[l] & w->live) || !(mask >> lane & 1)) {
            ptx_fault(w, i, l, "a shuffle with lanes 0x%x of which 0x%x came", members[l], mask);
            return;
        }
        r[l] = value[lane];
        found |= (uint32_t)good << l;
    }
    for (int l = 0; l < PTX_LANES; l++)
        if (mask >> l & 1)
            to[l] = r[l];
    if (i->d[1] >= 0) {
        uint32_t *p = ROW(w, i->d[1]);
        *p = (*p & ~mask) | (found & mask);
    }
}

static void choose_shuffle(struct ptx_builder *b, const struct ptx_statement *s,
                           struct ptx_instr *i)
{
    static const char *const modes[] = {"up", "down", "bfly", "idx"};
    if (s->n != 5 || !ptx_has_word(s, "sync") || s->operands[0].bytes != 4)
        return;
    for (uint8_t k = 0; k < 4; k++)
        if (ptx_has_word(s, modes[k]))
            i->mode = k;
    i->d[0] = s->operands[0].at;
    i->d[1] = s->operands[0].second;
    i->a[0] = ptx_source(b, &s->operands[1], 4);
    i->b[0] = ptx_source(b, &s->operands[2], 4);
    i->c[0] = ptx_source(b, &s->operands[3], 4);
    i->c[1] = ptx_source(b, &s->operands[4], 4);
    i->kind = PTX_TOGETHER;
    i->run = shuffle;
}

enum { VOTE_BALLOT, VOTE_ANY, VOTE_ALL, VOTE_UNI };

static void vote(struct ptx_warp *w, const struct ptx_instr *i, uint32_t mask)
{
    const uint32_t said = *(const uint32_t *)ROW(w, i->a[0]) ^ (i->flag ? UINT32_MAX : 0);
    const uint32_t *members = ROW(w, i->b[0]);
    const uint32_t yes = said & mask;
    if ((members[0] & w->live & mask) != (members[0] & w->live)) {
        ptx_fault(w, i, 0, "a vote of lanes 0x%x of which 0x%x came", members[0], mask);
        return;
    }
    if (i->mode == VOTE_BALLOT) {
        uint32_t *to = ROW(w, i->d[0]);
        for (int l = 0; l < PTX_LANES; l++)
            if (mask >> l & 1)
                to[l] = yes;
        return;
    }
    bool result = i->mode == VOTE_ANY   ? yes != 0
                  : i->mode == VOTE_ALL ? yes == mask
                                        : yes == mask || !yes;
    uint32_t *p = ROW(w, i->d[0]);
    *p = (*p & ~mask) | (result ? mask : 0);
}

static void choose_vote(struct ptx_builder *b, const struct ptx_statement *s, struct ptx_instr *i)
{
    static const char *const modes[] = {"ballot", "any", "all", "uni"};
    if (s->n != 3 || !ptx_has_word(s, "sync"))
        return;
    for (uint8_t k = 0; k < 4; k++)
        if (ptx_has_word(s, modes[k]))
            i->mode = k;
    i->d[0] = s->operands[0].at;
    i->a[0] = ptx_source(b, &s->operands[1], 1);
    i->flag = s->operands[1].negated;
    i->b[0] = ptx_source(b, &s->operands[2], 4);
    i->kind = PTX_TOGETHER;
    i->run = i->a[0] < 0 ? NULL : vote;
}

static void active_mask(struct ptx_warp *w, const struct ptx_instr *i, uint32_t mask)
{
    uint32_t *to = ROW(w, i->d[0]);
    for (int l = 0; l < PTX_LANES; l++)
        if (mask >> l & 1)
            to[l] = mask;
}

/* Orders memory among lanes; the shadow knows barriers of the block alone, which is stricter. */
static void nothing(struct ptx_warp *w, const struct ptx_instr *i, uint32_t mask)
{
    (void)w;
    (void)i;
    (void)mask;
}

/* ---- ldmatrix ---- */

/* n matrices of 8 x 8 halves: lane 8 m + r gives the address of row r of matrix m. Lane l gets of
 * each the elements (l / 4, 2 (l % 4)) and the next; transposed (2 (l % 4), l / 4) and the one
 * below. */
static void load_matrices(struct ptx_warp *w, const struct ptx_instr *i, uint32_t mask)
{
    uint16_t matrix[4][8][8];
    struct ptx_block *b = w->block;
    for (int m = 0; m < i->n; m++)
        for (int r = 0; r < 8; r++) {
            int l = 8 * m + r;
            uint32_t other, at = ((const uint32_t *)ROW(w, i->a[0]))[l] + (uint32_t)i->imm;
            enum shadow_finding finding;
            if (at % 16 || at > b->shared_bytes || 16 > b->shared_bytes - at) {
                ptx_fault(w, i, l, "row at byte %u of %u of shared memory", at, b->shared_bytes);
                return;
            }
            /* The warp reads it: any lane of it may have it. */
            finding = shadow_read(&b->shared_shadow, at, 16, ptx_thread(w, l), &other);
            if (finding != SHADOW_GOOD) {
                ptx_fault(w, i, l, "%s (thread %u)", shadow_says(finding),
                          other & ((1u << SHADOW_BITS) - 1));
                return;
            }
            memcpy(matrix[m][r], b->shared + at, 16);
        }
    for (int m = 0; m < i->n; m++) {
        uint32_t *to = ROW(w, i->d[m]);
        for (int l = 0; l < PTX_LANES; l++) {
            int g = l / 4, t = l % 4 * 2;
            uint32_t low = i->flag ? matrix[m][t][g] : matrix[m][g][t];
            uint32_t high = i->flag ? matrix[m][t + 1][g] : matrix[m][g][t + 1];
            if (mask >> l & 1)
                to[l] = low | high << 16;
        }
    }
}

static void choose_matrices(const struct ptx_statement *s, struct ptx_instr *i)
{
    const struct ptx_operand *to = &s->operands[0], *from = &s->operands[1];
    int n = ptx_has_word(s, "x4") ? 4 : ptx_has_word(s, "x2") ? 2 : 1;
    if (s->n != 2 || !ptx_has_word(s, "m8n8") || !ptx_has_word(s, "b16") || to->what != PTX_LIST ||
        to->n != n || to->list_bytes != 4 || from->what != PTX_ADDRESS || from->bytes != 4)
        return;
    for (int k = 0; k < n; k++)
        i->d[k] = to->list[k];
    i->n = (uint8_t)n;
    i->a[0] = from->at;
    i->imm = (int32_t)from->number;
    i->flag = ptx_has_word(s, "trans");
    i->kind = PTX_TOGETHER;
    i->run = load_matrices;
}

/* ---- mma ---- */

/* A register's halves, lane after lane, the lower first: all of them exact in fp32. */
static void widen(float to[2 * PTX_LANES], const uint32_t *row, enum ptx_type type)
{
    uint32_t bits[2 * PTX_LANES];
    for (int l = 0; l < PTX_LANES; l++) {
        bits[2 * l] = row[l] & 0xffff;
        bits[2 * l + 1] = row[l] >> 16;
    }
    if (type == PTX_BF16) {
        for (int k = 0; k < 2 * PTX_LANES; k++)
            bits[k] <<= 16;
        memcpy(to, bits, sizeof bits);
        return;
    }
    for (int k = 0; k < 2 * PTX_LANES; k++) {
        const uint32_t magnitude = bits[k] & 0x7fff, moved = magnitude << 13;
        float value;
        memcpy(&value, &moved, sizeof value);
        value *= 0x1p112f; /* the exponents' biases; what is subnormal becomes normal */
        uint32_t as_bits;
        memcpy(&as_bits, &value, sizeof as_bits);
        as_bits |= magnitude >= 0x7c00 ? 0x7f800000 : 0;
        as_bits |= (bits[k] & 0x8000) << 16;
        memcpy(&to[k], &as_bits, sizeof as_bits);
    }
}

/* Tensor cores add products, which are exact, and C as integers: each is cut towards zero some bits
 * below the last that the largest has in fp32, and so is the sum (Fasi et al., PeerJ Computer
 * Science 7:e330). An A100 keeps one such bit and later ones two; here it is one, and 8 products at
 * a time: the worst of all. */
enum { EXTRA_BITS = 1, AT_A_TIME = 8, COLUMNS = 8 };

/* Columns beside each other; the compiler makes of them what the machine has. */
enum { SIDE = 4 };
typedef double doubles __attribute__((vector_size(SIDE * sizeof(double))));
typedef int64_t words __attribute__((vector_size(SIDE * sizeof(int64_t))));
typedef int32_t numbers __attribute__((vector_size(SIDE * sizeof(int32_t))));
typedef float floats __attribute__((vector_size(SIDE * sizeof(float))));
#if defined __x86_64__ && defined __GNUC__ && !defined __clang__
#define WITH_VECTORS __attribute__((target_clones("avx2", "default"), optimize("O3")))
#else
#define WITH_VECTORS
#endif

/* A sum that has infinities, or what is no number, among its terms is their plain sum. */
static float add_all(const doubles terms[AT_A_TIME + 1], int column)
{
    double total = 0;
    for (int e = 0; e <= AT_A_TIME; e++)
        total += terms[e][column];
    return (float)total;
}

/* sums[column] += 8 products of a row and that column. Where all terms are 0 the unit is 1. */
WITH_VECTORS static void add_products(float sums[COLUMNS], const double a[AT_A_TIME],
                                      doubles b[AT_A_TIME][COLUMNS / SIDE])
{
    for (int side = 0; side < COLUMNS / SIDE; side++) {
        doubles terms[AT_A_TIME + 1], total = {0};
        words most = {0};
        floats sum;
        memcpy(&sum, sums + side * SIDE, sizeof sum);
        terms[AT_A_TIME] = __builtin_convertvector(sum, doubles);
        for (int e = 0; e < AT_A_TIME; e++)
            terms[e] = a[e] * b[e][side];
        for (int e = 0; e <= AT_A_TIME; e++) {
            const words magnitude = (words)terms[e] & INT64_MAX, larger = magnitude > most;
            most = (magnitude & larger) | (most & ~larger);
        }
        const words some = most != 0, last = 23 + EXTRA_BITS + 1023 - (most >> 52);
        const doubles unit = (doubles)(((last & some) + 1023) << 52);
        for (int e = 0; e <= AT_A_TIME; e++)
            total +=
                __builtin_convertvector(__builtin_convertvector(terms[e] * unit, numbers), doubles);
        total /= unit;
        sum = __builtin_convertvector(total, floats);
        const doubles back = __builtin_convertvector(sum, doubles);
        const words away = ((words)back & INT64_MAX) > ((words)total & INT64_MAX);
        sum = (floats)((numbers)sum + __builtin_convertvector(away, numbers)); /* towards zero */
        for (int n = 0; n < SIDE; n++)
            sums[side * SIDE + n] = most[n] >> 52 == 2047 ? add_all(terms, n) : sum[n];
    }
}

/* D = A B + C. Eight lanes' parts of a register are rows: register r of A has rows from 8 (r % 2)
 * on, columns from 8 (r / 2) on; that of B columns, rows from 8 r on. */
static void multiply(struct ptx_warp *w, const struct ptx_instr *i, uint32_t mask)
{
    const int depth = i->n;
    double a[16][16];
    doubles b[16][COLUMNS / SIDE];
    float halves[2 * PTX_LANES], sums[16][COLUMNS];
    (void)mask;
    for (int r = 0; r < depth / 4; r++) {
        widen(halves, ROW(w, i->a[r]), i->a_type);
        for (int k = 0; k < 2 * PTX_LANES; k++)
            a[8 * (r % 2) + k / 8][8 * (r / 2) + k % 8] = (double)halves[k];
    }
    for (int r = 0; r < depth / 8; r++) {
        widen(halves, ROW(w, i->b[r]), i->a_type);
        for (int k = 0; k < 2 * PTX_LANES; k++)
            b[8 * r + k % 8][k / 8 / SIDE][k / 8 % SIDE] = (double)halves[k];
    }
    for (int k = 0; k < 4; k++) /* lane 4 g + t: row g or g + 8, columns 2 t and the next */
        for (int l = 0; l < PTX_LANES; l++)
            sums[l / 4 + k / 2 * 8][2 * (l % 4) + k % 2] = ((const float *)ROW(w, i->c[k]))[l];
    for (int row = 0; row < 16; row++)
        for (int e = 0; e < depth; e += AT_A_TIME)
            add_products(sums[row], a[row] + e, b + e);
    for (int k = 0; k < 4; k++)
        for (int l = 0; l < PTX_LANES; l++)
            ((float *)ROW(w, i->d[k]))[l] = sums[l / 4 + k / 2 * 8][2 * (l % 4) + k % 2];
}

static bool set_list(const struct ptx_operand *o, int n, int32_t rows[4])
{
    if (o->what != PTX_LIST || o->n != n || o->list_bytes != 4)
        return false;
    memcpy(rows, o->list, (size_t)n * sizeof *rows);
    return true;
}

static void choose_product(const struct ptx_statement *s, struct ptx_instr *i)
{
    int depth = ptx_has_word(s, "m16n8k16") ? 16 : ptx_has_word(s, "m16n8k8") ? 8 : 0;
    int n = s->n_words;
    if (!depth || s->n != 4 || n < 6 || strcmp(s->words[n - 1], "f32") ||
        strcmp(s->words[n - 4], "f32") || strcmp(s->words[n - 2], s->words[n - 3]) ||
        !ptx_has_word(s, "row") || !ptx_has_word(s, "col"))
        return;
    i->a_type = ptx_type_of(s->words[n - 2], strlen(s->words[n - 2]));
    if ((i->a_type != PTX_BF16 && i->a_type != PTX_F16) || !set_list(&s->operands[0], 4, i->d) ||
        !set_list(&s->operands[1], depth / 4, i->a) ||
        !set_list(&s->operands[2], depth / 8, i->b) || !set_list(&s->operands[3], 4, i->c))
        return;
    i->n = (uint8_t)depth;
    i->kind = PTX_TOGETHER;
    i->run = multiply;
}

/* ---- control ---- */

static void choose_barrier(struct ptx_builder *b, const struct ptx_statement *s,
                           struct ptx_instr *i)
{
    bool reduces = ptx_has_word(s, "red");
    if (ptx_has_word(s, "warp")) {
        i->kind = PTX_TOGETHER;
        i->run = nothing;
        return;
    }
    /* All threads, at barrier 0. */
    const struct ptx_operand *number = &s->operands[reduces ? 1 : 0];
    if ((!ptx_has_word(s, "sync") && !reduces) || s->n != (reduces ? 3 : 1) ||
        number->what != PTX_NUMBER || number->number)
        return;
    i->mode = !reduces ? 0 : ptx_has_word(s, "or") ? 1 : ptx_has_word(s, "and") ? 2 : 3;
    if (i->mode == 3)
        return;
    i->d[0] = s->operands[0].at;
    i->a[0] = reduces ? ptx_source(b, &s->operands[2], 1) : -1;
    i->kind = PTX_BARRIER;
}

void ptx_choose_warp(struct ptx_builder *b, const struct ptx_statement *s, struct ptx_instr *i)
{
    const char *op = s->words[0];
    if (!strcmp(op, "shfl")) {
        choose_shuffle(b, s, i);
    } else if (!strcmp(op, "vote")) {
        choose_vote(b, s, i);
    } else if (!strcmp(op, "ldmatrix")) {
        choose_matrices(s, i);
    } else if (!strcmp(op, "mma")) {
        choose_product(s, i);
    } else if (!strcmp(op, "bar") || !strcmp(op, "barrier")) {
        choose_barrier(b, s, i);
    } else if (!strcmp(op, "activemask")) {
        i->d[0] = s->operands[0].at;
        i->run = active_mask;
    } else if (!strcmp(op, "membar") || !strcmp(op, "fence")) {
        i->run = nothing;
    } else if (!strcmp(op, "bra") && s->operands[0].what == PTX_LABEL) {
        i->imm = (int32_t)s->operands[0].number;
        i->kind = PTX_BRANCH;
    } else if (!strcmp(op, "ret") || !strcmp(op, "exit")) {
        i->kind = PTX_EXIT;
    } else if (!strcmp(op, "trap")) {
        i->kind = PTX_EXIT;
        i->flag = true;
    }
}
