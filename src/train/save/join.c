/*
 * join: several adapters of one base as a single one. Their products with x add up,
 *   sum over k of w_k s_k B_k A_k = [B_1 B_2 ...] [w_1 s_1 A_1; w_2 s_2 A_2; ...]
 * so that ranks are laid side by side (PEFT calls it "cat"): nothing is rounded but the scaled A.
 * One module is in memory at a time.
 */
#include "base/apart.h"
#include "model/model.h"
#include "train/checkpoints.h"
#include "train/save/identity.h"
#include "train/save/merge.h"
#include "train/save/output.h"

#include <stdio.h>
#include <stdlib.h>

struct part {
    char *folder;
    cJSON *config;
    struct adapter_choice *choice;
    struct zinf_tensors *weights;
    cJSON *identity;
    double weight;
};
struct joining {
    struct part parts[ZINF_MAX_JOINED];
    int n;
    const char *output;
    struct zinf_tensors_writer *to;
    uint64_t sum; /* of the file that was written */
};

/* ---- modules ---- */

static const struct zinf_tensor_info *find(const struct part *part, const char *path,
                                           enum zinf_adapter_matrix which)
{
    char name[ZINF_ADAPTER_NAME];
    return zinf_tensors_find(part->weights, zinf_adapter_matrix_name(which, path, name));
}

/* What the parts have of one module: a part without it has no A. */
struct joined_module {
    const struct zinf_tensor_info *a[ZINF_MAX_JOINED], *b[ZINF_MAX_JOINED];
    float scale[ZINF_MAX_JOINED];
    uint64_t rank, in, out;
};

static int add_part(struct joining *j, int k, const char *path, struct joined_module *m)
{
    struct part *p = &j->parts[k];
    const struct zinf_tensor_info *a = find(p, path, ZINF_ADAPTER_A),
                                  *b = find(p, path, ZINF_ADAPTER_B);
    int64_t rank;
    double scale;
    if (!a && !b)
        return 0;
    int code = zinf_adapter_choice_module(p->choice, path, &rank, &scale);
    if (code)
        return code;
    if (!a || !b || a->rank != 2 || b->rank != 2 || a->shape[0] != b->shape[1] ||
        a->shape[0] != (uint64_t)rank)
        return zinf_fail(-EINVAL, "%s: A and B of %s are not of the rank that %s gives, %lld",
                         p->folder, path, ZINF_ADAPTER_CONFIG, (long long)rank);
    if (m->rank && (m->in != a->shape[1] || m->out != b->shape[0]))
        return zinf_fail(-EINVAL,
                         "%s: %s has other sides than in %s: adapters of one base alone "
                         "add up",
                         p->folder, path, j->parts[0].folder);
    m->a[k] = a;
    m->b[k] = b;
    m->scale[k] = (float)(p->weight * scale);
    m->rank += a->shape[0];
    m->in = a->shape[1];
    m->out = b->shape[0];
    return 0;
}

static int find_module(struct joining *j, const char *path, struct joined_module *m)
{
    int code = 0;
    *m = (struct joined_module){.rank = 0};
    for (int k = 0; !code && k < j->n; k++)
        code = add_part(j, k, path, m);
    return code;
}

/* Calls for each module of any part once, in the order of the first part that has it. */
static int each_module(struct joining *j,
                       int (*act)(struct joining *j, const char *path,
                                  const struct joined_module *m, void *argument),
                       void *argument)
{
    struct joined_module m;
    char path[ZINF_ADAPTER_PATH];
    int code = 0;
    for (int k = 0; k < j->n; k++)
        for (uint64_t i = 0; !code && i < zinf_tensors_count(j->parts[k].weights); i++) {
            const char *name = zinf_tensors_at(j->parts[k].weights, i)->name;
            bool known = zinf_adapter_matrix_of(name, path) != ZINF_ADAPTER_A;
            for (int before = 0; !known && before < k; before++)
                known = find(&j->parts[before], path, ZINF_ADAPTER_A) != NULL;
            if (known)
                continue;
            code = find_module(j, path, &m);
            if (!code)
                code = act(j, path, &m, argument);
        }
    return code;
}

/* ---- weights ---- */

static int declare(struct joining *j, const char *path, const struct joined_module *m, void *unused)
{
    const uint64_t a[] = {m->rank, m->in}, b[] = {m->out, m->rank};
    char name[ZINF_ADAPTER_NAME];
    (void)unused;
    zinf_adapter_matrix_name(ZINF_ADAPTER_A, path, name);
    int code = zinf_tensors_writer_declare(j->to, name, ZINF_FILE_F32, 2, a);
    zinf_adapter_matrix_name(ZINF_ADAPTER_B, path, name);
    return code ? code : zinf_tensors_writer_declare(j->to, name, ZINF_FILE_F32, 2, b);
}

