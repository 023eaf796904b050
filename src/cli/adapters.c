#include "cli/adapters.h"

#include "train/checkpoints.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

/* A folder whose name has an = is itself. */
static bool is_there(const char *path)
{
    struct stat info;
    return !stat(path, &info);
}

/* Caller frees *folder. */
static int read_word(const char *word, char **folder, double *weight)
{
    const char *sign = is_there(word) ? NULL : strrchr(word, '=');
    char *end = NULL;
    *weight = sign ? strtod(sign + 1, &end) : 1;
    *folder = sign ? strndup(word, (size_t)(sign - word)) : strdup(word);
    if (sign && (end == sign + 1 || *end || !isfinite(*weight)))
        return zinf_fail(-EINVAL, "--adapter %s: after the = comes a weight, such as %s=0.5", word,
                         *folder ? *folder : "DIR");
    return *folder ? 0 : zinf_fail(-ENOMEM, "no memory for a path");
}

int cli_adapters_join(const struct zinf_words *words, const char *output)
{
    struct zinf_joined_adapter parts[ZINF_MAX_JOINED] = {{0}};
    char *folders[ZINF_MAX_JOINED] = {0};
    int code = 0;
    if (words->n > ZINF_MAX_JOINED)
        return zinf_fail(-EINVAL, "at most %d adapters add up, not %d", ZINF_MAX_JOINED, words->n);
    for (int i = 0; !code && i < words->n; i++) {
        code = read_word(words->items[i], &folders[i], &parts[i].weight);
        parts[i].folder = folders[i];
    }
    if (!code)
        code = zinf_adapter_join(parts, words->n, output);
    for (int i = 0; i < words->n; i++)
        free(folders[i]);
    return code;
}

int cli_adapters_open(struct cli_adapters *adapters, const char **folder)
{
    const struct zinf_words *words = &adapters->words;
    adapters->joined[0] = 0;
    *folder = words->n ? words->items[0] : NULL;
    if (words->n < 2 && (!words->n || is_there(words->items[0]) || !strchr(words->items[0], '=')))
        return 0;
    int code = cli_folder_make(adapters->joined, "adapters");
    if (!code)
        code = cli_adapters_join(words, adapters->joined);
    if (code)
        cli_adapters_close(adapters);
    else
        *folder = adapters->joined;
    return code;
}

void cli_adapters_close(struct cli_adapters *adapters)
{
    cli_folder_remove(adapters->joined);
    adapters->joined[0] = 0;
}
