/*
 * run: a grid, block after block from anywhere on. Of a block's warps that can go on one is drawn
 * at random and runs so many instructions as are drawn too, few or very many, so that warps get far
 * ahead of each other. Lanes of a warp that have parted are groups, each with its place in the
 * code: the one furthest behind runs until it meets another. What all lanes of a warp must do
 * together waits until all that are left have come.
 */
#include "block.h"

#include "tests/cuda_standin/standin.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t ptx_random(uint32_t below)
{
    return standin_random(below);
}

void ptx_fault(struct ptx_warp *w, const struct ptx_instr *i, int lane, const char *format, ...)
{
    const struct ptx_block *b = w->block;
    char text[512];
    va_list args;
    if (w->block->failed)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    w->block->failed = true;
    standin_break("%s, thread %u of block (%u, %u, %u): %.*s: %s", b->kernel->name,
                  ptx_thread(w, lane), b->index[0], b->index[1], b->index[2],
                  i ? (int)strcspn(i->text, ";\n") : 0, i ? i->text : "", text);
}

/* ---- groups of lanes ---- */

/* What all lanes do together holds up those who have come. */
static bool is_held_up(const struct ptx_warp *w, int pc)
{
    const struct ptx_kernel *k = w->block->kernel;
    return pc < k->n_code && (k->code[pc].kind == PTX_TOGETHER || k->code[pc].kind == PTX_BARRIER);
}

static void set_next(struct ptx_warp *w)
{
    w->next_pc = PTX_NEVER;
    for (int g = 0; g < w->n_others; g++)
        if (w->others[g].pc < w->next_pc && !is_held_up(w, w->others[g].pc))
            w->next_pc = w->others[g].pc;
}

static void put_aside(struct ptx_warp *w, int pc, uint32_t mask)
{
    for (int g = 0; mask && g < w->n_others; g++)
        if (w->others[g].pc == pc) {
            w->others[g].mask |= mask;
            mask = 0;
        }
    if (mask)
        w->others[w->n_others++] = (struct ptx_group){pc, mask};
    set_next(w);
}

/* Goes on with the group that is furthest behind, the running one among them; with one that is held
 * up only where there is no other. */
static void regroup(struct ptx_warp *w)
{
    int chosen = 0;
    if (w->active)
        put_aside(w, w->pc, w->active);
    w->active = 0;
    if (!w->n_others)
        return;
    for (int g = 0; g < w->n_others; g++)
        if (w->others[g].pc == w->next_pc)
            chosen = g;
    w->pc = w->others[chosen].pc;
    w->active = w->others[chosen].mask;
    w->others[chosen] = w->others[--w->n_others];
    set_next(w);
}

/* ---- a warp ---- */

/* Lanes whose guard holds. */
static uint32_t guarded(const struct ptx_warp *w, const struct ptx_instr *i)
{
    uint32_t holds = UINT32_MAX;
    if (i->guard >= 0)
        holds = *(const uint32_t *)ROW(w, i->guard) ^ (i->guard_not ? UINT32_MAX : 0);
    return w->active & holds;
}

static void branch(struct ptx_warp *w, const struct ptx_instr *i)
{
    const uint32_t taken = guarded(w, i), stay = w->active & ~taken;
    if (!taken) {
        w->pc++;
        return;
    }
    w->block->kernel->counts.branches++;
    if (!stay) {
        w->pc = i->imm;
    } else {
        put_aside(w, i->imm, taken);
        w->active = stay;
        w->pc++;
    }
}

static void leave(struct ptx_warp *w, const struct ptx_instr *i)
{
    const uint32_t gone = guarded(w, i);
    if (i->flag && gone)
        ptx_fault(w, i, __builtin_ctz(gone), "a trap");
    for (int k = 0; k < w->n_copies; k++)
        if (gone >> w->copies[k].lane & 1) {
            ptx_fault(w, i, w->copies[k].lane, "ends with a copy that it did not wait for");
            return;
        }
    w->live &= ~gone;
    w->active &= ~gone;
    w->pc++;
}

/* Whether all lanes that are left have come to what they do together; else others run on, and where
 * none can it is a fault. */
static bool gather(struct ptx_warp *w, const struct ptx_instr *i)
{
    for (int g = 0; g < w->n_others; g++)
        if (w->others[g].pc == w->pc) {
            w->active |= w->others[g].mask;
            w->others[g] = w->others[--w->n_others];
            break;
        }
    if (w->active == w->live)
        return true;
    if (w->next_pc == PTX_NEVER)
        ptx_fault(w, i, __builtin_ctz(w->active), "lanes 0x%x alone, of 0x%x that are left",
                  w->active, w->live);
    else
        regroup(w);
    return false;
}

static void count(struct ptx_warp *w, const struct ptx_instr *i)
{
    struct ptx_counts *c = &w->block->kernel->counts;
    c->products += i->kind == PTX_TOGETHER && !strncmp(i->text, "mma", 3);
    c->barriers += i->kind == PTX_BARRIER;
}

