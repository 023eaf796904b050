/*
 * serve: a model behind HTTP. Three parts, each with its own thread rule:
 *
 * - an *ask* is what a client's JSON says: OpenAI's chat or completions, or TGI's generate. It is
 *   read from a body and knows neither sockets nor models (serve_ask.c, serve_answer.c);
 * - the *desk* is where these threads meet: requests wait there for the maker, and answers for
 *   the line. It has the lock of requests (serve_desk.c);
 * - the *line* is libmicrohttpd with its one thread: connections, limits, keys (serve_line.c),
 *   with a *clock* that ends what takes too long (serve_clock.c). The *maker* is the thread that
 *   called: it takes requests from the desk and makes their texts, all of them by each call of the
 *   model (serve_maker.c).
 *
 * A request belongs to the line until it is put on the desk, then to both; it is freed when the
 * connection has ended and the maker has answered.
 */
#ifndef ZINF_CLI_SERVE_H
#define ZINF_CLI_SERVE_H

#include "api/texts.h"

#include <pthread.h>

/* ---- what is served ---- */

/* The model, or the model with an adapter. */
struct serve_model {
    const char *name;
    const char *adapter;    /* its folder; NULL: the model as it is */
    struct zinf_chat *chat; /* NULL: it has none, and no_chat says why */
    char no_chat[256];
};
struct serve_limits {
    int64_t total_tokens; /* of a prompt and its new tokens */
    int64_t requests;     /* that wait or are answered */
    int64_t texts;        /* of a request */
    int64_t seconds;      /* from a request's arrival to its end */
    uint64_t body_bytes;
};
struct serve_options {
    const char *host, *key; /* key NULL: everybody may ask */
    int64_t port;           /* 0: any that is free */
    struct serve_limits limits;
    struct zinf_session *session;
    struct serve_model *models; /* [n_models]; the first is the model without an adapter */
    int n_models;
};

/* ---- bytes that grow ---- */

struct serve_bytes {
    char *at;
    size_t n, room;
};
/* -ENOMEM */
int serve_bytes_add(struct serve_bytes *bytes, const void *more, size_t n);
void serve_bytes_free(struct serve_bytes *bytes);

/* ---- asks ---- */

enum serve_dialect { SERVE_CHAT, SERVE_COMPLETIONS, SERVE_TGI };
struct serve_ask {
    cJSON *body; /* strings point into it */
    enum serve_dialect dialect;
    const char *model;                  /* NULL: the first */
    bool streams, counts;               /* counts: a stream ends with the numbers of tokens */
    bool details, whole;                /* TGI: how it went; the prompt before the new text */
    bool listed;                        /* TGI: the answer is the only one of a list */
    struct zinf_chat_message *messages; /* of a chat [n_messages] */
    char **contents;                    /* [n_messages]: of parts joined, or NULL */
    int n_messages;
    const char **prompts; /* of the others [n_prompts] */
    int n_prompts;
    int64_t copies; /* texts of each prompt */
    struct generate_settings settings;
    struct zinf_words stops;
    bool has_seed;
    uint64_t seed;
};
/* The ask owns what it says until serve_ask_free. usual: the settings and stop strings of the
 * command line, which stay where the client says nothing. -EINVAL with a sentence for the client.
 */
int serve_ask_read(struct serve_ask *ask, enum serve_dialect dialect, const char *text,
                   size_t bytes, const struct zinf_job_texts *usual, const struct serve_limits *l);
void serve_ask_free(struct serve_ask *ask);

/* ---- answers: JSON of each dialect ---- */

struct serve_request;
struct serve_text { /* of a request */
    struct serve_request *request;
    int64_t index;
    struct text text;
    struct text_setup *setup;
    struct zinf_generate_options options;
    enum { SERVE_TEXT_WAITS, SERVE_TEXT_GROWS, SERVE_TEXT_ENDED } state;
};
/* Events of a stream, into out. Begin: once a text; piece: bytes of new text that will stay, with
 * the token that came last; end: its last one. -ENOMEM */
int serve_say_begin(const struct serve_text *t, struct serve_bytes *out);
int serve_say_piece(const struct serve_text *t, const char *piece, size_t bytes,
                    struct serve_bytes *out);
int serve_say_end(const struct serve_text *t, struct serve_bytes *out);
/* When all texts have ended: the end of a stream, or the whole answer. */
int serve_say_all(const struct serve_request *r, struct serve_bytes *out);
/* An error object of OpenAI's with an HTTP status; event: of a stream. */
int serve_say_error(int status, const char *message, bool event, struct serve_bytes *out);
int serve_say_models(const struct serve_options *o, const char *only, struct serve_bytes *out);
int serve_say_info(const struct serve_options *o, struct serve_bytes *out);
/* The page to chat with: HTML, static. */
extern const char serve_page[];

/* ---- the desk ---- */

