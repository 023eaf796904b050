/* machine: figures by their words, what is assumed for the rest, and what estimates need of them.
 */
#include "cli/estimate/machine.h"

#include "cli/cli.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define THREAD_FLOPS 6e10 /* of products on a CPU with vectors of 512 bits */

/* A word of --machine, what a number after it counts, and how the figure is called and printed.
 * scale 0: a size in bytes ("64G"). */
static const struct figure {
    const char *word, *text, *unit;
    double scale;
    double assumed; /* where nobody says; 0: it stays unknown */
} table[MACHINE_FIGURES] = {
    [MACHINE_GPU_MEMORY] = {"memory", "GPU memory", "GiB", 0, 0},
    [MACHINE_BF16] = {"bf16", "products bf16", "TFLOP/s", 1e12, 0},
    [MACHINE_FP32] = {"fp32", "products fp32", "TFLOP/s", 1e12, 0},
    [MACHINE_BANDWIDTH] = {"bandwidth", "GPU bandwidth", "GB/s", 1e9, 0},
    [MACHINE_LINK] = {"link", "link", "GB/s", 1e9, 0},
    [MACHINE_RAM] = {"ram", "RAM", "GiB", 0, 0x1p36},
    [MACHINE_THREADS] = {"threads", "CPU threads", "", 1, 16},
    [MACHINE_CPU] = {"cpu-fp32", "CPU products fp32", "TFLOP/s", 1e12, 0},
    [MACHINE_OPTIMIZER] = {"optim", "optimizer", "GB/s", 1e9, 3e10},
    [MACHINE_DRIVE_READ] = {"nvme-read", "drive reads", "GB/s", 1e9, 3e9},
    [MACHINE_DRIVE_WRITE] = {"nvme-write", "drive writes", "GB/s", 1e9, 2e9},
    [MACHINE_DRIVE_MIXED] = {"nvme-mixed", "drive, both", "GB/s", 1e9, 0},
    [MACHINE_DRIVE_SIZE] = {"nvme-size", "drive size", "GiB", 0, 0},
    [MACHINE_TBW] = {"tbw", "drive TBW", "TB", 1e12, 0},
    [MACHINE_POWER] = {"power", "power", "W", 1, 0},
    [MACHINE_ROOT] = {"root", "link of all GPUs", "GB/s", 1e9, 0},
    [MACHINE_PEER] = {"peer", "GPU to GPU", "GB/s", 1e9, 0},
};

/* ---- words ---- */

static int fail_number(const char *word, const char *text)
{
    return zinf_fail(-EINVAL, "--machine: %s=%s is no number above 0", word, text);
}

static int set_word(struct machine *m, enum machine_figure figure, const char *text)
{
    const struct figure *f = &table[figure];
    char source[MACHINE_SOURCE_BYTES], *end;
    uint64_t bytes = 0;
    double value;
    if (f->scale > 0) {
        value = strtod(text, &end) * f->scale;
        if (end == text || *end || !isfinite(value) || !(value > 0))
            return fail_number(f->word, text);
    } else if (*text && text[strspn(text, "0123456789.")] == 0 && strtod(text, NULL) > 0) {
        return zinf_fail(-EINVAL, "--machine: %s=%s has no unit: write %s=%sGiB", f->word, text,
                         f->word, text);
    } else if (zinf_size_parse(text, &bytes) || !bytes) {
        return zinf_fail(-EINVAL, "--machine: %s=%s is no size such as 64G or 2TB", f->word, text);
    } else {
        value = (double)bytes;
    }
    snprintf(source, sizeof source, "given: %.40s=%.40s", f->word, text);
    machine_set(m, figure, value, source);
    return 0;
}

/* nvme=READ/WRITE, in GB/s: the two that one always has together. */
static int set_nvme(struct machine *m, const char *text)
{
    char read[64];
    const char *slash = strchr(text, '/');
    if (!slash || (size_t)(slash - text) >= sizeof read)
        return zinf_fail(-EINVAL, "--machine: nvme=%s is not READ/WRITE in GB/s, such as nvme=7/6",
                         text);
    snprintf(read, sizeof read, "%.*s", (int)(slash - text), text);
    int code = set_word(m, MACHINE_DRIVE_READ, read);
    return code ? code : set_word(m, MACHINE_DRIVE_WRITE, slash + 1);
}

static int fail_word(const char *word)
{
    const char *words[MACHINE_FIGURES + 1], *near;
    for (int i = 0; i < MACHINE_FIGURES; i++)
        words[i] = table[i].word;
    words[MACHINE_FIGURES] = "nvme";
    near = zinf_nearest(word, words, MACHINE_FIGURES + 1);
    return zinf_fail(-EINVAL, "--machine: no figure '%s'%s%s%s", word,
                     near ? "; did you mean " : "", near ? near : "",
                     near ? "=?" : "; see zinf-estimate(1)");
}

static int take_figure(struct machine *m, const char *item)
{
    char word[64];
    const char *equals = strchr(item, '=');
    snprintf(word, sizeof word, "%.*s", (int)(equals - item), item);
    if (!strcmp(word, "nvme"))
        return set_nvme(m, equals + 1);
    for (int i = 0; i < MACHINE_FIGURES; i++)
        if (!strcmp(word, table[i].word))
            return set_word(m, (enum machine_figure)i, equals + 1);
    return fail_word(word);
}

static int take_name(struct machine *m, const char *name)
{
    char names[512];
    snprintf(m->name, sizeof m->name, "%s", name);
    if (!strcmp(name, "cpu") || machine_take_card(m, name))
        return 0;
    if (strchr(name, '/') || strstr(name, ".json") || !access(name, F_OK))
        return machine_read_file(m, name);
    return zinf_fail(-EINVAL,
                     "--machine: no card '%s' and no such file; cards are %s, and cpu for "
                     "none",
                     name, machine_card_names(names, sizeof names));
}

