/* estimate: the figures of `zinf estimate` for people and for programs. */
#include "cli/estimate/estimate.h"

#include <math.h>
#include <sys/statvfs.h>

static const char *const lanes[] = {"read", "write", "h2d", "d2h", "device", "host", "net"};
static const char *const lane_texts[] = {
    "drive reads", "drive writes", "to the device", "to the host", "device", "CPU", "network"};
/* The last lane, of seats that have nobody else. */
static const char seats_text[] = "between seats";
static const char *const tiers[] = {"device", "host", "drive"};
#define N_LANES (sizeof lanes / sizeof *lanes)

const char *estimate_lane(int lane)
{
    return lane_texts[lane];
}

static const char *lane_text(const struct estimate *e, size_t lane)
{
    return lane == N_LANES - 1 && e->seats > 1 && e->seats == e->ranks ? seats_text
                                                                       : lane_texts[lane];
}

#define NEARLY_ALIKE 1.02 /* of rates: what varies less is one figure */
#define SHORT_LIFE 365    /* days that a drive lasts, below which ways out are named */

/* Columns of labels; what is longer than a line goes on below its beginning. */
#define LABEL 11

/* Each tier with the rank that needs most of it, or the rank once where it is the same. */
void estimate_most_text(char *out, size_t bytes, const struct zinf_planned *planned)
{
    static const char *const names[] = {"device", "RAM", "drive"};
    const uint32_t *rank = planned->rank;
    const bool one = rank[0] == rank[1] && (rank[1] == rank[2] || !planned->most[2]);
    char size[16], who[32] = "";
    size_t used = 0;
    *out = 0;
    if (!memcmp(planned->most, planned->least, sizeof planned->most))
        return;
    if (one)
        used = (size_t)snprintf(out, bytes, "rank %u needs most: ", rank[0]);
    for (int i = 0; i < 3 && used < bytes; i++) {
        if (!one)
            snprintf(who, sizeof who, "rank %u needs most ", rank[i]);
        used += (size_t)snprintf(out + used, bytes - used, "%s%s%s %s", i ? ", " : "", who,
                                 names[i], zinf_size_format(size, sizeof size, planned->most[i]));
    }
}

void estimate_add_most(cJSON *root, const struct zinf_planned *planned)
{
    cJSON *bytes = cJSON_AddObjectToObject(root, "planned_most_bytes");
    cJSON *ranks = cJSON_AddObjectToObject(root, "planned_most_ranks");
    for (int i = 0; i < 3; i++) {
        cJSON_AddNumberToObject(bytes, tiers[i], (double)planned->most[i]);
        cJSON_AddNumberToObject(ranks, tiers[i], planned->rank[i]);
    }
}

static void print_memory(const struct zinf_estimate *e)
{
    char text[256], size[16], budget[16], pinned[16];
    int used = 0;
    for (int i = 0; i < 3; i++) {
        used += snprintf(text + used, sizeof text - (size_t)used, "%s%s %s", i ? ", " : "",
                         tiers[i], zinf_size_format(size, sizeof size, e->bytes[i]));
        if (e->budget[i] != UINT64_MAX)
            used += snprintf(text + used, sizeof text - (size_t)used, " of %s",
                             zinf_size_format(budget, sizeof budget, e->budget[i]));
        if (i == 1)
            used += snprintf(text + used, sizeof text - (size_t)used, " (pinned %s)",
                             zinf_size_format(pinned, sizeof pinned, e->pinned));
    }
    cli_print_field(stdout, "memory", LABEL, text);
    estimate_most_text(text, sizeof text, &e->planned);
    if (*text)
        cli_print_field(stdout, "", LABEL, text);
    if (e->ram_is_shared)
        printf("             in all %s of RAM: the device is the CPU\n",
               zinf_size_format(size, sizeof size, e->bytes[0] + e->bytes[1]));
}

void estimate_range(const struct zinf_estimate_options *options, const struct zinf_estimate *now,
                    double range[2])
{
    const double rates[] = {options->speeds.drive_most, options->speeds.drive_least};
    struct zinf_estimate_options other = *options;
    range[0] = range[1] = 0;
    if (!(rates[1] > 0) || rates[0] < NEARLY_ALIKE * rates[1] ||
        !(now->lane_bytes[0] + now->lane_bytes[1]))
        return;
    other.plan = NULL;
    other.trace = NULL;
    other.pipe = NULL;
    other.like = now;
    for (int i = 0; i < 2; i++) {
        struct zinf_estimate varied;
        other.drive_factor = rates[i];
        if (zinf_estimate(&varied, &other)) {
            range[0] = range[1] = 0;
            return;
        }
        range[i] = varied.step_seconds;
    }
}

