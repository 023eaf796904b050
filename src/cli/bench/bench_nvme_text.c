/*
 * bench_nvme_text: the figures for people: a bar for each setting, a table, the engines, what to
 * paste into a configuration, and what a training step would take.
 */
#include "cli/bench/bench_nvme.h"

#include <math.h>

#define BAR_COLS 40

/* DeepSpeed's keys are in bytes and blocks; see also the man page for the forms. */
const struct nvme_form nvme_forms[NVME_FORMS] = {
    {"optimizer state", "12", "12", 12, 12},
    {"and parameters", "2+2+12", "2+12", 16, 14},
    {"and gradients", "2+2+4+12", "2+4+12", 20, 18},
};

const struct nvme_model nvme_models[NVME_MODELS] = {{"1.5B", 1.5e9}, {"7B", 7e9}, {"13B", 13e9}};

double nvme_step_seconds(const struct nvme_bench *bench, const struct nvme_form *form,
                         double params)
{
    double read = zinf_aio_bench_rate(&bench->main[ZINF_AIO_BENCH_READ]);
    double mixed = zinf_aio_bench_rate(&bench->main[ZINF_AIO_BENCH_MIXED]);
    if (!(read > 0 && mixed > 0))
        return 0;
    double both = 2 * fmin(form->read_bytes, form->write_bytes);
    return params * (both / mixed + (form->read_bytes - form->write_bytes) / read);
}

static double gigabytes(const struct zinf_aio_bench_result *r)
{
    return zinf_aio_bench_rate(r) * 1e-9;
}

static double cpu_per_gigabyte(const struct zinf_aio_bench_result *r)
{
    return nvme_cpu_per_byte(r) * 1e9;
}

static double ms(uint64_t ns)
{
    return (double)ns * 1e-6;
}

static void print_bar(FILE *out, double share)
{
    int n = (int)lround(share * BAR_COLS);
    for (int i = 0; i < n; i++)
        fputs(cli_utf8() ? "█" : "#", out);
    fputc('\n', out);
}

static void print_sweep(const struct nvme_bench *bench, FILE *out)
{
    char size[16];
    double most = 0;
    if (!bench->n_sweep)
        return;
    for (int i = 0; i < bench->n_sweep; i++)
        most = fmax(most, gigabytes(&bench->sweep[i].result));
    fprintf(out, "\n%10s  %5s  %7s  %8s  (%s)\n", "block", "depth", "GB/s", "p99 ms",
            nvme_mix_names[bench->key_mix]);
    for (int i = 0; i < bench->n_sweep; i++) {
        const struct nvme_point *p = &bench->sweep[i];
        double rate = gigabytes(&p->result);
        fprintf(out, "%10s  %5u  %7.2f  %8.2f  ",
                zinf_size_format(size, sizeof size, p->block_bytes), p->queue_depth, rate,
                ms(p->result.p99_ns));
        print_bar(out, most > 0 ? rate / most : 0);
    }
}

static void print_figures(const struct nvme_bench *bench, FILE *out)
{
    char block[16], data[16];
    fprintf(out, "\n%s of data, blocks of %s, depth %u, %d job%s, %s\n",
            zinf_size_format(data, sizeof data, bench->bytes),
            zinf_size_format(block, sizeof block, bench->best_block_bytes), bench->best_depth,
            bench->n_jobs, bench->n_jobs == 1 ? "" : "s", bench->random ? "random" : "sequential");
    fprintf(out, "%-6s %7s %9s %8s %8s %9s %8s %9s\n", "", "GB/s", "(GiB/s)", "p50 ms", "p99 ms",
            "p99.9 ms", "max ms", "CPU s/GB");
    for (int mix = 0; mix < NVME_MIXES; mix++) {
        const struct zinf_aio_bench_result *r = &bench->main[mix];
        if (bench->wanted[mix])
            fprintf(out, "%-6s %7.2f %9.2f %8.2f %8.2f %9.2f %8.2f %9.4f\n", nvme_mix_names[mix],
                    gigabytes(r), zinf_aio_bench_rate(r) / (double)(1 << 30), ms(r->p50_ns),
                    ms(r->p99_ns), ms(r->p999_ns), ms(r->max_ns), cpu_per_gigabyte(r));
    }
    if (bench->busy_drive > 0)
        fprintf(
            out,
            "beside busy CPUs: %.0f %% of the mixed rate; these have %.0f %% of theirs beside it\n",
            100 * bench->busy_drive, 100 * bench->busy_threads);
    if (bench->alone.p50_ns)
        fprintf(out,
                "small reads, one after the other: %.3f ms each, without the time of their "
                "bytes\n",
                nvme_answer_seconds(bench) * 1e3);
}

