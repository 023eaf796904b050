/* seats: with whom this process works, and from what is asked for and visible to numbers of GPUs.
 */
#include "api/session.h"

#include <stdlib.h>

bool job_ranks_is_first(const struct zinf_net *net)
{
    return !net || zinf_net_place(net).rank == 0;
}

/* Log lines of the others that are no failure are rank 0's. */
int job_ranks_find(struct zinf_session *s)
{
    double seconds = ZINF_NET_TIMEOUT_SECONDS;
    int code = 0;
    if (s->has_ranks)
        return 0;
    zinf_config_timeout(s->job.config, &seconds);
    code = zinf_net_open(&s->net, seconds);
    s->has_ranks = !code;
    if (code || !s->net)
        return code;
    zinf_net_set_timeout(s->net, seconds);
    s->job.world = zinf_net_place(s->net).world;
    if (job_ranks_is_first(s->net))
        zinf_log(ZINF_LOG_INFO, "%lld ranks over %s", (long long)s->job.world,
                 zinf_net_name(s->net));
    else if (!getenv("ZINF_LOG"))
        zinf_log_set_level(ZINF_LOG_ERROR);
    return 0;
}

bool job_ranks_works_alone(const char *what)
{
    uint32_t rank, world;
    if (!zinf_net_launched_as(&rank, &world))
        return true;
    if (!rank)
        zinf_log(ZINF_LOG_INFO, "%s by one process: the other %u that were started end at once",
                 what, world - 1);
    return !rank;
}

/* "0,2" */
static int read_devices(struct job_seats *seats, const char *text)
{
    const char *at = text;
    do {
        char *end;
        long index = strtol(at, &end, 10);
        if (end == at || index < 0 || index > 1023 || (*end && *end != ','))
            return zinf_fail(-EINVAL, "--devices %s: give numbers of GPUs with commas, as 0,2",
                             text);
        for (int i = 0; i < seats->n_gpus; i++)
            if (seats->gpus[i] == index)
                return zinf_fail(-EINVAL, "--devices %s names GPU %ld twice", text, index);
        if (seats->n_gpus == JOB_MOST_GPUS)
            return zinf_fail(-EINVAL, "--devices: at most %d GPUs", JOB_MOST_GPUS);
        seats->gpus[seats->n_gpus++] = (int)index;
        at = *end ? end + 1 : end;
    } while (*at || at[-1] == ',');
    return 0;
}

static bool is_set(const char *variable)
{
    const char *value = getenv(variable);
    return value && *value;
}

static int check_devices(const struct job_seats *seats, const struct zinf_job *c, bool on_gpus)
{
    int visible = on_gpus ? zinf_device_cuda_count() : 0;
    if (!on_gpus)
        return zinf_fail(-EINVAL, "--devices names GPUs: several host devices are --seats N");
    if (c->seats > 0 && c->seats != seats->n_gpus)
        return zinf_fail(-EINVAL, "--seats %lld, but --devices %s names %d: leave out --seats",
                         (long long)c->seats, c->devices, seats->n_gpus);
    if (is_set("ZINF_GPU"))
        return zinf_fail(-EINVAL, "--devices and ZINF_GPU both name GPUs: unset ZINF_GPU");
    for (int i = 0; i < seats->n_gpus; i++)
        if (seats->gpus[i] >= visible)
            return zinf_fail(-EINVAL,
                             "--devices %s: %d GPU%s visible (CUDA_VISIBLE_DEVICES), numbered "
                             "from 0",
                             c->devices, visible, visible == 1 ? " is" : "s are");
    return 0;
}

/* Of the visible ones, for each of the host's processes; at least one. */
static int64_t share_of(int visible, const struct zinf_net *net)
{
    int processes = net ? (int)zinf_net_place(net).local_world : 1;
    return visible / processes > 1 ? visible / processes : 1;
}

int job_seats_find(struct zinf_session *s)
{
    struct job_seats *seats = &s->seats;
    struct zinf_job *c = &s->job;
    const enum zinf_device_kind device = c->device;
    int code = 0;
    *seats = (struct job_seats){0};
    bool on_gpus =
        device == ZINF_DEVICE_CUDA || (device == ZINF_DEVICE_AUTO && !zinf_device_cuda_why_not());
    if (c->devices)
        code = read_devices(seats, c->devices);
    if (!code && c->devices)
        code = check_devices(seats, c, on_gpus);
    if (code)
        return code;
    if (seats->n_gpus)
        c->seats = seats->n_gpus;
    c->seats_there =
        on_gpus && !is_set("ZINF_GPU") ? share_of(zinf_device_cuda_count(), s->net) : 1;
    return 0;
}

/* What several ranks refuse; NULL: nothing. */
static const char *why_one(const struct zinf_config *c, bool trains)
{
    if (trains && c->zero_stage == 3 && !strcmp(c->optimizer.type, "Adafactor"))
        return "Adafactor's tensors are not cut (zero_optimization.stage 3)";
    if (trains && c->zero_stage == 3 && c->offload_param.device == ZINF_PLACE_NONE &&
        strcmp(c->gather, "device") != 0)
        return "at stage 3 slices of parameters go through host memory (offload_param.device)";
    return NULL;
}

bool job_seats_leave_one(struct zinf_session *s)
{
    struct zinf_job *c = &s->job;
    const char *why = why_one(s->config, s->use == JOB_TRAINS);
    bool asked = c->seats > 0 || s->config->seats != c->seats_there;
    if (asked || c->seats_there < 2 || !why)
        return false;
    zinf_log(ZINF_LOG_INFO, "one of %lld visible GPUs is used: %s", (long long)c->seats_there, why);
    c->seats_there = 1;
    return true;
}

const int *job_seats_gpus(const struct zinf_session *s)
{
    return s->seats.n_gpus ? s->seats.gpus : NULL;
}
