/*
 * launch: starts a command as ranks, by the mpirun that is there. Nothing of MPI is linked: mpirun
 * is asked what it is, and gets its own words for hosts and numbers. Where only some GPUs of a host
 * are used, its ranks get CUDA_VISIBLE_DEVICES, each host in a part of its own of mpirun's line.
 */
#include "cli/cli.h"
#include "cli/launch.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#define MOST_WORDS 4096

enum mpirun_kind {
    MPIRUN_OPEN_MPI,
    MPIRUN_HYDRA, /* of MPICH, Intel MPI and MVAPICH */
};

/* DeepSpeed's words are taken for what they mean here: an mpirun reaches hosts by ssh. */
enum launcher {
    BY_MPIRUN,
    BY_SSH,
    BY_OPEN_MPI,
    BY_MPICH,
    BY_SRUN,
    BY_SLURM,
    BY_PDSH,
};
static const char *const launcher_words[] = {"mpirun", "ssh",   "openmpi", "mpich",
                                             "srun",   "slurm", "pdsh",    NULL};

struct launch {
    enum launcher launcher;
    struct launch_variables variables;
    const char *hostfile, *mpirun, *include, *exclude;
    int64_t num_gpus, num_nodes;
    bool dry_run;
    struct zinf_words mpirun_args;
    char **command; /* behind -- */
    int n_command;
    struct launch_hosts hosts;
    enum mpirun_kind kind;
    char program[4096]; /* this one */
    char *words[MOST_WORDS];
    int n_words;
    int code; /* of the first word that there was no room for */
};

static void put(struct launch *l, const char *word)
{
    char *copy = l->n_words + 1 < MOST_WORDS ? strdup(word) : NULL;
    if (copy)
        l->words[l->n_words++] = copy;
    else if (!l->code)
        l->code =
            zinf_fail(-E2BIG, "mpirun's command line would have more than %d words", MOST_WORDS);
}

ZINF_PRINTF(2, 3)
static void put_text(struct launch *l, const char *format, ...)
{
    char text[8192];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put(l, text);
}

/* ---- what mpirun is that? ---- */

static int ask_mpirun(struct launch *l)
{
    char command[4200], line[512] = "", text[4096] = "";
    if (strchr(l->mpirun, '\''))
        return zinf_fail(-EINVAL, "--mpirun %s: a path without quotes is needed", l->mpirun);
    snprintf(command, sizeof command, "'%s' --version 2>&1", l->mpirun);
    FILE *out = popen(command, "r");
    while (out && fgets(line, sizeof line, out))
        strncat(text, line, sizeof text - strlen(text) - 1);
    if (out)
        pclose(out);
    if (strstr(text, "Open MPI") || strstr(text, "OpenRTE") || strstr(text, "PRRTE"))
        l->kind = MPIRUN_OPEN_MPI;
    else if (strstr(text, "HYDRA") || strstr(text, "Hydra") || strstr(text, "Intel(R) MPI"))
        l->kind = MPIRUN_HYDRA;
    else
        return zinf_fail(-ENOENT,
                         "%s is not there, or is the mpirun of neither Open MPI nor MPICH: install "
                         "one, or name it with --mpirun PATH",
                         l->mpirun);
    return 0;
}

/* ---- its command line ---- */

static bool is_here(const struct launch *l)
{
    return !l->hostfile;
}

/* So that ranks know each other, and strangers do not: mpirun hands it on by its name alone, for
 * what stands in a command line all users of a host can read. One that is set is kept. */
static int make_secret(void)
{
    uint8_t bytes[32];
    char text[2 * sizeof bytes + 1];
    if (getenv("ZINF_NET_SECRET"))
        return 0;
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return zinf_fail(-errno, "no random numbers for ZINF_NET_SECRET: %s", strerror(errno));
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return setenv("ZINF_NET_SECRET", text, 1) ? zinf_fail(-ENOMEM, "no memory for ZINF_NET_SECRET")
                                              : 0;
}

