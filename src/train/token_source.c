/* token_source: the readers of token files that formats has, as data sets of text take them. */
#include "train/train.h"

static int read_tokens(void *handle, uint64_t first, uint64_t n, int32_t *out)
{
    return zinf_token_file_read(handle, first, n, out);
}

static void close_tokens(void *handle)
{
    zinf_token_file_close(handle);
}

int zinf_token_source_open(const char *path, struct zinf_token_source *out)
{
    struct zinf_token_file *file;
    int code = zinf_token_file_open(&file, path);
    if (!code)
        *out = (struct zinf_token_source){.count = zinf_token_file_count(file),
                                          .read = read_tokens,
                                          .close = close_tokens,
                                          .handle = file};
    return code;
}