static void print_pipeline(const struct estimate *e)
{
    const struct zinf_estimate *n = &e->now;
    char text[160];
    snprintf(text, sizeof text,
             "%u ranks: the slowest waits for the others for %.1f %% of the step", n->pipe_ranks,
             100 * n->bubble_seconds / n->step_seconds);
    cli_print_field(stdout, "pipeline", LABEL, text);
    for (uint32_t r = 0; e->pipe && r < n->pipe_ranks; r++) {
        const struct zinf_pipe_rank *p = &e->pipe[r];
        printf("             rank %-3u %3u layers, waits for %4.1f %%; limited by %s, busy for "
               "%.0f %%\n",
               r, p->layers, 100 * p->bubble_seconds / n->step_seconds,
               lane_text(e, (size_t)p->bottleneck),
               100 * p->lane_seconds[p->bottleneck] / n->step_seconds);
    }
}

/* What is said of a step is true of one that does not clip. */
static void print_clipped(const struct zinf_estimate *n)
{
    char text[240], one[32], each[32];
    if (!(n->clipped_seconds > 0))
        return;
    snprintf(
        text, sizeof text,
        "if no step clips; one that does (gradient_clipping) takes up to %s, its updates being "
        "taken back, and where at least half do each takes %s (update-in-forward)",
        cli_duration(one, n->clipped_seconds), cli_duration(each, n->all_clipped_seconds));
    cli_print_field(stdout, "", LABEL, text);
}

static void print_step(const struct estimate *e)
{
    const struct zinf_estimate *n = &e->now;
    double busy = n->lane_seconds[n->bottleneck] / n->step_seconds;
    char time[32], tokens[32];
    char text[160];
    snprintf(text, sizeof text, "%s for %s tokens: %.4g tokens/s, schedule %s",
             cli_duration(time, n->step_seconds), cli_count(tokens, n->tokens),
             (double)n->tokens / n->step_seconds, n->schedule);
    cli_print_field(stdout, "step", LABEL, text);
    cli_duration(time, e->range[0]);
    if (e->range[1] > 0 && strcmp(time, cli_duration(tokens, e->range[1])))
        printf("             %s to %s with the drive as fast and as slow as it was measured\n",
               time, tokens);
    print_clipped(n);
    printf("limited by   %s, busy for %.0f %% of the step\n", lane_text(e, (size_t)n->bottleneck),
           100 * busy);
    for (size_t i = 0; i < N_LANES; i++)
        if (n->lane_seconds[i] > 0)
            printf("             %-13s %10.4f s %10.3f GB\n", lane_text(e, i), n->lane_seconds[i],
                   (double)n->lane_bytes[i] * 1e-9);
    snprintf(text, sizeof text, "%.1f %% of %.0f GFLOP/s of matrix products (3 x forward / step)",
             100 * estimate_utilisation(e), n->matrix_flops * 1e-9);
    cli_print_field(stdout, "utilisation", LABEL, text);
    if (n->sums_by_products > 0) {
        snprintf(
            text, sizeof text,
            "of gradients: products add %.1f %% of a step's numbers themselves, if the GPU then "
            "gives the same bits, and a kernel the others",
            100 * n->sums_by_products / (n->sums_by_products + n->sums_by_kernels));
        cli_print_field(stdout, "sums", LABEL, text);
    }
    if (n->tensor_ranks > 1) {
        snprintf(text, sizeof text,
                 "%u ranks share each matrix: they add up %.3f GB a step, which is %.1f %% of it; "
                 "each sends %.3f GB",
                 n->tensor_ranks, n->tensor_bytes * 1e-9, 100 * n->tensor_seconds / n->step_seconds,
                 n->tensor_sent_bytes * 1e-9);
        cli_print_field(stdout, "tensors", LABEL, text);
    }
    if (n->context_ranks > 1) {
        snprintf(text, sizeof text,
                 "%u ranks share each sequence: keys, values and their gradients from others are "
                 "%.3f GB a step, %.4g s",
                 n->context_ranks, n->context_bytes * 1e-9, n->context_seconds);
        cli_print_field(stdout, "sequences", LABEL, text);
    }
    if (n->pipe_ranks > 1)
        print_pipeline(e);
}

