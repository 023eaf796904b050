/* serve_without: where libmicrohttpd was not there. */
#include "cli/serve/serve.h"

int serve_run(const struct serve_options *options)
{
    (void)options;
    return zinf_fail(-ENOTSUP, "this zinf was built without libmicrohttpd: install "
                               "libmicrohttpd-dev, configure and build again");
}
