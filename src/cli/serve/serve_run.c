/* serve_run: from an open session to the last answer. */
#include "cli/cli.h"
#include "cli/serve/serve.h"
#include "cli/signals.h"

#include <stdio.h>

struct serving {
    struct serve_desk desk;
    struct serve_line *line;
    bool stops;
};

static int ready(void *arg)
{
    struct serving *r = arg;
    const struct serve_options *o = r->desk.options;
    const bool v6 = strchr(o->host, ':') != NULL;
    int port;
    int code = serve_line_open(&r->line, &r->desk, &port);
    if (code)
        return code;
    printf("http://%s%s%s:%d\n", v6 ? "[" : "", o->host, v6 ? "]" : "", port);
    fflush(stdout);
    if (!o->key && strcmp(o->host, "127.0.0.1") && strcmp(o->host, "localhost") &&
        strcmp(o->host, "::1"))
        zinf_log(ZINF_LOG_WARN, "--host %s without --api-key: whoever reaches this machine may ask",
                 o->host);
    return 0;
}

static bool stop(void *arg)
{
    struct serving *r = arg;
    if (cli_stop && !r->stops) {
        r->stops = true;
        serve_line_close_door(r->line);
    }
    return r->stops;
}

int serve_run(const struct serve_options *options)
{
    struct serving r = {0};
    int code = serve_desk_init(&r.desk, options);
    if (code)
        return code;
    signal(SIGPIPE, SIG_IGN);
    cli_signals_listen("no new requests; those that are being answered end first", false);
    code = serve_make(&r.desk, ready, stop, &r);
    serve_desk_drain(&r.desk);
    serve_line_close(r.line);
    serve_desk_fini(&r.desk);
    return code;
}
