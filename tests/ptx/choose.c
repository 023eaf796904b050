/* choose: which operation on lanes an opcode is, and conversions between types. */
#include "block.h"

#include "base/base.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const struct ptx_lane_op *ptx_lane_ops(void)
{
#if defined ZINF_HAVE_AVX2
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return ptx_lanes_avx2;
#endif
    return ptx_lanes_scalar;
}

/* ---- conversions of any kind ---- */

static int64_t read_integer(const void *row, int l, enum ptx_type type, unsigned bytes)
{
    uint64_t raw = 0;
    memcpy(&raw, (const char *)row + (unsigned)l * bytes, bytes);
    switch (type) {
    case PTX_U8:
        return (uint8_t)raw;
    case PTX_S8:
        return (int8_t)raw;
    case PTX_U16:
        return (uint16_t)raw;
    case PTX_S16:
        return (int16_t)raw;
    case PTX_U32:
        return (uint32_t)raw;
    case PTX_S32:
        return (int32_t)raw;
    default:
        return (int64_t)raw;
    }
}

static double read_float(const void *row, int l, enum ptx_type type)
{
    switch (type) {
    case PTX_F16:
        return zinf_f16_to_f32(((const uint16_t *)row)[l]);
    case PTX_BF16:
        return zinf_bf16_to_f32(((const uint16_t *)row)[l]);
    case PTX_F32:
        return ((const float *)row)[l];
    default:
        return ((const double *)row)[l];
    }
}

static bool is_float(enum ptx_type type)
{
    return type == PTX_F16 || type == PTX_BF16 || type == PTX_F32 || type == PTX_F64;
}

/* To an integer of n bits: what is beyond it becomes its end, and NaN 0 (of 64 bits: the least). */
static int64_t to_integer(double x, enum ptx_type type)
{
    bool is_signed = type == PTX_S8 || type == PTX_S16 || type == PTX_S32 || type == PTX_S64;
    int bits = 8 * (int)ptx_type_bytes(type);
    double low = is_signed ? -ldexp(1, bits - 1) : 0, high = ldexp(1, bits - is_signed);
    if (isnan(x))
        return bits == 64 ? INT64_MIN : 0;
    if (x < low)
        return is_signed ? (int64_t)(~0ull << (bits - 1)) : 0;
    if (x >= high)
        return (int64_t)(~0ull >> (64 - bits + is_signed));
    return is_signed ? (int64_t)x : (int64_t)(uint64_t)x;
}

enum { MODE_NEAREST, MODE_ZERO, MODE_DOWN, MODE_UP };

static double rounded(double x, int mode)
{
    return mode == MODE_ZERO   ? trunc(x)
           : mode == MODE_DOWN ? floor(x)
           : mode == MODE_UP   ? ceil(x)
                               : nearbyint(x);
}

/* Narrowing to 16 bits gives the one NaN that PTX names. */
static uint64_t float_bits(double x, enum ptx_type type)
{
    float narrow = (float)x;
    uint64_t bits = 0;
    switch (type) {
    case PTX_F16:
        return isnan(x) ? 0x7fff : zinf_f16_from_f32(narrow);
    case PTX_BF16:
        return isnan(x) ? 0x7fff : zinf_bf16_from_f32(narrow);
    case PTX_F32:
        memcpy(&bits, &narrow, sizeof narrow);
        return bits;
    default:
        memcpy(&bits, &x, sizeof x);
        return bits;
    }
}

static void convert(struct ptx_warp *w, const struct ptx_instr *i, uint32_t mask)
{
    const void *from = ROW(w, i->a[0]);
    char *to = ROW(w, i->d[0]);
    for (int l = 0; l < PTX_LANES; l++) {
        uint64_t bits;
        if (!(mask >> l & 1))
            continue;
        if (is_float(i->a_type)) {
            double x = read_float(from, l, i->a_type);
            bits = is_float(i->d_type)
                       ? float_bits(x, i->d_type)
                       : (uint64_t)to_integer(isnan(x) ? x : rounded(x, i->mode), i->d_type);
        } else {
            int64_t x = read_integer(from, l, i->a_type, i->a_bytes);
            bits = is_float(i->d_type)
                       ? float_bits(i->d_type == PTX_F32
                                        ? (i->a_type == PTX_U64 ? (float)(uint64_t)x : (float)x)
                                    : i->a_type == PTX_U64 ? (double)(uint64_t)x
                                                           : (double)x,
                                    i->d_type)
                       : (uint64_t)x;
            if (!is_float(i->d_type)) /* to the type's width, then to the register's by its sign */
                bits = (uint64_t)read_integer(&bits, 0, i->d_type, 8);
        }
        memcpy(to + (unsigned)l * i->d_bytes, &bits, i->d_bytes);
    }
}

/* cvt.rn.bf16x2.f32 d, a, b: a is the upper half. */
static void convert_pair(struct ptx_warp *w, const struct ptx_instr *i, uint32_t mask)
{
    const float *high = ROW(w, i->a[0]), *low = ROW(w, i->b[0]);
    uint32_t *to = ROW(w, i->d[0]);
    for (int l = 0; l < PTX_LANES; l++)
        if (mask >> l & 1)
            to[l] =
                (uint32_t)(float_bits(high[l], i->d_type) << 16 | float_bits(low[l], i->d_type));
}

static int mode_of(const struct ptx_statement *s)
{
    return ptx_has_word(s, "rzi") || ptx_has_word(s, "rz")   ? MODE_ZERO
           : ptx_has_word(s, "rmi") || ptx_has_word(s, "rm") ? MODE_DOWN
           : ptx_has_word(s, "rpi") || ptx_has_word(s, "rp") ? MODE_UP
                                                             : MODE_NEAREST;
}

