/* estimate_compare: one training on several described machines, a line each. */
#include "cli/estimate/estimate.h"

int estimate_described(struct estimate *e, const struct estimate_request *request,
                       const struct machine *machine, struct zinf_estimate_options *options)
{
    struct zinf_described_machine described;
    double tbw = machine->figures[MACHINE_TBW].value;
    *e = (struct estimate){.machine = machine,
                           .tokens = request->tokens,
                           .ranks = options->ranks,
                           .local_ranks = options->local_ranks,
                           .seats = options->seats};
    e->tbw = request->tbw > 0 ? request->tbw : tbw > 0 ? tbw : ESTIMATE_TBW;
    e->watts = request->watts > 0 ? request->watts : machine->figures[MACHINE_POWER].value;
    machine_describe(machine, &described);
    double net_bytes = options->speeds.net_bytes; /* no figure of a machine */
    machine_speeds(machine, request->trainer.config->dtype, &options->speeds);
    options->speeds.net_bytes = net_bytes;
    options->trainer = request->trainer;
    options->trainer.described = &described;
    int code = zinf_estimate(&e->now, options);
    options->trainer.described = NULL;
    if (!code)
        estimate_drive_room(e, request->trainer.config);
    return code;
}

/* ---- the table ---- */

struct comparison {
    const struct estimate_request *request;
    cJSON *list; /* NULL: lines */
};

/* Cut, so that columns stay columns. */
#define NAME_COLS 22

static void print_heading(bool length)
{
    printf("%-*s", NAME_COLS, "machine");
    if (length)
        printf(" %9s %9s %8s %8s", "tokens/s", "days", "TB", "kWh");
    else
        printf(" %9s %9s %10s %9s", "GPU, GiB", "RAM, GiB", "drive, GiB", "tokens/s");
    puts("  limited by");
}

/* Three or four figures, and never a power of ten. */
static const char *figure(char text[24], double value)
{
    int places = value >= 100 ? 0 : value >= 10 ? 1 : value >= 1 ? 2 : 3;
    snprintf(text, 24, "%.*f", places, value);
    return text;
}

/* Budgets that the configuration names are those of every machine of the table. */
static void print_caps(const struct zinf_config *config)
{
    char device[16], host[16];
    if (config->device_memory)
        printf("on every machine: zinf.device_memory %s of its GPU\n",
               zinf_size_format(device, sizeof device, config->device_memory));
    if (config->host_memory)
        printf("on every machine: zinf.host_memory %s of its RAM\n",
               zinf_size_format(host, sizeof host, config->host_memory));
}

static void print_line(const struct estimate *e, const char *name)
{
    const struct zinf_estimate *n = &e->now;
    double rate = (double)n->tokens / n->step_seconds;
    printf("%-*.*s", NAME_COLS, NAME_COLS, name);
    if (e->tokens > 0) {
        char tokens[24], days[24], written[24], kwh[24] = "-";
        if (e->watts > 0)
            figure(kwh, estimate_length_kwh(e));
        printf(" %9s %9s %8s %8s", figure(tokens, rate),
               figure(days, estimate_length_seconds(e) / 86400),
               figure(written, estimate_length_written(e) * 1e-12), kwh);
    } else {
        char tokens[24];
        for (int i = 0; i < 3; i++)
            printf(" %*.2f", i < 2 ? 9 : 10, (double)n->bytes[i] / 0x1p30);
        printf(" %9s", figure(tokens, rate));
    }
    printf("  %s%s\n", estimate_lane(n->bottleneck),
           e->drive_free < n->bytes[2] ? "; the drive is too small" : "");
}

static int compare_one(void *arg, const char *spec)
{
    struct comparison *c = arg;
    struct zinf_estimate_options options = {.plan = NULL};
    struct machine machine;
    struct estimate e;
    int code = machine_parse(&machine, spec);
    if (code)
        return code;
    code = estimate_described(&e, c->request, &machine, &options);
    if (code && code != -ENOMEM)
        return code;
    if (c->list) {
        cJSON *item = code ? cJSON_CreateObject() : estimate_json(&e);
        cJSON_AddStringToObject(item, "spec", spec);
        cJSON_AddBoolToObject(item, "fits", !code);
        cJSON_AddItemToArray(c->list, item);
    } else if (code) {
        printf("%-*.*s does not fit: zinf estimate --machine %s says what is too large\n",
               NAME_COLS, NAME_COLS, spec, spec);
    } else {
        print_line(&e, spec);
    }
    return 0;
}

int estimate_compare(const struct estimate_request *request, const char *machines)
{
    struct comparison c = {.request = request, .list = request->json ? cJSON_CreateArray() : NULL};
    if (!request->json) {
        print_caps(request->trainer.config);
        print_heading(request->tokens > 0);
    }
    int code = machine_each(machines, compare_one, &c);
    if (!c.list)
        return code;
    if (!code)
        return cli_print_json(c.list);
    cJSON_Delete(c.list);
    return code;
}
