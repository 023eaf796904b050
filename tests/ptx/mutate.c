/* mutate: faults planted into translated kernels, to see that tests catch them; and the counters.
 */
#include "block.h"

#include <string.h>

static char word[128];
static enum ptx_mutation wanted;
static int wanted_nth, generation, reached, places;

void ptx_mutate(const char *in, enum ptx_mutation mutation, int nth)
{
    word[0] = 0;
    strncat(word, in, sizeof word - 1);
    wanted = mutation;
    wanted_nth = nth;
    reached = places = 0;
    generation++;
}

int ptx_mutated(void)
{
    return reached;
}

int ptx_mutation_places(void)
{
    return places;
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

static void run_mutant(struct ptx_warp *w, const struct ptx_instr *i, uint32_t mask)
{
    reached++;
    w->block->kernel->mutants++;
    w->block->kernel->mutant(w, i, mask);
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
    case PTX_SHIFT_SHUFFLE: /* lane 0, or its own value: threadIdx.z is 0 here */
        i->b[0] = (PTX_TID + 2) * PTX_ROW;
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
    if (kernel->planted)
        kernel->code[kernel->planted - 1] = kernel->unplanted;
    kernel->planted = 0;
    kernel->generation = generation;
    if (wanted == PTX_AS_IT_IS || !strstr(kernel->name, word))
        return;
    for (int k = 0; k < kernel->n_code; k++)
        if (fits(&kernel->code[k]) && n++ == wanted_nth) {
            kernel->unplanted = kernel->code[k];
            kernel->planted = k + 1;
            change(&kernel->code[k]);
            kernel->mutant = kernel->code[k].run;
            kernel->code[k].run = run_mutant;
        }
    places = n > places ? n : places;
}
