/*
 * progress: one line at the foot of the terminal that is drawn over, or plain lines where standard
 * error is no terminal. While a bar stands, log lines come through here: the bar is wiped, the line
 * printed, the bar drawn again below it. Nothing of the terminal is changed, so a killed run leaves
 * it usable.
 */
#include "cli/cli.h"
#include "cli/signals.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define REDRAW_NS 100000000u /* 10 a second: faster than anyone reads, cheap over ssh */
#define BAR_COLS 20          /* at most; less where the first figure would have no room beside it */
#define LEAST_COLS 4         /* a smaller bar is none */
#define LINE_BYTES 1024
#define WIPE "\r\x1b[K"

/* Guards all of it: log lines come from any thread. One terminal, so one screen. Lock order: the
 * log's lock is taken before this one, so nothing here may log. */
static struct {
    pthread_mutex_t lock;
    struct cli_progress *bar;  /* that stands now, or NULL */
    char line[LINE_BYTES];     /* as drawn */
    size_t cols;               /* that it takes */
    char text[LINE_BYTES / 2]; /* numbers of the last update */
} screen = {.lock = PTHREAD_MUTEX_INITIALIZER};

const char *const cli_progress_words[] = {"auto", "bar", "plain", "none", NULL};

static enum cli_progress_mode resolve(enum cli_progress_mode mode)
{
    const char *terminal = getenv("TERM");
    if (mode != CLI_PROGRESS_AUTO)
        return mode;
    if (isatty(STDERR_FILENO) && terminal && *terminal && strcmp(terminal, "dumb"))
        return CLI_PROGRESS_BAR;
    return CLI_PROGRESS_PLAIN;
}

static size_t terminal_cols(void)
{
    struct winsize size;
    if (!ioctl(STDERR_FILENO, TIOCGWINSZ, &size) && size.ws_col)
        return size.ws_col;
    return 80;
}

