/*
 * serve_line: libmicrohttpd's one thread. A connection whose request is on the desk sleeps, so it
 * costs nothing; one whose client is silent in the middle of a request is ended by a timeout, one
 * that goes on too slowly by the clock (serve_clock.c).
 *
 * A page of another site that runs in a browser on this machine must not ask: what says an Origin
 * must come from the page that is served here. Where the server listens on this machine alone and
 * has no key, Host must name this machine, else a name that a stranger points at 127.0.0.1 would
 * pass for the same site.
 */
#include "cli/serve/serve.h"

#include <microhttpd.h>
#include <netdb.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define IDLE_SECONDS 30
#define CLIENT_SECONDS 60   /* at most, to send a request or to take the rest of an answer */
#define MORE_CONNECTIONS 64 /* than requests: to be told that there are too many */
#define BLOCK_BYTES 4096

struct serve_line {
    struct MHD_Daemon *daemon;
    struct serve_desk *desk;
    struct serve_clock *clock;
    int socket;
    bool loopback;
    unsigned char key[SHA256_DIGEST_LENGTH];
};

/* ---- responses ---- */

static enum MHD_Result respond(struct serve_request *r, int status, const char *type,
                               struct serve_bytes *bytes)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(bytes->n, bytes->at, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        serve_bytes_free(bytes);
        return MHD_NO;
    }
    *bytes = (struct serve_bytes){0};
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (status == 401)
        MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    const enum MHD_Result result = MHD_queue_response(r->connection, (unsigned)status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result respond_error(struct serve_request *r, int status, const char *message)
{
    struct serve_bytes bytes = {0};
    if (serve_say_error(status, message, false, &bytes))
        return MHD_NO;
    pthread_mutex_lock(&r->desk->lock);
    r->desk->counts.requests[SERVE_REFUSED]++;
    pthread_mutex_unlock(&r->desk->lock);
    return respond(r, status, "application/json", &bytes);
}

static int64_t client_seconds(const struct serve_desk *desk)
{
    const int64_t seconds = desk->options->limits.seconds;
    return seconds < CLIENT_SECONDS ? seconds : CLIENT_SECONDS;
}

/* All of the answer is there. */
static void hurry(struct serve_request *r)
{
    if (!r->hurries)
        serve_deadline_set(r->deadline, client_seconds(r->desk));
    r->hurries = true;
}

/* What is there of a stream; the connection sleeps until there is more. */
static ssize_t read_stream(void *arg, uint64_t position, char *to, size_t bytes)
{
    struct serve_request *r = arg;
    ssize_t result = 0;
    (void)position;
    pthread_mutex_lock(&r->desk->lock);
    const size_t left = r->out.n - r->sent;
    const bool ended = r->ended;
    if (left) {
        const size_t n = left < bytes ? left : bytes;
        memcpy(to, r->out.at + r->sent, n);
        r->sent += n;
        result = (ssize_t)n;
    } else if (r->ended)
        result = MHD_CONTENT_READER_END_OF_STREAM;
    else {
        r->out.n = r->sent = 0;
        r->sleeps = true;
        MHD_suspend_connection(r->connection);
    }
    pthread_mutex_unlock(&r->desk->lock);
    if (ended)
        hurry(r);
    return result;
}

static enum MHD_Result respond_stream(struct serve_request *r)
{
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_stream, r, NULL);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/event-stream");
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    const enum MHD_Result result = MHD_queue_response(r->connection, 200, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result respond_page(struct serve_request *r)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(
        strlen(serve_page), (void *)(uintptr_t)serve_page, MHD_RESPMEM_PERSISTENT);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/html; charset=utf-8");
    MHD_add_response_header(response, "Content-Security-Policy",
                            "default-src 'none'; style-src 'unsafe-inline'; script-src "
                            "'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action "
                            "'none'; frame-ancestors 'none'");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    const enum MHD_Result result = MHD_queue_response(r->connection, 200, response);
    MHD_destroy_response(response);
    return result;
}

/* ---- who may ask ---- */

static const char *header(const struct serve_request *r, const char *name)
{
    return MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, name);
}