enum serve_outcome { SERVE_ANSWERED, SERVE_REFUSED, SERVE_FAILED, SERVE_LEFT, SERVE_OUTCOMES };
struct serve_counts {
    uint64_t requests[SERVE_OUTCOMES];
    uint64_t prompt_tokens, new_tokens, calls, call_texts;
    double seconds; /* of requests that ended, from arrival to end, together */
};
struct serve_request {
    struct serve_ask ask;
    char id[40]; /* "chatcmpl-..." */
    int64_t created;
    uint64_t begin_ns;
    struct serve_model *model;
    struct serve_desk *desk;
    struct serve_text *texts; /* [n_texts], the maker's */
    struct text_setup setup;
    int n_texts, n_ended;

    /* Of the line. */
    struct serve_bytes body;
    struct MHD_Connection *connection;
    int socket;
    struct serve_deadline *deadline; /* of its connection */
    bool too_long, hurries;          /* hurries: the client is to take the answer's rest */

    /* Under the desk's lock. */
    struct serve_bytes out;
    size_t sent;
    int status;   /* of HTTP; 0: not known yet */
    bool on_desk; /* put, and the maker has not ended with it */
    bool ended;   /* all of out is there */
    bool sleeps;  /* the connection is suspended */
    bool gone;    /* the connection has ended */
    struct serve_request *next;
};
struct serve_desk {
    const struct serve_options *options;
    void (*wake)(struct serve_request *r); /* the line's: a connection that sleeps goes on */
    pthread_mutex_t lock;                  /* of all that follows, and of the requests' last part */
    pthread_cond_t changed;
    struct serve_request *first, **last; /* that wait */
    int64_t waiting, running, open;      /* open: requests whose connection has not ended */
    bool closing;                        /* nothing new is taken */
    uint64_t n_ids;
    struct serve_counts counts;
};
int serve_desk_init(struct serve_desk *desk, const struct serve_options *options);
void serve_desk_fini(struct serve_desk *desk);
/* The line's: a request whose connection sleeps. Where there is no room it is told so. */
void serve_desk_put(struct serve_desk *desk, struct serve_request *r);
/* The line's, at last: the connection has ended. */
void serve_desk_hang_up(struct serve_desk *desk, struct serve_request *r);

/* The clock's and the maker's. Requests that have waited for longer than they may, or whose clients
 * have gone. */
void serve_desk_expire(struct serve_desk *desk);

/* The maker's. The first request that waits, if it is for this model; NULL: for any. */
struct serve_request *serve_desk_take(struct serve_desk *desk, const struct serve_model *only);
/* Until something is put there, or a moment. */
void serve_desk_wait(struct serve_desk *desk);
/* Bytes for the client, which are taken. status 0: as it was; ended: this is all. */
void serve_desk_tell(struct serve_desk *desk, struct serve_request *r, int status,
                     struct serve_bytes *bytes, bool ended);
bool serve_desk_is_gone(struct serve_desk *desk, const struct serve_request *r);
/* The maker has ended with it. */
void serve_desk_done(struct serve_desk *desk, struct serve_request *r);
/* Nothing new is taken, what waits is told. */
void serve_desk_close(struct serve_desk *desk);
/* Until every answer has gone to its client, or a few seconds. */
void serve_desk_drain(struct serve_desk *desk);
/* Prometheus' text format. */
int serve_desk_say_counts(struct serve_desk *desk, struct serve_bytes *out);

/* ---- the clock ---- */

/* Its thread ends connections whose deadline is past, and calls serve_desk_expire. Deadlines are
 * the line's; they are removed before their sockets are closed. */
struct serve_clock;
struct serve_deadline;
int serve_clock_start(struct serve_clock **out, struct serve_desk *desk);
void serve_clock_stop(struct serve_clock *clock); /* which has no deadlines left; or NULL */
/* NULL: no memory, and calls with NULL do nothing. */
struct serve_deadline *serve_deadline_add(struct serve_clock *clock, int socket);
void serve_deadline_set(struct serve_deadline *d, int64_t seconds); /* from now; 0: none */
void serve_deadline_remove(struct serve_deadline *d);

/* ---- the line ---- */

struct serve_line;
/* Listens, and says on which port. -errno with a sentence. */
int serve_line_open(struct serve_line **out, struct serve_desk *desk, int *port);
void serve_line_close_door(struct serve_line *line); /* no new connections */
/* Ends all connections; every request must have been answered. */
void serve_line_close(struct serve_line *line);

/* ---- the maker ---- */

/* The session is open. Opens the model without an adapter, then calls ready; makes texts until
 * stop() is true and those that grow have ended. ready may fail. */
int serve_make(struct serve_desk *desk, int (*ready)(void *arg), bool (*stop)(void *arg),
               void *arg);

/* Where libmicrohttpd is, serve_run serves until a signal ends it; else it says what is missing.
 * An exit status, or -errno. */
int serve_run(const struct serve_options *options);

#endif