/* "1:02:03" or "2:03" left at the mean speed so far; "" while nothing is known. */
static const char *format_eta(char buffer[32], const struct cli_progress *p, uint64_t now_ns)
{
    buffer[0] = 0;
    if (p->done <= p->first || !p->total || p->done > p->total)
        return buffer;
    double elapsed = (double)(now_ns - p->begin_ns) * 1e-9;
    double left = elapsed / (double)(p->done - p->first) * (double)(p->total - p->done);
    if (!(left < 1e8))
        return buffer;
    unsigned long s = (unsigned long)lround(left);
    if (s >= 3600)
        snprintf(buffer, 32, "ETA %lu:%02lu:%02lu", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(buffer, 32, "ETA %lu:%02lu", s / 60, s % 60);
    return buffer;
}

/* Eighths of a character where the terminal has them. */
static void format_bar(char *buffer, size_t bytes, int cols, double part)
{
    static const char *const eighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    bool utf8 = cli_utf8();
    int steps = utf8 ? 8 : 1;
    int filled = (int)(part * cols * steps);
    size_t used = 0;
    buffer[0] = 0;
    for (int col = 0; col < cols && used < bytes; col++) {
        int here = filled - col * steps;
        const char *cell = here >= steps ? (utf8 ? "█" : "#") : eighths[here > 0 ? here : 0];
        used += (size_t)snprintf(buffer + used, bytes - used, "%s", cell);
    }
}

/* Cuts a line of UTF-8 after cols characters: a line that wraps cannot be wiped. What is cut begins
 * at two spaces: half a number is a wrong one. */
static void cut(char *line, size_t cols)
{
    char *end = NULL;
    for (char *at = line; *at; at++) {
        if (at[0] == ' ' && at[1] == ' ' && at[2] != ' ')
            end = at;
        if (((unsigned char)*at & 0xc0) == 0x80)
            continue;
        if (!cols--) {
            *(end ? end : at) = 0;
            return;
        }
    }
}

static size_t count_cols(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

/* Of the bar: what is left beside the count and the first figure, which ends at two spaces. */
static int bar_cols(size_t cols, size_t taken)
{
    const char *rest = strstr(screen.text, "  ");
    size_t figure = rest ? (size_t)(rest - screen.text) : strlen(screen.text);
    size_t used = taken + 2 + figure + strlen(" || ");
    int left = cols > used ? (int)(cols - used) : 0;
    return left < LEAST_COLS ? 0 : left < BAR_COLS ? left : BAR_COLS;
}

static void format_line(const struct cli_progress *p, uint64_t now_ns)
{
    char bar[BAR_COLS * 4 + 1], framed[sizeof bar + 4] = "", eta[32], head[64], done[80];
    const char *label = cli_stop ? "stopping" : p->label;
    size_t cols = terminal_cols() - 1;
    format_eta(eta, p, now_ns);
    if (p->total) {
        double part = (double)p->done / (double)p->total;
        part = part > 1 ? 1 : part;
        snprintf(head, sizeof head, "%s %3d%%", label, (int)(part * 100));
        snprintf(done, sizeof done, "%llu/%llu%s%s", (unsigned long long)p->done,
                 (unsigned long long)p->total, *eta ? " " : "", eta);
        int width = bar_cols(cols, strlen(head) + 1 + strlen(done));
        format_bar(bar, sizeof bar, width, part);
        if (width)
            snprintf(framed, sizeof framed, " |%s|", bar);
        snprintf(screen.line, sizeof screen.line, "%s%s %s  %s", head, framed, done, screen.text);
    } else {
        snprintf(screen.line, sizeof screen.line, "%s %llu  %s", label, (unsigned long long)p->done,
                 screen.text);
    }
    cut(screen.line, cols);
}

/* A line that was drawn on a wider terminal takes several of its rows now. */
static void wipe(void)
{
    size_t cols = terminal_cols();
    for (size_t rows = screen.cols ? (screen.cols - 1) / cols : 0; rows > 0; rows--)
        fputs(WIPE "\x1b[A", stderr);
    fputs(WIPE, stderr);
}

static void draw(void)
{
    fputs(screen.line, stderr);
    screen.cols = count_cols(screen.line);
    fflush(stderr);
}

static void print_above(enum zinf_log_level level, const char *line, void *arg)
{
    (void)level;
    (void)arg;
    pthread_mutex_lock(&screen.lock);
    wipe();
    fprintf(stderr, "%s\n", line);
    screen.cols = 0;
    if (screen.bar) {
        format_line(screen.bar, zinf_now_ns());
        draw();
    }
    fflush(stderr);
    pthread_mutex_unlock(&screen.lock);
}

static void redraw(struct cli_progress *p, uint64_t now_ns)
{
    p->last_ns = now_ns;
    wipe();
    format_line(p, now_ns);
    draw();
}

static void print_plain(const struct cli_progress *p, const char *text, uint64_t now_ns)
{
    char eta[32];
    format_eta(eta, p, now_ns);
    if (p->total)
        fprintf(stderr, "%s %llu/%llu  %s%s%s\n", p->label, (unsigned long long)p->done,
                (unsigned long long)p->total, text, *eta ? "  " : "", eta);
    else
        fprintf(stderr, "%s %llu  %s\n", p->label, (unsigned long long)p->done, text);
}

void cli_progress_begin(struct cli_progress *p, enum cli_progress_mode mode, const char *label,
                        uint64_t total)
{
    memset(p, 0, sizeof *p);
    p->mode = resolve(mode);
    p->total = total;
    p->begin_ns = zinf_now_ns();
    snprintf(p->label, sizeof p->label, "%s", label);
    if (p->mode != CLI_PROGRESS_BAR)
        return;
    pthread_mutex_lock(&screen.lock);
    p->outer = screen.bar;
    screen.bar = p;
    cli_bar_stands = 1;
    screen.text[0] = 0;
    redraw(p, p->begin_ns);
    pthread_mutex_unlock(&screen.lock);
    zinf_log_set_sink(print_above, NULL);
}

void cli_progress_update(struct cli_progress *p, uint64_t done, const char *text, bool print)
{
    uint64_t now = zinf_now_ns();
    p->done = done;
    if (p->mode == CLI_PROGRESS_PLAIN && print)
        print_plain(p, text, now);
    if (p->mode != CLI_PROGRESS_BAR)
        return;
    pthread_mutex_lock(&screen.lock);
    snprintf(screen.text, sizeof screen.text, "%s", text);
    if (now - p->last_ns >= REDRAW_NS)
        redraw(p, now);
    pthread_mutex_unlock(&screen.lock);
}

void cli_progress_end(struct cli_progress *p)
{
    if (p->mode != CLI_PROGRESS_BAR)
        return;
    pthread_mutex_lock(&screen.lock);
    redraw(p, zinf_now_ns());
    fputc('\n', stderr);
    screen.bar = p->outer;
    screen.line[0] = 0;
    screen.cols = 0;
    screen.text[0] = 0;
    bool last = !screen.bar;
    cli_bar_stands = !last;
    pthread_mutex_unlock(&screen.lock);
    if (last)
        zinf_log_set_sink(NULL, NULL);
    p->mode = CLI_PROGRESS_NONE; /* a second end does nothing */
}
