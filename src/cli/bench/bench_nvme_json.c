/* bench_nvme_json: the same figures for programs. Rates are in bytes, times in seconds. */
#include "cli/bench/bench_nvme.h"

static void add_result(cJSON *object, const struct zinf_aio_bench_result *r)
{
    cJSON_AddNumberToObject(object, "rate", zinf_aio_bench_rate(r));
    cJSON_AddNumberToObject(object, "seconds", r->seconds);
    cJSON_AddNumberToObject(object, "cpu_seconds", r->cpu_seconds);
    cJSON_AddNumberToObject(object, "bytes_read", (double)r->bytes_read);
    cJSON_AddNumberToObject(object, "bytes_written", (double)r->bytes_written);
    cJSON_AddNumberToObject(object, "p50", (double)r->p50_ns * 1e-9);
    cJSON_AddNumberToObject(object, "p99", (double)r->p99_ns * 1e-9);
    cJSON_AddNumberToObject(object, "p99.9", (double)r->p999_ns * 1e-9);
    cJSON_AddNumberToObject(object, "max", (double)r->max_ns * 1e-9);
}

static void add_wanted(cJSON *object, const struct nvme_bench *bench,
                       const struct zinf_aio_bench_result results[NVME_MIXES])
{
    for (int mix = 0; mix < NVME_MIXES; mix++)
        if (bench->wanted[mix])
            add_result(cJSON_AddObjectToObject(object, nvme_mix_names[mix]), &results[mix]);
}

static void add_setup(cJSON *root, const struct nvme_bench *bench)
{
    cJSON *paths = cJSON_AddArrayToObject(root, "paths");
    for (int i = 0; i < bench->n_paths; i++)
        cJSON_AddItemToArray(paths, cJSON_CreateString(bench->paths[i]));
    cJSON_AddNumberToObject(root, "bytes", (double)bench->bytes);
    cJSON_AddNumberToObject(root, "jobs", bench->n_jobs);
    cJSON_AddBoolToObject(root, "random", bench->random);
    cJSON_AddNumberToObject(root, "written", (double)bench->bytes_written);
    cJSON *aio = cJSON_AddObjectToObject(root, "aio");
    cJSON_AddNumberToObject(aio, "block_size", bench->best_block_bytes);
    cJSON_AddNumberToObject(aio, "queue_depth", bench->best_depth);
    cJSON_AddBoolToObject(aio, "single_submit", false);
    cJSON_AddBoolToObject(aio, "overlap_events", true);
}

static void add_sweep(cJSON *root, const struct nvme_bench *bench)
{
    cJSON *sweep = cJSON_AddArrayToObject(root, "sweep");
    for (int i = 0; i < bench->n_sweep; i++) {
        cJSON *point = cli_json_append(sweep);
        cJSON_AddNumberToObject(point, "block_size", bench->sweep[i].block_bytes);
        cJSON_AddNumberToObject(point, "queue_depth", bench->sweep[i].queue_depth);
        add_result(point, &bench->sweep[i].result);
    }
}

static void add_engines(cJSON *root, const struct nvme_bench *bench)
{
    cJSON *engines = cJSON_AddArrayToObject(root, "engines");
    for (int i = 0; i < NVME_ENGINES; i++) {
        cJSON *row = cli_json_append(engines);
        cJSON_AddStringToObject(row, "name", bench->engines[i].name);
        if (bench->engines[i].refused)
            cJSON_AddStringToObject(row, "refused", bench->engines[i].refused);
        else
            add_wanted(row, bench, bench->engines[i].result);
    }
}

static void add_steps(cJSON *root, const struct nvme_bench *bench)
{
    cJSON *steps = cJSON_AddArrayToObject(root, "step_seconds");
    for (int f = 0; f < NVME_FORMS; f++) {
        const struct nvme_form *form = &nvme_forms[f];
        if (nvme_step_seconds(bench, form, 1) <= 0)
            return;
        cJSON *row = cli_json_append(steps);
        cJSON_AddStringToObject(row, "on_drive", form->name);
        cJSON_AddNumberToObject(row, "read_bytes_per_parameter", form->read_bytes);
        cJSON_AddNumberToObject(row, "write_bytes_per_parameter", form->write_bytes);
        for (int m = 0; m < NVME_MODELS; m++)
            cJSON_AddNumberToObject(row, nvme_models[m].name,
                                    nvme_step_seconds(bench, form, nvme_models[m].params));
    }
}

cJSON *nvme_json(const struct nvme_bench *bench)
{
    cJSON *root = cJSON_CreateObject();
    if (!root)
        return NULL;
    add_setup(root, bench);
    add_wanted(root, bench, bench->main);
    add_sweep(root, bench);
    add_engines(root, bench);
    add_steps(root, bench);
    return root;
}
