/*
 * access: loads, stores, asynchronous copies and packing. A generic address is a global one, or one
 * in a window of its own for shared memory. Every lane's access is checked before it is made.
 */
#include "block.h"

#include <string.h>

/* A lane's place in memory, with its shadow; base NULL after a fault. */
struct place {
    char *base;
    struct shadow *shadow;
    size_t at;
};

static struct place place_in(struct ptx_warp *w, const struct ptx_instr *i, int l, int space,
                             uint64_t address, unsigned bytes)
{
    struct place p = {NULL, NULL, 0};
    struct ptx_block *b = w->block;
    if (space == PTX_GENERIC) {
        space = address >= PTX_SHARED_WINDOW ? PTX_SHARED : PTX_GLOBAL;
        address -= space == PTX_SHARED ? PTX_SHARED_WINDOW : 0;
    }
    if (address % bytes) {
        ptx_fault(w, i, l, "an address that is no multiple of %u: 0x%llx", bytes,
                  (unsigned long long)address);
    } else if (space == PTX_GLOBAL) {
        p.shadow = shadow_find(address, bytes, &p.at);
        p.base = p.shadow ? (char *)(uintptr_t)address : NULL; /* NOLINT: it is this process's */
        if (!p.base)
            ptx_fault(w, i, l, "0x%llx, %u bytes outside of every allocation",
                      (unsigned long long)address, bytes);
    } else if (space == PTX_LOCAL) {
        const unsigned most = b->kernel->local_bytes;
        if (address <= most && bytes <= most - address)
            p.base = w->local + (size_t)l * most + address;
        else
            ptx_fault(w, i, l, "byte %llu of %u of a thread's own memory",
                      (unsigned long long)address, most);
    } else if (address > b->shared_bytes || bytes > b->shared_bytes - address) {
        ptx_fault(w, i, l, "byte %llu of %u of shared memory", (unsigned long long)address,
                  b->shared_bytes);
    } else {
        p = (struct place){b->shared + address, &b->shared_shadow, (size_t)address};
    }
    return p;
}

static bool is_global(const struct ptx_warp *w, const struct place *p)
{
    return p->shadow && p->shadow != &w->block->shared_shadow;
}

static void check(struct ptx_warp *w, const struct ptx_instr *i, int l, enum shadow_finding finding,
                  uint32_t other)
{
    if (finding != SHADOW_GOOD)
        ptx_fault(w, i, l, "%s (thread %u)", shadow_says(finding),
                  other & ((1u << SHADOW_BITS) - 1));
}

static uint64_t address_of(struct ptx_warp *w, const struct ptx_instr *i, const int32_t *row, int l,
                           bool narrow)
{
    uint64_t base = 0;
    if (row[0] >= 0)
        base =
            narrow ? ((const uint32_t *)ROW(w, row[0]))[l] : ((const uint64_t *)ROW(w, row[0]))[l];
    return base + (uint64_t)(int64_t)i->imm;
}

/* ---- loads and stores ---- */

/* A value in memory into a register, which may be wider. */
static void put(void *row, int l, const void *from, const struct ptx_instr *i)
{
    uint64_t raw = 0;
    memcpy(&raw, from, i->a_bytes);
    if (i->d_type == PTX_S8)
        raw = (uint64_t)(int64_t)(int8_t)raw;
    else if (i->d_type == PTX_S16)
        raw = (uint64_t)(int64_t)(int16_t)raw;
    else if (i->d_type == PTX_S32)
        raw = (uint64_t)(int64_t)(int32_t)raw;
    memcpy((char *)row + (unsigned)l * i->d_bytes, &raw, i->d_bytes);
}

/* All lanes at once where that can be. */
static bool access_warp(struct ptx_warp *w, const struct ptx_instr *i, uint32_t mask, bool loads)
{
    struct ptx_found found;
    if (!ptx_access_warp(w, i, mask, loads, &found))
        return false;
    if (found.lane >= 0)
        check(w, i, found.lane, found.finding, found.other);
    struct ptx_counts *c = &w->block->kernel->counts;
    if (found.global)
        *(loads ? &c->read_bytes : &c->written_bytes) +=
            (uint64_t)i->a_bytes * (unsigned)i->n * (unsigned)__builtin_popcount(mask);
    return true;
}

