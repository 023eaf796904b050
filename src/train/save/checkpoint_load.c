/*
 * checkpoint_load: going on from a checkpoint. It is read twice: once to compare every byte with
 * its checksum before anything is believed, once into the tiers. What would make the training
 * another one is refused; what makes its numbers other ones is said.
 */
#include "train/save/checkpoint.h"
#include "train/save/output.h"

#include "base/folder.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- opening ---- */

static int require_parts(const struct checkpoint *c, const char *folder)
{
    char name[64];
    for (int part = checkpoint_first_part(c); part <= c->n_moments; part++) {
        checkpoint_part_name(c, part, name);
        if (!checkpoint_lists(c, name))
            return zinf_fail(-EINVAL, "%s/%s does not list %s", folder, CHECKPOINT_STATE, name);
    }
    return 0;
}

int checkpoint_open_one(struct checkpoint *out, const char *folder)
{
    int code = checkpoint_read_state(out, folder);
    if (!code)
        code = require_parts(out, folder);
    if (!code)
        code = checkpoint_verify(out, folder);
    if (code)
        checkpoint_fini(out);
    return code;
}

int checkpoint_open_rest(struct checkpoint *out, const char *folder,
                         const struct checkpoint *written)
{
    int code = checkpoint_read_state(out, folder);
    if (!code)
        code = require_parts(out, folder);
    bool same = !code && out->n_files == written->n_files;
    for (uint32_t i = 0; same && i < out->n_files; i++)
        same = !strcmp(out->files[i].name, written->files[i].name) &&
               out->files[i].bytes == written->files[i].bytes &&
               out->files[i].xxh3 == written->files[i].xxh3;
    if (!code && !same)
        code = zinf_fail(-EBADMSG, "%s lists other files than were written", folder);
    if (!code)
        code = checkpoint_verify_from(out, folder, written->n_compared);
    if (code)
        checkpoint_fini(out);
    return code;
}

/* The folder that path is in, and its step by its name; NULL: it is no checkpoint-N. */
static char *output_of(const char *path, uint64_t *step)
{
    char *copy = strdup(path);
    size_t n = copy ? strlen(copy) : 0;
    while (n > 1 && copy[n - 1] == '/')
        copy[--n] = 0;
    char *slash = copy ? strrchr(copy, '/') : NULL;
    const char *name = slash ? slash + 1 : copy;
    if (!copy || sscanf(name, "checkpoint-%" SCNu64, step) != 1) {
        free(copy);
        return NULL;
    }
    if (slash)
        slash[slash == copy] = 0;
    else
        strcpy(copy, "."); /* a name has at least one letter */
    return copy;
}

/* The whole checkpoint with the largest step below that of folder, or NULL. */
static char *one_before(const char *folder)
{
    uint64_t step, *steps = NULL;
    uint32_t n = 0;
    struct checkpoint c;
    char *output = output_of(folder, &step), *found = NULL;
    if (output && output_checkpoints(output, &steps, &n))
        n = 0;
    while (!found && n-- > 0) {
        char *path = steps[n] < step ? output_checkpoint_path(output, "", steps[n]) : NULL;
        if (path && !checkpoint_open_one(&c, path)) {
            checkpoint_fini(&c);
            found = path;
        } else {
            free(path);
        }
    }
    free(steps);
    free(output);
    return found;
}

int checkpoint_open(struct checkpoint *out, const char *folder)
{
    char said[1024];
    int code = checkpoint_open_foreign(out, folder);
    if (code != -ENODATA)
        return code;
    code = checkpoint_open_one(out, folder);
    if (!code || code == -ENOTSUP)
        return code;
    snprintf(said, sizeof said, "%s", zinf_error());
    char *before = one_before(folder);
    code = before
               ? zinf_fail(code, "%s; the checkpoint before it is whole: --resume=%s", said, before)
               : zinf_fail(code, "%s; there is no whole checkpoint before it", said);
    free(before);
    return code;
}

/* ---- is it this training? ---- */

/* Keys that change the numbers; where things live does not. */
static const char *const numeric_keys[] = {
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "optimizer",
    "gradient_accumulation_steps",
    "scheduler",
    "gradient_clipping",
    "fp16",
    "bf16",
};

/* Appends the paths of leaves that differ to list. */
static void list_changes(const cJSON *a, const cJSON *b, const char *path, char *list, size_t bytes)
{
    char below[256];
    const cJSON *member;
    size_t at = strlen(list);
    if (cJSON_Compare(a, b, true))
        return;
    if (!cJSON_IsObject(a) || !cJSON_IsObject(b)) {
        snprintf(list + at, bytes - at, "%s%s", at ? ", " : "", path);
        return;
    }
    cJSON_ArrayForEach(member, b)
    {
        snprintf(below, sizeof below, "%s.%s", path, member->string);
        list_changes(cJSON_GetObjectItemCaseSensitive(a, member->string), member, below, list,
                     bytes);
    }
}

