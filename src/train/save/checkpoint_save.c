/*
 * checkpoint_save: everything is written under a name that nobody resumes from, flushed, read back
 * and compared; only then it is renamed, named in "latest", and an older one may go. State streams
 * a unit at a time through the trainer's transfer region, the drive's writes past the page cache.
 *
 * Of several ranks each writes and reads back files of its own: arrays are dealt to them, a file is
 * one rank's from its first byte to its checksum. Rank 0 has the folder: it makes it, writes what
 * is beside the arrays, and renames it when all others are done.
 */
#include "train/save/checkpoint.h"
#include "train/save/output.h"

#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Headers, configuration, tokenizer, factored moments: what is beside the numbers, and a part of
 * them for what a file system takes beside files. */
#define SLACK_BYTES (4u << 20)
#define SLACK_SHARE 50

/* Room for the new one beside all that is there: the old one goes only after it. */
static int check_room(const struct source *s, const struct checkpoint *c, const char *output)
{
    bool keeps = setup_kept_part(s->setup) != 0;
    uint64_t moments = s->setup->grain == GRAIN_TENSORS ? 0 : (uint64_t)(c->n_moments - keeps);
    uint64_t arrays = moments + (c->dtype != ZINF_DTYPE_F32);
    const struct zinf_model *model = s->setup->model;
    bool adapted = is_adapted(s->setup);
    uint64_t elems = adapted ? zinf_model_n_trained(model) : zinf_model_n_params(model);
    uint64_t numbers = elems * (arrays * sizeof(float) + zinf_dtype_bytes(c->dtype));
    numbers += keeps ? transfer_kept_bytes(s->setup) : 0;
    uint64_t needed = numbers + numbers / SLACK_SHARE + SLACK_BYTES;
    struct statvfs room;
    char needed_text[16], free_text[16];
    if (access(output, W_OK) || statvfs(output, &room))
        return zinf_fail(-errno, "cannot write to %s: %s", output, strerror(errno));
    uint64_t free_bytes = (uint64_t)room.f_bavail * room.f_frsize;
    if (needed <= free_bytes)
        return 0;
    return zinf_fail(-ENOSPC,
                     "a checkpoint needs %s in %s, where %s is free: make room there, or keep "
                     "fewer with --save-total-limit",
                     zinf_size_format(needed_text, sizeof needed_text, needed), output,
                     zinf_size_format(free_text, sizeof free_text, free_bytes));
}

/* One array of all units: the model as a folder, an adapter's masters as its weights, another as
 * one file in optimizer/. */
static int write_part(const struct source *s, struct checkpoint *c, const char *folder, int part)
{
    bool model = part == PART_PARAM, beside = model || (c->adapted && part == PART_MASTER);
    char name[64] = "";
    struct zinf_tensors_writer *writer = NULL;
    if (!model)
        checkpoint_part_name(c, part, name);
    char *path = zinf_path_join(folder, name);
    struct zinf_tensors_writer_options options = {.path = path, .single_file = !model};
    const bool writes = !tensor_axis(s->setup)->rank;
    int code = path ? 0 : -ENOMEM;
    if (!code && writes)
        code = zinf_tensors_writer_create(&writer, &options);
    if (!code)
        code = part > PART_MASTER && s->setup->grain == GRAIN_TENSORS
                   ? transfer_stream_factors(s, part, writer)
               : part > PART_MASTER && part == setup_kept_part(s->setup)
                   ? transfer_stream_kept(s, writer)
                   : transfer_stream(s, part, model ? c->dtype : ZINF_DTYPE_F32, writer);
    if (!code && writes)
        code = checkpoint_add_written(c, beside ? "" : CHECKPOINT_OPTIMIZER, writer);
    zinf_tensors_writer_destroy(writer);
    free(path);
    return code;
}

/* Both folders, anew. */
static int make_folders(const char *folder)
{
    char *path = zinf_path_join(folder, CHECKPOINT_OPTIMIZER);
    output_remove(folder);
    int code = path ? zinf_make_dirs(path) : -ENOMEM;
    free(path);
    return code;
}

/* Every rank writes the arrays that are its own, at once. */
static int write_arrays(struct source *s, struct checkpoint *c, const char *folder)
{
    struct collect collect;
    uint32_t n = 0, world = s->setup->savers.world, rank = s->setup->savers.rank;
    int code = collect_begin(s, &collect);
    if (!code && n++ % world == rank)
        code = write_part(s, c, folder, c->adapted ? PART_MASTER : PART_PARAM);
    for (int part = checkpoint_first_part(c); !code && part <= c->n_moments; part++)
        if (n++ % world == rank)
            code = write_part(s, c, folder, part);
    return collect_end(s, code);
}