static void print_wear(const struct estimate *e)
{
    const struct zinf_estimate *n = &e->now;
    char text[256];
    double day = estimate_written_a_day(e);
    if (!n->lane_bytes[0] && !n->lane_bytes[1])
        return;
    int used =
        snprintf(text, sizeof text, "%.3f GB read, %.3f GB written a step; %.2f TB written a day",
                 (double)n->lane_bytes[0] * 1e-9, (double)n->lane_bytes[1] * 1e-9, day * 1e-12);
    if (day > 0)
        snprintf(text + used, sizeof text - (size_t)used, ": %.0f TBW last %.0f days",
                 e->tbw * 1e-12, e->tbw / day);
    cli_print_field(stdout, "drive", LABEL, text);
    if (n->lane_bytes_most[0] + n->lane_bytes_most[1] > n->lane_bytes[0] + n->lane_bytes[1]) {
        snprintf(text, sizeof text,
                 "as packed data are after a thousand steps (zinf.pack); at most %.3f GB and %.3f "
                 "GB, if no byte could be spared",
                 (double)n->lane_bytes_most[0] * 1e-9, (double)n->lane_bytes_most[1] * 1e-9);
        cli_print_field(stdout, "", LABEL, text);
    }
    if (day > 0 && e->tbw / day < SHORT_LIFE)
        cli_print_field(stdout, "", LABEL,
                        "less is written with more RAM (zinf.host_memory, zinf.placement auto), "
                        "optimizer.type AdamW8bit, zinf.schedule update-in-place, or more "
                        "micro-batches a step");
}

double estimate_length_seconds(const struct estimate *e)
{
    return e->tokens / (double)e->now.tokens * e->now.step_seconds;
}

double estimate_length_written(const struct estimate *e)
{
    return e->tokens / (double)e->now.tokens * (double)e->now.lane_bytes[1];
}

double estimate_length_kwh(const struct estimate *e)
{
    return estimate_length_seconds(e) * e->watts / 3.6e6;
}

/* A whole training, and whether the drive has room for it. */
static void print_length(const struct estimate *e)
{
    char time[32], needed[24], room[24], text[400];
    if (e->price > 0) {
        int used = snprintf(text, sizeof text, "%.4g for a million tokens, at %g an hour",
                            estimate_price(e), e->price);
        if (e->tokens > 0)
            snprintf(text + used, sizeof text - (size_t)used, "; %.4g for %.4g tokens",
                     estimate_price(e) * e->tokens * 1e-6, e->tokens);
        cli_print_field(stdout, "price", LABEL, text);
    }
    if (e->tokens > 0) {
        int used = snprintf(text, sizeof text, "%.4g tokens: %s, %.2f TB written", e->tokens,
                            cli_duration(time, estimate_length_seconds(e)),
                            estimate_length_written(e) * 1e-12);
        if (e->watts > 0)
            snprintf(text + used, sizeof text - (size_t)used, ", %.4g kWh at %g W",
                     estimate_length_kwh(e), e->watts);
        cli_print_field(stdout, "training", LABEL, text);
    }
    if (e->drive_free != UINT64_MAX && e->now.bytes[2]) {
        snprintf(text, sizeof text, "%s needed, %s free in %s%s",
                 zinf_size_format(needed, sizeof needed, estimate_drive_bytes(e)),
                 zinf_size_format(room, sizeof room, e->drive_free), e->drive_path,
                 e->drive_free < estimate_drive_bytes(e) ? ": TOO LITTLE" : "");
        cli_print_field(stdout, "drive room", LABEL, text);
    }
}

static void print_ranks(const struct estimate *e)
{
    char text[200];
    if (e->ranks < 2 || e->seats == e->ranks)
        return;
    int used = snprintf(text, sizeof text, "%u on %u host%s", e->ranks, e->ranks / e->local_ranks,
                        e->ranks == e->local_ranks ? "" : "s");
    if (e->seats > 1)
        used += snprintf(text + used, sizeof text - (size_t)used, ", %u seats a process", e->seats);
    if (e->ranks > e->local_ranks)
        used += snprintf(text + used, sizeof text - (size_t)used, ", %.4g Gbit/s a host",
                         e->now.speeds.net_bytes * 8e-9);
    snprintf(text + used, sizeof text - (size_t)used,
             "; memory, lanes and bytes are those of one rank");
    cli_print_field(stdout, "ranks", LABEL, text);
}

