/*
 * speeds: what the benches of this machine left in the cache, each with its day. Figures
 * belong to a device, a number type and so many threads; those of others are not taken.
 */
#include "api/speeds.h"

#include "base/cache.h"

#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>

#define MAX_CACHE_BYTES ((size_t)4 << 20)

char *speeds_cache_path(bool make_folder)
{
    return zinf_cache_path("bench.json", make_folder);
}

cJSON *speeds_cache_load(void)
{
    cJSON *cache = NULL;
    char *path = speeds_cache_path(false);
    if (path && zinf_json_read_file(path, MAX_CACHE_BYTES, ZINF_JSON_STRICT, &cache))
        cache = NULL;
    free(path);
    if (cache && !cJSON_IsObject(cache)) {
        cJSON_Delete(cache);
        cache = NULL;
    }
    return cache ? cache : cJSON_CreateObject();
}

const char *speeds_device_key(char out[32], enum zinf_device_kind kind, enum zinf_dtype dtype)
{
    if (kind == ZINF_DEVICE_CUDA)
        snprintf(out, 32, "cuda/%s", zinf_dtype_name(dtype));
    else
        snprintf(out, 32, "host/%s/%s", zinf_isa_name(zinf_isa()), zinf_dtype_name(dtype));
    return out;
}

/* Borrowed; NULL: there is none. */
static const cJSON *cache_find(const cJSON *cache, const char *section, const char *key)
{
    const cJSON *results = cJSON_GetObjectItemCaseSensitive(cache, section);
    const cJSON *result = cJSON_GetObjectItemCaseSensitive(results, key);
    return cJSON_IsObject(result) ? result : NULL;
}

/* Neither a damaged file nor a clock that stood still makes a speed that no machine has. */
static double number_above(const cJSON *result, const char *key, double least)
{
    const cJSON *number = cJSON_GetObjectItemCaseSensitive(result, key);
    bool sane = cJSON_IsNumber(number) && number->valuedouble > least && number->valuedouble < 1e20;
    return sane ? number->valuedouble : 0;
}

static double number_of(const cJSON *result, const char *key)
{
    return number_above(result, key, 1e3);
}

/* How often a second something can be done that is no byte, number or flop. */
static double times_of(const cJSON *result, const char *key)
{
    return number_above(result, key, 1);
}

/* The folder's drive; a folder that is still to be made is on that of the one above it. */
static bool device_of(const char *path, dev_t *out)
{
    char above[PATH_MAX];
    struct stat about;
    snprintf(above, sizeof above, "%s", path);
    while (stat(above, &about)) {
        char *slash = strrchr(above, '/');
        if (!above[1]) /* "/" or "." */
            return false;
        if (slash)
            slash[slash == above] = '\0';
        else
            snprintf(above, sizeof above, ".");
    }
    *out = about.st_dev;
    return true;
}

static const cJSON *find_folder(const cJSON *cache, const char *folder)
{
    char *path = realpath(folder, NULL);
    const cJSON *drive = cache_find(cache, "nvme", path ? path : folder);
    free(path);
    return drive ? drive : cache_find(cache, "nvme", folder);
}

/* Whether the drive is that of an earlier path, or of a later one whose folder was measured. */
static bool counts_elsewhere(const cJSON *cache, const struct zinf_config_offload *section,
                             int path, dev_t drive)
{
    bool counts = false;
    dev_t device;
    for (int i = 0; !counts && i < section->n_nvme_paths; i++)
        counts = i != path && device_of(section->nvme_path[i], &device) && device == drive &&
                 (i < path || find_folder(cache, section->nvme_path[i]));
    return counts;
}

/* Whose names are folders; NULL where the file has anything else there. */
static const cJSON *folders_of(const cJSON *cache)
{
    const cJSON *folders = cJSON_GetObjectItemCaseSensitive(cache, "nvme");
    return cJSON_IsObject(folders) ? folders : NULL;
}

/* What was measured in another folder of the same drive, which counts for one path only: one drive
 * does not add up. Borrowed. */
