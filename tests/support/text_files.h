/* text_files: the folder of a test of texts, with files in it; the tokenizer whose ids are bytes;
 * fixtures in JSON. */
#ifndef ZINF_TESTS_TEXT_FILES_H
#define ZINF_TESTS_TEXT_FILES_H

#include "base/json.h"
#include "tap.h"
#include "text/text.h"

#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[] = "text-test-XXXXXX"; /* main makes it by mkdtemp */

/* A path in the folder; the last eight stay as they are. */
static inline const char *path_of(const char *name)
{
    static char paths[8][512];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static inline const char *write_bytes(const char *name, const void *data, size_t bytes)
{
    const char *path = path_of(name);
    CHECKF(!zinf_file_write_atomic(path, data, bytes), "%s", zinf_error());
    return path;
}

static inline const char *write_text(const char *name, const char *text)
{
    return write_bytes(name, text, strlen(text));
}

/* With all that is in it. */
static inline void remove_folder(const char *path)
{
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        char *name = zinf_path_join(path, entry->d_name);
        if (unlink(name))
            remove_folder(name);
        free(name);
    }
    if (dir)
        closedir(dir);
    rmdir(path);
}

/* For the whole test, which does not close it. */
static inline struct zinf_tokenizer *byte_tokenizer(void)
{
    static struct zinf_tokenizer *tokenizer;
    if (!tokenizer)
        zinf_tokenizer_bytes(&tokenizer);
    return tokenizer;
}

/* Of tests/fixtures; the caller deletes it. */
static inline cJSON *read_fixture(const char *name)
{
    char path[1024];
    cJSON *json = NULL;
    snprintf(path, sizeof path, "%s/tests/fixtures/%s", getenv("SRCDIR"), name);
    CHECKF(!zinf_json_read_file(path, 1 << 26, ZINF_JSON_STRICT, &json), "%s", zinf_error());
    return json;
}

static inline const cJSON *get(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

#endif
