/* A disk that fails when told to: preloaded, it looks for files beside the database before every write and sync.
 * fail-write and fail-sync answer EIO, fail-space answers ENOSPC, drop-write says it wrote and does not. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int told(int fd, const char *what) {
    char link[64], path[PATH_MAX], flag[PATH_MAX + 32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size <= 0) return 0;
    path[size] = 0;
    if (!strstr(path, "events.db")) return 0;
    char *slash = strrchr(path, '/');
    *slash = 0;
    snprintf(flag, sizeof flag, "%s/%s", path, what);
    return access(flag, F_OK) == 0;
}

#define WRITES(name, kind, ...)                                             \
    if (told(fd, "fail-write")) { errno = EIO; return -1; }                 \
    if (told(fd, "fail-space")) { errno = ENOSPC; return -1; }              \
    if (told(fd, "drop-write")) return (ssize_t)count;                      \
    return ((kind)dlsym(RTLD_NEXT, name))(__VA_ARGS__);

typedef ssize_t (*pwrite_t)(int, const void *, size_t, off_t);
typedef ssize_t (*write_t)(int, const void *, size_t);
typedef int (*sync_t)(int);

ssize_t pwrite64(int fd, const void *data, size_t count, off_t at) { WRITES("pwrite64", pwrite_t, fd, data, count, at) }
ssize_t pwrite(int fd, const void *data, size_t count, off_t at) { WRITES("pwrite", pwrite_t, fd, data, count, at) }
ssize_t write(int fd, const void *data, size_t count) { WRITES("write", write_t, fd, data, count) }

int fdatasync(int fd) {
    if (told(fd, "fail-sync")) { errno = EIO; return -1; }
    return ((sync_t)dlsym(RTLD_NEXT, "fdatasync"))(fd);
}
int fsync(int fd) {
    if (told(fd, "fail-sync")) { errno = EIO; return -1; }
    return ((sync_t)dlsym(RTLD_NEXT, "fsync"))(fd);
}
