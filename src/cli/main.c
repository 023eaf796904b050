/*
 * main: the table of commands. What each does is in its own file; here only how one is found, and
 * that results that could not be written are a failure too.
 */
#include "build-config.h"
#include "cli/cli.h"

#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

static const struct cli_command *const commands[] = {
    &cli_init,     &cli_train,    &cli_data,      &cli_eval,   &cli_embed,
    &cli_generate, &cli_serve,    &cli_gradients, &cli_export, &cli_inspect,
    &cli_config,   &cli_estimate, &cli_report,    &cli_bench,  &cli_resume_info,
    &cli_plot,     &cli_verify,   &cli_doctor,    &cli_launch,
};
#define N_COMMANDS (sizeof commands / sizeof *commands)

static void print_help(FILE *out)
{
    fputs("usage: zinf COMMAND [options]\n\n", out);
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-11s %s\n", commands[i]->name, commands[i]->summary);
    fputs("\n'zinf help COMMAND' lists a command's options, and each has a man page: "
          "'man zinf-COMMAND'.\n",
          out);
}

static const struct cli_command *find(const char *name)
{
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (!strcmp(commands[i]->name, name))
            return commands[i];
    return NULL;
}

static int fail_unknown(const char *name)
{
    const char *names[N_COMMANDS + 2] = {"help", "version"}, *bare = name + strspn(name, "-");
    bool dashed = bare > name;
    for (size_t i = 0; i < N_COMMANDS; i++)
        names[i + 2] = commands[i]->name;
    const char *near = zinf_nearest(bare, names, dashed ? 2 : N_COMMANDS + 2);
    fprintf(stderr, "zinf: unknown %s '%s'", dashed ? "option" : "command", name);
    if (near)
        fprintf(stderr, "; did you mean '%s%s'?", dashed ? "--" : "", near);
    fputs("\n'zinf help' lists the commands\n", stderr);
    return CLI_USAGE;
}

/* help [--rows] [COMMAND [MODE]]: a command prints its own, since a mode is known to it alone. */
static int help(int argc, char **argv)
{
    bool rows = argc > 1 && !strcmp(argv[1], "--rows");
    argc -= rows;
    argv += rows;
    if (argc < 2) {
        print_help(stdout);
        return CLI_OK;
    }
    const struct cli_command *command = find(argv[1]);
    if (!command)
        return fail_unknown(argv[1]);
    char *words[] = {argv[1], argc > 2 ? argv[2] : NULL, NULL};
    words[argc > 2 ? 2 : 1] = rows ? "--help=rows" : "--help";
    return cli_run(command, argc > 2 ? 3 : 2, words);
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (!strcmp(name, "help") || !strcmp(name, "--help") || !strcmp(name, "-h"))
        return help(argc - 1, argv + 1);
    if (!strcmp(name, "--version") || !strcmp(name, "version") || !strcmp(name, "-V")) {
        puts("zinf " PACKAGE_VERSION);
        return CLI_OK;
    }
    const struct cli_command *command = find(name);
    return command ? cli_run(command, argc - 1, argv + 1) : fail_unknown(name);
}

/* Whoever closed a standard descriptor must not make the first file that is opened take its place,
 * and then write messages into it. */
static bool hold_descriptors(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_WRONLY : O_RDONLY) != fd)
            return false;
    return true;
}

/* Arrays of this size are mapped by themselves and go back to the system when they are freed. glibc
 * raises its limit with the largest array that was freed: then what a search for a schedule has
 * freed stays with the process, up to twice what its programs take. */
#define MAPPED_BYTES (1 << 20)

int main(int argc, char **argv)
{
    mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES);
    /* A reader that went away and a limit on files are errors of a write, which says so and lets a
     * training save; not the end of it. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    if (!hold_descriptors())
        return CLI_FAILED;
    zinf_log_to_stderr();
    int status = run(argc, argv);
    /* A full disk behind standard output shows here at the latest. */
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "zinf: cannot write to standard output: %s\n", strerror(errno));
        if (status == CLI_OK)
            status = CLI_FAILED;
    }
    return status;
}