static void load(struct ptx_warp *w, const struct ptx_instr *i, uint32_t mask)
{
    const unsigned bytes = i->a_bytes * (unsigned)i->n;
    if (access_warp(w, i, mask, true))
        return;
    for (int l = 0; l < PTX_LANES; l++) {
        uint32_t other;
        if (!(mask >> l & 1))
            continue;
        struct place p = place_in(w, i, l, i->space, address_of(w, i, i->a, l, i->flag), bytes);
        if (!p.base)
            return;
        w->block->kernel->counts.read_bytes += is_global(w, &p) ? bytes : 0;
        if (p.shadow)
            check(w, i, l, shadow_read(p.shadow, p.at, bytes, ptx_thread(w, l), &other), other);
        for (int k = 0; k < i->n; k++)
            if (i->d[k] >= 0)
                put(ROW(w, i->d[k]), l, p.base + (unsigned)k * i->a_bytes, i);
    }
}

/* What has been put into lane `from`, into the others of mask, too. */
static void spread(char *row, int from, unsigned bytes, uint32_t mask)
{
    for (uint32_t left = mask; left; left &= left - 1) {
        char *to = row + (unsigned)__builtin_ctz(left) * bytes,
             *value = row + (unsigned)from * bytes;
        if (bytes == 8)
            *(uint64_t *)to = *(const uint64_t *)value;
        else if (bytes == 4)
            *(uint32_t *)to = *(const uint32_t *)value;
        else
            *(uint16_t *)to = *(const uint16_t *)value;
    }
}

static void load_param(struct ptx_warp *w, const struct ptx_instr *i, uint32_t mask)
{
    const char *params = w->block->grid->params;
    const bool same = i->a[0] < 0; /* for all lanes, as almost always */
    for (int l = 0; l < PTX_LANES; l++) {
        uint64_t at = address_of(w, i, i->a, l, i->flag);
        if (!(mask >> l & 1))
            continue;
        if (at + i->a_bytes * (unsigned)i->n > w->block->kernel->param_bytes) {
            ptx_fault(w, i, l, "byte %llu of the parameters", (unsigned long long)at);
            return;
        }
        for (int k = 0; k < i->n; k++)
            if (i->d[k] >= 0) {
                put(ROW(w, i->d[k]), l, params + at + (unsigned)k * i->a_bytes, i);
                if (same)
                    spread(ROW(w, i->d[k]), l, i->d_bytes, mask);
            }
        if (same)
            return;
    }
}

static void store(struct ptx_warp *w, const struct ptx_instr *i, uint32_t mask)
{
    const unsigned bytes = i->a_bytes * (unsigned)i->n;
    if (access_warp(w, i, mask, false))
        return;
    for (int l = 0; l < PTX_LANES; l++) {
        uint32_t other;
        if (!(mask >> l & 1))
            continue;
        struct place p = place_in(w, i, l, i->space, address_of(w, i, i->a, l, i->flag), bytes);
        if (!p.base)
            return;
        w->block->kernel->counts.written_bytes += is_global(w, &p) ? bytes : 0;
        if (p.shadow)
            check(w, i, l, shadow_write(p.shadow, p.at, bytes, ptx_thread(w, l), &other), other);
        for (int k = 0; k < i->n; k++)
            memcpy(p.base + (unsigned)k * i->a_bytes,
                   (char *)ROW(w, i->b[k]) + (unsigned)l * i->d_bytes, i->a_bytes);
    }
}

static uint8_t space_of(const struct ptx_statement *s)
{
    return ptx_has_word(s, "param")    ? PTX_PARAM
           : ptx_has_word(s, "shared") ? PTX_SHARED
           : ptx_has_word(s, "global") ? PTX_GLOBAL
           : ptx_has_word(s, "local")  ? PTX_LOCAL
                                       : PTX_GENERIC;
}

static bool set_address(const struct ptx_operand *o, struct ptx_instr *i)
{
    i->a[0] = o->at;
    i->imm = (int32_t)o->number;
    i->flag = o->bytes == 4;
    return o->what == PTX_ADDRESS && (int64_t)i->imm == o->number &&
           (o->at < 0 || o->bytes == 4 || o->bytes == 8);
}

/* Registers of a vector or one; their width. */
static bool set_registers(struct ptx_builder *b, const struct ptx_operand *o, int32_t rows[4],
                          struct ptx_instr *i)
{
    i->n = o->what == PTX_LIST ? (uint8_t)o->n : 1;
    i->d_bytes = o->what == PTX_LIST       ? o->list_bytes
                 : o->what == PTX_REGISTER ? o->bytes
                                           : i->a_bytes;
    if (i->n > 4)
        return false;
    for (int k = 0; k < i->n; k++)
        rows[k] = o->what == PTX_LIST ? o->list[k] : ptx_source(b, o, i->d_bytes);
    return true;
}

