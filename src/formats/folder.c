/*
 * folder: what lies beside the weights of a Hugging Face model and must follow them when the model
 * is written anew. config.json is not among it: the writer of the model knows what changed in it.
 */
#include "formats/formats.h"

#include <stdlib.h>
#include <sys/stat.h>

/* The largest known tokenizer.json has 35 MB; files are copied through memory. */
#define MAX_COMPANION_BYTES (256u << 20)

static const char *const companions[] = {
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "encoder.json",
    "vocab.bpe",
    "vocab.txt",
    "tokenizer.model",
    "spiece.model",
    "spm.model",
    "sentencepiece.bpe.model",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
};

static int copy_companion(const char *from, const char *to)
{
    struct stat source, target;
    char *data;
    size_t bytes;
    if (stat(from, &source))
        return errno == ENOENT ? 0 : zinf_fail(-errno, "cannot open %s: %s", from, strerror(errno));
    if (!stat(to, &target) && source.st_dev == target.st_dev && source.st_ino == target.st_ino)
        return 0;
    int code = zinf_file_read(from, MAX_COMPANION_BYTES, &data, &bytes);
    if (code)
        return code;
    code = zinf_file_write_atomic(to, data, bytes);
    free(data);
    return code;
}

int zinf_folder_copy_companions(const char *from, const char *to)
{
    struct stat info;
    if (stat(from, &info))
        return zinf_fail(-errno, "cannot open the folder %s: %s", from, strerror(errno));
    int code = zinf_make_dirs(to);
    for (size_t i = 0; i < sizeof companions / sizeof *companions && !code; i++) {
        char *source = zinf_path_join(from, companions[i]);
        char *target = zinf_path_join(to, companions[i]);
        code = source && target ? copy_companion(source, target) : -ENOMEM;
        free(source);
        free(target);
    }
    return code;
}