static void print_engines(const struct nvme_bench *bench, FILE *out)
{
    fprintf(out, "\n%-30s", "engine");
    for (int mix = 0; mix < NVME_MIXES; mix++)
        if (bench->wanted[mix])
            fprintf(out, " %6s GB/s", nvme_mix_names[mix]);
    fprintf(out, "  CPU s/GB    p99 ms  (%s)\n", nvme_mix_names[bench->key_mix]);
    for (int i = 0; i < NVME_ENGINES; i++) {
        const struct nvme_engine_row *row = &bench->engines[i];
        const struct zinf_aio_bench_result *key = &row->result[bench->key_mix];
        fprintf(out, "%-30s", row->name);
        if (row->refused) {
            fprintf(out, " refused: %s\n", row->refused);
            continue;
        }
        for (int mix = 0; mix < NVME_MIXES; mix++)
            if (bench->wanted[mix])
                fprintf(out, " %11.2f", gigabytes(&row->result[mix]));
        fprintf(out, "  %8.4f  %8.2f\n", cpu_per_gigabyte(key), ms(key->p99_ns));
    }
}

static void print_steps(const struct nvme_bench *bench, FILE *out)
{
    if (nvme_step_seconds(bench, &nvme_forms[0], 1) <= 0)
        return;
    fputs(
        "\nSeconds of a training step that the drive alone takes; bytes for each parameter, bf16 "
        "parameters,\nfp32 AdamW state and gradients; both ways at the mixed rate, the rest at the "
        "rate of reads\n",
        out);
    fprintf(out, "%-16s %9s %7s", "on the drive", "read", "write");
    for (int m = 0; m < NVME_MODELS; m++)
        fprintf(out, " %8s", nvme_models[m].name);
    fputs("   written a step, 7B\n", out);
    for (int f = 0; f < NVME_FORMS; f++) {
        const struct nvme_form *form = &nvme_forms[f];
        fprintf(out, "%-16s %9s %7s", form->name, form->reads, form->writes);
        for (int m = 0; m < NVME_MODELS; m++)
            fprintf(out, " %8.1f", nvme_step_seconds(bench, form, nvme_models[m].params));
        fprintf(out, "   %.0f GB\n", form->write_bytes * nvme_models[1].params * 1e-9);
    }
}

void nvme_print(const struct nvme_bench *bench, FILE *out)
{
    char text[1024], size[16];
    for (int i = 0; i < bench->n_paths; i++) {
        if (!zinf_aio_describe_path(bench->paths[i], text, sizeof text))
            fprintf(out, "%s\n", text);
        if (bench->n_paths > 1)
            fprintf(out, "  alone: read %.2f, write %.2f, mixed %.2f GB/s\n",
                    bench->rates[i].read * 1e-9, bench->rates[i].write * 1e-9,
                    bench->rates[i].mixed * 1e-9);
    }
    print_sweep(bench, out);
    print_figures(bench, out);
    print_engines(bench, out);
    print_steps(bench, out);
    fprintf(out, "\nwritten to the drive by this bench: %s\n",
            zinf_size_format(size, sizeof size, bench->bytes_written));
    fprintf(out,
            "\n\"aio\": {\"block_size\": %u, \"queue_depth\": %u, \"single_submit\": false, "
            "\"overlap_events\": true}\n",
            bench->best_block_bytes, bench->best_depth);
}