/* What each has, what all take of the host, and how units come to them. */
static void print_seats(const struct estimate *e)
{
    const struct zinf_estimate *n = &e->now;
    char text[400], size[16];
    if (e->seats < 2 || e->seats != e->ranks)
        return;
    int used = snprintf(text, sizeof text,
                        "%u in one process, with %s of RAM in all; memory, lanes and bytes are "
                        "those of one seat",
                        e->seats, zinf_size_format(size, sizeof size, n->planned.process[1]));
    if (n->pull_seconds > 0)
        snprintf(text + used, sizeof text - (size_t)used,
                 "; each pulls whole units from RAM at %.3g GB/s, all at %.3g GB/s: %.4f s a step",
                 n->speeds.link_bytes * 1e-9, n->speeds.root_bytes * 1e-9, n->pull_seconds);
    else if (n->link_seconds > 0)
        snprintf(text + used, sizeof text - (size_t)used,
                 "; each copies its slice of a unit from RAM, and they give these to each other at "
                 "%.3g GB/s: %.4f s a step",
                 n->speeds.peer_bytes * 1e-9, n->link_seconds);
    cli_print_field(stdout, "seats", LABEL, text);
}

void estimate_print(const struct estimate *e)
{
    char text[160], params[32];
    snprintf(text, sizeof text, "%s parameters on %s", cli_count(params, e->now.params),
             e->now.device);
    cli_print_field(stdout, "model", LABEL, text);
    print_ranks(e);
    print_seats(e);
    print_memory(&e->now);
    print_step(e);
    print_wear(e);
    print_length(e);
    for (int i = 0; i < e->n_changes; i++) {
        double seconds = e->changes[i].step_seconds;
        char time[32], other[64] = "no other plan";
        if (seconds > 0)
            snprintf(other, sizeof other, "%s a step (%+.0f %%)", cli_duration(time, seconds),
                     round(100 * (seconds / e->now.step_seconds - 1)) + 0.0); /* no "-0" */
        snprintf(text, sizeof text, "%s: %s", e->changes[i].what, other);
        cli_print_field(stdout, i ? "" : "with", LABEL, text);
    }
    if (e->machine)
        machine_print(stdout, e->machine, LABEL);
    else
        estimate_print_sources(e, LABEL);
    if (e->steps_apart > 0)
        printf("             which differed by %.0f %% among themselves\n",
               100 * (e->steps_apart - 1));
}

static void add_lanes(cJSON *root, const struct zinf_estimate *n)
{
    cJSON *busy = cJSON_AddObjectToObject(root, "lane_seconds");
    cJSON *bytes = cJSON_AddObjectToObject(root, "lane_bytes");
    for (size_t i = 0; i < N_LANES; i++) {
        cJSON_AddNumberToObject(busy, lanes[i], n->lane_seconds[i]);
        cJSON_AddNumberToObject(bytes, lanes[i], (double)n->lane_bytes[i]);
    }
    cJSON *most = cJSON_AddObjectToObject(root, "lane_bytes_most");
    for (size_t i = 0; i < N_LANES; i++)
        cJSON_AddNumberToObject(most, lanes[i], (double)n->lane_bytes_most[i]);
}

static void add_memory(cJSON *root, const struct zinf_estimate *n)
{
    cJSON *bytes = cJSON_AddObjectToObject(root, "peak_bytes");
    cJSON *budget = cJSON_AddObjectToObject(root, "budget_bytes");
    for (int i = 0; i < 3; i++) {
        cJSON_AddNumberToObject(bytes, tiers[i], (double)n->bytes[i]);
        if (n->budget[i] != UINT64_MAX)
            cJSON_AddNumberToObject(budget, tiers[i], (double)n->budget[i]);
    }
    cJSON_AddNumberToObject(bytes, "pinned", (double)n->pinned);
}

