// Replaces the calls of the C library that change files, for LD_PRELOAD: the process kills itself instead of one of them.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static long left;  // calls until the last one; none is the last while this is 0 or less
static int torn;   // the last call, if it writes, writes half of its bytes

void kill_at(long number, int half) {
    torn = half;
    left = number;
}

long calls_left(void) { return left; }

static int is_last(int file) { return file > 2 && left > 0 && --left == 0; }

static void die(void) { syscall(SYS_kill, getpid(), SIGKILL); }

ssize_t write(int file, const void *bytes, size_t count) {
    if (is_last(file)) {
        if (torn) syscall(SYS_write, file, bytes, count / 2);
        die();
    }
    return syscall(SYS_write, file, bytes, count);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off_t offset) {
    if (is_last(file)) {
        if (torn) syscall(SYS_pwrite64, file, bytes, count / 2, offset);
        die();
    }
    return syscall(SYS_pwrite64, file, bytes, count, offset);
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t offset) { return pwrite64(file, bytes, count, offset); }

int fsync(int file) {
    if (is_last(file)) die();
    return syscall(SYS_fsync, file);
}

int fdatasync(int file) {
    if (is_last(file)) die();
    return syscall(SYS_fdatasync, file);
}

int ftruncate64(int file, off_t length) {
    if (is_last(file)) die();
    return syscall(SYS_ftruncate, file, length);
}

int ftruncate(int file, off_t length) { return ftruncate64(file, length); }

int rename(const char *from, const char *to) {
    if (is_last(3)) die();
    return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int chmod(const char *path, mode_t mode) {
    if (is_last(3)) die();
    return syscall(SYS_fchmodat, AT_FDCWD, path, mode);
}

int unlink(const char *path) {
    if (is_last(3)) die();
    return syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}
