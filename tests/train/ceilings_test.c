/*
 * Nothing beats a ceiling: 500 random trainings on random machines, of each of which the step that
 * is predicted takes at least as long as every lane needs for its bytes, as the device needs for
 * its products, as it needs to read the weights once forward and once backward in each
 * micro-batch, and as the host needs for its updates, the products of Muon's included.
 */
#include "train_support.h"

#include "base/random.h"

#include <float.h>

enum { CASES = 500 };

struct draw {
    uint64_t seed;
    uint32_t count;
};

static uint32_t below(struct draw *d, uint32_t n)
{
    uint32_t counter[4] = {d->count++, 0}, bits[4];
    zinf_philox(counter, d->seed, bits);
    return bits[0] % n;
}

/* From low to high, every power as likely. */
static double between(struct draw *d, double low, double high)
{
    return low * pow(high / low, (double)below(d, 1 << 20) / (1 << 20));
}

struct shape {
    int64_t width, inner, layers, heads, vocab, seq, micro, accumulation, rank;
    uint32_t seats;
    int place; /* of parameters and state: device, RAM, drive */
    bool four_bits, muon;
};

static struct shape draw_shape(struct draw *d)
{
    struct shape s = {.heads = 1 + below(d, 8),
                      .layers = 1 + below(d, 5),
                      .vocab = 100 + below(d, 20000),
                      .seq = (int64_t)between(d, 8, 1024),
                      .micro = 1 + below(d, 4),
                      .accumulation = 1 + below(d, 4),
                      .rank = below(d, 3) ? 0 : 1 + below(d, 64),
                      .seats = below(d, 4) ? 1 : 2 + below(d, 3),
                      .place = (int)below(d, 3)};
    s.width = 64 * s.heads;
    s.inner = 64 + below(d, 4000);
    s.four_bits = s.rank && below(d, 2) && s.inner % 64 == 0;
    s.muon = !s.rank && s.place > 0 && !below(d, 3);
    return s;
}

static void write_model(const struct shape *s, char folder[600])
{
    char text[600], file[600];
    snprintf(text, sizeof text,
             "{\"model_type\": \"llama\", \"hidden_size\": %lld, \"intermediate_size\": %lld, "
             "\"num_hidden_layers\": %lld, \"num_attention_heads\": %lld, \"vocab_size\": %lld, "
             "\"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-5, "
             "\"tie_word_embeddings\": false}",
             (long long)s->width, (long long)s->inner, (long long)s->layers, (long long)s->heads,
             (long long)s->vocab);
    zinf_make_dirs(in_work(folder, "model"));
    CHECK(!zinf_file_write_atomic(in_work(file, "model/config.json"), text, strlen(text)));
}

static struct zinf_config *config_of(const struct shape *s)
{
    static const char *const places[] = {"none", "cpu", "nvme"};
    char text[2400], path[600], adapter[80] = "";
    struct zinf_config *config = NULL;
    if (s->rank)
        snprintf(adapter, sizeof adapter, ", \"adapter\": {\"r\": %lld}%s", (long long)s->rank,
                 s->four_bits ? ", \"quantize\": \"nf4\"" : "");
    snprintf(text, sizeof text,
             "{\"train_micro_batch_size_per_gpu\": %lld, \"gradient_accumulation_steps\": %lld, "
             "\"bf16\": {\"enabled\": true}, \"optimizer\": {\"type\": \"%s\"}, "
             "\"zero_optimization\": {\"stage\": 3, "
             "\"offload_param\": {\"device\": \"%s\", \"nvme_path\": \"%s\"}, "
             "\"offload_optimizer\": {\"device\": \"%s\", \"nvme_path\": \"%s\"}}, "
             "\"zinf\": {\"durability\": \"none\", \"placement\": \"exact\"%s}}",
             (long long)s->micro, (long long)s->accumulation, s->muon ? "Muon" : "AdamW",
             places[s->place], in_work(path, "drive"), places[s->place], path, adapter);
    struct zinf_config_context context = ZINF_CONFIG_CONTEXT_DEFAULT;
    context.world_size = s->seats;
    context.no_training = context.quiet = true;
    CHECKF(!zinf_config_parse(&config, text, strlen(text), "ceilings", &context), "%s: %s",
           zinf_error(), text);
    return config;
}

static struct zinf_speeds draw_speeds(struct draw *d)
{
    return (struct zinf_speeds){
        .device_flops = between(d, 1e12, 1e15),
        .device_bytes = between(d, 1e11, 8e12),
        .link_bytes = between(d, 1e9, 4e11),
        .drive_read_bytes = between(d, 5e8, 3e10),
        .drive_write_bytes = between(d, 5e8, 3e10),
        .optimizer_bytes = between(d, 1e10, 4e11),
        .host_flops = between(d, 1e9, 1e13),
        .peer_bytes = between(d, 1e10, 9e11),
    };
}