static void add_seats(cJSON *root, const struct estimate *e)
{
    if (e->seats < 2)
        return;
    cJSON_AddNumberToObject(root, "seats", e->seats);
    cJSON_AddNumberToObject(root, "host_bytes_of_all_seats",
                            e->seats == e->ranks ? (double)e->now.planned.process[1]
                                                 : (double)e->now.bytes[1] * e->seats);
    if (e->now.pull_seconds > 0)
        cJSON_AddNumberToObject(root, "pull_seconds", e->now.pull_seconds);
    if (e->now.link_seconds > 0)
        cJSON_AddNumberToObject(root, "link_seconds", e->now.link_seconds);
}

static void add_length(cJSON *root, const struct estimate *e)
{
    if (e->price > 0)
        cJSON_AddNumberToObject(root, "price_per_million_tokens", estimate_price(e));
    if (e->price > 0 && e->tokens > 0)
        cJSON_AddNumberToObject(root, "training_price", estimate_price(e) * e->tokens * 1e-6);
    if (!(e->tokens > 0))
        return;
    cJSON_AddNumberToObject(root, "training_tokens", e->tokens);
    cJSON_AddNumberToObject(root, "training_seconds", estimate_length_seconds(e));
    cJSON_AddNumberToObject(root, "training_bytes_written", estimate_length_written(e));
    if (e->watts > 0) {
        cJSON_AddNumberToObject(root, "watts", e->watts);
        cJSON_AddNumberToObject(root, "training_kwh", estimate_length_kwh(e));
    }
}

static void add_changes(cJSON *root, const struct estimate *e)
{
    cJSON *changes = cJSON_AddArrayToObject(root, "changes");
    for (int i = 0; i < e->n_changes; i++) {
        cJSON *change = cli_json_append(changes);
        cJSON_AddStringToObject(change, "what", e->changes[i].what);
        if (e->changes[i].step_seconds > 0)
            cJSON_AddNumberToObject(change, "step_seconds", e->changes[i].step_seconds);
    }
}

static void add_pipeline(cJSON *root, const struct estimate *e)
{
    cJSON *list = e->now.pipe_ranks > 1 ? cJSON_AddArrayToObject(root, "pipeline") : NULL;
    for (uint32_t r = 0; list && e->pipe && r < e->now.pipe_ranks; r++) {
        const struct zinf_pipe_rank *p = &e->pipe[r];
        cJSON *one = cli_json_append(list);
        cJSON_AddNumberToObject(one, "layers", p->layers);
        cJSON_AddNumberToObject(one, "alone_seconds", p->alone_seconds);
        cJSON_AddNumberToObject(one, "bubble_seconds", p->bubble_seconds);
        cJSON_AddStringToObject(one, "limited_by", lanes[p->bottleneck]);
        cJSON *busy = cJSON_AddObjectToObject(one, "busy_seconds");
        cJSON *bytes = cJSON_AddObjectToObject(one, "memory_bytes");
        for (size_t i = 0; i < N_LANES; i++)
            cJSON_AddNumberToObject(busy, lanes[i], p->lane_seconds[i]);
        for (int i = 0; i < 3; i++)
            cJSON_AddNumberToObject(bytes, tiers[i], (double)p->bytes[i]);
    }
}

/* Of ranks that share tensors, sequences and layers. */
static void add_axes(cJSON *root, const struct zinf_estimate *n)
{
    if (n->tensor_ranks > 1) {
        cJSON_AddNumberToObject(root, "tensor_ranks", n->tensor_ranks);
        cJSON_AddNumberToObject(root, "tensor_bytes", n->tensor_bytes);
        cJSON_AddNumberToObject(root, "tensor_sent_bytes", n->tensor_sent_bytes);
        cJSON_AddNumberToObject(root, "tensor_seconds", n->tensor_seconds);
    }
    if (n->context_ranks > 1) {
        cJSON_AddNumberToObject(root, "context_ranks", n->context_ranks);
        cJSON_AddNumberToObject(root, "context_bytes", n->context_bytes);
        cJSON_AddNumberToObject(root, "context_seconds", n->context_seconds);
    }
    if (n->pipe_ranks > 1) {
        cJSON_AddNumberToObject(root, "pipe_ranks", n->pipe_ranks);
        cJSON_AddNumberToObject(root, "bubble_seconds", n->bubble_seconds);
    }
}

