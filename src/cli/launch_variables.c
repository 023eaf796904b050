/* launch_variables: .deepspeed_env, by which DeepSpeed's launcher sends variables to all hosts. */
#include "cli/launch.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void launch_free_variables(struct launch_variables *v)
{
    for (uint32_t i = 0; i < v->n; i++)
        free(v->names[i]);
    v->n = 0;
}

static int keep(struct launch_variables *v, const char *name, const char *value)
{
    if (setenv(name, value, 1))
        return zinf_fail(-ENOMEM, "no memory for the variable %s", name);
    for (uint32_t i = 0; i < v->n; i++)
        if (!strcmp(v->names[i], name))
            return 0;
    if (v->n == LAUNCH_MOST_VARIABLES)
        return zinf_fail(-EINVAL, ".deepspeed_env has more than %d variables",
                         LAUNCH_MOST_VARIABLES);
    v->names[v->n] = strdup(name);
    return v->names[v->n++] ? 0 : zinf_fail(-ENOMEM, "no memory for the variable %s", name);
}

/* NAME=VALUE, or nothing but a comment. */
static int read_line(struct launch_variables *v, char *line, const char *path, int number)
{
    line += strspn(line, " \t");
    line[strcspn(line, "\r")] = 0;
    char *sign = strchr(line, '=');
    if (!*line || *line == '#')
        return 0;
    bool good = sign && sign != line && !isdigit((unsigned char)*line);
    for (const char *at = line; good && at < sign; at++)
        good = isalnum((unsigned char)*at) || *at == '_';
    if (!good)
        return zinf_fail(-EINVAL, "%s, line %d: a variable is written as NAME=VALUE", path, number);
    *sign = 0;
    return keep(v, line, sign + 1);
}

static int read_file(struct launch_variables *v, const char *folder)
{
    const char *name = getenv("DS_ENV_FILE");
    char *path = zinf_path_join(folder, name && *name ? name : ".deepspeed_env"), *text = NULL;
    size_t bytes = 0;
    int code = path ? 0 : zinf_fail(-ENOMEM, "no memory for a path"), number = 0;
    if (!code && !access(path, F_OK)) {
        code = zinf_file_read(path, 1u << 20, &text, &bytes);
        char *lines = text, *line;
        while (!code && (line = strsep(&lines, "\n")))
            code = read_line(v, line, path, ++number);
    }
    free(text);
    free(path);
    return code;
}

int launch_read_variables(struct launch_variables *out)
{
    const char *home = getenv("HOME");
    *out = (struct launch_variables){0};
    int code = home && *home ? read_file(out, home) : 0;
    return code ? code : read_file(out, ".");
}
