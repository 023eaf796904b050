/* estimate_sources: the rates that an estimate went by, each with where it is from. */
#include "cli/estimate/estimate.h"

#include <stddef.h>

static const struct {
    const char *word, *text, *unit;
    double scale;
    size_t offset; /* in struct zinf_speeds */
    enum { OF_ALL, OF_DRIVES, OF_SEATS, OF_MATRICES, OF_PACKED } of;
} rates[SPEED_RATES] = {
    [SPEED_PRODUCTS] = {"products", "products", "GFLOP/s", 1e9,
                        offsetof(struct zinf_speeds, device_flops), OF_ALL},
    [SPEED_ATTENTION] = {"attention", "attention", "GFLOP/s", 1e9,
                         offsetof(struct zinf_speeds, attention_flops), OF_ALL},
    [SPEED_BANDWIDTH] = {"bandwidth", "device's memory", "GB/s", 1e9,
                         offsetof(struct zinf_speeds, device_bytes), OF_ALL},
    [SPEED_LINK] = {"link", "to and from it", "GB/s", 1e9, offsetof(struct zinf_speeds, link_bytes),
                    OF_ALL},
    [SPEED_OPTIMIZER] = {"optim", "optimizer", "GB/s", 1e9,
                         offsetof(struct zinf_speeds, optimizer_bytes), OF_ALL},
    [SPEED_PACKING] = {"packing", "packing", "GB/s", 1e9, offsetof(struct zinf_speeds, pack_bytes),
                       OF_PACKED},
    [SPEED_UPDATE] = {"cpu-fp32", "CPU products fp32", "GFLOP/s", 1e9,
                      offsetof(struct zinf_speeds, host_flops), OF_MATRICES},
    [SPEED_READ] = {"nvme-read", "drive reads", "GB/s", 1e9,
                    offsetof(struct zinf_speeds, drive_read_bytes), OF_DRIVES},
    [SPEED_WRITE] = {"nvme-write", "drive writes", "GB/s", 1e9,
                     offsetof(struct zinf_speeds, drive_write_bytes), OF_DRIVES},
    [SPEED_MIXED] = {"nvme-mixed", "drive, both", "GB/s", 1e9,
                     offsetof(struct zinf_speeds, drive_mixed_bytes), OF_DRIVES},
    [SPEED_ROOT] = {"root", "to all devices", "GB/s", 1e9, offsetof(struct zinf_speeds, root_bytes),
                    OF_SEATS},
    [SPEED_PEER] = {"peer", "device to device", "GB/s", 1e9,
                    offsetof(struct zinf_speeds, peer_bytes), OF_SEATS},
};

static double value_of(const struct estimate *e, int rate)
{
    return *(const double *)((const char *)&e->now.speeds + rates[rate].offset);
}

/* A plan without drives says nothing of them, and one device nothing of others. */
static bool counts(const struct estimate *e, int rate)
{
    if (rates[rate].of == OF_SEATS)
        return e->seats > 1 && (rate != SPEED_PEER || e->now.link_seconds > 0);
    if (rates[rate].of == OF_MATRICES)
        return e->now.update_flops > 0;
    if (rates[rate].of == OF_PACKED)
        return e->now.packs;
    return rates[rate].of != OF_DRIVES || e->now.lane_bytes[0] || e->now.lane_bytes[1];
}

static const char measured[] = "measured just now, by a few steps of this shape with two blocks";

void estimate_print_sources(const struct estimate *e, int label_cols)
{
    const char *label = "speeds";
    char text[160];
    if (e->steps_apart > 0) {
        cli_print_field(stdout, label, label_cols, measured);
        return;
    }
    for (int i = 0; i < SPEED_RATES; i++) {
        if (!counts(e, i))
            continue;
        snprintf(text, sizeof text, "%s %.4g %s: %s", rates[i].text,
                 value_of(e, i) / rates[i].scale, rates[i].unit, e->sources.of[i]);
        cli_print_field(stdout, label, label_cols, text);
        label = "";
    }
}

/* "products, optimizer", of those that are assumed or of those that are not. */
static size_t list(const struct speed_sources *sources, bool drives, bool assumed, char *out,
                   size_t bytes)
{
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i < SPEED_RATES && used < bytes; i++)
        if ((rates[i].of == OF_ALL || (rates[i].of == OF_DRIVES && drives)) &&
            assumed == !strncmp(sources->of[i], "assumed", 7))
            used +=
                (size_t)snprintf(out + used, bytes - used, "%s%s", used ? ", " : "", rates[i].text);
    return used;
}

/* Whether others used the CPUs while a rate was measured that the plan goes by. */
static bool any_under_load(const struct speed_sources *sources, bool drives)
{
    bool any = false;
    for (int i = 0; i < SPEED_RATES; i++)
        any |= (rates[i].of == OF_ALL || (rates[i].of == OF_DRIVES && drives)) &&
               speeds_under_load(sources, (enum speed_rate)i);
    return any;
}

void estimate_sources_line(const struct speed_sources *sources, bool drives, char *out,
                           size_t bytes)
{
    char measured_rates[160], assumed[160];
    size_t n = list(sources, drives, false, measured_rates, sizeof measured_rates);
    if (!list(sources, drives, true, assumed, sizeof assumed))
        snprintf(out, bytes, "by speeds that were measured");
    else if (!n)
        snprintf(out, bytes, "by assumed speeds: zinf bench all measures them");
    else
        snprintf(out, bytes, "by speeds that were measured (%s) or assumed (%s)", measured_rates,
                 assumed);
    const size_t used = strlen(out);
    if (any_under_load(sources, drives))
        snprintf(out + used, bytes - used,
                 "; some were measured while other processes used the CPUs: zinf bench all "
                 "measures them again");
}

cJSON *estimate_sources_json(const struct estimate *e)
{
    cJSON *root = e->steps_apart > 0 ? cJSON_CreateString(measured) : cJSON_CreateObject();
    for (int i = 0; !(e->steps_apart > 0) && i < SPEED_RATES; i++) {
        if (!counts(e, i))
            continue;
        cJSON *rate = cJSON_AddObjectToObject(root, rates[i].word);
        cJSON_AddNumberToObject(rate, "value", value_of(e, i));
        cJSON_AddStringToObject(rate, "source", e->sources.of[i]);
    }
    return root;
}