static void warn_of_changes(const cJSON *saved, const cJSON *now, const char *folder)
{
    char list[1024] = "";
    for (size_t i = 0; i < sizeof numeric_keys / sizeof *numeric_keys; i++)
        list_changes(cJSON_GetObjectItemCaseSensitive(saved, numeric_keys[i]),
                     cJSON_GetObjectItemCaseSensitive(now, numeric_keys[i]), numeric_keys[i], list,
                     sizeof list);
    if (*list)
        zinf_log(ZINF_LOG_WARN,
                 "%s was saved under other values of %s: the training goes on, but not to the "
                 "same bits",
                 folder, list);
}

/* A checkpoint is a model's folder, too, but steps on a drive are not. */
static int fail_of_optimizer(const char *folder, const char *has, const char *who,
                             const char *asked)
{
    const bool is_model = zinf_folder_has(folder, "config.json");
    return zinf_fail(-EINVAL, "%s has the state of %s, but %s for %s: set that back, or %s%s",
                     folder, has, who, asked,
                     is_model ? "start anew from its weights with --model "
                              : "begin anew with another --output",
                     is_model ? folder : "");
}

int checkpoint_check_config(const struct checkpoint *c, const char *folder,
                            const struct zinf_config *config, const cJSON *resolved)
{
    size_t first = strcspn(c->optimizer, "+");
    if (c->foreign)
        return 0;
    if (strlen(config->optimizer.type) != first ||
        strncmp(c->optimizer, config->optimizer.type, first))
        return fail_of_optimizer(folder, c->optimizer, "optimizer.type asks",
                                 config->optimizer.type);
    if (c->config)
        warn_of_changes(c->config, resolved, folder);
    return 0;
}

/* Whether the two have the same tensors in their files. */
static int compare_tensors(const struct zinf_model *a, const struct zinf_model *b, bool *same)
{
    struct zinf_file_map *x = NULL, *y = NULL;
    int code = zinf_file_map_create(&x, zinf_model_whole(a));
    if (!code)
        code = zinf_file_map_create(&y, zinf_model_whole(b));
    *same = !code && x->n_tensors == y->n_tensors;
    for (uint32_t i = 0; *same && i < x->n_tensors; i++) {
        const struct zinf_file_tensor *t = &x->tensors[i], *u = &y->tensors[i];
        *same = !strcmp(t->name, u->name) && !memcmp(t->shape, u->shape, sizeof t->shape);
    }
    zinf_file_map_destroy(x);
    zinf_file_map_destroy(y);
    return code;
}

static int compare_models(const struct zinf_model *saved, const char *folder,
                          const struct zinf_model *asked, const char *model_path)
{
    const struct zinf_model_facts *a = zinf_model_facts(saved), *b = zinf_model_facts(asked);
    bool same = false;
    int code = compare_tensors(saved, asked, &same);
    if (code ||
        (same && !strcmp(a->family, b->family) && a->heads == b->heads && a->context == b->context))
        return code;
    return zinf_fail(-EINVAL,
                     "%s is of another model (%s, %" PRId64 " layers of %" PRId64
                     ", vocabulary %" PRId64 ") than --model %s (%s, %" PRId64 " layers of %" PRId64
                     ", vocabulary %" PRId64
                     "): name the model it was trained from, or another --output",
                     folder, a->family, a->layers, a->hidden, a->vocab, model_path, b->family,
                     b->layers, b->hidden, b->vocab);
}

int checkpoint_check_model(const struct checkpoint *c, const char *folder,
                           const struct zinf_trainer_options *options)
{
    struct zinf_model *saved = NULL, *asked = NULL;
    if (c->adapted) /* by its weights, once they are there */
        return 0;
    int code = zinf_model_open(&saved, folder);
    if (!code)
        code = zinf_model_open(&asked, options->model_path);
    if (!code && options->classes) /* the head that the run gave it */
        code = zinf_model_set_classes(asked, options->classes);
    if (!code)
        code = zinf_model_set_head(asked, options->head);
    if (!code)
        code = compare_models(saved, folder, asked, options->model_path);
    zinf_model_close(saved);
    zinf_model_close(asked);
    return code;
}

int checkpoint_check_data(const struct checkpoint *c, const char *folder,
                          const struct checkpoint_data *data)
{
    const struct checkpoint_data *saved = &c->data;
    if (c->foreign)
        zinf_log(ZINF_LOG_INFO,
                 "%s is DeepSpeed's: the data go on behind %" PRIu64 " sequences, in this "
                 "program's order",
                 folder, saved->position);
    if (c->foreign || (saved->windows == data->windows && saved->tokens == data->tokens &&
                       saved->seq_len == data->seq_len && saved->fingerprint == data->fingerprint))
        return 0;
    return zinf_fail(-EINVAL,
                     "%s was trained on %" PRIu64 " tokens in sequences of %" PRId64
                     ", now there are %" PRIu64 " in sequences of %" PRId64
                     "%s: give the same --data, --seq-len, --seed and --no-shuffle, or start anew "
                     "from its weights with --model %s",
                     folder, saved->tokens, saved->seq_len, data->tokens, data->seq_len,
                     saved->tokens == data->tokens && saved->seq_len == data->seq_len
                         ? ", but other ones or in another order"
                         : "",
                     folder);
}

