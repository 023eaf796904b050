/*
 * linked_ranks: one process of those that tests/net/nccl_ranks_test.sh starts. Each has as many
 * seats as the second argument says, on the stand-ins for CUDA and NCCL; all of them train what one
 * GPU has trained before, in the folder that the first argument names, and compare losses, norms
 * and weights. What a rank sends in a step is held against the formulas. With 0 seats it is that
 * one. Further arguments are what kinds of trainings begin with.
 */
#include "cuda_module.h"
#include "trained_ranks.h"

enum { MICROS = 4, STEPS = 2 };

/* ---- what is trained ---- */

static const char by_link[] = ", \"gradient_sum\": \"tree\", \"dropout\": 0.1, "
                              "\"gather\": \"device\"";
static const char by_links[] = ", \"gradient_sum\": \"tree\", \"dropout\": 0.1, "
                               "\"gather\": \"device\", \"context_parts\": 2";
static const char by_all[] = ", \"gradient_sum\": \"tree\", \"dropout\": 0.1, "
                             "\"gather\": \"device\", \"context_parts\": 2, "
                             "\"mesh\": {\"context\": 2}";
static const char by_net[] = ", \"gradient_sum\": \"tree\", \"dropout\": 0.1";

static const struct kind {
    const char *name, *arch;
    int stage;
    const char *param, *state, *precision;
    bool linked; /* on GPUs; else on host devices, over the net */
    int parts;   /* of sequences, which ranks share; 0: whole ones */
} kinds[] = {
    {"gpt2-1", "gpt2", 1, "none", "cpu", bf16, true, 0},
    {"gpt2-2", "gpt2", 2, "none", "none", NULL, true, 0},
    {"gpt2-3-ram", "gpt2", 3, "cpu", "cpu", bf16, true, 0},
    {"gpt2-3-drive", "gpt2", 3, "nvme", "nvme", NULL, true, 0},
    {"gpt2-3-gpu", "gpt2", 3, "none", "cpu", bf16, true, 0},
    {"llama-1", "llama", 1, "none", "none", NULL, true, 0},
    {"llama-2", "llama", 2, "none", "cpu", bf16, true, 0},
    {"llama-3-drive", "llama", 3, "nvme", "nvme", bf16, true, 0},
    {"net-1", "gpt2", 1, "none", "cpu", bf16, false, 0},
    {"net-2", "gpt2", 2, "none", "cpu", NULL, false, 0},
    {"net-3", "gpt2", 3, "cpu", "cpu", bf16, false, 0},
    {"net-3-drive", "llama", 3, "nvme", "nvme", NULL, false, 0},
    {"keys-gpt2", "gpt2", 1, "none", "cpu", NULL, true, 2},
    {"keys-llama", "llama", 3, "cpu", "cpu", bf16, true, 2},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static struct setting setting_of(const struct kind *kind, uint32_t world)
{
    trainings.shape.arch = kind->arch;
    snprintf(model, sizeof model, "%s/%s", work, kind->arch);
    /* Hardly more than a plan needs, so that units are fetched twice; of a GPU 8 MiB are cuBLAS's.
     */
    const uint64_t memory = (kind->linked ? 8800u : 500u) << 10;
    const bool parts = kind->parts > 0 && world > 1;
    return (struct setting){.param = kind->param,
                            .state = kind->state,
                            .stage = kind->stage,
                            .precision = kind->precision,
                            .clip = 0.7,
                            .order = "layer-major",
                            /* ranks of an MPI choose by rates that they measure, and updates that
                             * they defer are sent in another step than is counted */
                            .schedule = kind->linked ? NULL : "prefetch",
                            .look_ahead = "1",
                            .extra = kind->parts    ? world > 1 ? by_all : by_links
                                     : kind->linked ? by_link
                                                    : by_net,
                            .accumulation = MICROS / (int)world * (parts ? 2 : 1),
                            .sharing = parts ? 2 : 0,
                            .device_memory = kind->stage == 3 && world > 1 ? memory : 0,
                            .on_gpu = kind->linked};
}

static void begin(const char *folder)
{
    trainings = (struct trainings){
        .shape = {.layers = 6, .hidden = 32, .heads = 2, .vocab = 160, .context = 8},
        .steps = STEPS,
        .seq = 8,
        .batch = 1,
        .sub_group = 8192};
    snprintf(work, sizeof work, "%s", folder);
    zinf_log_set_level(ZINF_LOG_ERROR);
    zinf_make_dirs(in_work(drive, "drive"));
}

/* ---- one GPU ---- */

static bool keep(const char *name, struct outcome *out, bool read)
{
    char path[600], file[80];
    snprintf(file, sizeof file, "%s.outcome", name);
    FILE *f = fopen(in_work(path, file), read ? "rb" : "wb");
    bool done = f && (read ? fread(out, sizeof *out, 1, f) : fwrite(out, sizeof *out, 1, f)) == 1;
    return f && !fclose(f) && done;
}

static void test_one(void)
{
    struct outcome out;
    for (int i = 0; i < KINDS; i++) {
        char folder[600];
        struct setting s = setting_of(&kinds[i], 1);
        if (access(in_work(folder, kinds[i].arch), F_OK))
            make_model(model, kinds[i].arch, &trainings.shape, 11);
        run(&s, kinds[i].name, &out);
        CHECKF(keep(kinds[i].name, &out, false), "%s: not kept", kinds[i].name);
    }
}

/* ---- ranks ---- */

/* Of n ranks each sends, of what all have together, (n - 1) / n: parameters in the step's type, and
 * gradients in fp32. At stages 1 and 2 both once; at stage 3 parameters for forward and again for
 * backward, less what is still there. GPT-2's embedding is its head too, and has two gradients,
 * which are scattered when they are made. */
static void check_bytes(const struct kind *kind, const struct rank *rank, uint32_t world)
{
    uint64_t tied = strcmp(kind->arch, "gpt2") ? 0 : rank->first_elems / world * (world - 1);
    uint64_t share = rank->elems / world * (world - 1), width = kind->precision ? 2 : 4;
    uint64_t once = share * (width + 4) + tied * 4, twice = once + share * width;
    uint64_t sent = kind->linked ? rank->linked_bytes : rank->net_bytes;
    uint64_t beside = kind->linked ? rank->step_bytes : rank->step_bytes - rank->net_bytes;
    bool right = kind->stage < 3 ? sent == once : sent > once && sent <= twice;
    if (kind->parts) /* gradients of each sample */
        right = rank->key_bytes > 0 && sent > once + rank->key_bytes;
    CHECKF(right, "%s: %llu bytes sent, %llu once, %llu with parameters twice", kind->name,
           (unsigned long long)sent, (unsigned long long)once, (unsigned long long)twice);
    CHECKF(sent == rank->net_bytes, "%s: %llu bytes sent, %llu said", kind->name,
           (unsigned long long)sent, (unsigned long long)rank->net_bytes);
    CHECKF(beside < 32768 * (world - 1), "%s: %llu bytes beside them", kind->name,
           (unsigned long long)beside);
}

static void train_kind(const struct kind *kind, struct zinf_net *between, uint32_t n_seats)
{
    static struct rank ranks[MOST_RANKS];
    struct zinf_net_place at = zinf_net_place(between);
    uint32_t world = at.world * n_seats;
    struct setting s = setting_of(kind, world);
    char name[60], folder[600];
    struct outcome one = {0};
    snprintf(name, sizeof name, "out-%.30s-%ux%u", kind->name, at.world, n_seats);
    snprintf(folder, sizeof folder, "%s/%s", work, name);
    memset(ranks, 0, sizeof ranks);
    for (uint32_t r = 0; r < n_seats; r++)
        ranks[r] = (struct rank){
            .setting = &s, .config = configure_of(&s, world), .folder = folder, .net = between};
    if (n_seats == 1)
        train_as(ranks);
    else
        train_process(&(struct process){.between = between, .n_seats = n_seats, .ranks = ranks});
    check_ranks(&s, ranks, n_seats, name);
    CHECKF(keep(kind->name, &one, true), "%s: not kept", name);
    snprintf(ranks[0].out.folder, sizeof ranks[0].out.folder, "%s", folder);
    if (at.rank == 0)
        check_same(&one, &ranks[0].out, name);
    for (uint32_t r = 0; r < n_seats; r++) {
        if (kind->linked || n_seats == 1) /* seats add up first what goes to other processes */
            check_bytes(kind, &ranks[r], world);
        zinf_config_destroy(ranks[r].config);
    }
}

/* Of the words, NULL at their end: which kinds begin with one; without any all do. */
static bool is_asked(const struct kind *kind, char *const *words)
{
    bool asked = !*words;
    for (; !asked && *words; words++)
        asked = !strncmp(kind->name, *words, strlen(*words));
    return asked;
}

static int train_ranks(uint32_t n_seats, char *const *words)
{
    struct zinf_net *between = NULL;
    int64_t failed = 0;
    if (zinf_net_open(&between, ZINF_NET_TIMEOUT_SECONDS) || !between) {
        printf("# no other process: %s\n", between ? "" : zinf_error());
        return 1;
    }
    struct zinf_net_place at = zinf_net_place(between);
    zinf_net_set_timeout(between, 30);
    for (int i = 0; !failed && i < KINDS; i++)
        if (is_asked(&kinds[i], words)) {
            train_kind(&kinds[i], between, n_seats);
            failed = tap_case_failures;
            if (zinf_net_max(between, &failed, 1))
                failed = 1;
        }
    if (!failed && !at.rank)
        printf("all %u processes of %u seats: passed\n", at.world, n_seats);
    zinf_net_close(between);
    return failed != 0;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    standin_open();
    begin(argv[1]);
    uint32_t n_seats = (uint32_t)atoi(argv[2]);
    if (n_seats)
        return train_ranks(n_seats, argv + 3);
    TAP_RUN(test_one);
    return tap_done();
}