/* At most so many instructions, or up to the block's barrier or the end. */
static void run_warp(struct ptx_warp *w, int budget)
{
    const struct ptx_instr *code = w->block->kernel->code;
    const int n_code = w->block->kernel->n_code;
    uint64_t done = 0;
    for (; budget > 0 && !w->block->failed; budget--, done++) {
        if (w->pc >= w->next_pc || !w->active)
            regroup(w);
        if (!w->active)
            break;
        const struct ptx_instr *i = &code[w->pc];
        if (w->pc >= n_code) {
            ptx_fault(w, NULL, 0, "runs past its end");
            break;
        }
        if (i->kind == PTX_PLAIN) {
            const uint32_t mask = guarded(w, i);
            if (mask)
                i->run(w, i, mask);
            w->pc++;
        } else if (i->kind == PTX_BRANCH) {
            branch(w, i);
        } else if (i->kind == PTX_EXIT) {
            leave(w, i);
        } else if (!gather(w, i)) {
            continue;
        } else if (i->kind == PTX_BARRIER) {
            count(w, i);
            w->waiting = true;
            break;
        } else {
            const uint32_t mask = guarded(w, i);
            count(w, i);
            if (mask)
                i->run(w, i, mask);
            w->pc++;
        }
    }
    w->block->kernel->counts.instructions += done;
}

/* ---- a block ---- */

static void set_row(struct ptx_warp *w, int special, const unsigned *values, bool same)
{
    uint32_t *row = ROW(w, special * PTX_ROW);
    for (int l = 0; l < PTX_LANES; l++)
        row[l] = values[same ? 0 : l];
}

static void begin_warp(struct ptx_block *b, int index)
{
    struct ptx_warp *w = &b->warps[index];
    const struct ptx_grid *g = b->grid;
    const unsigned left = b->n_threads - (unsigned)index * PTX_LANES;
    unsigned ids[4][PTX_LANES];
    w->block = b;
    w->index = index;
    w->pc = 0;
    w->next_pc = PTX_NEVER;
    w->n_others = w->n_copies = 0;
    w->waiting = false;
    w->active = w->live = left >= PTX_LANES ? UINT32_MAX : (1u << left) - 1;
    memset(w->committed, 0, sizeof w->committed);
    memset(w->local, 0xff, (size_t)PTX_LANES * b->kernel->local_bytes);
    for (unsigned l = 0; l < PTX_LANES; l++) {
        unsigned t = (unsigned)index * PTX_LANES + l;
        ids[0][l] = t % g->block[0];
        ids[1][l] = t / g->block[0] % g->block[1];
        ids[2][l] = t / g->block[0] / g->block[1];
        ids[3][l] = l;
    }
    for (int d = 0; d < 3; d++) {
        set_row(w, PTX_TID + d, ids[d], false);
        set_row(w, PTX_NTID + d, &g->block[d], true);
        set_row(w, PTX_CTAID + d, &b->index[d], true);
        set_row(w, PTX_NCTAID + d, &g->grid[d], true);
    }
    set_row(w, PTX_LANEID, ids[3], false);
}

static const struct ptx_instr *barrier_of(const struct ptx_warp *w)
{
    return &w->block->kernel->code[w->pc];
}

/* What a reducing barrier finds, for all who wait there. */
static void reduce(struct ptx_block *b, const struct ptx_instr *i)
{
    bool any = false, all = true;
    for (unsigned k = 0; k < b->n_warps; k++) {
        struct ptx_warp *w = &b->warps[k];
        const uint32_t said = w->waiting ? *(const uint32_t *)ROW(w, i->a[0]) : 0;
        any = any || (w->waiting && said & w->active);
        all = all && (!w->waiting || (said & w->active) == w->active);
    }
    for (unsigned k = 0; k < b->n_warps; k++)
        if (b->warps[k].waiting) {
            uint32_t *p = ROW(&b->warps[k], i->d[0]);
            *p = (i->mode == 1 ? any : all) ? *p | b->warps[k].active : *p & ~b->warps[k].active;
        }
}

/* All warps that are left wait: they go on, in a new segment. false: none is left. */
static bool pass_barrier(struct ptx_block *b)
{
    const struct ptx_instr *at = NULL;
    for (unsigned k = 0; k < b->n_warps; k++) {
        struct ptx_warp *w = &b->warps[k];
        if (!w->waiting)
            continue;
        if (at && at->mode != barrier_of(w)->mode)
            ptx_fault(w, at, 0, "barriers of two kinds meet");
        at = barrier_of(w);
    }
    if (!at || b->failed)
        return false;
    if (at->mode)
        reduce(b, at);
    for (unsigned k = 0; k < b->n_warps; k++) {
        b->warps[k].pc += b->warps[k].waiting;
        b->warps[k].waiting = false;
    }
    shadow_pass_barrier();
    return true;
}

