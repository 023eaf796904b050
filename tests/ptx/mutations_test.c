/*
 * mutations: faults planted into each kernel of the compiled module must show: in its results,
 * which are compared bit for bit with those of the kernel as it is, or by what the interpreter
 * checks. So it is seen that the tests of tests/ptx can fail. Also what a step of attention may
 * cost in branches.
 */
#include "mutants_attention.h"
#include "mutants_rows.h"

#include <ctype.h>
#include <unistd.h>

/* ---- mutants ---- */

/* What the case leaves in out; false: it failed, or the GPU found a fault. */
static bool results(const struct mutant_case *c, char *out)
{
    struct setup s;
    open_setup(&s, c->dtype);
    int code = c->run(&s);
    code = code ? code : s.ops->copy_to_host(s.q, out, s.out, OUT);
    code = code ? code : s.ops->queue_synchronize(s.q);
    close_setup(&s);
    return !code && !gpu.faults();
}

static const char *const names[PTX_MUTATIONS] = {
    [PTX_DROP_BARRIER] = "a barrier left out",
    [PTX_DROP_WAIT] = "a wait for copies left out",
    [PTX_DROP_TRANSPOSE] = "a transposition dropped",
    [PTX_SWAP_WORDS] = "two words of A swapped",
    [PTX_SHIFT_SHUFFLE] = "a shuffle from the wrong lane",
    [PTX_SHIFT_STORE] = "a store beside its place",
};
static int n_planted[PTX_MUTATIONS], n_caught[PTX_MUTATIONS];

/* The nth place of a mutation: 0 there is none, or nothing comes there; 1 caught, -1 not. */
static int plant(const struct mutant_case *c, enum ptx_mutation mutation, int nth,
                 const char *as_is, int *places)
{
    static char out[OUT];
    gpu.mutate(c->kernel, mutation, nth);
    bool good = results(c, out);
    int planted = gpu.mutated();
    *places = gpu.places();
    gpu.mutate("", PTX_AS_IT_IS, 0);
    if (!planted)
        return 0;
    bool caught = !good || memcmp(out, as_is, OUT);
    n_planted[mutation]++;
    n_caught[mutation] += caught;
    return caught ? 1 : -1;
}

/* Whether its shuffles are of a maximum, which most wrong lanes leave as it is. */
static bool finds_largest(const struct mutant_case *c)
{
    return strstr(c->kernel, "float8");
}

/* Whether every step of the kernel ends with a barrier, also where the next step reads nothing of
 * it: such a barrier can be left out, and no test can tell it from one that is needed. */
static bool ends_steps_with_barriers(const struct mutant_case *c)
{
    return !strncmp(c->kernel, "scan_", 5);
}

/* Whether the first wait and the first barrier guard nothing: heads that are not held in registers
 * are read behind those of their first step. */
static bool waits_twice(const struct mutant_case *c, int mutation)
{
    return c->run == wide_attention && (mutation == PTX_DROP_BARRIER || mutation == PTX_DROP_WAIT);
}

/* Whether some stores change nothing: of a chunk that a border cuts, the number of its rows is 0
 * until it is written, and the state before the piece is replaced by that before the chunk. */
static bool stores_twice(const struct mutant_case *c, int mutation)
{
    return c->run == scanned_cut && mutation == PTX_SHIFT_STORE;
}

/* The first places that the case comes to, and then ever further apart. */
static void try_case(const struct mutant_case *c)
{
    static char as_is[OUT];
    CHECKF(results(c, as_is), "%s as it is: %s", c->kernel, zinf_error());
    for (int m = PTX_AS_IT_IS + 1; m < PTX_MUTATIONS; m++) {
        bool first = true;
        for (int nth = 0, places = 1, found; nth < places; nth = found ? nth * 3 + 1 : nth + 1) {
            found = plant(c, (enum ptx_mutation)m, nth, as_is, &places);
            bool spare = (m == PTX_DROP_BARRIER && first && c->first_barrier_is_spare) ||
                         (m == PTX_DROP_BARRIER && ends_steps_with_barriers(c)) ||
                         (first && waits_twice(c, m)) || stores_twice(c, m) ||
                         (m == PTX_SHIFT_SHUFFLE && finds_largest(c));
            CHECKF(found >= 0 || spare, "%s (%s): number %d of %s was not caught", c->kernel,
                   zinf_dtype_name(c->dtype), nth, names[m]);
            first = first && !found;
        }
    }
}