/* What this process was told by the environment, the ranks on other hosts must be told too; Hydra
 * does that by itself. */
static void put_environment(struct launch *l)
{
    static const char *const names[] = {"ZINF_", "NCCL_", "CUDA_"};
    if (l->kind != MPIRUN_OPEN_MPI || is_here(l))
        return;
    for (char **entry = environ; *entry; entry++) {
        const int length = (int)strcspn(*entry, "=");
        bool goes = false;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            goes |= !strncmp(*entry, names[i], strlen(names[i]));
        for (uint32_t i = 0; i < l->variables.n; i++)
            goes |= (int)strlen(l->variables.names[i]) == length &&
                    !strncmp(*entry, l->variables.names[i], (size_t)length);
        if (goes) {
            put(l, "-x");
            put_text(l, "%.*s", length, *entry);
        }
    }
}

/* All ranks use all of their host's CPUs, shared by zinf itself: threads must not be bound to the
 * core that mpirun would give a rank. */
static void put_options(struct launch *l)
{
    put(l, l->mpirun);
    put(l, "--bind-to");
    put(l, "none");
    for (int i = 0; i < l->mpirun_args.n; i++)
        put(l, l->mpirun_args.items[i]);
    put_environment(l);
}

static void put_command(struct launch *l)
{
    put(l, l->program);
    for (int i = 0; i < l->n_command; i++)
        put(l, l->command[i]);
}

/* CUDA_VISIBLE_DEVICES=0,2 where some of a host's slots are left out. */
static void put_devices(struct launch *l, const struct launch_host *host)
{
    char list[4 * LAUNCH_MOST_SLOTS] = "";
    if (launch_uses_all(host))
        return;
    for (uint32_t slot = 0; slot < host->n_slots; slot++)
        if (host->used >> slot & 1)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%u", *list ? "," : "",
                     slot);
    put(l, "env");
    put_text(l, "CUDA_VISIBLE_DEVICES=%s", list);
}

static void put_host(struct launch *l, const struct launch_host *host)
{
    uint32_t n = launch_count(host);
    put(l, "-np");
    put_text(l, "%u", n);
    if (!is_here(l)) {
        put(l, l->kind == MPIRUN_OPEN_MPI ? "--host" : "-hosts");
        put_text(l, "%s:%u", host->name, n);
    }
    put_devices(l, host);
    put_command(l);
}

/* All hosts in one list, where none has a GPU left out. */
static void put_hosts(struct launch *l)
{
    char list[8192] = "";
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->hosts.n; i++) {
        const struct launch_host *host = &l->hosts.at[i];
        size_t at = strlen(list);
        n += launch_count(host);
        if (launch_count(host))
            snprintf(list + at, sizeof list - at, "%s%s:%u", at ? "," : "", host->name,
                     launch_count(host));
    }
    if (strlen(list) + 1 == sizeof list && !l->code)
        l->code = zinf_fail(-E2BIG, "so many hosts do not fit mpirun's command line");
    put(l, "-np");
    put_text(l, "%u", n);
    put(l, l->kind == MPIRUN_OPEN_MPI ? "--host" : "-hosts");
    put(l, list);
    put_command(l);
}

/* srun hands on the environment by itself, and puts as many ranks on each host. */
static int build_srun(struct launch *l)
{
    char list[8192] = "";
    uint32_t each = 0, n = 0;
    for (uint32_t i = 0; i < l->hosts.n; i++) {
        const struct launch_host *host = &l->hosts.at[i];
        const uint32_t own = launch_count(host);
        const size_t at = strlen(list);
        if (!own)
            continue;
        if (!launch_uses_all(host) || (each && own != each))
            return zinf_fail(-EINVAL,
                             "--launcher srun: %s has %u of %u slots: srun starts as many "
                             "ranks on each host, and on all of its GPUs",
                             host->name, own, host->n_slots);
        each = own;
        n += own;
        snprintf(list + at, sizeof list - at, "%s%s", at ? "," : "", host->name);
    }
    put(l, "srun");
    put_text(l, "--ntasks=%u", n);
    if (!is_here(l)) {
        put_text(l, "--ntasks-per-node=%u", each);
        put_text(l, "--nodelist=%s", list);
    }
    put_command(l);
    return l->code;
}

