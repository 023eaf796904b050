/*
 * A training that goes on for long keeps nothing: resident memory, the heap, open descriptors and
 * the files of its folders are the same after many steps, evaluations and saves as after the first.
 * ZINF_TEST_STEPS=1000 makes it longer; every 20th part of it ends with a checkpoint.
 */
#include "train_support.h"

#include <malloc.h>

#define STEPS 60
#define SAVES 20
#define SEQ 16
/* Pages of libraries and stacks that are touched for the first time late. */
#define RESIDENT_SLACK ((uint64_t)256 << 10)
/* Longer numbers in texts that are kept from step to step. */
#define HEAP_SLACK 256

struct use {
    uint64_t resident, heap;
    int descriptors;
};
struct soak {
    uint64_t total, steps, n_saved, n_evaluated, warm_step;
    struct use warm, most; /* after two saves; since then */
    /* The heap differs from step to step; its least does not: until the middle, and from there. */
    uint64_t heap_before, heap_after;
};

static char model[600], drive[600], text[600], out[600];
static struct zinf_tokenizer *tokenizer;

static struct use measure(void)
{
    return (struct use){zinf_memory_resident(), mallinfo2().uordblks,
                        count_entries("/proc/self/fd")};
}

static void on_stepped(void *arg, const struct zinf_step_result *r, uint64_t steps)
{
    struct soak *s = arg;
    struct use now = measure();
    (void)steps;
    s->steps = r->step;
    if (s->n_saved < 2 || s->n_evaluated < 2)
        return;
    if (!s->warm_step) {
        s->warm_step = r->step;
        s->warm = s->most = now;
        s->heap_before = s->heap_after = UINT64_MAX;
    }
    uint64_t *least = r->step <= s->total / 2 ? &s->heap_before : &s->heap_after;
    *least = now.heap < *least ? now.heap : *least;
    s->most.resident = now.resident > s->most.resident ? now.resident : s->most.resident;
    s->most.descriptors =
        now.descriptors > s->most.descriptors ? now.descriptors : s->most.descriptors;
}

static void on_evaluated(void *arg, uint64_t step, const struct zinf_evaluation *found)
{
    (void)step;
    (void)found;
    ((struct soak *)arg)->n_evaluated++;
}

static void on_saved(void *arg, uint64_t step, const char *folder)
{
    (void)step;
    ((struct soak *)arg)->n_saved += strstr(folder, "/checkpoint-") != NULL;
}

static void soak(const char *place, struct soak *s, uint64_t steps)
{
    char json[2048];
    struct zinf_config_context context = ZINF_CONFIG_CONTEXT_DEFAULT;
    struct zinf_config *config = NULL;
    snprintf(json, sizeof json,
             "{\"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": 2,"
             "\"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 3,"
             "\"offload_param\": {\"device\": \"%s\", \"nvme_path\": \"%s\"},"
             "\"offload_optimizer\": {\"device\": \"%s\", \"nvme_path\": \"%s\"}},"
             "\"zinf\": {\"threads\": 1, \"placement\": \"exact\"}}",
             place, drive, place, drive);
    CHECKF(!zinf_config_parse(&config, json, strlen(json), "test", &context), "%s", zinf_error());
    struct zinf_dataset *data = open_bytes(text, tokenizer, SEQ, true, 3);
    struct zinf_dataset *eval_data = open_bytes(text, tokenizer, SEQ, false, 3);
    struct zinf_run_options options = {
        .trainer = {.mode = ZINF_TRAINER_TRAIN,
                    .model_path = model,
                    .seed = 3,
                    .config = config,
                    .seq_len = SEQ,
                    .device = ZINF_DEVICE_HOST},
        .output = out,
        .data = data,
        .eval_data = eval_data,
        .steps = steps,
        .eval_every = steps / SAVES,
        .save_every = steps / SAVES,
        .save_total_limit = 2,
        .events = {.stepped = on_stepped, .evaluated = on_evaluated, .saved = on_saved, .arg = s},
    };
    if (config && data && eval_data)
        CHECKF(!zinf_run_train(&options), "%s", zinf_error());
    zinf_dataset_close(data);
    zinf_dataset_close(eval_data);
    zinf_config_destroy(config);
}

static uint64_t grown(uint64_t now, uint64_t then)
{
    return now > then ? now - then : 0;
}

static void check(const struct soak *s, const char *place, uint64_t steps)
{
    uint64_t resident = grown(s->most.resident, s->warm.resident);
    uint64_t heap = grown(s->heap_after, s->heap_before);
    printf("# %s: %llu steps, %llu saves, %llu evaluations; after step %llu resident memory grew "
           "by %llu KiB, the heap by %llu bytes, descriptors by %d\n",
           place, (unsigned long long)s->steps, (unsigned long long)s->n_saved,
           (unsigned long long)s->n_evaluated, (unsigned long long)s->warm_step,
           (unsigned long long)resident >> 10, (unsigned long long)heap,
           s->most.descriptors - s->warm.descriptors);
    CHECK(s->steps == steps && s->n_saved >= SAVES && s->n_evaluated >= SAVES && s->warm_step);
    /* A sanitizer keeps what is freed for a while. */
    CHECKF(resident <= RESIDENT_SLACK || getenv("ZINF_SANITIZER"), "%llu KiB",
           (unsigned long long)resident >> 10);
    CHECKF(heap <= HEAP_SLACK, "%llu bytes", (unsigned long long)heap);
    CHECKF(s->most.descriptors == s->warm.descriptors, "%d, then %d", s->warm.descriptors,
           s->most.descriptors);
}

static void soak_in(const char *place)
{
    uint64_t steps = getenv("ZINF_TEST_STEPS") ? (uint64_t)atoll(getenv("ZINF_TEST_STEPS")) : STEPS;
    char command[1300];
    struct soak s = {.total = steps};
    int before = count_entries("/proc/self/fd");
    soak(place, &s, steps);
    check(&s, place, steps);
    CHECKF(count_entries("/proc/self/fd") == before, "descriptors stay open");
    CHECKF(count_entries(drive) == 0, "files stay on the drive");
    /* Two checkpoints, latest, model, log.jsonl, ledger.txt, config.resolved.json, run-id,
     * inputs.json. */
    CHECKF(count_entries(out) == 9, "%d files in the output folder", count_entries(out));
    snprintf(command, sizeof command, "rm -rf '%s'", out);
    CHECK(!system(command));
}

static void test_on_the_drive(void)
{
    soak_in("nvme");
}

static void test_in_ram(void)
{
    soak_in("cpu");
}

/* The heap's count of what is in use has freed blocks in it that a thread keeps for itself: here
 * none are. */
static void count_exactly(char **argv)
{
    if (getenv("GLIBC_TUNABLES"))
        return;
    setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1);
    execv("/proc/self/exe", argv);
}

int main(int argc, char **argv)
{
    (void)argc;
    count_exactly(argv);
    struct zinf_model_shape shape = {
        .arch = "gpt2", .layers = 2, .hidden = 32, .heads = 2, .vocab = 257, .context = 32};
    make_work("soak");
    zinf_log_set_level(ZINF_LOG_WARN);
    zinf_make_dirs(in_work(drive, "drive"));
    in_work(out, "out");
    make_model(model, "model", &shape, 11);
    make_text(text, "text.txt", 60);
    CHECKF(!zinf_tokenizer_bytes(&tokenizer), "%s", zinf_error());
    TAP_RUN(test_on_the_drive);
    TAP_RUN(test_in_ram);
    zinf_tokenizer_close(tokenizer);
    remove_work();
    return tap_done();
}