static bool names_this_machine(const char *host)
{
    const size_t n = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    return (n == 9 && !strncasecmp(host, "localhost", 9)) ||
           (n == 5 && !strncmp(host, "[::1]", 5)) ||
           (n > 4 && !strncmp(host, "127.", 4) && strspn(host, "0123456789.") == n);
}

static bool is_of_this_site(const char *origin, const char *host)
{
    const char *behind = strstr(origin, "://");
    return behind && host && !strcasecmp(behind + 3, host);
}

/* Both are hashed, so that neither's length is told by the time that it takes. */
static bool has_key(const struct serve_line *line, const char *given)
{
    unsigned char hash[SHA256_DIGEST_LENGTH];
    if (!given || strncasecmp(given, "Bearer ", 7))
        return false;
    SHA256((const unsigned char *)given + 7, strlen(given + 7), hash);
    return !CRYPTO_memcmp(hash, line->key, sizeof hash);
}

static bool is_open_to_all(const char *url)
{
    return !strcmp(url, "/health") || !strcmp(url, "/");
}

/* 0, or a status and why. */
static int check_access(const struct serve_line *line, const struct serve_request *r,
                        const char *method, const char *url, const char **why)
{
    const struct serve_options *o = line->desk->options;
    const char *origin = header(r, "Origin"), *host = header(r, "Host");
    *why = "pages of other sites may not ask here";
    if (origin && !is_of_this_site(origin, host))
        return 403;
    *why = "Host must be localhost or 127.0.0.1 where there is no --api-key";
    if (line->loopback && !o->key && host && !names_this_machine(host))
        return 403;
    *why = "the key is wrong or missing: send Authorization: Bearer KEY";
    const bool get = !strcmp(method, "GET") || !strcmp(method, "HEAD");
    return !o->key || (get && is_open_to_all(url)) || has_key(line, header(r, "Authorization"))
               ? 0
               : 401;
}

/* ---- routes ---- */

static const struct {
    const char *url;
    enum serve_dialect dialect;
} posts[] = {
    {"/v1/chat/completions", SERVE_CHAT},
    {"/v1/completions", SERVE_COMPLETIONS},
    {"/generate", SERVE_TGI},
    {"/generate_stream", SERVE_TGI},
    {"/", SERVE_TGI},
};
static const char *const gets[] = {"/", "/health", "/metrics", "/info", "/v1/models"};
#define COUNT(list) (sizeof(list) / sizeof *(list))
#define MODELS "/v1/models/"

static int find_post(const char *url)
{
    for (size_t i = 0; i < COUNT(posts); i++)
        if (!strcmp(url, posts[i].url))
            return (int)i;
    return -1;
}

static bool find_get(const char *url)
{
    for (size_t i = 0; i < COUNT(gets); i++)
        if (!strcmp(url, gets[i]))
            return true;
    return !strncmp(url, MODELS, sizeof MODELS - 1);
}

static enum MHD_Result answer_get(struct serve_request *r, const char *url)
{
    const struct serve_options *o = r->desk->options;
    struct serve_bytes bytes = {0};
    const char *type = "application/json";
    int code;
    if (!strcmp(url, "/"))
        return respond_page(r);
    if (!strcmp(url, "/metrics")) {
        type = "text/plain; version=0.0.4";
        code = serve_desk_say_counts(r->desk, &bytes);
    } else if (!strcmp(url, "/health"))
        code = serve_bytes_add(&bytes, "{\"status\":\"ok\"}\n", 16);
    else if (!strcmp(url, "/info"))
        code = serve_say_info(o, &bytes);
    else
        code =
            serve_say_models(o, strcmp(url, "/v1/models") ? url + sizeof MODELS - 1 : NULL, &bytes);
    return code ? respond_error(r, code == -ENOENT ? 404 : 500, zinf_error())
                : respond(r, 200, type, &bytes);
}

/* TGI's guide calls every model "tgi". */
static struct serve_model *find_model(const struct serve_options *o, const char *name)
{
    if (!name || !*name || !strcmp(name, "tgi"))
        return &o->models[0];
    for (int i = 0; i < o->n_models; i++)
        if (!strcmp(o->models[i].name, name))
            return &o->models[i];
    return NULL;
}