/* Of the CPU. */
static void assume_products(struct machine *m, enum machine_figure figure)
{
    if (!(m->figures[figure].value > 0))
        machine_set(m, figure, THREAD_FLOPS * m->figures[MACHINE_THREADS].value,
                    "assumed: 60 GFLOP/s a thread");
}

/* What a described GPU must have, and what else is taken for granted. */
static int complete(struct machine *m)
{
    static const enum machine_figure needed[] = {MACHINE_GPU_MEMORY, MACHINE_BF16,
                                                 MACHINE_BANDWIDTH, MACHINE_LINK};
    for (size_t i = 0; m->has_gpu && i < sizeof needed / sizeof *needed; i++)
        if (!(m->figures[needed[i]].value > 0))
            return zinf_fail(-EINVAL, "--machine %s: a GPU needs %s=, which is not given", m->name,
                             table[needed[i]].word);
    for (int i = 0; i < MACHINE_FIGURES; i++)
        if (!(m->figures[i].value > 0) && table[i].assumed > 0)
            machine_set(m, (enum machine_figure)i, table[i].assumed, "assumed, as nobody says");
    assume_products(m, MACHINE_CPU);
    for (int i = MACHINE_BF16; !m->has_gpu && i <= MACHINE_FP32; i++)
        assume_products(m, (enum machine_figure)i);
    return 0;
}

int machine_parse(struct machine *out, const char *spec)
{
    char *copy = strdup(spec), *rest = NULL;
    int code = copy ? 0 : zinf_fail(-ENOMEM, "no memory for --machine");
    memset(out, 0, sizeof *out);
    char *item = copy ? strtok_r(copy, ",", &rest) : NULL;
    if (!code && (!item || strchr(item, '=')))
        code = zinf_fail(-EINVAL, "--machine %s does not begin with a card or a file", spec);
    if (!code)
        code = take_name(out, item);
    while (!code && (item = strtok_r(NULL, ",", &rest)))
        code = strchr(item, '=')
                   ? take_figure(out, item)
                   : zinf_fail(-EINVAL, "--machine: '%s' is no figure such as ram=64G", item);
    free(copy);
    return code ? code : complete(out);
}

int machine_each(const char *list, int (*see)(void *arg, const char *spec), void *arg)
{
    int code = 0;
    for (const char *at = list, *end; !code && *at; at = *end ? end + 1 : end) {
        end = at + strcspn(at, ",");
        while (*end) { /* figures belong to the machine before them */
            size_t next = strcspn(end + 1, ",");
            if (!memchr(end + 1, '=', next))
                break;
            end += 1 + next;
        }
        char *spec = strndup(at, (size_t)(end - at));
        code = spec ? see(arg, spec) : zinf_fail(-ENOMEM, "no memory for --compare");
        free(spec);
    }
    return code;
}

/* ---- for an estimate ---- */

void machine_speeds(const struct machine *m, enum zinf_dtype dtype, struct zinf_speeds *out)
{
    double fp32 = m->figures[MACHINE_FP32].value, bf16 = m->figures[MACHINE_BF16].value;
    *out = (struct zinf_speeds){
        .device_flops = dtype == ZINF_DTYPE_F32 ? fp32 : bf16,
        .device_bytes = m->figures[MACHINE_BANDWIDTH].value,
        .link_bytes = m->figures[MACHINE_LINK].value,
        .drive_read_bytes = m->figures[MACHINE_DRIVE_READ].value,
        .drive_write_bytes = m->figures[MACHINE_DRIVE_WRITE].value,
        .drive_mixed_bytes = m->figures[MACHINE_DRIVE_MIXED].value,
        .host_flops = m->figures[MACHINE_CPU].value,
        .optimizer_bytes = m->figures[MACHINE_OPTIMIZER].value,
        .root_bytes = m->figures[MACHINE_ROOT].value,
        .peer_bytes = m->figures[MACHINE_PEER].value,
    };
}

void machine_describe(const struct machine *m, struct zinf_described_machine *out)
{
    *out = (struct zinf_described_machine){
        .name = m->name,
        .gpu_bytes = (uint64_t)m->figures[MACHINE_GPU_MEMORY].value,
        .capability = m->capability,
        .ram_bytes = (uint64_t)m->figures[MACHINE_RAM].value,
        .n_threads = (int)m->figures[MACHINE_THREADS].value,
    };
}

void machine_print(FILE *out, const struct machine *m, int label_cols)
{
    char text[2 * MACHINE_SOURCE_BYTES];
    cli_print_field(out, "machine", label_cols, m->name);
    for (int i = 0; i < MACHINE_FIGURES; i++) {
        double scale = table[i].scale > 0 ? table[i].scale : 0x1p30;
        if (!(m->figures[i].value > 0))
            continue;
        snprintf(text, sizeof text, "%s %.4g%s%s: %s", table[i].text, m->figures[i].value / scale,
                 *table[i].unit ? " " : "", table[i].unit, m->figures[i].source);
        cli_print_field(out, "", label_cols, text);
    }
}

cJSON *machine_json(const struct machine *m)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "name", m->name);
    cJSON *figures = cJSON_AddObjectToObject(root, "figures");
    for (int i = 0; i < MACHINE_FIGURES; i++) {
        if (!(m->figures[i].value > 0))
            continue;
        cJSON *figure = cJSON_AddObjectToObject(figures, table[i].word);
        cJSON_AddNumberToObject(figure, "value", m->figures[i].value);
        cJSON_AddStringToObject(figure, "source", m->figures[i].source);
    }
    return root;
}