static const cJSON *find_device(const cJSON *cache, const struct zinf_config_offload *section,
                                int path)
{
    const cJSON *found = NULL, *other;
    dev_t wanted, device;
    const bool known = device_of(section->nvme_path[path], &wanted) &&
                       !counts_elsewhere(cache, section, path, wanted);
    cJSON_ArrayForEach(other, folders_of(cache))
    {
        if (known && other->string[0] == '/' && cJSON_IsObject(other) &&
            device_of(other->string, &device) && device == wanted)
            found = other; /* the one that was added last */
    }
    return found;
}

static void widen(struct zinf_speeds *out, double rate, double now)
{
    const double part = rate > 0 && now > 0 ? rate / now : 0;
    if (!(part > 0))
        return;
    out->drive_least = out->drive_least > 0 && out->drive_least < part ? out->drive_least : part;
    out->drive_most = out->drive_most > part ? out->drive_most : part;
}

/* What the rate of one drive was in all looks at it, beside that of `drive`. */
static void find_spread(const cJSON *cache, const char *path, const cJSON *drive,
                        struct zinf_speeds *out)
{
    const double now = number_of(drive, "mixed");
    const cJSON *other;
    dev_t wanted, device;
    if (!drive || !device_of(path, &wanted))
        return;
    cJSON_ArrayForEach(other, folders_of(cache))
    {
        if (other->string[0] != '/' || !device_of(other->string, &device) || device != wanted)
            continue;
        widen(out, number_of(other, "mixed"), now);
        widen(out, number_of(other, "mixed_least"), now);
        widen(out, number_of(other, "mixed_most"), now);
    }
}

/* Whether an earlier path's folder is on the same drive, and was measured, too. */
static bool was_added(const cJSON *cache, const struct zinf_config_offload *section, int path)
{
    bool added = false;
    dev_t wanted, device;
    const bool known = device_of(section->nvme_path[path], &wanted);
    for (int i = 0; known && !added && i < path; i++)
        added = device_of(section->nvme_path[i], &device) && device == wanted &&
                find_folder(cache, section->nvme_path[i]);
    return added;
}

/* A part of a rate, which is at most 1. */
static double share_of(const cJSON *result, const char *key)
{
    const double share = number_above(result, key, 0.01);
    return share > 1 ? 0 : share;
}

/* 0: not known. */
static double least_known(double a, double b)
{
    return a > 0 && (!(b > 0) || a < b) ? a : b;
}

/* Several drives add up; each counts once, in however many of its folders it was measured. */
static const cJSON *add_drives(const cJSON *cache, const struct zinf_config_offload *section,
                               struct zinf_speeds *out)
{
    const cJSON *any = NULL;
    double answers = 0, cpu = 0, busy = 0;
    for (int i = 0; i < section->n_nvme_paths; i++) {
        const cJSON *drive = find_folder(cache, section->nvme_path[i]);
        if (drive && was_added(cache, section, i))
            continue;
        drive = drive ? drive : find_device(cache, section, i);
        out->drive_read_bytes += number_of(drive, "read");
        out->drive_write_bytes += number_of(drive, "write");
        out->drive_mixed_bytes += number_of(drive, "mixed");
        find_spread(cache, section->nvme_path[i], drive, out);
        any = drive ? drive : any;
        answers = least_known(answers, times_of(drive, "answers"));
        cpu = least_known(cpu, number_of(drive, "cpu_bytes"));
        busy = least_known(busy, share_of(drive, "busy_drive"));
    }
    out->drive_answers = answers;
    out->drive_cpu_bytes = cpu;
    out->drive_busy = busy;
    return any;
}

void speeds_optimizer_form(const struct zinf_config *config, const char **optimizer,
                           const char **form)
{
    const bool split = config->dtype == ZINF_DTYPE_BF16,
               eight = !strcmp(config->optimizer.type, "AdamW8bit");
    const bool adam = eight || zinf_updates_matrices(config);
    *optimizer = adam ? "AdamW" : config->optimizer.type;
    *form = split ? "split" : "fp32";
    if (eight)
        *form = split ? "split-8bit" : "8bit";
    else if (config->bf16_moments && strcmp(config->optimizer.type, "Adafactor") != 0)
        *form = split ? "split-bf16-random" : "bf16-random";
}

static const char load_words[] = "while others used";

bool speeds_under_load(const struct speed_sources *sources, enum speed_rate rate)
{
    return strstr(sources->of[rate], load_words);
}