/* The body is whole. */
static enum MHD_Result answer_post(struct serve_request *r, const char *url)
{
    const struct serve_options *o = r->desk->options;
    const enum serve_dialect dialect = posts[find_post(url)].dialect;
    char why[1024];
    if (r->too_long)
        return respond_error(r, 413, "the request is longer than zinf serve's --max-body");
    int code = serve_ask_read(&r->ask, dialect, r->body.at ? r->body.at : "", r->body.n,
                              &o->session->job.texts, &o->limits);
    serve_bytes_free(&r->body);
    if (code)
        return respond_error(r, code == -ENOMEM ? 500 : 400, zinf_error());
    r->ask.streams = r->ask.streams || !strcmp(url, "/generate_stream");
    r->ask.listed = !strcmp(url, "/");
    r->model = find_model(o, r->ask.model);
    if (!r->model) {
        snprintf(why, sizeof why, "there is no model '%.200s': GET /v1/models lists them",
                 r->ask.model);
        return respond_error(r, 404, why);
    }
    serve_deadline_set(r->deadline, 0); /* from here on it is the desk's --timeout */
    r->sleeps = true;                   /* nobody else knows it yet */
    MHD_suspend_connection(r->connection);
    serve_desk_put(r->desk, r);
    return MHD_YES;
}

/* The desk knows what to say. */
static enum MHD_Result answer_rest(struct serve_request *r)
{
    pthread_mutex_lock(&r->desk->lock);
    const int status = r->status;
    const bool streams = r->ask.streams && status == 200;
    struct serve_bytes bytes = streams ? (struct serve_bytes){0} : r->out;
    if (!streams)
        r->out = (struct serve_bytes){0};
    pthread_mutex_unlock(&r->desk->lock);
    if (!streams)
        hurry(r);
    return streams ? respond_stream(r) : respond(r, status, "application/json", &bytes);
}

/* ---- libmicrohttpd's calls ---- */

static enum MHD_Result begin_request(struct serve_line *line, struct MHD_Connection *connection,
                                     const char *url, const char *method, void **state)
{
    const struct serve_options *o = line->desk->options;
    struct serve_request *r = calloc(1, sizeof *r);
    const char *why;
    if (!r)
        return MHD_NO;
    *state = r;
    r->desk = line->desk;
    r->connection = connection;
    r->begin_ns = zinf_now_ns();
    r->created = (int64_t)time(NULL);
    r->socket = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    r->deadline =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    pthread_mutex_lock(&r->desk->lock);
    r->desk->open++;
    snprintf(r->id, sizeof r->id, "zinf-%llx-%llx", (unsigned long long)r->created,
             (unsigned long long)++r->desk->n_ids);
    pthread_mutex_unlock(&r->desk->lock);
    const int status = check_access(line, r, method, url, &why);
    const bool post = !strcmp(method, "POST");
    const bool get = !strcmp(method, "GET") || !strcmp(method, "HEAD");
    const char *length = header(r, MHD_HTTP_HEADER_CONTENT_LENGTH);
    if (status)
        return respond_error(r, status, why);
    if ((post && find_post(url) >= 0) || (get && find_get(url)))
        return length && strtoull(length, NULL, 10) > o->limits.body_bytes
                   ? respond_error(r, 413, "the request is longer than zinf serve's --max-body")
                   : MHD_YES;
    return find_post(url) >= 0 || find_get(url)
               ? respond_error(r, 405, "there is another method for this path")
               : respond_error(r, 404, "there is nothing at this path");
}

static enum MHD_Result answer(void *arg, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *data,
                              size_t *bytes, void **state)
{
    struct serve_line *line = arg;
    struct serve_request *r = *state;
    (void)version;
    if (!r)
        return begin_request(line, connection, url, method, state);
    if (*bytes) {
        r->too_long = r->too_long || r->body.n + *bytes > line->desk->options->limits.body_bytes;
        if (!r->too_long && serve_bytes_add(&r->body, data, *bytes))
            return MHD_NO;
        if (r->too_long)
            serve_bytes_free(&r->body);
        *bytes = 0;
        return MHD_YES;
    }
    if (r->status)
        return answer_rest(r);
    return strcmp(method, "POST") ? answer_get(r, url) : answer_post(r, url);
}