/* ---- loading ---- */

/* Drops a file that was loaded from the page cache. */
static void forget_cache(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

/* Units that are not trained have none. */
static int load_unit(const struct source *s, const struct zinf_tensors *file, uint32_t unit,
                     int part)
{
    const float *slice = source_region(s).unit + s->setup->layout.units[unit].slice_first;
    if (!unit_trains(s->setup, unit))
        return 0;
    int code = transfer_gather(s, file, unit, part);
    return code ? code : state_write(s, unit, part, slice);
}

static int load_part(const struct checkpoint *c, const char *folder, const struct source *s,
                     int part)
{
    char name[64];
    struct zinf_tensors *file = NULL;
    checkpoint_part_name(c, part, name);
    char *path = zinf_path_join(folder, name);
    int code = !path        ? -ENOMEM
               : c->foreign ? checkpoint_open_foreign_part(folder, part, &file)
                            : zinf_tensors_open(&file, path);
    bool factors = part > PART_MASTER && s->setup->grain == GRAIN_TENSORS;
    bool kept = part > PART_MASTER && part == setup_kept_part(s->setup);
    if (!code && factors)
        code = transfer_load_factors(s, part, file);
    else if (!code && kept)
        code = transfer_load_kept(s, file);
    for (uint32_t u = 0; !code && !factors && !kept && u < s->setup->n_units; u++) {
        code = load_unit(s, file, u, part);
        forget_cache(path);
    }
    zinf_tensors_close(file);
    free(path);
    if (code == -ENOENT && c->foreign && part > PART_MASTER)
        code =
            zinf_fail(code, "%s; if it was frozen when DeepSpeed trained, zinf.freeze must name it",
                      zinf_error());
    return code;
}

static void forget_model(const struct checkpoint *c, const char *folder)
{
    for (uint32_t i = 0; i < c->n_files; i++) {
        char *path = zinf_path_join(folder, c->files[i].name);
        if (path)
            forget_cache(path);
        free(path);
    }
}

int checkpoint_check_base(const struct checkpoint *c, const char *folder,
                          const struct zinf_trainer *t)
{
    const char *base = t->setup.options.model_path;
    const char *optimizers = t->setup.optimizers_set;
    int code = c->foreign ? checkpoint_check_foreign(c, folder, optimizers) : 0;
    if (code)
        return code;
    if (!c->foreign && strcmp(c->optimizer, optimizers) &&
        strcmp(c->optimizer, t->setup.optimizers_text))
        return fail_of_optimizer(folder, c->optimizer, "optimizer.type and zinf.learning_rates ask",
                                 optimizers);
    if (c->adapted != is_adapted(&t->setup))
        return zinf_fail(-EINVAL, "%s is %s: %s", folder,
                         c->adapted ? "of an adapter" : "of a whole model",
                         c->adapted ? "set zinf.adapter, or --lora-rank, as it was"
                                    : "leave out zinf.adapter and --lora-rank");
    if (!c->base_sum || c->base_sum == t->base_sum)
        return 0;
    if (!c->adapted)
        return zinf_fail(-EINVAL,
                         "%s stands on other frozen weights (zinf.freeze) than those in --model "
                         "%s: put them back as they were, or begin anew with another --output",
                         folder, base);
    return zinf_fail(-EINVAL,
                     "%s is of an adapter of other weights than those of --model %s: name the "
                     "model that it was trained from",
                     folder, base);
}

int checkpoint_load(const struct checkpoint *c, const char *folder, struct zinf_trainer *t)
{
    memset(t->copied, COPY_UNKNOWN, t->setup.n_units);
    struct source source = trainer_source(t);
    if (!c->adapted) /* it has them itself, in another number type perhaps */
        t->base_sum = c->base_sum;
    int code = checkpoint_check_base(c, folder, t);
    forget_model(c, folder);
    int first = c->foreign ? PART_MASTER : checkpoint_first_part(c);
    for (int part = first; !code && part <= c->n_moments; part++)
        code = load_part(c, folder, &source, part);
    if (!code && first == PART_MASTER) /* they have set the parameters */
        code = trainer_place_images(t);
    if (!code)
        checkpoint_count_on(c, t);
    return code;
}

void checkpoint_count_on(const struct checkpoint *c, struct zinf_trainer *t)
{
    t->step = c->step;
    t->n_applied = c->n_applied;
    if (t->loss_scale.dynamic && c->loss_scale.dynamic) {
        t->loss_scale.scale = c->loss_scale.scale;
        t->loss_scale.hysteresis_left = c->loss_scale.hysteresis_left;
        t->loss_scale.iteration = c->loss_scale.iteration;
        t->loss_scale.last_overflow = c->loss_scale.last_overflow;
    }
}
