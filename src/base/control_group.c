/* control_group.c: see control_group.h. */
#include "control_group.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 4096 };

/* Lines of a file; longer ones are cut. */
struct lines {
    int fd;
    char text[LINE];
    size_t held, at;
};

static bool open_lines(struct lines *lines, const char *root, const char *path)
{
    char whole[ULL_GROUP_PATH];
    snprintf(whole, sizeof(whole), "%s%s", root, path);
    lines->fd = open(whole, O_RDONLY | O_CLOEXEC);
    lines->held = lines->at = 0;
    return lines->fd >= 0;
}

static bool next_line(struct lines *lines, char line[LINE])
{
    size_t length = 0;
    bool any = false;
    for (;;) {
        if (lines->at == lines->held) {
            ssize_t got = read(lines->fd, lines->text, sizeof(lines->text));
            if (got <= 0) {
                break;
            }
            lines->held = (size_t)got;
            lines->at = 0;
        }
        char c = lines->text[lines->at++];
        any = true;
        if (c == '\n') {
            break;
        }
        if (length < LINE - 1) {
            line[length++] = c;
        }
    }
    line[length] = '\0';
    return any;
}

/* Whether a list with commas has a word. */
static bool has(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; at != NULL && *at != '\0';) {
        if (strncmp(at, word, length) == 0 && (at[length] == ',' || at[length] == '\0')) {
            return true;
        }
        at = strchr(at, ',');
        at += at != NULL;
    }
    return false;
}

/* The group of this process: "4:memory:/a/b" of version 1, "0::/a/b" of version 2. */
static bool find_group(const char *root, bool version1, char path[ULL_GROUP_PATH])
{
    struct lines lines;
    char line[LINE];
    bool found = false;
    if (!open_lines(&lines, root, "/proc/self/cgroup")) {
        return false;
    }
    while (!found && next_line(&lines, line)) {
        char *controllers = strchr(line, ':');
        char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL) {
            continue;
        }
        *controllers++ = *group++ = '\0';
        found = version1 ? has(controllers, "memory")
                         : strcmp(line, "0") == 0 && controllers[0] == '\0';
        snprintf(path, ULL_GROUP_PATH, "%.*s", ULL_GROUP_PATH - 1, group);
    }
    close(lines.fd);
    return found;
}

/* The kernel writes a blank as \040, and so on. */
static void unescape(char *text)
{
    char *to = text;
    for (const char *at = text; *at != '\0';) {
        bool octal = at[0] == '\\' && at[1] >= '0' && at[1] <= '3' && at[2] >= '0' &&
                     at[2] <= '7' && at[3] >= '0' && at[3] <= '7';
        *to++ = octal ? (char)((at[1] - '0') * 64 + (at[2] - '0') * 8 + at[3] - '0') : *at;
        at += octal ? 4 : 1;
    }
    *to = '\0';
}

/* "36 35 98:0 /root /place options optional - type source superoptions" */
static bool read_mount(char *line, bool version1, char **of, char **place)
{
    char *rest = strstr(line, " - ");
    char *save = NULL, *type = rest != NULL ? strtok_r(rest + 3, " ", &save) : NULL;
    char *source = type != NULL ? strtok_r(NULL, " ", &save) : NULL;
    char *options = source != NULL ? strtok_r(NULL, " ", &save) : NULL;
    bool fits = type != NULL &&
                (version1 ? strcmp(type, "cgroup") == 0 && options != NULL && has(options, "memory")
                          : strcmp(type, "cgroup2") == 0);
    if (!fits) {
        return false;
    }
    *rest = '\0';
    char *word = strtok_r(line, " ", &save);
    for (int i = 0; i < 3 && word != NULL; ++i) {
        word = strtok_r(NULL, " ", &save);
    }
    *of = word;
    *place = word != NULL ? strtok_r(NULL, " ", &save) : NULL;
    return *place != NULL;
}

/* Where a group is below a mount of `of`: "" at the mount itself, and where it is not below it at all. */
static const char *below(const char *group, const char *of)
{
    size_t length = strcmp(of, "/") == 0 ? 0 : strlen(of);
    bool is_below = strncmp(group, of, length) == 0 &&
                    (group[length] == '/' || group[length] == '\0') && strstr(group, "/..") == NULL;
    const char *rest = is_below ? group + length : "";
    return strcmp(rest, "/") == 0 ? "" : rest;
}

static void climb(char *folder, size_t top, bool version1, ull__group_fn fn, void *context)
{
    for (;;) {
        fn(context, folder, version1);
        char *slash = strrchr(folder, '/');
        if (slash == NULL || (size_t)(slash - folder) < top) {
            return;
        }
        *slash = '\0';
    }
}

static void walk(const char *root, bool version1, ull__group_fn fn, void *context)
{
    struct lines lines;
    char group[ULL_GROUP_PATH], line[LINE], folder[ULL_GROUP_PATH];
    bool found = false;
    if (!find_group(root, version1, group) || !open_lines(&lines, root, "/proc/self/mountinfo")) {
        return;
    }
    while (!found && next_line(&lines, line)) {
        char *of, *place;
        if (!read_mount(line, version1, &of, &place)) {
            continue;
        }
        unescape(of);
        unescape(place);
        found = true;
        int top = snprintf(folder, sizeof(folder), "%s%s", root, place);
        if (top > 0 && (size_t)top + strlen(group) < sizeof(folder)) {
            memcpy(folder + top, below(group, of), strlen(below(group, of)) + 1);
            climb(folder, (size_t)top, version1, fn, context);
        }
    }
    close(lines.fd);
}

void ull__control_groups(const char *root, ull__group_fn fn, void *context)
{
    walk(root, false, fn, context);
    walk(root, true, fn, context);
}