static void completed(void *arg, struct MHD_Connection *connection, void **state,
                      enum MHD_RequestTerminationCode code)
{
    struct serve_line *line = arg;
    struct serve_request *r = *state;
    (void)connection, (void)code;
    *state = NULL;
    if (!r)
        return;
    serve_deadline_set(r->deadline, client_seconds(line->desk)); /* for the next request */
    serve_desk_hang_up(line->desk, r);
}

/* A connection has begun, or is about to be closed. */
static void connected(void *arg, struct MHD_Connection *connection, void **state,
                      enum MHD_ConnectionNotificationCode code)
{
    struct serve_line *line = arg;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const int socket =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        *state = serve_deadline_add(line->clock, socket);
        serve_deadline_set(*state, client_seconds(line->desk));
    } else {
        serve_deadline_remove(*state);
        *state = NULL;
    }
}

static void wake(struct serve_request *r)
{
    MHD_resume_connection(r->connection);
}

/* ---- the door ---- */

static int listen_at(const struct serve_options *o, struct serve_line *line, int *port)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    struct sockaddr_storage at;
    socklen_t length = sizeof at;
    char name[16], host[64];
    const int yes = 1;
    snprintf(name, sizeof name, "%d", (int)o->port);
    int code = getaddrinfo(o->host, name, &hints, &found);
    if (code)
        return zinf_fail(-EINVAL, "--host %s: %s", o->host, gai_strerror(code));
    line->socket = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (line->socket >= 0)
        setsockopt(line->socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (line->socket < 0 || bind(line->socket, found->ai_addr, found->ai_addrlen) ||
        listen(line->socket, 1024) || getsockname(line->socket, (struct sockaddr *)&at, &length))
        code = zinf_fail(-errno, "--host %s --port %d: %s", o->host, (int)o->port, strerror(errno));
    freeaddrinfo(found);
    if (code)
        return code;
    getnameinfo((struct sockaddr *)&at, length, host, sizeof host, name, sizeof name,
                NI_NUMERICHOST | NI_NUMERICSERV);
    *port = atoi(name);
    line->loopback = !strncmp(host, "127.", 4) || !strcmp(host, "::1");
    return 0;
}

int serve_line_open(struct serve_line **out, struct serve_desk *desk, int *port)
{
    const struct serve_options *o = desk->options;
    struct serve_line *line = *out = calloc(1, sizeof *line);
    if (!line)
        return zinf_fail(-ENOMEM, "no memory for a server");
    *line = (struct serve_line){.desk = desk, .socket = -1};
    desk->wake = wake;
    if (o->key)
        SHA256((const unsigned char *)o->key, strlen(o->key), line->key);
    int code = listen_at(o, line, port);
    if (!code)
        code = serve_clock_start(&line->clock, desk);
    if (!code) {
        line->daemon = MHD_start_daemon(
            MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL,
            NULL, answer, line, MHD_OPTION_LISTEN_SOCKET, line->socket, MHD_OPTION_NOTIFY_COMPLETED,
            completed, line, MHD_OPTION_NOTIFY_CONNECTION, connected, line,
            MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS, MHD_OPTION_CONNECTION_LIMIT,
            (unsigned)(o->limits.requests + MORE_CONNECTIONS), MHD_OPTION_END);
        code = line->daemon ? 0 : zinf_fail(-EIO, "libmicrohttpd does not start");
    }
    if (!code)
        return 0;
    serve_line_close(line);
    *out = NULL;
    return code;
}

void serve_line_close_door(struct serve_line *line)
{
    line->socket = MHD_quiesce_daemon(line->daemon);
    if (line->socket >= 0)
        close(line->socket);
    line->socket = -1;
}

void serve_line_close(struct serve_line *line)
{
    if (line && line->daemon)
        MHD_stop_daemon(line->daemon);
    else if (line && line->socket >= 0)
        close(line->socket);
    if (line)
        serve_clock_stop(line->clock);
    free(line);
}
