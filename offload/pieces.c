/*
 * pieces: running a program in pieces. A thread makes the next piece while the lanes run one, and
 * holds it until they have ended: two pieces are in memory, and lanes wait only where a piece takes
 * longer to make than the one before it to run.
 */
#include "offload/executor.h"

#include <stdlib.h>

struct maker {
    const struct zinf_source *source;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    struct zinf_program piece; /* there, if has_piece */
    bool wanted, has_piece;    /* the lanes have nothing to run; the next piece is there */
    bool over, ended;          /* no more pieces are wanted; none is made any more */
    int code;                  /* of making them, with its sentence */
    char message[8192];
};

/* In the maker's thread. */
static int take(void *context, struct zinf_program *piece)
{
    struct maker *m = context;
    pthread_mutex_lock(&m->lock);
    while (!m->wanted && !m->over)
        pthread_cond_wait(&m->changed, &m->lock);
    const bool over = m->over;
    if (!over) {
        m->piece = *piece;
        *piece = (struct zinf_program){0};
        m->wanted = false;
        m->has_piece = true;
        pthread_cond_broadcast(&m->changed);
    }
    pthread_mutex_unlock(&m->lock);
    return over ? zinf_fail(-ECANCELED, "the program is not run to its end") : 0;
}

static void *make_pieces(void *context)
{
    struct maker *m = context;
    const struct zinf_taker taker = {.take = take, .context = m};
    const int code = m->source->make(m->source->context, &taker);
    pthread_mutex_lock(&m->lock);
    m->ended = true;
    m->code = m->over ? 0 : code;
    if (code)
        snprintf(m->message, sizeof m->message, "%s", zinf_error());
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

/* The next piece; false: there is none any more. */
static bool next_piece(struct maker *m, struct zinf_program *piece)
{
    pthread_mutex_lock(&m->lock);
    m->wanted = true;
    pthread_cond_broadcast(&m->changed);
    while (!m->has_piece && !m->ended)
        pthread_cond_wait(&m->changed, &m->lock);
    const bool has = m->has_piece;
    if (has)
        *piece = m->piece;
    m->has_piece = false;
    pthread_mutex_unlock(&m->lock);
    return has;
}

static void stop(struct maker *m)
{
    pthread_mutex_lock(&m->lock);
    m->over = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
}

/* What lanes wait for a piece is of the program's time. */
static int run(struct zinf_executor *e, struct maker *m)
{
    struct zinf_program piece;
    uint64_t asked = zinf_now_ns();
    int code = 0;
    while (!code && next_piece(m, &piece)) {
        e->times.wall_seconds += (double)(zinf_now_ns() - asked) * 1e-9;
        code = zinf_executor_run(e, &piece);
        zinf_program_fini(&piece);
        asked = zinf_now_ns();
    }
    return code;
}

int zinf_executor_run_pieces(struct zinf_executor *e, const struct zinf_source *source)
{
    struct maker *m = calloc(1, sizeof *m);
    int code = zinf_executor_check(e);
    if (!code && !m)
        code = zinf_fail(-ENOMEM, "no memory to run a program in pieces");
    if (code) {
        free(m);
        return code;
    }
    m->source = source;
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->changed, NULL);
    const int error = pthread_create(&m->thread, NULL, make_pieces, m);
    if (error) {
        code =
            zinf_fail(-error, "cannot start the thread that makes a program: %s", strerror(error));
    } else {
        code = run(e, m);
        stop(m);
        if (!code && m->code)
            code = zinf_executor_end(e, zinf_fail(m->code, "%s", m->message));
    }
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->lock);
    free(m);
    return code;
}