static void choose_convert(struct ptx_builder *b, const struct ptx_statement *s,
                           struct ptx_instr *i)
{
    const char *to = s->words[s->n_words - 2], *from = s->words[s->n_words - 1];
    bool pair = !strcmp(to, "bf16x2") || !strcmp(to, "f16x2");
    bool narrows;
    if (s->n_words < 3 || s->operands[0].what != PTX_REGISTER)
        return;
    i->d_type = pair ? (*to == 'b' ? PTX_BF16 : PTX_F16) : ptx_type_of(to, strlen(to));
    i->a_type = ptx_type_of(from, strlen(from));
    i->mode = (uint8_t)mode_of(s);
    i->d_bytes = s->operands[0].bytes;
    i->a_bytes = s->operands[1].what == PTX_REGISTER ? s->operands[1].bytes
                                                     : (uint8_t)ptx_type_bytes(i->a_type);
    i->d[0] = s->operands[0].at;
    i->a[0] = ptx_source(b, &s->operands[1], i->a_bytes);
    narrows = is_float(i->d_type) && i->mode != MODE_NEAREST;
    if (ptx_has_word(s, "sat") || ptx_has_word(s, "relu") || narrows || i->a[0] < 0)
        return;
    if (pair) {
        i->b[0] = ptx_source(b, &s->operands[2], 4);
        i->run = i->b[0] < 0 ? NULL : convert_pair;
        return;
    }
    if (is_float(i->a_type) && i->a_bytes != ptx_type_bytes(i->a_type))
        return;
    i->run = convert;
}

/* ---- the table ---- */

/* The opcode as the table has it: signs do not matter to some, nor the one rounding there is, nor
 * that PTX says twice that a branch is taken by all. */
static void table_name(const struct ptx_statement *s, char *name, size_t bytes)
{
    static const char *const signless[] = {"add", "sub", "and", "or",  "xor",
                                           "not", "neg", "mov", "shl", "selp"};
    const char *op = s->words[0], *type = s->words[s->n_words - 1];
    bool integer = (*type == 'u' || *type == 's' || *type == 'b') && strcmp(type, "bf16");
    bool drop_sign = false, moves = !strcmp(op, "mov") || !strcmp(op, "selp");
    bool drop_rn = !strcmp(op, "add") || !strcmp(op, "sub") || !strcmp(op, "mul");
    bool compares = !strcmp(op, "setp");
    for (size_t k = 0; k < sizeof signless / sizeof *signless; k++)
        drop_sign = drop_sign || !strcmp(op, signless[k]);
    drop_sign = drop_sign || (ptx_has_word(s, "lo") && integer);
    size_t used = (size_t)snprintf(name, bytes, "%s", op);
    for (int k = 1; k < s->n_words && used < bytes; k++) {
        const char *word = s->words[k];
        bool last = k == s->n_words - 1;
        if ((drop_rn && !strcmp(word, "rn")) ||
            (compares && (!strcmp(word, "and") || !strcmp(word, "or") || !strcmp(word, "xor"))))
            continue;
        if (last && strcmp(word, "pred") && ((drop_sign && integer) || moves))
            word = !strcmp(word, "f32") ? "b32" : !strcmp(word, "f64") ? "b64" : word;
        if (last && drop_sign && integer && *word != 'b')
            used += (size_t)snprintf(name + used, bytes - used, ".b%s", word + 1);
        else if (last && *word == 'b' && (compares || !strcmp(op, "shr")))
            used += (size_t)snprintf(name + used, bytes - used, ".u%s", word + 1);
        else
            used += (size_t)snprintf(name + used, bytes - used, ".%s", word);
    }
}

static uint8_t boolean_of(const struct ptx_statement *s)
{
    return ptx_has_word(s, "and") ? 1 : ptx_has_word(s, "or") ? 2 : ptx_has_word(s, "xor") ? 3 : 0;
}

static bool fill_in(struct ptx_builder *b, const struct ptx_statement *s,
                    const struct ptx_lane_op *op, struct ptx_instr *i)
{
    const uint8_t widths[] = {op->a, op->b, op->c, op->e};
    int32_t *rows[] = {&i->a[0], &i->b[0], &i->c[0], &i->c[1]};
    const struct ptx_operand *d = &s->operands[0];
    int n = 1;
    if (d->what != PTX_REGISTER || d->bytes != op->d)
        return false;
    i->d[0] = d->at;
    i->d[1] = d->second;
    for (int k = 0; k < 4; k++) {
        if (!widths[k])
            continue;
        if (n >= s->n || s->operands[n].negated)
            return false;
        *rows[k] = ptx_source(b, &s->operands[n++], widths[k]);
        if (*rows[k] < 0)
            return false;
    }
    if (!strcmp(s->words[0], "setp") && (i->mode = boolean_of(s))) {
        if (n >= s->n)
            return false;
        i->flag = s->operands[n].negated;
        i->c[0] = ptx_source(b, &s->operands[n++], 1);
    }
    return n == s->n && (op->d == 1 || d->second < 0);
}

void ptx_choose_lanes(struct ptx_builder *b, const struct ptx_statement *s, struct ptx_instr *i)
{
    char name[128];
    table_name(s, name, sizeof name);
    for (const struct ptx_lane_op *op = ptx_lane_ops(); op->name; op++)
        if (!strcmp(op->name, name) && fill_in(b, s, op, i)) {
            i->run = op->run;
            return;
        }
    if (!strcmp(s->words[0], "cvt"))
        choose_convert(b, s, i);
}