/* One A below the other, each scaled. */
static int write_a(const struct joining *j, const struct joined_module *m, float *room)
{
    int code = 0;
    for (int k = 0; !code && k < j->n; k++) {
        uint64_t n = m->a[k] ? m->a[k]->n_elems : 0;
        if (n)
            code = zinf_tensors_read_f32(j->parts[k].weights, m->a[k], 0, n, room);
        for (uint64_t i = 0; !code && i < n; i++)
            room[i] *= m->scale[k];
        if (!code && n)
            code = zinf_tensors_writer_append(j->to, room, n * sizeof *room);
    }
    return code;
}

/* Rows of B one beside the other. */
static int write_b(const struct joining *j, const struct joined_module *m, float *room)
{
    float *part = room + m->out * m->rank;
    uint64_t column = 0;
    int code = 0;
    for (int k = 0; !code && k < j->n; k++) {
        if (!m->b[k])
            continue;
        uint64_t rank = m->b[k]->shape[1];
        code = zinf_tensors_read_f32(j->parts[k].weights, m->b[k], 0, m->b[k]->n_elems, part);
        for (uint64_t row = 0; !code && row < m->out; row++)
            memcpy(room + row * m->rank + column, part + row * rank, rank * sizeof *part);
        column += rank;
    }
    return code ? code : zinf_tensors_writer_append(j->to, room, m->out * m->rank * sizeof *room);
}

static int write_module(struct joining *j, const char *path, const struct joined_module *m,
                        void *unused)
{
    uint64_t side = m->in > 2 * m->out ? m->in : 2 * m->out; /* B, and one part of it */
    float *room = malloc(side * m->rank * sizeof *room);
    (void)unused;
    int code = room ? write_a(j, m, room) : zinf_fail(-ENOMEM, "no memory to join %s", path);
    if (!code)
        code = write_b(j, m, room);
    free(room);
    return code;
}

static int write_weights(struct joining *j)
{
    char *path = zinf_path_join(j->output, ZINF_ADAPTER_WEIGHTS);
    struct zinf_tensors_writer_options options = {.path = path, .single_file = true};
    struct zinf_written_file file;
    int code = path ? zinf_make_dirs(j->output) : -ENOMEM;
    if (!code)
        code = output_forget(j->output, IDENTITY_FILE);
    if (!code)
        code = zinf_tensors_writer_create(&j->to, &options);
    if (!code)
        code = each_module(j, declare, NULL);
    if (!code)
        code = zinf_tensors_writer_begin(j->to);
    if (!code)
        code = each_module(j, write_module, NULL);
    if (!code)
        code = zinf_tensors_writer_finish(j->to);
    if (!code && zinf_tensors_writer_file(j->to, 0, &file))
        j->sum = file.xxh3;
    zinf_tensors_writer_destroy(j->to);
    free(path);
    return code;
}

/* ---- adapter_config.json ---- */

/* Each module by its whole path, with alpha equal to the rank: a scale of 1. */
static int describe_module(struct joining *j, const char *path, const struct joined_module *m,
                           void *argument)
{
    cJSON *config = argument;
    double rank = (double)m->rank;
    cJSON *name = cJSON_CreateString(path);
    bool good =
        cJSON_AddItemToArray(cJSON_GetObjectItemCaseSensitive(config, "target_modules"), name) &&
        cJSON_AddNumberToObject(cJSON_GetObjectItemCaseSensitive(config, "rank_pattern"), path,
                                rank) &&
        cJSON_AddNumberToObject(cJSON_GetObjectItemCaseSensitive(config, "alpha_pattern"), path,
                                rank);
    cJSON_SetNumberValue(cJSON_GetObjectItemCaseSensitive(config, "r"), rank);
    cJSON_SetNumberValue(cJSON_GetObjectItemCaseSensitive(config, "lora_alpha"), rank);
    return good ? 0 : zinf_fail(-ENOMEM, "no memory to describe %s", j->output);
}

/* Keys of the first part that several would not agree on; the rest is the base's. */
static cJSON *empty_config(const cJSON *first)
{
    static const char *const own[] = {
        "target_modules",  "rank_pattern", "alpha_pattern",    "r", "lora_alpha", "lora_dropout",
        "exclude_modules", "use_rslora",   "init_lora_weights"};
    cJSON *config = cJSON_Duplicate(first, true);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        cJSON_DeleteItemFromObjectCaseSensitive(config, own[i]);
    if (cJSON_AddArrayToObject(config, "target_modules") &&
        cJSON_AddObjectToObject(config, "rank_pattern") &&
        cJSON_AddObjectToObject(config, "alpha_pattern") &&
        cJSON_AddNumberToObject(config, "r", 1) &&
        cJSON_AddNumberToObject(config, "lora_alpha", 1) &&
        cJSON_AddNumberToObject(config, "lora_dropout", 0))
        return config;
    cJSON_Delete(config);
    return NULL;
}

