/* Lets the FAIL_AT-th call that changes a file below the folder FAIL_BELOW fail with the error FAIL_WITH, once. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int calls;

static int below(const char *path) {
  const char *folder = getenv("FAIL_BELOW");
  return folder && path && strncmp(path, folder, strlen(folder)) == 0;
}

static int ours(int handle) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return below(path);
}

static int fails(int mine) {
  if (!mine || ++calls != atoi(getenv("FAIL_AT"))) return 0;
  dprintf(2, "FAILED\n");
  errno = atoi(getenv("FAIL_WITH"));
  return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int f, const void *b, size_t n) { return f > 2 && fails(ours(f)) ? -1 : REAL(write)(f, b, n); }
ssize_t pwrite(int f, const void *b, size_t n, off_t o) { return fails(ours(f)) ? -1 : REAL(pwrite)(f, b, n, o); }
ssize_t pwrite64(int f, const void *b, size_t n, off64_t o) { return fails(ours(f)) ? -1 : REAL(pwrite64)(f, b, n, o); }
int fsync(int f) { return fails(ours(f)) ? -1 : REAL(fsync)(f); }
int fdatasync(int f) { return fails(ours(f)) ? -1 : REAL(fdatasync)(f); }
int ftruncate(int f, off_t n) { return fails(ours(f)) ? -1 : REAL(ftruncate)(f, n); }
int ftruncate64(int f, off64_t n) { return fails(ours(f)) ? -1 : REAL(ftruncate64)(f, n); }
int fchmod(int f, mode_t m) { return fails(ours(f)) ? -1 : REAL(fchmod)(f, m); }
int chmod(const char *p, mode_t m) { return fails(below(p)) ? -1 : REAL(chmod)(p, m); }
int unlink(const char *p) { return fails(below(p)) ? -1 : REAL(unlink)(p); }
int rename(const char *a, const char *b) { return fails(below(b)) ? -1 : REAL(rename)(a, b); }
int mkdir(const char *p, mode_t m) { return fails(below(p)) ? -1 : REAL(mkdir)(p, m); }

int open(const char *path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
  va_end(more);
  return fails(below(path)) ? -1 : REAL(open)(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
  va_end(more);
  return fails(below(path)) ? -1 : REAL(open64)(path, flags, mode);
}
