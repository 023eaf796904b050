/*
 * fuzz target: one file of a checkpoint of DeepSpeed's, beside the others as they are. The first
 * byte says which one it is. Beyond not crashing, every tensor of an accepted checkpoint must be
 * readable to its last element.
 */
#include "formats/formats.h"
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST_BYTES (1u << 20) /* of a tensor that is read */

#define MOST_FILES 6
static const struct {
    const char *name, *files[MOST_FILES];
    int fuzzed;
} cases[] = {
    {"zero1",
     {"mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt",
      "zero_pp_rank_1_mp_rank_00_optim_states.pt"},
     0},
    {"zero1",
     {"mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt",
      "zero_pp_rank_1_mp_rank_00_optim_states.pt"},
     1},
    {"zero3",
     {"zero_pp_rank_0_mp_rank_00_model_states.pt", "zero_pp_rank_1_mp_rank_00_model_states.pt",
      "zero_pp_rank_0_mp_rank_00_optim_states.pt", "zero_pp_rank_1_mp_rank_00_optim_states.pt"},
     0},
    {"zero3",
     {"zero_pp_rank_0_mp_rank_00_model_states.pt", "zero_pp_rank_1_mp_rank_00_model_states.pt",
      "zero_pp_rank_0_mp_rank_00_optim_states.pt", "zero_pp_rank_1_mp_rank_00_optim_states.pt"},
     3},
    {"tensor2",
     {"mp_rank_00_model_states.pt", "mp_rank_01_model_states.pt",
      "zero_pp_rank_0_mp_rank_00_optim_states.pt", "zero_pp_rank_0_mp_rank_01_optim_states.pt",
      "zero_pp_rank_1_mp_rank_00_optim_states.pt", "zero_pp_rank_1_mp_rank_01_optim_states.pt"},
     0},
};
#define N_CASES (sizeof cases / sizeof *cases)

static char folders[N_CASES][64];
static int fd = -1;

static void remove_folders(void)
{
    for (size_t i = 0; i < N_CASES; i++) {
        char path[512];
        for (int f = 0; f < MOST_FILES && cases[i].files[f]; f++) {
            snprintf(path, sizeof path, "%s/%s", folders[i], cases[i].files[f]);
            unlink(path);
        }
        rmdir(folders[i]);
    }
}

static void make_folders(void)
{
    char to[512], from[8192], source[4096];
    const char *root = getenv("SRCDIR");
    if (fd >= 0)
        return;
    fd = memfd_create("fuzz", MFD_CLOEXEC);
    require(fd >= 0 && realpath(root ? root : ".", source));
    for (size_t i = 0; i < N_CASES; i++) {
        snprintf(folders[i], sizeof folders[i], "/tmp/fuzz_deepspeed.XXXXXX");
        require(mkdtemp(folders[i]) != NULL);
        for (int f = 0; f < MOST_FILES && cases[i].files[f]; f++) {
            snprintf(to, sizeof to, "%s/%s", folders[i], cases[i].files[f]);
            snprintf(from, sizeof from, "%s/tests/fixtures/deepspeed/%s/global_step3/%s", source,
                     cases[i].name, cases[i].files[f]);
            if (f == cases[i].fuzzed)
                snprintf(from, sizeof from, "/proc/self/fd/%d", fd);
            require(!symlink(from, to));
        }
    }
    atexit(remove_folders);
}

static void read_all(const struct zinf_tensors *tensors)
{
    for (uint64_t i = 0; i < zinf_tensors_count(tensors); i++) {
        const struct zinf_tensor_info *info = zinf_tensors_at(tensors, i);
        require(info->name[0] && info->rank >= 0 && info->rank <= ZINF_TENSOR_MAX_RANK);
        void *values = info->bytes <= MOST_BYTES ? malloc(info->bytes + 1) : NULL;
        if (values)
            require(!zinf_tensors_read(tensors, info, 0, info->n_elems, values));
        if (values && info->n_elems)
            require(!zinf_tensors_read(tensors, info, info->n_elems - 1, 1, values));
        free(values);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct zinf_tensors *tensors;
    struct zinf_training_state state;
    if (!size)
        return 0;
    make_folders();
    const char *folder = folders[data[0] % N_CASES];
    require(!ftruncate(fd, 0) && pwrite(fd, data + 1, size - 1, 0) == (ssize_t)size - 1);
    zinf_training_state_read(&state, folder);
    for (int part = ZINF_TRAINING_MASTER; part < ZINF_TRAINING_PARTS; part++)
        if (!zinf_tensors_open_training(&tensors, folder, (enum zinf_training_part)part)) {
            read_all(tensors);
            zinf_tensors_close(tensors);
        }
    return 0;
}
