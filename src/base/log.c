/* log: one line at a time to a sink, or on standard error where the program wants it there: a
 * library does not write to a terminal by itself. */
#include "base/base.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_SAID 64

static atomic_int threshold = -1;
static _Thread_local bool quiet;

/* Guards sink, sink_arg and said. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void (*sink)(enum zinf_log_level, const char *, void *);
static void *sink_arg;
static bool on_stderr;
static const char *said[MAX_SAID];

static int process_threshold(void)
{
    int level = atomic_load_explicit(&threshold, memory_order_relaxed);
    if (level >= 0)
        return level;
    static const char *const names[] = {"error", "warn", "info", "debug"};
    const char *wanted = getenv("ZINF_LOG");
    level = ZINF_LOG_INFO;
    for (int i = 0; wanted && i < 4; i++)
        if (!strcmp(wanted, names[i]))
            level = i;
    atomic_store_explicit(&threshold, level, memory_order_relaxed);
    return level;
}

static int current_threshold(void)
{
    return quiet ? ZINF_LOG_ERROR : process_threshold();
}

void zinf_log_quiet_thread(void)
{
    quiet = true;
}

void zinf_log_set_level(enum zinf_log_level level)
{
    atomic_store_explicit(&threshold, (int)level, memory_order_relaxed);
}

void zinf_log_set_sink(void (*new_sink)(enum zinf_log_level, const char *, void *), void *arg)
{
    pthread_mutex_lock(&lock);
    sink = new_sink;
    sink_arg = arg;
    pthread_mutex_unlock(&lock);
}

void zinf_log_to_stderr(void)
{
    pthread_mutex_lock(&lock);
    on_stderr = true;
    pthread_mutex_unlock(&lock);
}

static void emit(enum zinf_log_level level, const char *format, va_list args)
{
    static const char *const prefix[] = {"zinf: error: ", "zinf: warning: ", "zinf: ", "zinf: "};
    char line[8192], text[8192];
    int used = snprintf(line, sizeof line, "%s", prefix[level]);
    vsnprintf(text, sizeof text, format, args);
    zinf_spell(line + used, sizeof line - (size_t)used, text);
    pthread_mutex_lock(&lock);
    if (sink)
        sink(level, line, sink_arg);
    else if (on_stderr || getenv("ZINF_LOG"))
        fprintf(stderr, "%s\n", line);
    pthread_mutex_unlock(&lock);
}

void zinf_log(enum zinf_log_level level, const char *format, ...)
{
    if ((int)level > current_threshold())
        return;
    va_list args;
    va_start(args, format);
    emit(level, format, args);
    va_end(args);
}

/* True the first time key is seen; a full table says everything. */
static bool first_time(const char *key)
{
    bool first = true;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_SAID; i++) {
        if (!said[i]) {
            said[i] = key;
            break;
        }
        if (!strcmp(said[i], key)) {
            first = false;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return first;
}

void zinf_log_once(enum zinf_log_level level, const char *key, const char *format, ...)
{
    if ((int)level > current_threshold() || !first_time(key))
        return;
    va_list args;
    va_start(args, format);
    emit(level, format, args);
    va_end(args);
}
