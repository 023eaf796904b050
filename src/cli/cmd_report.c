/*
 * cmd_report: `zinf report`, the attachment of a bug report. Everything in it is safe to publish:
 * what could name a user or a host is left out, and paths go through report_redact.
 */
#include "build-config.h"
#include "cli/report.h"

#include "aio/aio.h"
#include "kernels/kernels.h"
#include "net/net.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <limits.h>
#include <stdlib.h>

static const char usage[] =
    "usage: zinf report [--path DIR...] [--json]\n"
    "\n"
    "Prints what a bug report needs: system, processor, memory, limits, io_uring,\n"
    "drives, GPU and library versions. It names no user and no host, so it is safe to\n"
    "publish.\n";

/* A library without a version call is known by the file that was loaded: libx.so.2.3. */
static const char *library_file(const char *symbol, char buffer[PATH_MAX])
{
    Dl_info info;
    void *address = dlsym(RTLD_DEFAULT, symbol);
    if (!address || !dladdr(address, &info) || !info.dli_fname || !realpath(info.dli_fname, buffer))
        return "unknown";
    const char *slash = strrchr(buffer, '/');
    return slash ? slash + 1 : buffer;
}

static void add_software(cJSON *facts)
{
    char file[PATH_MAX];
    report_add(facts, "zinf", "%s", PACKAGE_VERSION);
    report_add(facts, "compiler", "%s", __VERSION__);
    report_add(facts, "glibc", "%s", gnu_get_libc_version());
    report_add(facts, "openblas", "%s", zinf_host_blas());
    report_add(facts, "liburing", "%s", library_file("io_uring_queue_init", file));
    report_add(facts, "cjson", "%s", cJSON_Version());
}

static void add_environment(cJSON *facts)
{
    static const char *const names[] = {
        "ZINF_CPU",          "ZINF_LOG",
        "OMP_NUM_THREADS",   "OMP_PROC_BIND",
        "OMP_PLACES",        "OPENBLAS_NUM_THREADS",
        "OPENBLAS_CORETYPE", "CUDA_VISIBLE_DEVICES",
    };
    char text[1024] = "", safe[1024];
    size_t used = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value && used + strlen(names[i]) + strlen(value) + 3 < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s=%s", used ? " " : "",
                                     names[i], value);
    }
    report_add(facts, "environment", "%s",
               used ? report_redact(text, safe, sizeof safe) : "nothing set");
}

static void add_device(cJSON *facts)
{
    char safe[1024], size[16];
    const char *why = zinf_device_cuda_why_not();
    struct zinf_device *device = NULL;
    struct zinf_device_options options = {.kind = ZINF_DEVICE_CUDA};
    if (!why && zinf_device_create(&device, &options))
        why = zinf_error();
    if (why)
        report_add(facts, "cuda", "not used: %s", report_redact(why, safe, sizeof safe));
    else
        report_add(facts, "cuda", "%s, %s free", device->name,
                   zinf_size_format(size, sizeof size, device->free_bytes));
    if (device)
        zinf_device_destroy(device);
}

static void add_ranks(cJSON *facts)
{
    char safe[1024];
    const char *why = zinf_net_mpi_why_not();
    if (why)
        report_add(facts, "mpi", "not used: %s", report_redact(why, safe, sizeof safe));
    else
        report_add(facts, "mpi", "the module loads");
    why = zinf_link_why_not();
    if (why)
        report_add(facts, "nccl", "not used: %s", report_redact(why, safe, sizeof safe));
    else
        report_add(facts, "nccl", "%s; GPUs of several processes reach each other over %s",
                   report_redact(zinf_link_found(), safe, sizeof safe),
                   zinf_net_mpi_why_not() ? "TCP (torchrun --no-python)" : "an MPI or TCP");
}

static void add_drive(cJSON *drives, const char *path)
{
    char text[2048], safe[2048];
    const char *shown = zinf_aio_describe_path(path, text, sizeof text) ? zinf_error() : text;
    cJSON_AddItemToArray(drives, cJSON_CreateString(report_redact(shown, safe, sizeof safe)));
}

static void print_text(const cJSON *facts)
{
    const cJSON *fact, *item;
    char label[32], *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return;
    cJSON_ArrayForEach(fact, facts)
    {
        snprintf(label, sizeof label, "%s", fact->string);
        for (char *c = label; *c; c++)
            *c = *c == '_' ? ' ' : *c;
        if (cJSON_IsString(fact))
            fprintf(out, "%-20s %s\n", label, fact->valuestring);
        else
            cJSON_ArrayForEach(item, fact) fprintf(out, "%-20s %s\n", label, item->valuestring);
    }
    if (!fclose(out))
        cli_print_lines(stdout, text);
    free(text);
}

struct report_command {
    struct zinf_words paths;
    bool json;
};

#define AT(field) .offset = offsetof(struct report_command, field)
#define IN(field) .at = offsetof(struct report_command, field)
/* clang-format off */
static const struct option own[] = {
    OPTION("--path", TEXTS, AT(paths), "DIR...",
     "folders whose drives to describe, beside the current one"),
    CLI_NO_ROW
};
/* clang-format on */

static int work(struct cli_call *call)
{
    const struct report_command *o = call->options;
    cJSON *facts = cJSON_CreateObject();
    if (!facts)
        return zinf_fail(-ENOMEM, "no memory for the report");
    add_software(facts);
    report_machine(facts);
    report_limits(facts);
    cJSON *drives = cJSON_AddArrayToObject(facts, "drive");
    add_drive(drives, ".");
    for (int i = 0; i < o->paths.n; i++)
        add_drive(drives, o->paths.items[i]);
    add_device(facts);
    add_ranks(facts);
    add_environment(facts);
    if (o->json)
        return cli_print_json(facts);
    print_text(facts);
    cJSON_Delete(facts);
    return 0;
}

const struct cli_command cli_report = {
    .name = "report",
    .summary = "print what a bug report needs",
    .usage = usage,
    .groups = CLI_GROUPS({.rows = own}, {.rows = cli_json, IN(json)}),
    .bytes = sizeof(struct report_command),
    .work = work,
};