static int build(struct launch *l)
{
    bool whole = !is_here(l);
    int n = 0;
    for (uint32_t i = 0; i < l->hosts.n; i++)
        whole &= !launch_count(&l->hosts.at[i]) || launch_uses_all(&l->hosts.at[i]);
    put_options(l);
    if (whole)
        put_hosts(l);
    for (uint32_t i = 0; !whole && i < l->hosts.n; i++) {
        if (!launch_count(&l->hosts.at[i]))
            continue;
        if (n++)
            put(l, ":");
        put_host(l, &l->hosts.at[i]);
    }
    return l->code;
}

/* As a shell reads it. */
static void print_words(const struct launch *l)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-_=+./,:@%";
    for (int i = 0; i < l->n_words; i++) {
        const char *word = l->words[i];
        fputs(i ? " " : "", stdout);
        if (*word && strspn(word, plain) == strlen(word)) {
            fputs(word, stdout);
            continue;
        }
        putchar('\'');
        for (; *word; word++)
            fputs(*word == '\'' ? "'\\''" : (char[]){*word, 0}, stdout);
        putchar('\'');
    }
    putchar('\n');
}

/* ---- options ---- */

static int check_use(const struct launch *l)
{
    bool filters = l->include || l->exclude, numbers = l->num_gpus || l->num_nodes;
    if (!l->n_command)
        return zinf_fail(-EINVAL,
                         "a command is needed behind --, such as -- train --model DIR ...");
    if (!l->hostfile && !l->num_gpus)
        return zinf_fail(-EINVAL, "say how many ranks: --num-gpus N on this machine, or --hostfile "
                                  "FILE");
    if (l->launcher == BY_PDSH)
        return zinf_fail(-EINVAL, "--launcher pdsh: ranks are started by mpirun, which reaches "
                                  "hosts by ssh: --launcher ssh, with the same hostfile");
    if (l->include && l->exclude)
        return zinf_fail(-EINVAL, "--include and --exclude both choose: give one of them");
    if (filters && numbers && l->hostfile)
        return zinf_fail(-EINVAL, "%s chooses, and so does %s: give one of them",
                         l->include ? "--include" : "--exclude",
                         l->num_gpus ? "--num-gpus" : "--num-nodes");
    if (getenv("SLURM_STEP_ID") && getenv("SLURM_PROCID"))
        zinf_log(ZINF_LOG_WARN, "this is within a step of Slurm's: srun -n N zinf train ... starts "
                                "ranks by itself");
    return 0;
}

static int launch(struct launch *l)
{
    const struct launch_choice choice = {l->include, l->exclude, (uint32_t)l->num_nodes,
                                         l->hostfile ? (uint32_t)l->num_gpus : 0};
    ssize_t n = readlink("/proc/self/exe", l->program, sizeof l->program - 1);
    snprintf(l->program + (n > 0 ? n : 0), sizeof l->program - (size_t)(n > 0 ? n : 0), "%s",
             n > 0 ? "" : "zinf");
    int code = l->hostfile ? launch_read_hosts(&l->hosts, l->hostfile)
                           : launch_this_host(&l->hosts, (uint32_t)l->num_gpus);
    if (!code)
        code = launch_choose(&l->hosts, &choice);
    const bool by_srun = l->launcher == BY_SRUN || l->launcher == BY_SLURM;
    if (!code && !by_srun)
        code = ask_mpirun(l);
    if (!code)
        code = launch_read_variables(&l->variables);
    if (!code)
        code = make_secret();
    if (!code)
        code = by_srun ? build_srun(l) : build(l);
    if (code)
        return code;
    l->words[l->n_words] = NULL;
    print_words(l);
    if (l->dry_run)
        return 0;
    fflush(stdout);
    execvp(l->words[0], l->words);
    return zinf_fail(-errno, "cannot start %s: %s", l->words[0], strerror(errno));
}

