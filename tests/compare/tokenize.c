/*
 * tokenize: for tests/compare/against_tokenizers.py. Reads texts, each behind its length (32 bits,
 * of this machine's order), from standard input; writes for each the number of ids, the ids, and
 * the length and bytes of what they decode to. --time: encodes all once and prints seconds instead.
 *
 * usage: tokenize [--time] TOKENIZER      a tokenizer.json, or a folder
 */
#include "text/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static int open_tokenizer(struct zinf_tokenizer **out, const char *path)
{
    struct stat info;
    char *json;
    size_t bytes;
    if (!stat(path, &info) && S_ISDIR(info.st_mode))
        return zinf_tokenizer_open(out, path);
    int code = zinf_file_read(path, (size_t)256 << 20, &json, &bytes);
    if (code)
        return code;
    code = zinf_tokenizer_from_json(out, json, bytes, path);
    free(json);
    return code;
}

static bool put(const void *bytes, size_t n)
{
    return fwrite(bytes, 1, n, stdout) == n;
}

static int answer(const struct zinf_tokenizer *tokenizer, const char *text, size_t bytes,
                  bool quiet)
{
    struct zinf_tokens tokens = {0};
    char *back = NULL;
    size_t back_bytes = 0;
    int code = zinf_tokenizer_encode(tokenizer, text, bytes, &tokens);
    if (!code && !quiet)
        code = zinf_tokenizer_decode(tokenizer, tokens.ids, tokens.count, &back, &back_bytes);
    uint32_t count = (uint32_t)tokens.count, n = (uint32_t)back_bytes;
    if (code)
        fprintf(stderr, "%s\n", zinf_error());
    else if (!quiet &&
             !(put(&count, 4) && put(tokens.ids, 4 * tokens.count) && put(&n, 4) && put(back, n)))
        code = -EIO;
    free(back);
    zinf_tokens_free(&tokens);
    return code;
}

int main(int argc, char **argv)
{
    bool timed = argc > 2 && !strcmp(argv[1], "--time");
    struct zinf_tokenizer *tokenizer;
    uint32_t n;
    double seconds = 0;
    int code = 0;
    if (argc < 2 || open_tokenizer(&tokenizer, argv[argc - 1])) {
        fprintf(stderr, "%s\n", zinf_error());
        return 1;
    }
    while (!code && fread(&n, 1, 4, stdin) == 4) {
        char *text = malloc((size_t)n + 1);
        if (!text || fread(text, 1, n, stdin) != n)
            code = -EIO;
        uint64_t begin = zinf_now_ns();
        code = code ? code : answer(tokenizer, text, n, timed);
        seconds += (double)(zinf_now_ns() - begin) * 1e-9;
        free(text);
    }
    if (timed)
        printf("%.6f\n", seconds);
    zinf_tokenizer_close(tokenizer);
    return code ? 1 : 0;
}
