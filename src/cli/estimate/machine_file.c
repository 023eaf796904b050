/*
 * machine_file: a machine from a JSON file (zinf-estimate(1) describes it). Rates are in bytes or
 * flops a second as they are reached, not as a maker states them. A key that is not known is an
 * error: one that is mistyped would else be an assumption.
 */
#include "cli/estimate/machine.h"

#include "cli/cli.h"

#define MAX_MACHINE_BYTES ((size_t)1 << 20)

/* Keys of an object and the figures that they are. */
struct key {
    const char *name;
    enum machine_figure figure;
    bool is_size; /* may also be text, such as "24GiB" */
};
struct object {
    const struct key *keys;
    size_t n_keys;
    const char *const *others; /* keys that are read elsewhere; NULL ends them */
};

static int fail_key(const char *path, const cJSON *member, const struct object *object)
{
    const char *names[16];
    size_t n = 0;
    for (size_t i = 0; i < object->n_keys; i++)
        names[n++] = object->keys[i].name;
    for (size_t i = 0; object->others[i]; i++)
        names[n++] = object->others[i];
    const char *near = zinf_nearest(member->string, names, n);
    return zinf_fail(-EINVAL, "%s: unknown key \"%.60s\"%s%s%s", path, member->string,
                     near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static int read_figure(const char *path, const cJSON *member, const struct key *key, double *out)
{
    uint64_t bytes;
    *out = cJSON_IsNumber(member) ? member->valuedouble : 0;
    if (key->is_size && cJSON_IsString(member) && !zinf_size_parse(member->valuestring, &bytes))
        *out = (double)bytes;
    if (*out > 0 && *out < 1e30)
        return 0;
    return zinf_fail(-EINVAL, "%s: \"%s\" must be %s above 0", path, key->name,
                     key->is_size ? "bytes, or a size such as \"24GiB\"," : "a number");
}

/* sum: figures of several drives add up. */
static int read_object(struct machine *m, const char *path, const cJSON *json,
                       const struct object *object, bool sum)
{
    char source[MACHINE_SOURCE_BYTES];
    const cJSON *member;
    int code = 0;
    snprintf(source, sizeof source, "given in %.150s", path);
    if (!cJSON_IsObject(json))
        return zinf_fail(-EINVAL, "%s: an object is wanted where there is something else", path);
    for (member = json->child; !code && member; member = member->next) {
        size_t i = 0, k = 0;
        double value;
        while (i < object->n_keys && strcmp(object->keys[i].name, member->string) != 0)
            i++;
        while (object->others[k] && strcmp(object->others[k], member->string) != 0)
            k++;
        if (i == object->n_keys && !object->others[k])
            code = fail_key(path, member, object);
        if (code || i == object->n_keys)
            continue;
        enum machine_figure figure = object->keys[i].figure;
        code = read_figure(path, member, &object->keys[i], &value);
        if (!code)
            machine_set(m, figure, value + (sum ? m->figures[figure].value : 0), source);
    }
    return code;
}

static int read_gpu(struct machine *m, const char *path, const cJSON *gpus)
{
    static const struct key keys[] = {
        {"memory", MACHINE_GPU_MEMORY, true}, {"bf16_flops", MACHINE_BF16, false},
        {"fp32_flops", MACHINE_FP32, false},  {"memory_rate", MACHINE_BANDWIDTH, false},
        {"link_rate", MACHINE_LINK, false},   {"power", MACHINE_POWER, false},
        {"peer_rate", MACHINE_PEER, false},
    };
    static const char *const others[] = {"name", "capability", NULL};
    const struct object object = {keys, sizeof keys / sizeof *keys, others};
    const char *name = NULL;
    int64_t capability = 0;
    if (cJSON_GetArraySize(gpus) != 1)
        return zinf_fail(-ENOTSUP,
                         "%s: \"gpus\" must be a list of one GPU: several are alike, and as many "
                         "as --seats says",
                         path);
    const cJSON *gpu = cJSON_GetArrayItem(gpus, 0);
    int code = zinf_json_string(gpu, path, "name", &name);
    if (!code)
        code = zinf_json_int(gpu, path, "capability", &capability);
    if (code)
        return code;
    if (name && !machine_take_card(m, name)) /* one of the table has all figures to begin with */
        snprintf(m->name, sizeof m->name, "%s", name);
    m->has_gpu = true;
    m->capability = capability ? (int)capability : m->capability;
    return read_object(m, path, gpu, &object, false);
}

static int read_drives(struct machine *m, const char *path, const cJSON *drives)
{
    static const struct key keys[] = {
        {"read", MACHINE_DRIVE_READ, false},   {"write", MACHINE_DRIVE_WRITE, false},
        {"mixed", MACHINE_DRIVE_MIXED, false}, {"size", MACHINE_DRIVE_SIZE, true},
        {"tbw", MACHINE_TBW, false},
    };
    static const char *const others[] = {"name", NULL};
    const struct object object = {keys, sizeof keys / sizeof *keys, others};
    const cJSON *drive;
    int code = 0;
    if (!cJSON_IsArray(drives))
        return zinf_fail(-EINVAL, "%s: \"drives\" must be a list", path);
    for (drive = drives->child; !code && drive; drive = drive->next)
        code = read_object(m, path, drive, &object, true);
    return code;
}

static int read_root(struct machine *m, const char *path, const cJSON *root)
{
    static const struct key keys[] = {{"ram", MACHINE_RAM, true},
                                      {"power", MACHINE_POWER, false},
                                      {"root_rate", MACHINE_ROOT, false}};
    static const struct key cpu_keys[] = {{"threads", MACHINE_THREADS, false},
                                          {"optimizer_rate", MACHINE_OPTIMIZER, false},
                                          {"fp32_flops", MACHINE_CPU, false}};
    static const char *const others[] = {"name", "gpus", "cpu", "drives", NULL};
    static const char *const none[] = {NULL};
    const struct object object = {keys, 3, others}, cpu_object = {cpu_keys, 3, none};
    const cJSON *gpus = cJSON_GetObjectItemCaseSensitive(root, "gpus");
    const cJSON *cpu = cJSON_GetObjectItemCaseSensitive(root, "cpu");
    const cJSON *drives = cJSON_GetObjectItemCaseSensitive(root, "drives");
    const char *name = NULL;
    int code = gpus ? read_gpu(m, path, gpus) : 0;
    if (!code && cpu)
        code = read_object(m, path, cpu, &cpu_object, false);
    if (!code && drives)
        code = read_drives(m, path, drives);
    if (!code)
        code = zinf_json_string(root, path, "name", &name);
    if (name)
        snprintf(m->name, sizeof m->name, "%s", name);
    return code ? code : read_object(m, path, root, &object, false);
}

int machine_read_file(struct machine *m, const char *path)
{
    cJSON *root = NULL;
    int code = zinf_json_read_file(path, MAX_MACHINE_BYTES, ZINF_JSON_RELAXED, &root);
    if (code)
        return zinf_fail_in(code, "--machine");
    code = read_root(m, path, root);
    cJSON_Delete(root);
    return code;
}
