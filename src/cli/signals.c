/*
 * signals: only calls that a handler may make. The first signal is said and remembered; what comes
 * within half a second is that one, told twice: timeout(1) sends it to a process and to its group,
 * a launcher forwards what the terminal has sent already.
 */
#include "cli/signals.h"

#include "base/pulse.h"
#include "cli/cli.h"

#include <unistd.h>

#define TWICE_NS 500000000u

volatile sig_atomic_t cli_stop, cli_bar_stands;

static const char *said;
static bool ends;
static uint64_t first_ns;
static sigset_t seen;

static const struct {
    int number;
    bool ends; /* once more of it: at once. The kernel repeats SIGXCPU by itself. */
    const char *text;
} heard[] = {
    {SIGINT, true, "zinf: SIGINT: "},    {SIGTERM, true, "zinf: SIGTERM: "},
    {SIGHUP, true, "zinf: SIGHUP: "},    {SIGUSR2, false, "zinf: SIGUSR2: "},
    {SIGXCPU, false, "zinf: SIGXCPU: "}, {SIGALRM, false, "zinf: SIGALRM: "},
};
#define N_HEARD (sizeof heard / sizeof *heard)

static void say(const char *text)
{
    ssize_t written = write(STDERR_FILENO, text, strlen(text));
    (void)written; /* nobody is there to be told */
}

/* Ctrl-C asks to end at once, whatever signal came before it. */
static bool is_again(int number)
{
    return number == SIGINT || sigismember(&seen, number);
}

static void hear(int number)
{
    size_t i = 0;
    int error = errno;
    while (i + 1 < N_HEARD && heard[i].number != number)
        i++;
    if (cli_stop && heard[i].ends && is_again(number) && zinf_now_ns() - first_ns > TWICE_NS) {
        signal(number, SIG_DFL);
        raise(number);
    }
    sigaddset(&seen, number);
    if (!cli_stop) {
        first_ns = zinf_now_ns();
        cli_stop = number;
        if (ends)
            zinf_pulse_end(zinf_pulse_of_process(), -EINTR, "ended by a signal");
        if (said) {
            if (cli_bar_stands)
                say("\r\x1b[K");
            else if (number == SIGINT && isatty(STDERR_FILENO)) /* behind the terminal's ^C */
                say("\n");
            say(heard[i].text);
            say(said);
            say(heard[i].ends ? "; once more to stop now\n" : "\n");
        }
    }
    errno = error;
}

void cli_signals_listen(const char *doing, bool ends_work)
{
    struct sigaction action = {.sa_handler = hear, .sa_flags = SA_RESTART};
    said = doing;
    ends = ends_work;
    sigemptyset(&seen);
    sigfillset(&action.sa_mask);
    for (size_t i = 0; i < N_HEARD; i++) {
        struct sigaction before;
        sigaction(heard[i].number, NULL, &before);
        if (heard[i].number == SIGHUP && before.sa_handler == SIG_IGN) /* nohup */
            continue;
        sigaction(heard[i].number, &action, NULL);
    }
}

int cli_signals_status(int number)
{
    return 128 + number;
}

/* Without the handlers of exit, which may wait for the thread that hangs. */
void cli_signals_stuck(void)
{
    zinf_log(ZINF_LOG_ERROR, "%s (a seat hangs, so the process ends at once)", zinf_error());
    fflush(stdout);
    _exit(CLI_FAILED);
}
