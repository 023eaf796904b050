/* mutate: faults planted into translated kernels, to see that tests catch them; and the counters.
 */
#include "code.h"

#include <string.h>

static char word[128];
static enum ptx_mutation wanted;
static int wanted_nth, generation, planted;

void ptx_mutate(const char *in, enum ptx_mutation mutation, int nth)
{
    word[0] = 0;
    strncat(word, in, sizeof word - 1);
    wanted = mutation;
    wanted_nth = nth;
    planted = 0;
    generation++;
}

int ptx_mutated(void)
{
    return planted;
}

int ptx_mutation_generation(void)
{
    return generation;
}

static bool begins(const struct ptx_instr *i, const char *with)
{
    const char *text = i->text;
    if (*text == '@') /* behind the guard */
        text += strcspn(text, " \t") + 1;
    return !strncmp(text, with, strlen(with));
}

static bool has(const struct ptx_instr *i, const char *what)
{
    return memmem(i->text, strcspn(i->text, ";"), what, strlen(what)) != NULL;
}

static bool fits(const struct ptx_instr *i)
{
    switch (wanted) {
    case PTX_DROP_BARRIER:
        return i->kind == PTX_BARRIER && !i->mode;
    case PTX_DROP_WAIT:
        return begins(i, "cp.async.wait");
    case PTX_DROP_TRANSPOSE:
        return begins(i, "ldmatrix") && i->flag;
    case PTX_SWAP_WORDS:
        return begins(i, "mma");
    case PTX_SHIFT_SHUFFLE:
        return begins(i, "shfl");
    case PTX_LOOSEN_BOUND:
        return begins(i, "setp") &&
               (has(i, ".lt.s64") || has(i, ".ge.s64") || has(i, ".ge.u64") || has(i, ".gt.s64"));
    case PTX_SHIFT_STORE:
        return begins(i, "st.global");
    default:
        return false;
    }
}

static void do_nothing(struct ptx_warp *w, const struct ptx_instr *i, uint32_t mask)
{
    (void)w;
    (void)i;
    (void)mask;
}

static ptx_exec *operation(const char *name)
{
    const struct ptx_lane_op *op = ptx_lane_ops();
    while (op->name && strcmp(op->name, name))
        op++;
    return op->run;
}

static void change(struct ptx_instr *i)
{
    int32_t row;
    switch (wanted) {
    case PTX_DROP_BARRIER:
    case PTX_DROP_WAIT:
        i->kind = PTX_PLAIN;
        i->run = do_nothing;
        break;
    case PTX_DROP_TRANSPOSE:
        i->flag = false;
        break;
    case PTX_SWAP_WORDS:
        row = i->a[0];
        i->a[0] = i->a[1];
        i->a[1] = row;
        break;
    case PTX_SHIFT_SHUFFLE: /* the clamp's row as the lane or mask: 31 */
        i->b[0] = i->c[0];
        break;
    case PTX_LOOSEN_BOUND:
        i->run = has(i, ".lt.s64")   ? operation("setp.le.s64")
                 : has(i, ".gt.s64") ? operation("setp.ge.s64")
                 : has(i, ".ge.s64") ? operation("setp.gt.s64")
                                     : operation("setp.gt.u64");
        break;
    case PTX_SHIFT_STORE:
        i->imm += i->a_bytes * i->n;
        break;
    default:
        break;
    }
}

void ptx_plant(struct ptx_kernel *kernel)
{
    int n = 0;
    if (wanted == PTX_AS_IT_IS || !strstr(kernel->name, word))
        return;
    for (int k = 0; k < kernel->n_code; k++)
        if (fits(&kernel->code[k]) && n++ == wanted_nth) {
            change(&kernel->code[k]);
            planted++;
        }
}
