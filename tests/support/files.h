/* files: what tests that make files look at afterwards. */
#ifndef ZINF_TESTS_FILES_H
#define ZINF_TESTS_FILES_H

#include <dirent.h>
#include <string.h>

/* Entries of a folder whose names hold part; hidden ones are not counted. */
static inline int count_files(const char *path, const char *part)
{
    int n = 0;
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        n += entry->d_name[0] != '.' && strstr(entry->d_name, part) != NULL;
    if (dir)
        closedir(dir);
    return n;
}

static inline int count_entries(const char *path)
{
    return count_files(path, "");
}

#endif
