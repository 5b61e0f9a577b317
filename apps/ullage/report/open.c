/* open.c: reads what `ullage report` is given, whatever of the known kinds it is; see report.h. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "error.h"
#include "load.h"
#include "report.h"
#include "torch.h"

enum { LOOK = 16 };

/* The first bytes; how many there are, or -1 with *err. */
static ssize_t look(const char *path, unsigned char begin[LOOK], ull_status *status,
                    struct ull_error *err)
{
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        ull_status why = errno == ENOENT   ? ULL_E_NOT_FOUND
                         : errno == EACCES ? ULL_E_PERMISSION
                                           : ULL_E_SYSTEM;
        *status = ull__fail(err, why, "cannot read '%.200s': %s", path, strerror(errno));
        return -1;
    }
    ssize_t size = fstat(fd, &about) == 0 && S_ISREG(about.st_mode) ? read(fd, begin, LOOK) : -1;
    close(fd);
    if (size < 0)
        *status = ull__fail(err, ULL_E_FORMAT,
                            "'%.200s' is not a regular file: expected a record, as `ullage run "
                            "--record` writes it, or a snapshot of PyTorch's",
                            path);
    return size;
}

ull_status report_open(const char *path, struct ull__history **history, struct ull_error *err)
{
    unsigned char begin[LOOK];
    ull_status status = ULL_OK;
    ssize_t size = look(path, begin, &status, err);
    if (size < 0)
        return status;
    status = ull__is_torch(begin, (size_t)size) ? ull__history_from_torch(path, history, err)
                                                : ull__history_load(path, history, err);
    if (status != ULL_OK && err && !strstr(err->message, path)) {
        struct ull_error why = *err;
        ull__fail(err, status, "'%.150s': %s", path, why.message);
    }
    return status;
}
