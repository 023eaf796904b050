/*
 * formats: checkpoints of DeepSpeed's against what its own converters made of them, and those
 * that are damaged or cut. ZINF_DEEPSPEED_CASES: a folder with more of make_deepspeed.py's cases.
 */
#include "formats_support.h"

#include <dirent.h>
#include <sys/stat.h>

static char *checkpoint(const char *name)
{
    static char path[2][4200];
    static int at;
    const char *source = getenv("SRCDIR"), *cases = getenv("ZINF_DEEPSPEED_CASES");
    at = !at;
    if (cases)
        snprintf(path[at], sizeof path[at], "%s/%s", cases, name);
    else
        snprintf(path[at], sizeof path[at], "%s/tests/fixtures/deepspeed/%s", source ? source : ".",
                 name);
    return path[at];
}

/* ---- values ---- */

static void compare_tensor(const struct zinf_tensors *got, const struct zinf_tensors *wanted,
                           const struct zinf_tensor_info *info)
{
    const struct zinf_tensor_info *found = zinf_tensors_find(got, info->name);
    float a[4096], b[4096];
    CHECKF(found && found->rank == info->rank && found->n_elems == info->n_elems, "%s", info->name);
    if (!found || info->n_elems > 4096)
        return;
    CHECK(!memcmp(found->shape, info->shape, (size_t)info->rank * sizeof *info->shape));
    CHECK(!zinf_tensors_read_f32(wanted, info, 0, info->n_elems, a));
    CHECKF(!zinf_tensors_read_f32(got, found, 0, info->n_elems, b), "%s", zinf_error());
    CHECKF(!memcmp(a, b, info->n_elems * sizeof *a), "%s", info->name);
    for (uint64_t from = 0; from < info->n_elems; from += 5)
        for (uint64_t n = 0; n <= info->n_elems - from; n += 11) {
            CHECK(!zinf_tensors_read_f32(got, found, from, n, b));
            CHECKF(!memcmp(a + from, b, n * sizeof *a), "%s", info->name);
        }
}

static void compare_case(const char *name)
{
    char path[4400];
    struct zinf_tensors *got = NULL, *wanted = NULL, *moments;
    struct zinf_training_state state = {0};
    snprintf(path, sizeof path, "%s/expected.safetensors", checkpoint(name));
    CHECKF(!zinf_tensors_open(&wanted, path), "%s", zinf_error());
    CHECKF(!zinf_tensors_open(&got, checkpoint(name)), "%s: %s", name, zinf_error());
    if (!got || !wanted)
        return;
    CHECK(!strcmp(zinf_tensors_file_kind(got), "DeepSpeed"));
    for (uint64_t i = 0; i < zinf_tensors_count(wanted); i++)
        compare_tensor(got, wanted, zinf_tensors_at(wanted, i));
    CHECKF(!zinf_training_state_read(&state, checkpoint(name)), "%s: %s", name, zinf_error());
    CHECK(state.step == 3 && !state.n_skipped && state.n_samples == 12 && state.optimized);
    for (int part = ZINF_TRAINING_MOMENT1; part < ZINF_TRAINING_PARTS; part++) {
        CHECKF(
            !zinf_tensors_open_training(&moments, checkpoint(name), (enum zinf_training_part)part),
            "%s: %s", name, zinf_error());
        CHECK(zinf_tensors_count(moments) + 1 >= zinf_tensors_count(got));
        zinf_tensors_close(moments);
    }
    zinf_tensors_close(got);
    zinf_tensors_close(wanted);
}

static void test_cases(void)
{
    struct dirent *entry;
    int n = 0;
    DIR *folder = opendir(checkpoint("."));
    CHECK(folder);
    while (folder && (entry = readdir(folder)))
        if (*entry->d_name != '.') {
            compare_case(entry->d_name);
            n++;
        }
    if (folder)
        closedir(folder);
    CHECK(n >= 4);
}

/* ---- what is missing, cut or not a checkpoint ---- */

/* A copy of a fixture's tag in the scratch folder, without one of its files or with the first bytes
 * of it alone. */