cJSON *estimate_json(const struct estimate *e)
{
    const struct zinf_estimate *n = &e->now;
    cJSON *root = cJSON_CreateObject();
    cJSON_AddNumberToObject(root, "parameters", (double)n->params);
    cJSON_AddStringToObject(root, "device", n->device);
    cJSON_AddNumberToObject(root, "seq_len", (double)e->seq_len);
    if (e->ranks > 1) {
        cJSON_AddNumberToObject(root, "ranks", e->ranks);
        cJSON_AddNumberToObject(root, "hosts", e->ranks / e->local_ranks);
        cJSON_AddNumberToObject(root, "network_bytes_per_second", n->speeds.net_bytes);
    }
    add_seats(root, e);
    add_axes(root, n);
    if (n->sums_by_products + n->sums_by_kernels > 0) {
        cJSON_AddNumberToObject(root, "sums_by_products", n->sums_by_products);
        cJSON_AddNumberToObject(root, "sums_by_kernels", n->sums_by_kernels);
    }
    add_memory(root, n);
    if (e->ranks > 1)
        estimate_add_most(root, &n->planned);
    cJSON_AddNumberToObject(root, "step_seconds", n->step_seconds);
    if (e->range[1] > 0)
        cJSON_AddItemToObject(root, "step_seconds_range", cJSON_CreateDoubleArray(e->range, 2));
    if (n->clipped_seconds > 0) {
        cJSON_AddNumberToObject(root, "clipped_step_seconds", n->clipped_seconds);
        cJSON_AddNumberToObject(root, "all_clipped_step_seconds", n->all_clipped_seconds);
    }
    cJSON_AddNumberToObject(root, "tokens_per_step", (double)n->tokens);
    cJSON_AddNumberToObject(root, "tokens_per_second", (double)n->tokens / n->step_seconds);
    cJSON_AddStringToObject(root, "schedule", n->schedule);
    cJSON_AddStringToObject(root, "bottleneck", lanes[n->bottleneck]);
    add_lanes(root, n);
    cJSON_AddNumberToObject(root, "drive_seconds", n->drive_seconds);
    cJSON_AddNumberToObject(root, "written_per_day", estimate_written_a_day(e));
    cJSON_AddNumberToObject(root, "tbw", e->tbw);
    if (n->lane_bytes[1])
        cJSON_AddNumberToObject(root, "drive_life_days", e->tbw / estimate_written_a_day(e));
    if (e->drive_free != UINT64_MAX)
        cJSON_AddNumberToObject(root, "drive_free_bytes", (double)e->drive_free);
    add_length(root, e);
    cJSON_AddNumberToObject(root, "model_flops", n->model_flops);
    if (n->update_flops > 0)
        cJSON_AddNumberToObject(root, "update_flops", n->update_flops);
    cJSON_AddNumberToObject(root, "flops_utilisation", estimate_utilisation(e));
    add_changes(root, e);
    add_pipeline(root, e);
    if (e->machine)
        cJSON_AddItemToObject(root, "machine", machine_json(e->machine));
    else
        cJSON_AddItemToObject(root, "speeds", estimate_sources_json(e));
    if (e->steps_apart > 0)
        cJSON_AddNumberToObject(root, "steps_apart", e->steps_apart);
    return root;
}

void estimate_drive_room(struct estimate *e, const struct zinf_config *config)
{
    const struct zinf_config_offload *drives = config->offload_optimizer.device == ZINF_PLACE_NVME
                                                   ? &config->offload_optimizer
                                                   : &config->offload_param;
    e->drive_free = UINT64_MAX;
    if (e->machine) {
        double size = e->machine->figures[MACHINE_DRIVE_SIZE].value;
        e->drive_free = size > 0 ? (uint64_t)size : UINT64_MAX;
        snprintf(e->drive_path, sizeof e->drive_path, "the drives of %s", e->machine->name);
        return;
    }
    for (int i = 0; drives->device == ZINF_PLACE_NVME && i < drives->n_nvme_paths; i++) {
        struct statvfs room;
        if (statvfs(drives->nvme_path[i], &room))
            continue;
        uint64_t each = (uint64_t)room.f_bavail * room.f_frsize; /* striped: the least counts */
        uint64_t all = each * (uint64_t)drives->n_nvme_paths;
        if (all >= e->drive_free)
            continue;
        e->drive_free = all;
        snprintf(e->drive_path, sizeof e->drive_path, "%s", drives->nvme_path[i]);
    }
}
