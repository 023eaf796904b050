/* train_place: see the header. */
#include "cli/train_place.h"

#include "cli/estimate/estimate.h"
#include "train/estimate.h"

#include <stdlib.h>
#include <unistd.h>

int train_place_begin(struct train_place *p, struct zinf_job *job)
{
    p->path = zinf_path_join(job->output, "placement.json");
    p->drive = zinf_path_join(job->output, "nvme");
    if (!p->path || !p->drive)
        return zinf_fail(-ENOMEM, "no memory for paths");
    if (!job->resume || job->config || access(p->path, R_OK))
        return 0;
    job->config = p->path;
    return zinf_make_dirs(p->drive);
}

/* What the program itself may grow by between the choice and the training's own plan, which counts
 * it again. */
#define GROWTH (1 << 20)

static int fits(void *arg, const struct zinf_config *config)
{
    struct zinf_estimate_options *options = arg;
    struct zinf_estimate unused;
    struct zinf_config tight = *config; /* borrows what config owns */
    if (tight.host_memory > GROWTH)
        tight.host_memory -= GROWTH;
    options->trainer.config = &tight;
    int code = zinf_estimate(&unused, options);
    options->trainer.config = config;
    return code;
}

/* The session's configuration, which was resolved for what fits on the device, is read anew; what
 * is to be said of it was said. */
static int take(struct train_place *p, struct zinf_session *s, char text[ESTIMATE_PLACED])
{
    size_t n = strlen(text);
    text[n] = '\n';
    int code = zinf_file_write_atomic(p->path, text, n + 1);
    text[n] = 0;
    if (!code && strstr(text, "\"nvme\""))
        code = zinf_make_dirs(p->drive);
    s->job.config = p->path;
    zinf_log(ZINF_LOG_INFO,
             "no configuration says where things lie, and the device has no room for all: %s has "
             "the placement that was chosen, for --config",
             p->path);
    const bool finds = s->config->finds_micro_batch;
    if (finds) /* there is another room now */
        s->job.settings = s->asked.settings;
    if (!code)
        code = session_config(s, true);
    if (!code && finds)
        code = job_micro_settle(s);
    s->run.trainer.config = s->config;
    return code;
}

/* text: "" where all fits as it is, or nothing does. */
static void choose(const struct train_place *p, const struct zinf_session *s,
                   char text[ESTIMATE_PLACED])
{
    const struct zinf_net_place at =
        s->net ? zinf_net_place(s->net) : (struct zinf_net_place){.world = 1, .local_world = 1};
    const uint32_t seats = s->config->seats > 1 ? (uint32_t)s->config->seats : 1;
    struct zinf_estimate_options options = {.trainer = s->run.trainer,
                                            .ranks = at.world * seats,
                                            .local_ranks = at.local_world * seats,
                                            .seats = seats,
                                            .speeds = *s->run.trainer.speeds};
    struct zinf_config_context context = session_context(s);
    unlink(p->path); /* of an earlier run, which is not gone on from */
    if (fits(&options, s->config) != -ENOMEM)
        return;
    context.hidden_size = zinf_model_facts(s->model)->hidden;
    context.dtype = zinf_dtype_name(s->config->dtype);
    context.quiet = true;
    if (estimate_place(s->config, &context, p->drive, fits, &options, text))
        *text = 0;
}

int train_place_session(struct train_place *p, struct zinf_session *s)
{
    if (s->job.config)
        return 0;
    char *text = calloc(1, ESTIMATE_PLACED);
    int code = text ? 0 : zinf_fail(-ENOMEM, "no memory to choose a placement");
    if (!code && job_ranks_is_first(s->net))
        choose(p, s, text);
    if (code && s->net)
        zinf_net_tell(s->net, zinf_error());
    if (!code && s->net)
        code = zinf_net_broadcast(s->net, 0, text, ESTIMATE_PLACED);
    if (!code && *text)
        code = take(p, s, text);
    free(text);
    return code;
}

void train_place_end(struct train_place *p, struct zinf_job *job)
{
    job->config = job->config == p->path ? NULL : job->config;
    if (p->drive)
        rmdir(p->drive); /* unless something of a run is in it */
    free(p->path);
    free(p->drive);
}