static void choose_memory(struct ptx_builder *b, const struct ptx_statement *s, struct ptx_instr *i)
{
    bool loads = !strcmp(s->words[0], "ld");
    static const char *const refused[] = {"const", "relaxed", "acquire", "release"};
    for (size_t k = 0; k < sizeof refused / sizeof *refused; k++)
        if (ptx_has_word(s, refused[k]))
            return;
    i->space = space_of(s);
    i->d_type = (uint8_t)s->type;
    i->a_bytes = (uint8_t)ptx_type_bytes(s->type);
    if (s->n != 2 || !set_address(&s->operands[loads ? 1 : 0], i) ||
        !set_registers(b, &s->operands[loads ? 0 : 1], loads ? i->d : i->b, i))
        return;
    i->run = !loads ? store : i->space == PTX_PARAM ? load_param : load;
}

/* ---- asynchronous copies ---- */

/* Makes the copies of the lanes in mask: those of groups up to most[lane], which are then the
 * lane's own writes; or all, which stay on their way (most NULL). */
static void land_copies(struct ptx_warp *w, uint32_t mask, const uint32_t *most)
{
    int left = 0;
    for (int k = 0; k < w->n_copies; k++) {
        const struct ptx_copy c = w->copies[k];
        if (!(mask >> c.lane & 1) || (most && c.group > most[c.lane])) {
            w->copies[left++] = c;
            continue;
        }
        memset(w->block->shared + c.to, 0, c.bytes);
        if (c.wanted)
            memcpy(w->block->shared + c.to, (const char *)(uintptr_t)c.from, c.wanted);
        if (most)
            shadow_end_copy(&w->block->shared_shadow, c.to, c.bytes, ptx_thread(w, c.lane));
        else
            w->copies[left++] = c;
    }
    w->n_copies = left;
}

/* The shared address in a, the global one in b, what is read of the bytes in c. */
static void copy_async(struct ptx_warp *w, const struct ptx_instr *i, uint32_t mask)
{
    for (int l = 0; l < PTX_LANES; l++) {
        uint32_t other;
        if (!(mask >> l & 1))
            continue;
        const uint64_t from = ((const uint64_t *)ROW(w, i->b[0]))[l];
        const uint32_t wanted =
            i->c[0] >= 0 ? ((const uint32_t *)ROW(w, i->c[0]))[l] : (uint32_t)i->n;
        struct place to = place_in(w, i, l, PTX_SHARED, address_of(w, i, i->a, l, i->flag), i->n);
        if (!to.base)
            return;
        if (wanted > i->n || from % i->n || w->n_copies == PTX_MOST_COPIES) {
            ptx_fault(w, i, l, "a copy of %u of %u bytes from 0x%llx, with %d on their way", wanted,
                      i->n, (unsigned long long)from, w->n_copies);
            return;
        }
        struct place source = {NULL, NULL, 0};
        if (wanted && !(source = place_in(w, i, l, PTX_GLOBAL, from, i->n)).base)
            return;
        if (wanted)
            check(w, i, l, shadow_read(source.shadow, source.at, wanted, ptx_thread(w, l), &other),
                  other);
        w->block->kernel->counts.read_bytes += wanted;
        check(w, i, l, shadow_start_copy(to.shadow, to.at, i->n, ptx_thread(w, l), &other), other);
        memset(to.base, 0xff, i->n); /* not there yet */
        w->copies[w->n_copies++] = (struct ptx_copy){
            from, (uint32_t)to.at, i->n, (uint8_t)wanted, (uint8_t)l, w->committed[l] + 1};
    }
    if (!ptx_random(4)) /* some land at once, which helps nobody who has not waited */
        land_copies(w, 1u << ptx_random(PTX_LANES), NULL);
}

static void wait_all(struct ptx_warp *w, const struct ptx_instr *i, uint32_t mask)
{
    (void)i;
    static const uint32_t all[PTX_LANES] = {[0 ... PTX_LANES - 1] = UINT32_MAX};
    land_copies(w, mask, all);
}

static void commit_group(struct ptx_warp *w, const struct ptx_instr *i, uint32_t mask)
{
    (void)i;
    for (int l = 0; l < PTX_LANES; l++)
        w->committed[l] += mask >> l & 1;
}

/* All groups but the last n of each thread. */
static void wait_group(struct ptx_warp *w, const struct ptx_instr *i, uint32_t mask)
{
    uint32_t most[PTX_LANES];
    for (int l = 0; l < PTX_LANES; l++)
        most[l] = w->committed[l] > (uint32_t)i->imm ? w->committed[l] - (uint32_t)i->imm : 0;
    land_copies(w, mask, most);
}