static void test_mutants(void)
{
    static const struct mutant_case cases[] = {
        {"norm_forward", odd_norms, ZINF_DTYPE_BF16, false},
        {"norm_dx", odd_norms, ZINF_DTYPE_F32, false},
        {"14columns_kernel", odd_norms, ZINF_DTYPE_F16, true},
        {"norm_rows", norms, ZINF_DTYPE_BF16, false},
        {"norm_rows", wide_norms, ZINF_DTYPE_F32, false},
        {"norm_rows", sums, ZINF_DTYPE_BF16, false},
        {"norm_gradient", norms, ZINF_DTYPE_F16, false},
        {"norm_gradient", wide_norms, ZINF_DTYPE_F32, false},
        {"norm_gradient", slabs_of_norms, ZINF_DTYPE_BF16, false},
        {"finish", slabs_of_norms, ZINF_DTYPE_F16, false},
        {"attention_mma_forward", attention, ZINF_DTYPE_BF16, false},
        {"attention_mma_forward", attention_with_dropout, ZINF_DTYPE_F16, false},
        {"attention_mma_dkv", attention, ZINF_DTYPE_F16, false},
        {"attention_mma_dkv", attention_with_dropout, ZINF_DTYPE_BF16, false},
        {"attention_mma_dq", attention, ZINF_DTYPE_BF16, false},
        {"attention_mma_dq", attention_with_dropout, ZINF_DTYPE_F16, false},
        {"attention_mma_forward", packed_attention, ZINF_DTYPE_BF16, false},
        {"attention_mma_dkv", packed_attention, ZINF_DTYPE_F16, false},
        {"attention_mma_dq", packed_attention, ZINF_DTYPE_BF16, false},
        {"attention_mma_forward", sloped_attention, ZINF_DTYPE_F16, false},
        {"attention_mma_forward", capped_attention_with_dropout, ZINF_DTYPE_BF16, false},
        {"attention_mma_dkv", sloped_attention, ZINF_DTYPE_BF16, false},
        {"attention_mma_dkv", capped_attention_with_dropout, ZINF_DTYPE_F16, false},
        {"attention_mma_dq", sloped_attention, ZINF_DTYPE_F16, false},
        {"attention_mma_dq", capped_attention_with_dropout, ZINF_DTYPE_BF16, false},
        {"attention_plain_dkv", capped_attention_with_dropout, ZINF_DTYPE_F32, false},
        {"attention_mma_forward", wide_attention, ZINF_DTYPE_BF16, false},
        {"attention_mma_dkv", wide_attention, ZINF_DTYPE_F16, false},
        {"attention_mma_dq", wide_attention, ZINF_DTYPE_BF16, false},
        {"attention_delta", attention, ZINF_DTYPE_BF16, false},
        {"attention_plain_forward", attention, ZINF_DTYPE_F32, false},
        {"attention_plain_dkv", attention, ZINF_DTYPE_F32, false},
        {"attention_plain_dq", attention_with_dropout, ZINF_DTYPE_F32, false},
        {"attention_mma_forward", crossing_tiles, ZINF_DTYPE_F16, false},
        {"attention_mma_dkv", crossing_documents, ZINF_DTYPE_BF16, false},
        {"attention_mma_dq", crossing_documents, ZINF_DTYPE_F16, false},
        {"attention_mma_distance", crossing_tiles, ZINF_DTYPE_BF16, true},
        {"attention_mma_distance", crossing_documents, ZINF_DTYPE_F16, true},
        {"distance_add", crossing_documents, ZINF_DTYPE_F16, false},
        {"attention_mma_forward", attention_by_calls, ZINF_DTYPE_BF16, false},
        {"attention_plain_forward", attention_by_calls, ZINF_DTYPE_F32, false},
        {"attention_mma_dq", attention_by_calls, ZINF_DTYPE_F16, false},
        {"attention_plain_dq", attention_by_calls, ZINF_DTYPE_F32, false},
        {"attention_plain_forward", crossing_attention, ZINF_DTYPE_BF16, false},
        {"attention_plain_dkv", crossing_attention, ZINF_DTYPE_F16, false},
        {"attention_plain_dq", crossing_attention, ZINF_DTYPE_F32, false},
        {"attention_distance", crossing_attention, ZINF_DTYPE_F32, false},
        {"distance_bias", crossing_attention, ZINF_DTYPE_F32, false},
        {"distance_table", crossing_attention, ZINF_DTYPE_F32, false},
        {"attention_plain_forward", relative_attention, ZINF_DTYPE_F16, false},
        {"attention_plain_dkv", relative_attention, ZINF_DTYPE_F32, false},
        {"attention_plain_dq", relative_attention, ZINF_DTYPE_BF16, false},
        {"relative_rows", relative_attention, ZINF_DTYPE_F32, false},
        {"relative_distance", relative_attention, ZINF_DTYPE_F32, false},
        {"relative_table", relative_attention, ZINF_DTYPE_BF16, false},
        {"attention_plain_forward", relative_by_calls, ZINF_DTYPE_BF16, false},
        {"attention_plain_dkv", relative_by_calls, ZINF_DTYPE_F16, false},
        {"attention_plain_dq", relative_by_calls, ZINF_DTYPE_F32, false},
        {"relative_rows", relative_by_calls, ZINF_DTYPE_F32, false},
        {"relative_distance", relative_by_calls, ZINF_DTYPE_F16, false},
        {"relative_table", relative_by_calls, ZINF_DTYPE_F32, false},
        {"attention_cached", cached_attention, ZINF_DTYPE_BF16, false},
        {"attention_cached", biased_cached_attention, ZINF_DTYPE_F32, false},
        {"attention_cached", source_attention, ZINF_DTYPE_F16, false},
        {"keep_kernel", cached_attention, ZINF_DTYPE_F32, false},
        {"keep_kernel", source_attention, ZINF_DTYPE_BF16, false},
        {"dequantize", four_bits, ZINF_DTYPE_BF16, false},
        {"dequantize", four_bits_of_odd_rows, ZINF_DTYPE_F16, false},
        {"dequantize", eight_bits, ZINF_DTYPE_F32, false},
        {"dequantize", four_bits_of_floats, ZINF_DTYPE_BF16, false},
        {"dequantize", floats_of_eight_bits, ZINF_DTYPE_F16, false},
        {"unpack_kernel", unpacked, ZINF_DTYPE_BF16, false},
        {"unpack_kernel", unpacked, ZINF_DTYPE_F32, false},
        {"float8_largest", floats_multiplied, ZINF_DTYPE_BF16, true},
        {"13float8_kernel", floats_multiplied, ZINF_DTYPE_BF16, true},
        {"float8_turned", floats_multiplied, ZINF_DTYPE_BF16, true},
        {"widen_kernel", widened, ZINF_DTYPE_BF16, true},
        {"12route_kernel", routes, ZINF_DTYPE_F32, false},
        {"route_backward", routes, ZINF_DTYPE_F32, false},
        {"shares_kernel", routes, ZINF_DTYPE_F32, false},
        {"balance_kernel", routes, ZINF_DTYPE_F32, false},
        {"gather_kernel", picked_rows, ZINF_DTYPE_BF16, false},
        {"scatter_kernel", picked_rows, ZINF_DTYPE_F16, false},
        {"weigh_kernel", picked_rows, ZINF_DTYPE_BF16, false},
        {"embedding", embeddings, ZINF_DTYPE_BF16, false},
        {"loss_start", losses, ZINF_DTYPE_F32, false},
        {"loss_update_kernel", losses, ZINF_DTYPE_F32, true},
        {"loss_update_kernel", wide_losses, ZINF_DTYPE_F32, false},
        {"loss_finish", losses, ZINF_DTYPE_F32, false},
        {"loss_backward", losses, ZINF_DTYPE_F32, false},
        {"loss_update_short", capped_losses, ZINF_DTYPE_F32, false},
        {"loss_backward", capped_losses, ZINF_DTYPE_F32, false},
        {"loss_backward", narrow_losses, ZINF_DTYPE_BF16, false},
        {"loss_backward", odd_narrow_losses, ZINF_DTYPE_F16, false},
        {"squared_error", squared_errors, ZINF_DTYPE_F32, false},
        {"preference", preferences, ZINF_DTYPE_F32, true},
        {"preference", odds, ZINF_DTYPE_F32, true},
        {"preference", scores, ZINF_DTYPE_F32, true},
        {"preference", singles, ZINF_DTYPE_F32, true},
        {"noise", noises, ZINF_DTYPE_BF16, false},
        {"heads_copy", heads, ZINF_DTYPE_BF16, false},
        {"heads_sum", heads, ZINF_DTYPE_F16, false},
        {"sinks_kernel", sinks, ZINF_DTYPE_F16, false},
        {"sinks_backward", sinks, ZINF_DTYPE_BF16, false},
        {"softcap", softcaps, ZINF_DTYPE_F32, false},
        {"residual", flat, ZINF_DTYPE_F16, false},
        {"17activation_kernel", flat, ZINF_DTYPE_BF16, false},
        {"activation_columns", activation_sums, ZINF_DTYPE_BF16, true},
        {"convert", flat, ZINF_DTYPE_BF16, false},
        {"add_kernel", flat, ZINF_DTYPE_F32, false},
        {"sum_squares", flat, ZINF_DTYPE_F32, false},
        {"gated", gated, ZINF_DTYPE_BF16, false},
        {"xielu", curved, ZINF_DTYPE_F32, true},
        {"rope", rotations, ZINF_DTYPE_F16, false},
        {"rope", rotations, ZINF_DTYPE_F32, false},
        {"adam", optimizer, ZINF_DTYPE_BF16, false},
        {"rectangle", products, ZINF_DTYPE_BF16, false},
        {"unfold_kernel", unfolded, ZINF_DTYPE_BF16, false},
        {"unfold_backward", unfolded, ZINF_DTYPE_F32, false},
        {"18convolution_kernel", convolved, ZINF_DTYPE_BF16, false},
        {"convolution_dx", convolved, ZINF_DTYPE_F16, false},
        {"convolution_dw", convolved, ZINF_DTYPE_F32, false},
        {"18convolution_kernel", convolved_piece, ZINF_DTYPE_F16, false},
        {"convolution_dx", convolved_piece, ZINF_DTYPE_BF16, false},
        {"convolution_continue", convolved_on, ZINF_DTYPE_BF16, false},
        {"scan_numbers", scanned_by_decay, ZINF_DTYPE_F32, false},
        {"scan_number_gradients", scanned_by_decay, ZINF_DTYPE_BF16, false},
        {"scan_forward", scanned, ZINF_DTYPE_F32, false},
        {"scan_backward", scanned, ZINF_DTYPE_F32, false},
        {"scan_gradients", scanned, ZINF_DTYPE_F32, false},
        {"scan_forward", scanned_piece, ZINF_DTYPE_F32, false},
        {"scan_forward", scanned_cut, ZINF_DTYPE_BF16, false},
        {"scan_backward", scanned_piece, ZINF_DTYPE_BF16, false},
        {"scan_gradients", scanned_piece, ZINF_DTYPE_F16, false},
        {"scan_gradients", scanned_by_decay, ZINF_DTYPE_F16, false},
        {"scan_continue", scanned_on, ZINF_DTYPE_F32, false},
        {"magnitude_kernel", magnitudes, ZINF_DTYPE_F16, false},
        {"scale_columns", magnitudes, ZINF_DTYPE_BF16, false},
        {"dot_columns", magnitudes, ZINF_DTYPE_F32, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        try_case(&cases[i]);
    for (int m = 1; m < PTX_MUTATIONS; m++)
        printf("# %s: %d of %d caught\n", names[m], n_caught[m], n_planted[m]);
}

/* Where a kernel has its own name in what the compiler has made of it: "..._kernel". */
static const char *kernel_name(const char *mangled, int *length)
{
    const char *end = strstr(mangled, "_kernel"), *start = end;
    while (start && start > mangled && (isalnum((unsigned char)start[-1]) || start[-1] == '_') &&
           start[-1] != 'Z')
        start--;
    *length = end ? (int)(end - start) : 0;
    return start ? start : mangled;
}

/* Whatever a kernel was compiled for, faults were planted into it. */
static void test_every_kernel_was_tried(void)
{
    struct ptx_use one, other;
    for (int n = 0; gpu.use(n, &one); n++) {
        int length, other_length;
        const char *name = kernel_name(one.name, &length);
        uint64_t mutants = 0;
        for (int k = 0; gpu.use(k, &other); k++) {
            const char *other_name = kernel_name(other.name, &other_length);
            if (length == other_length && !strncmp(name, other_name, (size_t)length))
                mutants += other.mutants;
        }
        CHECKF(mutants, "no fault was planted into %.*s", length, name);
    }
}

/* ---- branches ---- */

/* A branch for every score would be 32 to 48 products; what is left is loops and tiles. */
static void test_attention_has_no_branches(void)
{
    static const char *const kernels[] = {"attention_mma_forward", "attention_mma_dkv",
                                          "attention_mma_dq"};
    static run_case *const runs[] = {attention_with_dropout, sloped_attention,
                                     capped_attention_with_dropout};
    struct ptx_counts before, after;
    static char out[OUT];
    for (size_t i = 0; i < 9; i++) {
        const char *kernel = kernels[i % 3];
        const struct mutant_case c = {kernel, runs[i / 3], ZINF_DTYPE_BF16, false};
        gpu.counts(kernel, &before);
        CHECKF(results(&c, out), "%s", zinf_error());
        gpu.counts(kernel, &after);
        double branches = (double)(after.branches - before.branches);
        double products = (double)(after.products - before.products);
        printf("# %s: %.0f branches taken, %.0f products of a warp\n", kernel, branches, products);
        CHECKF(products > 0 && branches < 0.25 * products, "%.0f branches to %.0f products",
               branches, products);
    }
}

int main(void)
{
    const char *build = getenv("BUILDDIR");
    char path[1024];
    snprintf(path, sizeof path, "%s/.libs/zinf-cuda.so", build ? build : ".");
    setenv("ZINF_CUDA_MODULE", path, 0);
    snprintf(path, sizeof path, "%s/tests/ptx/lib", build ? build : ".");
    if (!getenv("ZINF_PTX_CHILD")) { /* the loader reads it when a process begins */
        setenv("ZINF_PTX_CHILD", "1", 1);
        setenv("LD_LIBRARY_PATH", path, 1);
        execl("/proc/self/exe", "mutations_test", (char *)NULL);
    }
    if (zinf_device_cuda_why_not() || !find_gpu()) {
        printf("Bail out! %s\n",
               zinf_device_cuda_why_not() ? zinf_device_cuda_why_not() : "not the interpreter");
        return 1;
    }
    TAP_RUN(test_attention_has_no_branches);
    TAP_RUN(test_mutants);
    TAP_RUN(test_every_kernel_was_tried);
    return tap_done();
}