/* "zinf bench gemm, 2026-11-22", and what others used of the CPUs if that was much. */
static void name_source(const cJSON *result, const char *section, char *out, size_t bytes)
{
    const cJSON *date = cJSON_GetObjectItemCaseSensitive(result, "date");
    const cJSON *others = cJSON_GetObjectItemCaseSensitive(result, "others");
    const double part = cJSON_IsNumber(others) ? others->valuedouble : 0;
    char load[48] = "";
    if (part > SPEEDS_MOST_OTHERS)
        snprintf(load, sizeof load, ", %s %.0f %% of the CPUs", load_words, 100 * part);
    snprintf(out, bytes, "zinf bench %s, %.10s%s", section,
             cJSON_IsString(date) ? date->valuestring : "on an unknown day", load);
}

struct reader {
    cJSON *cache;
    int threads; /* of the run */
    struct speed_sources *sources;
};

/* The result, if it is of so many threads; says in the sources of the rates where they are from. */
static const cJSON *take(const struct reader *r, const char *section, const char *key,
                         enum speed_rate first, enum speed_rate last)
{
    const cJSON *result = cache_find(r->cache, section, key);
    const cJSON *threads = cJSON_GetObjectItemCaseSensitive(result, "threads");
    char text[sizeof r->sources->of[0]];
    bool other = cJSON_IsNumber(threads) && threads->valueint != r->threads;
    if (other)
        snprintf(text, sizeof text, "assumed: zinf bench %s had %d threads, not %d", section,
                 threads->valueint, r->threads);
    else if (result)
        name_source(result, section, text, sizeof text);
    else
        snprintf(text, sizeof text, "assumed: zinf bench %s measures it", section);
    for (int i = first; i <= (int)last; i++)
        snprintf(r->sources->of[i], sizeof r->sources->of[i], "%s", text);
    return other ? NULL : result;
}

/* Lengths must go up and each have both rates: else the usual length counts for all. */
static void take_attention(const cJSON *result, struct zinf_speeds *out)
{
    const cJSON *lengths = cJSON_GetObjectItemCaseSensitive(result, "lengths"), *length;
    struct zinf_attention_speed *to = out->attention;
    double before = 0;
    int n = 0;
    out->attention_flops = number_of(result, "forward");
    out->attention_backward_flops = number_of(result, "backward");
    cJSON_ArrayForEach(length, lengths)
    {
        const cJSON *tokens = cJSON_GetObjectItemCaseSensitive(length, "tokens");
        const struct zinf_attention_speed speed = {cJSON_IsNumber(tokens) ? tokens->valuedouble : 0,
                                                   number_of(length, "forward"),
                                                   number_of(length, "backward")};
        const bool sane = speed.tokens > before && speed.forward > 0 && speed.backward > 0;
        if (!sane || n == ZINF_ATTENTION_LENGTHS) {
            memset(to, 0, sizeof out->attention);
            return;
        }
        to[n++] = speed;
        before = speed.tokens;
    }
}

/* Forward, dX, dW: of all of them or of none. */
static void take_products(const cJSON *result, struct zinf_speeds *out)
{
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(result, "products");
    out->device_flops = number_of(result, "flops");
    out->wide_flops = number_of(result, "wide_flops");
    for (int i = 0; i < ZINF_PRODUCTS; i++) {
        const cJSON *one = cJSON_GetArrayItem(all, i);
        struct zinf_product_speed *to = &out->products[i];
        *to = (struct zinf_product_speed){number_of(one, "flops"), number_of(one, "bytes"),
                                          times_of(one, "calls")};
        if (to->flops > 0 && to->bytes > 0 && to->calls > 0)
            continue;
        memset(out->products, 0, sizeof out->products);
        return;
    }
}

/* What a training needs of the CPUs wherever its device is. */
static void take_cpu(const struct reader *r, struct zinf_speeds *out)
{
    const cJSON *host = cache_find(r->cache, "memory", "host");
    out->wakings = times_of(host, "wakings");
    out->sum_bytes = number_of(host, "sum_bytes");
}