/* Bytes of matrices that a micro-batch multiplies with: all of them forward; backward, for the
 * gradients of what came in, all but those of the first layer. */
static double weight_bytes(const struct shape *s)
{
    double width = (double)s->width, layers = (double)s->layers;
    double layer = 4 * width * width + 3 * width * (double)s->inner;
    double head = width * (double)s->vocab;
    return layer * (2 * layers - 1) * (s->four_bits ? 0.5 : 2) + 2 * head * 2;
}

/* Five times X X^T, its square, and both by X: of each layer's matrices, by one of the ranks. Of
 * the first two, which are symmetric, a half is computed. */
static double muon_flops(const struct shape *s)
{
    const double width = (double)s->width, inner = (double)s->inner;
    const double least = fmin(width, inner), most = fmax(width, inner);
    const double square = 4 * width * width * width;
    const double wide = 3 * least * least * most + least * least * least;
    return s->muon ? 5 * (double)s->layers * (4 * square + 3 * wide) / s->seats : 0;
}

static void check_case(uint64_t number)
{
    struct draw d = {.seed = number};
    struct shape s = draw_shape(&d);
    struct zinf_speeds speeds = draw_speeds(&d);
    struct zinf_described_machine machine = {.name = "drawn",
                                             .gpu_bytes = (uint64_t)80 << 30,
                                             .ram_bytes = (uint64_t)512 << 30,
                                             .n_threads = 16};
    struct zinf_estimate e;
    char folder[600];
    write_model(&s, folder);
    struct zinf_config *config = config_of(&s);
    if (!config)
        return;
    struct zinf_estimate_options options = {
        .trainer = {.model_path = folder,
                    .config = config,
                    .seq_len = s.seq,
                    .described = &machine},
        .speeds = speeds,
        .ranks = s.seats,
        .local_ranks = s.seats,
        .seats = s.seats,
    };
    int code = zinf_estimate(&e, &options);
    CHECKF(!code, "case %llu: %s", (unsigned long long)number, zinf_error());
    const double rates[] = {e.speeds.drive_read_bytes, e.speeds.drive_write_bytes,
                            e.speeds.link_bytes, e.speeds.link_bytes};
    for (int lane = 0; !code && lane < 4; lane++)
        CHECKF(e.step_seconds >= 0.999 * (double)e.lane_bytes[lane] / rates[lane],
               "case %llu: %g s for %g bytes of lane %d", (unsigned long long)number,
               e.step_seconds, (double)e.lane_bytes[lane], lane);
    /* AdamW reads a master, two moments and a gradient of each number in fp32, and writes all but
     * the gradient. A seat has its share of the numbers and of the host's rate. */
    double updated = s.place > 0 && !s.rank && !s.muon ? (double)e.params / s.seats : 0;
    double update = updated * 7 * sizeof(float) / e.speeds.optimizer_bytes;
    double products = e.model_flops / e.speeds.device_flops;
    double matrices = muon_flops(&s);
    double reads = weight_bytes(&s) * (double)s.accumulation / e.speeds.device_bytes;
    CHECKF(code || e.step_seconds >= 0.999 * products, "case %llu: %g s, products alone take %g",
           (unsigned long long)number, e.step_seconds, products);
    CHECKF(code || e.step_seconds >= 0.999 * update, "case %llu: %g s, updates alone take %g",
           (unsigned long long)number, e.step_seconds, update);
    /* Of seats, the one that has most counts. */
    const double all = s.seats * matrices, slack = 1e-9 * matrices;
    CHECKF(code || (e.update_flops >= matrices - slack && e.update_flops <= all + slack),
           "case %llu: %g operations of updates, not %g to %g", (unsigned long long)number,
           e.update_flops, matrices, all);
    CHECKF(code || e.step_seconds >= 0.999 * matrices / e.speeds.host_flops,
           "case %llu: %g s, updates' products alone take %g", (unsigned long long)number,
           e.step_seconds, matrices / e.speeds.host_flops);
    CHECKF(code || e.step_seconds >= 0.999 * reads, "case %llu: %g s, reading weights takes %g",
           (unsigned long long)number, e.step_seconds, reads);
    zinf_config_destroy(config);
}

static void test_nothing_beats_a_ceiling(void)
{
    for (uint64_t i = 0; i < CASES; i++)
        check_case(i);
}

int main(void)
{
    zinf_log_set_level(ZINF_LOG_ERROR);
    make_work("ceilings");
    TAP_RUN(test_nothing_beats_a_ceiling);
    remove_work();
    return tap_done();
}