static void choose_copy(struct ptx_builder *b, const struct ptx_statement *s, struct ptx_instr *i)
{
    if (ptx_has_word(s, "wait_all")) {
        i->run = wait_all;
    } else if (ptx_has_word(s, "commit_group")) {
        i->run = commit_group;
    } else if (ptx_has_word(s, "wait_group") && s->n == 1) {
        i->imm = (int32_t)s->operands[0].number;
        i->run = wait_group;
    } else if (s->n >= 3 && s->operands[1].what == PTX_ADDRESS && s->operands[1].bytes == 8 &&
               s->operands[1].number == 0 && s->operands[2].what == PTX_NUMBER) {
        if (!set_address(&s->operands[0], i))
            return;
        i->b[0] = s->operands[1].at;
        i->n = (uint8_t)s->operands[2].number;
        i->c[0] = s->n > 3 ? ptx_source(b, &s->operands[3], 4) : -1;
        i->run = i->n == 4 || i->n == 8 || i->n == 16 ? copy_async : NULL;
    }
}

/* ---- addresses and packing ---- */

static void shift_window(struct ptx_warp *w, const struct ptx_instr *i, uint32_t mask)
{
    const uint64_t *from = ROW(w, i->a[0]);
    uint64_t *to = ROW(w, i->d[0]);
    for (int l = 0; l < PTX_LANES; l++)
        if (mask >> l & 1)
            to[l] = i->flag ? from[l] + PTX_SHARED_WINDOW : from[l] - PTX_SHARED_WINDOW;
}

/* n parts of d_bytes each, in one register of a_bytes; into, and out of. */
static void pack(struct ptx_warp *w, const struct ptx_instr *i, uint32_t mask)
{
    for (int l = 0; l < PTX_LANES; l++)
        for (int k = 0; k < i->n && mask >> l & 1; k++)
            memcpy((char *)ROW(w, i->d[0]) + (unsigned)l * i->a_bytes + (unsigned)k * i->d_bytes,
                   (char *)ROW(w, i->a[k]) + (unsigned)l * i->d_bytes, i->d_bytes);
}

static void unpack(struct ptx_warp *w, const struct ptx_instr *i, uint32_t mask)
{
    char whole[PTX_LANES * 8]; /* a part may be the whole's own register */
    memcpy(whole, ROW(w, i->a[0]), (size_t)PTX_LANES * i->a_bytes);
    for (int l = 0; l < PTX_LANES; l++)
        for (int k = 0; k < i->n && mask >> l & 1; k++)
            if (i->d[k] >= 0)
                memcpy((char *)ROW(w, i->d[k]) + (unsigned)l * i->d_bytes,
                       whole + (unsigned)l * i->a_bytes + (unsigned)k * i->d_bytes, i->d_bytes);
}

static void choose_packing(struct ptx_builder *b, const struct ptx_statement *s,
                           struct ptx_instr *i)
{
    bool packs = s->operands[1].what == PTX_LIST;
    const struct ptx_operand *list = &s->operands[packs ? 1 : 0];
    const struct ptx_operand *whole = &s->operands[packs ? 0 : 1];
    if (list->what != PTX_LIST || list->n > 4)
        return;
    i->n = (uint8_t)list->n;
    i->a_bytes = (uint8_t)ptx_type_bytes(s->type);
    i->d_bytes = (uint8_t)(i->a_bytes / list->n);
    if (i->d_bytes != list->list_bytes)
        return;
    for (int k = 0; k < list->n; k++)
        *(packs ? &i->a[k] : &i->d[k]) = list->list[k];
    if (packs)
        i->d[0] = whole->at;
    else
        i->a[0] = ptx_source(b, whole, i->a_bytes);
    i->run = packs ? pack : unpack;
}

static void choose_window(struct ptx_builder *b, const struct ptx_statement *s, struct ptx_instr *i)
{
    const struct ptx_lane_op *op = ptx_lane_ops();
    i->d[0] = s->operands[0].at;
    i->a[0] = ptx_source(b, &s->operands[1], 8);
    if (s->n != 2 || i->a[0] < 0 || ptx_has_word(s, "local"))
        return;
    i->flag = !ptx_has_word(s, "to");
    while (strcmp(op->name, "mov.b64"))
        op++;
    i->run = ptx_has_word(s, "shared") ? shift_window : op->run;
}

void ptx_choose_access(struct ptx_builder *b, const struct ptx_statement *s, struct ptx_instr *i)
{
    const char *op = s->words[0];
    if (!strcmp(op, "ld") || !strcmp(op, "st"))
        choose_memory(b, s, i);
    else if (!strcmp(op, "cp") && s->n_words > 1 && !strcmp(s->words[1], "async"))
        choose_copy(b, s, i);
    else if (!strcmp(op, "mov"))
        choose_packing(b, s, i);
    else if (!strcmp(op, "cvta"))
        choose_window(b, s, i);
}