static const char usage[] =
    "usage: zinf launch [options] -- COMMAND...\n"
    "\n"
    "Starts a command of zinf's, such as train, as several ranks: one for each slot,\n"
    "by the mpirun that is there. Within Slurm srun does the same by itself.\n";

#define AT(field) .offset = offsetof(struct launch, field)
/* clang-format off */
static const struct option own_rows[] = {
    OPTION("--num-gpus", INTEGER, AT(num_gpus), "N", "ranks on this machine, or on each host",
     .min = 1, .max = LAUNCH_MOST_SLOTS, .aliases = "-np -n nproc_per_node num_processes"),
    OPTION("--hostfile", TEXT, AT(hostfile), "FILE",
     "hosts, as DeepSpeed has them: NAME slots=N in each line", .aliases = "-H"),
    OPTION("--num-nodes", INTEGER, AT(num_nodes), "N", "only the first so many hosts", .min = 1,
     .max = 1024),
    OPTION("--include", TEXT, AT(include), "LIST",
     "only these: HOST, or HOST:0,2 for some of its GPUs, with an @ between them",
     .aliases = "-i"),
    OPTION("--exclude", TEXT, AT(exclude), "LIST", "all but these", .aliases = "-e"),
    OPTION("--launcher", WORD, AT(launcher), "NAME",
     "mpirun (or ssh, openmpi, mpich), or srun (or slurm)", .words = launcher_words,
     .usual = "mpirun",
     .manual = "What starts the ranks:\n.Cm mpirun ,\nwhich reaches other hosts by\n.Xr ssh 1\nand is meant by\n.Cm ssh , openmpi\nand\n.Cm mpich ,\ntoo, or\n.Cm srun\n.Pq Cm slurm ,\nwhich needs hosts with as many slots each.\n.Cm pdsh\nis refused."),
    OPTION("--mpirun", TEXT, AT(mpirun), "PATH", "of Open MPI, MPICH or Intel MPI",
     .usual = "mpirun"),
    OPTION("--mpirun-args", TEXTS, AT(mpirun_args), "WORD...", "go to mpirun as they are"),
    OPTION("--dry-run", FLAG, AT(dry_run), NULL, "print the command and start nothing"),
    CLI_NO_ROW
};
static const struct option_group groups[] = {
    {.rows = own_rows},
    CLI_NO_GROUP
};
/* clang-format on */

static int run(int argc, char **argv)
{
    static struct launch l = {.mpirun = "mpirun"};
    int own = 1;
    while (own < argc && strcmp(argv[own], "--"))
        own++;
    if (own < argc) {
        l.command = argv + own + 1;
        l.n_command = argc - own - 1;
    }
    struct cli_call call = {.command = &cli_launch, .options = &l};
    int code = cli_parse(&call, own, argv);
    if (code == 1)
        return CLI_OK;
    if (!code)
        code = check_use(&l);
    if (code)
        return cli_error(&cli_launch, CLI_USAGE);
    code = launch(&l);
    launch_free_hosts(&l.hosts);
    launch_free_variables(&l.variables);
    for (int i = 0; i < l.n_words; i++)
        free(l.words[i]);
    return code ? cli_error(&cli_launch, CLI_FAILED) : CLI_OK;
}

const struct cli_command cli_launch = {
    .name = "launch",
    .summary = "start a command as several ranks, by mpirun",
    .usage = usage,
    .groups = groups,
    .run = run,
};