static int fail_read_back(int code)
{
    return zinf_fail_in(code, "the checkpoint was written, but not as it should be");
}

/* What goes beside the arrays, and the description of all: by rank 0, once it has the others' lists
 * of what they have written and compared. */
static int write_beside(const struct source *s, struct checkpoint *c, const char *folder)
{
    char *path = zinf_path_join(folder, CHECKPOINT_OPTIMIZER);
    int code = path ? zinf_folder_sync(path) : -ENOMEM;
    if (!code)
        code = transfer_write_rest(s, folder, checkpoint_adapter_sum(c));
    if (!code)
        code = products_write(s->setup, folder);
    if (!code)
        code = checkpoint_add_others(c, folder, "");
    if (!code)
        code = checkpoint_write_state(c, folder);
    free(path);
    return code;
}

/* As a run that goes on from it will: the description too, and all that it lists. */
static int read_back(const struct checkpoint *c, const char *folder)
{
    struct checkpoint found;
    int code = c->n_compared ? checkpoint_open_rest(&found, folder, c)
                             : checkpoint_open_one(&found, folder);
    if (!code)
        checkpoint_fini(&found);
    return code ? fail_read_back(code) : 0;
}

/* Of several ranks what each has written is compared by itself, and rank 0 learns of it. */
static int gather_lists(const struct source *s, struct checkpoint *c, const char *folder)
{
    int code = s->net ? checkpoint_verify(c, folder) : 0;
    code = collect_agree(s, code ? fail_read_back(code) : 0);
    return code || !s->net ? code : collect_files(s, c);
}

static int write_all(struct source *s, struct checkpoint *c, const char *folder)
{
    int code = write_arrays(s, c, folder);
    if (!code)
        code = gather_lists(s, c, folder);
    if (code || !collect_is_first(s))
        return code;
    code = write_beside(s, c, folder);
    return code ? code : read_back(c, folder);
}

void checkpoint_take_counters(const struct source *s, struct checkpoint *c)
{
    c->step = s->step;
    c->n_applied = s->n_applied;
    c->lr = (double)s->setup->hyper.lr;
    c->dtype = s->setup->dtype;
    c->n_moments = setup_n_moments(s->setup) + (setup_kept_part(s->setup) != 0);
    c->loss_scale = s->loss_scale;
    c->adapted = is_adapted(s->setup);
    c->base_sum = s->base_sum;
    snprintf(c->optimizer, sizeof c->optimizer, "%s", s->setup->optimizers_set);
}

static int publish(const struct checkpoint *c, const char *output, const char *partial,
                   uint64_t limit)
{
    char *folder = output_checkpoint_path(output, "", c->step);
    int code = folder ? output_publish(output, partial, folder) : -ENOMEM;
    if (code)
        output_remove(partial);
    if (!code)
        code = output_set_latest(output, c->step);
    if (!code)
        code = output_rotate(output, c->step, limit, c->went_back);
    free(folder);
    return code;
}

int checkpoint_write(struct source *s, struct checkpoint *c, const char *output, uint64_t limit)
{
    bool first = collect_is_first(s);
    checkpoint_take_counters(s, c);
    char *partial = output_checkpoint_path(output, "tmp-", c->step);
    int code = partial ? 0 : zinf_fail(-ENOMEM, "no memory for a path");
    if (!code && first)
        code = check_room(s, c, output);
    if (!code && first)
        code = make_folders(partial);
    code = collect_agree(s, code);
    if (!code)
        code = write_all(s, c, partial);
    if (code && partial && first)
        output_remove(partial);
    if (!code && first)
        code = publish(c, output, partial, limit);
    free(partial);
    code = collect_agree(s, code);
    return code;
}

int checkpoint_save(struct zinf_trainer *t, struct checkpoint *c, const char *output,
                    uint64_t limit)
{
    int code = trainer_settle(t);
    struct source source = trainer_source(t);
    if (code && t->setup.mesh.all) /* the others would wait for what is written together */
        zinf_net_tell(t->setup.mesh.all, zinf_error());
    return code ? code : checkpoint_write(&source, c, output, limit);
}