/* Between host and device: on the host device both are RAM. */
static double link_of(const struct reader *r, enum zinf_device_kind device, double device_bytes)
{
    if (device == ZINF_DEVICE_CUDA)
        return number_of(take(r, "pcie", "pinned", SPEED_LINK, SPEED_LINK), "both");
    memcpy(r->sources->of[SPEED_LINK], r->sources->of[SPEED_BANDWIDTH], sizeof r->sources->of[0]);
    return device_bytes / 2; /* a byte that is copied is read and written */
}

/* Of several GPUs at once, whichever way to RAM and past it they have. */
static void take_gpus(const struct reader *r, enum zinf_device_kind device, struct zinf_speeds *out)
{
    const cJSON *all =
        device == ZINF_DEVICE_CUDA ? take(r, "pcie", "together", SPEED_ROOT, SPEED_PEER) : NULL;
    if (!all)
        snprintf(r->sources->of[SPEED_ROOT], sizeof r->sources->of[0],
                 "assumed to be the RAM's, as the optimizer has it");
    out->root_bytes = number_of(all, "both");
    out->peer_bytes = number_of(all, "gpu_to_gpu");
}

static void take_drives(const struct reader *r, const struct zinf_config *config,
                        struct zinf_speeds *out)
{
    const struct zinf_config_offload *drives = config->offload_optimizer.device == ZINF_PLACE_NVME
                                                   ? &config->offload_optimizer
                                                   : &config->offload_param;
    const cJSON *found =
        drives->device == ZINF_PLACE_NVME ? add_drives(r->cache, drives, out) : NULL;
    char text[sizeof r->sources->of[0]];
    if (found)
        name_source(found, "nvme", text, sizeof text);
    else
        snprintf(text, sizeof text, "assumed: zinf bench nvme measures it");
    for (int i = SPEED_READ; i <= SPEED_MIXED; i++)
        snprintf(r->sources->of[i], sizeof r->sources->of[i], "%s", text);
}

void speeds_cached(struct zinf_speeds *out, struct speed_sources *sources,
                   const struct zinf_config *config, enum zinf_device_kind device)
{
    const char *optimizer, *form;
    char optim_key[48], device_key[32];
    struct reader r = {.cache = speeds_cache_load(), .sources = sources};
    r.threads = config->threads > 0 ? (int)config->threads : zinf_cpu_count();
    if (device == ZINF_DEVICE_AUTO)
        device = zinf_device_cuda_why_not() ? ZINF_DEVICE_HOST : ZINF_DEVICE_CUDA;
    speeds_optimizer_form(config, &optimizer, &form);
    snprintf(optim_key, sizeof optim_key, "%.20s/%s", optimizer, form);
    speeds_device_key(device_key, device, config->dtype);
    memset(out, 0, sizeof *out);
    take_products(take(&r, "gemm", device_key, SPEED_PRODUCTS, SPEED_PRODUCTS), out);
    take_attention(take(&r, "attention", device_key, SPEED_ATTENTION, SPEED_ATTENTION), out);
    const cJSON *memory = take(&r, "memory", device == ZINF_DEVICE_CUDA ? "cuda" : "host",
                               SPEED_BANDWIDTH, SPEED_BANDWIDTH);
    out->device_bytes = number_of(memory, "bytes");
    out->kernels = times_of(memory, "kernels");
    take_cpu(&r, out);
    out->link_bytes = link_of(&r, device, out->device_bytes);
    out->optimizer_bytes =
        number_of(take(&r, "optim", optim_key, SPEED_OPTIMIZER, SPEED_OPTIMIZER), "bytes");
    const cJSON *packing = take(&r, "optim", "packing", SPEED_PACKING, SPEED_PACKING);
    out->pack_bytes = number_of(packing, "bytes");
    out->pack_half_bytes = number_of(packing, "half_bytes");
    out->unpack_bytes = number_of(packing, "unpack_bytes");
    speeds_device_key(device_key, ZINF_DEVICE_HOST, ZINF_DTYPE_F32);
    const cJSON *host = take(&r, "gemm", device_key, SPEED_UPDATE, SPEED_UPDATE);
    const double updates = number_of(host, "update_flops");
    out->host_flops = updates > 0 ? updates : number_of(host, "flops");
    take_gpus(&r, device, out);
    take_drives(&r, config, out);
    cJSON_Delete(r.cache);
}