static bool can_go_on(const struct ptx_warp *w)
{
    return w->live && !w->waiting;
}

/* One warp that can go on, at random; NULL: none can. */
static struct ptx_warp *draw_warp(struct ptx_block *b)
{
    struct ptx_warp *drawn = NULL;
    uint32_t n = 0;
    for (unsigned k = 0; k < b->n_warps; k++)
        if (can_go_on(&b->warps[k]) && !ptx_random(++n))
            drawn = &b->warps[k];
    return drawn;
}

static bool run_block(struct ptx_block *b)
{
    shadow_begin_block();
    memset(b->shared, 0xff, b->shared_bytes);
    memset(b->shared_shadow.writer, 0, b->shared_bytes * sizeof(uint32_t));
    memset(b->shared_shadow.reader, 0, b->shared_bytes * sizeof(uint32_t));
    for (unsigned k = 0; k < b->n_warps; k++)
        begin_warp(b, (int)k);
    while (!b->failed) {
        struct ptx_warp *w = draw_warp(b);
        if (w)
            run_warp(w, ptx_random(4) ? 1 + (int)ptx_random(2000) : 1 + (int)ptx_random(40));
        else if (!pass_barrier(b))
            break;
    }
    return !b->failed;
}

/* ---- a grid ---- */

static bool open_block(struct ptx_block *b, struct ptx_kernel *kernel, const struct ptx_grid *grid)
{
    b->kernel = kernel;
    b->grid = grid;
    b->n_threads = grid->block[0] * grid->block[1] * grid->block[2];
    b->n_warps = (b->n_threads + PTX_LANES - 1) / PTX_LANES;
    b->shared_bytes = (kernel->shared_bytes + 15) / 16 * 16 + grid->dynamic_bytes;
    const size_t room = b->shared_bytes + 64;
    b->shared = malloc(room);
    b->shared_shadow.writer = malloc(room * sizeof(uint32_t));
    b->shared_shadow.reader = malloc(room * sizeof(uint32_t));
    bool good = b->shared && b->shared_shadow.writer && b->shared_shadow.reader;
    for (unsigned k = 0; good && k < b->n_warps; k++) {
        struct ptx_warp *w = &b->warps[k];
        w->file = aligned_alloc(64, (kernel->file_bytes + 63) / 64 * 64 + 64);
        w->copies = malloc(PTX_MOST_COPIES * sizeof *w->copies);
        w->local = malloc((size_t)PTX_LANES * kernel->local_bytes + 1);
        good = w->file && w->copies && w->local;
        if (good) {
            memset(w->file, 0xff, kernel->file_bytes); /* registers begin as NaN */
            memcpy(w->file, kernel->constants, kernel->constant_bytes);
        }
    }
    return good;
}

static void close_block(struct ptx_block *b)
{
    for (unsigned k = 0; k < b->n_warps; k++) {
        free(b->warps[k].file);
        free(b->warps[k].copies);
        free(b->warps[k].local);
    }
    free(b->shared);
    free(b->shared_shadow.writer);
    free(b->shared_shadow.reader);
    free(b);
}

static bool prepare(struct ptx_kernel *kernel)
{
    if (!kernel->translated)
        ptx_translate(kernel);
    else if (kernel->good && kernel->generation != ptx_mutation_generation())
        ptx_plant(kernel);
    return kernel->good;
}

bool ptx_shape(struct ptx_kernel *kernel, struct ptx_shape *shape)
{
    if (!prepare(kernel))
        return false;
    *shape = (struct ptx_shape){.shared_bytes = kernel->shared_bytes,
                                .most_threads = kernel->most_threads,
                                .param_bytes = kernel->param_bytes,
                                .n_params = kernel->n_params,
                                .param_offsets = kernel->param_offsets,
                                .param_sizes = kernel->param_sizes};
    return true;
}

bool ptx_run(struct ptx_kernel *kernel, const struct ptx_grid *grid)
{
    struct ptx_block *b = prepare(kernel) ? calloc(1, sizeof *b) : NULL;
    const uint64_t n_blocks = (uint64_t)grid->grid[0] * grid->grid[1] * grid->grid[2];
    if (!b)
        return false;
    bool good = open_block(b, kernel, grid);
    uint64_t start = n_blocks ? ptx_random((uint32_t)n_blocks) : 0;
    if (!good)
        standin_break("%s: no memory for a block", kernel->name);
    shadow_begin_launch();
    kernel->counts.launches++;
    for (uint64_t k = 0; good && k < n_blocks; k++) {
        uint64_t n = (start + k) % n_blocks;
        b->index[0] = (unsigned)(n % grid->grid[0]);
        b->index[1] = (unsigned)(n / grid->grid[0] % grid->grid[1]);
        b->index[2] = (unsigned)(n / grid->grid[0] / grid->grid[1]);
        good = run_block(b);
    }
    close_block(b);
    return good;
}