static int write_config(struct joining *j)
{
    char *path = zinf_path_join(j->output, ZINF_ADAPTER_CONFIG), *text = NULL;
    cJSON *config = empty_config(j->parts[0].config);
    int code = path && config ? 0 : zinf_fail(-ENOMEM, "no memory to describe %s", j->output);
    if (!code)
        code = each_module(j, describe_module, config);
    if (!code && !(text = cJSON_Print(config)))
        code = zinf_fail(-ENOMEM, "no memory to write %s", path);
    if (!code)
        code = zinf_file_write_atomic(path, text, strlen(text));
    cJSON_free(text);
    cJSON_Delete(config);
    free(path);
    return code;
}

/* ---- parts ---- */

/* What is added to a product alone adds up: of copies and magnitudes there can be only one. */
static int check_names(const struct part *p)
{
    char path[ZINF_ADAPTER_PATH];
    if (cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(p->config, "target_parameters")))
        return zinf_fail(-ENOTSUP,
                         "%s: %s has target_parameters, and adapters of those do not add up here: "
                         "merge one (zinf export --merge) and train the other above it",
                         p->folder, ZINF_ADAPTER_CONFIG);
    for (uint64_t i = 0; i < zinf_tensors_count(p->weights); i++) {
        const char *name = zinf_tensors_at(p->weights, i)->name;
        if (zinf_adapter_matrix_of(name, path) == ZINF_ADAPTER_OTHER)
            return zinf_fail(-ENOTSUP,
                             "%s: %s is not of a low-rank sum: adapters with use_dora, bias or "
                             "modules_to_save do not add up; merge one (zinf export --merge) and "
                             "train the other above it",
                             p->folder, name);
    }
    return 0;
}

static int open_part(struct part *p, const char *named, double weight)
{
    char *path = NULL;
    p->weight = weight;
    int code = merge_find_folder(named, &p->folder);
    if (!code)
        code = zinf_adapter_read_config(p->folder, &p->config);
    if (!code)
        code = zinf_adapter_choice_open(&p->choice, p->config, p->folder);
    if (!code && !(path = zinf_path_join(p->folder, ZINF_ADAPTER_WEIGHTS)))
        code = -ENOMEM;
    if (!code)
        code = identity_check_own(p->folder);
    if (code >= 0)
        code = zinf_tensors_open(&p->weights, path);
    if (!code)
        code = check_names(p);
    if (!code)
        code = identity_read(p->folder, &p->identity);
    free(path);
    return code;
}

static int check_bases(const struct joining *j)
{
    const struct part *first = &j->parts[0];
    int code = 0;
    for (int k = 1; !code && k < j->n; k++) {
        const struct identity_check check = {
            .where = first->folder,
            .model = j->parts[k].folder,
            .way_on = "adapters of one base alone add up",
            .base = true,
        };
        cJSON *now = identity_of_base(j->parts[k].identity);
        cJSON *then = identity_of_base(first->identity);
        code = identity_compare(then, now, &check);
        if (code) {
            char why[512];
            snprintf(why, sizeof why, "%s", zinf_error());
            zinf_fail(code, "%s and %s were trained above different weights: %s", first->folder,
                      j->parts[k].folder, why);
        }
        cJSON_Delete(then);
        cJSON_Delete(now);
    }
    return code;
}

static int check_output(const struct joining *j)
{
    struct zinf_origin read[ZINF_MAX_JOINED];
    const struct zinf_origins origins = {read, j->n};
    for (int k = 0; k < j->n; k++)
        read[k] = (struct zinf_origin){"--adapter", j->parts[k].folder};
    int code = zinf_apart_check("--output", j->output, ZINF_WRITTEN_FOLDER, &origins);
    return code ? code : zinf_folder_check_new("--output", j->output);
}

int zinf_adapter_join(const struct zinf_joined_adapter *adapters, int n, const char *output)
{
    struct joining j = {.n = n, .output = output};
    int code = n > 0 && n <= ZINF_MAX_JOINED
                   ? 0
                   : zinf_fail(-EINVAL, "from 1 to %d adapters add up, not %d", ZINF_MAX_JOINED, n);
    for (int k = 0; !code && k < n; k++)
        code = open_part(&j.parts[k], adapters[k].folder, adapters[k].weight);
    if (!code)
        code = check_bases(&j);
    for (int k = 0; !code && k < n; k++)
        code = identity_check_files(j.parts[k].identity, j.parts[k].config, j.parts[k].folder);
    if (!code)
        code = check_output(&j);
    if (!code)
        code = write_weights(&j);
    if (!code)
        code = write_config(&j);
    cJSON *base = code ? NULL : identity_of_base(j.parts[0].identity);
    if (!code)
        code = identity_write(base, j.sum, output);
    cJSON_Delete(base);
    if (!code)
        code = zinf_folder_copy_companions(j.parts[0].folder, output, ZINF_COMPANIONS_TOKENIZER);
    for (int k = 0; k < n && k < ZINF_MAX_JOINED; k++) {
        struct part *p = &j.parts[k];
        zinf_tensors_close(p->weights);
        zinf_adapter_choice_close(p->choice);
        cJSON_Delete(p->config);
        cJSON_Delete(p->identity);
        free(p->folder);
    }
    return code;
}
