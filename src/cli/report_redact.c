/*
 * report_redact: takes out of a text what tells who ran the command and where. Only whole words are
 * replaced, and a user's name only inside a path, so that a user called "linux" leaves the report
 * readable.
 */
#include "cli/report.h"

#include <ctype.h>
#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

struct secrets {
    const char *home;
    char user[128], host[128];
};

static void find_secrets(struct secrets *s)
{
    const char *user = getenv("USER");
    const struct passwd *entry = getpwuid(getuid());
    memset(s, 0, sizeof *s);
    if (entry)
        user = entry->pw_name;
    snprintf(s->user, sizeof s->user, "%s", user ? user : "");
    if (gethostname(s->host, sizeof s->host - 1))
        s->host[0] = 0;
    s->host[strcspn(s->host, ".")] = 0; /* the name without its domain, wherever it stands */
    s->home = getenv("HOME");
    if (!s->home && entry)
        s->home = entry->pw_dir;
}

static bool in_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-';
}

/* Length of word if text begins with it as a whole word, else 0. */
static size_t match(const char *text, const char *word)
{
    size_t length = word ? strlen(word) : 0;
    if (length < 2 || strncmp(text, word, length) || in_word(text[length]))
        return 0;
    return length;
}

/* What to write for the secret that text begins with, and its length; NULL: none. before is the
 * character in front of it. */
static const char *replace(const struct secrets *s, const char *text, char before, size_t *length)
{
    static const char homes[] = "/home/";
    if (in_word(before))
        return NULL;
    if ((*length = match(text, s->home)))
        return "~";
    if (!strncmp(text, homes, sizeof homes - 1)) {
        *length = sizeof homes - 1;
        *length += strcspn(text + *length, "/ :,;)'\"");
        return "/home/USER";
    }
    if (before == '/' && (*length = match(text, s->user)))
        return "USER";
    if ((*length = match(text, s->host)))
        return "HOST";
    return NULL;
}

const char *report_redact(const char *text, char *out, size_t out_bytes)
{
    struct secrets secrets;
    size_t used = 0;
    char before = ' ';
    find_secrets(&secrets);
    while (*text && used + 1 < out_bytes) {
        size_t length = 0;
        const char *instead = replace(&secrets, text, before, &length);
        if (instead) {
            size_t room = out_bytes - used;
            size_t bytes = (size_t)snprintf(out + used, room, "%s", instead);
            used += bytes < room ? bytes : room - 1;
            text += length;
        } else {
            out[used++] = *text++;
        }
        before = text[-1];
    }
    out[used] = 0;
    return out;
}