static void copy_without(const char *name, const char *file, size_t keep)
{
    char from[4400], to[4400], command[9000];
    snprintf(from, sizeof from, "%s/global_step3", checkpoint(name));
    snprintf(command, sizeof command, "rm -rf '%s' && cp -r '%s' '%s' && chmod -R u+w '%s'",
             in_scratch("tag"), from, in_scratch("tag"), in_scratch("tag"));
    CHECK(!system(command));
    snprintf(to, sizeof to, "%s/%s", in_scratch("tag"), file);
    CHECK(keep ? !truncate(to, (off_t)keep) : !unlink(to));
}

/* A file of a fixture's tag under another name in that copy. */
static void take_from(const char *name, const char *file, const char *as)
{
    char command[9000];
    snprintf(command, sizeof command, "cp '%s/global_step3/%s' '%s/%s'", checkpoint(name), file,
             in_scratch("tag"), as);
    CHECK(!system(command));
}

static void refuse(const char *says)
{
    struct zinf_tensors *tensors;
    int code = zinf_tensors_open(&tensors, in_scratch("tag"));
    CHECK(code < 0);
    CHECKF(strstr(zinf_error(), says), "no '%s' in '%s'", says, zinf_error());
    if (!code)
        zinf_tensors_close(tensors);
}

static void make_empty(const char *name)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/%s", in_scratch("tag"), name);
    FILE *file = fopen(path, "w");
    CHECK(file);
    if (file)
        fclose(file);
}

static void test_refused(void)
{
    copy_without("zero1", "zero_pp_rank_0_mp_rank_00_optim_states.pt", 0);
    refuse("but none of rank 0");
    copy_without("zero1", "zero_pp_rank_1_mp_rank_00_optim_states.pt", 0);
    refuse("files of some ranks");
    copy_without("zero1", "zero_pp_rank_1_mp_rank_00_optim_states.pt", 2000);
    refuse("zero_pp_rank_1_mp_rank_00_optim_states.pt");
    copy_without("zero1", "mp_rank_00_model_states.pt", 0);
    refuse("has no mp_rank_00_model_states.pt");
    copy_without("zero3", "zero_pp_rank_1_mp_rank_00_model_states.pt", 0);
    refuse("model states of 1 ranks, but 2");
    copy_without("zero1", "zero_pp_rank_1_mp_rank_00_optim_states.pt", 0);
    make_empty("zero_pp_rank_0_mp_rank_01_optim_states.pt");
    refuse("no mp_rank_01_model_states.pt");
    copy_without("tensor2", "mp_rank_01_model_states.pt", 0);
    refuse("no mp_rank_01_model_states.pt");
    copy_without("tensor2", "zero_pp_rank_1_mp_rank_01_optim_states.pt", 0);
    refuse("optimizer states of 2 ranks of mp_rank_00, but of 1 of mp_rank_01");
    copy_without("tensor2", "zero_pp_rank_1_mp_rank_01_optim_states.pt", 2000);
    refuse("zero_pp_rank_1_mp_rank_01_optim_states.pt");
    take_from("zero1", "mp_rank_00_model_states.pt", "mp_rank_01_model_states.pt");
    refuse("zero_pp_rank_0_mp_rank_01_optim_states.pt");
    copy_without("zero1", "zero_pp_rank_1_mp_rank_00_optim_states.pt", 0);
    take_from("zero1", "mp_rank_00_model_states.pt", "mp_rank_01_model_states.pt");
    take_from("zero1", "zero_pp_rank_0_mp_rank_00_optim_states.pt",
              "zero_pp_rank_0_mp_rank_01_optim_states.pt");
    refuse("ds_to_universal");
    copy_without("zero1", "zero_pp_rank_1_mp_rank_00_optim_states.pt", 0);
    make_empty("bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt");
    refuse("remove the stale one");
}

static void test_shards_of_fsdp(void)
{
    CHECK(!mkdir(in_scratch("fsdp"), 0777) &&
          !mkdir(in_scratch("fsdp/pytorch_model_fsdp_0"), 0777));
    FILE *file = fopen(in_scratch("fsdp/pytorch_model_fsdp_0/.metadata"), "w");
    struct zinf_tensors *tensors;
    CHECK(file && !fclose(file));
    CHECK(zinf_tensors_open(&tensors, in_scratch("fsdp")) == -ENOTSUP);
    CHECKF(strstr(zinf_error(), "accelerate merge-weights"), "%s", zinf_error());
}

int main(void)
{
    begin_formats();
    TAP_RUN(test_cases);
    TAP_RUN(test_refused);
    TAP_RUN(test_shards_of_fsdp);
    return end_formats();
}
