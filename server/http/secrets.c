/* secrets.c: see secrets.h. By read(2): stdio would leave copies of the secret in its buffer. */
#include "secrets.h"

#include "log.h"
#include "xn_mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static xn_status fail_errno(const char *setting, const char *path, xn_error *error) {
    return xn_fail(error, XN_ERR_IO, setting, "--%s %.200s: %s", setting, path, strerror(errno));
}

static const char *kind_of(mode_t mode) {
    return S_ISDIR(mode)    ? "a directory"
           : S_ISFIFO(mode) ? "a FIFO"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

static xn_status check_kind(const char *setting, const char *path, bool secret,
                            const struct stat *info, xn_error *error) {
    if (!S_ISREG(info->st_mode))
        return xn_fail(error, XN_ERR_IO, setting, "--%s %.200s is %s; a regular file is needed",
                       setting, path, kind_of(info->st_mode));
    if (secret && info->st_mode & (S_IROTH | S_IWOTH))
        xn_log(XN_LOG_WARN, NULL,
               "--%s %s can be %s by every user of this machine (mode %03o); take that right away: "
               "chmod o-rw",
               setting, path, info->st_mode & S_IWOTH ? "changed" : "read",
               (unsigned)info->st_mode & 0777u);
    return XN_OK;
}

static xn_status read_whole(int fd, const char *setting, const char *path, size_t most, char *text,
                            size_t *length, xn_error *error) {
    size_t n = 0;
    while (n <= most) {
        ssize_t got = read(fd, text + n, most + 1 - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_errno(setting, path, error);
        if (!got)
            break;
        n += (size_t)got;
    }
    *length = n;
    if (n > most)
        return xn_fail(error, XN_ERR_MALFORMED, setting, "--%s %.200s is larger than %zu bytes",
                       setting, path, most);
    text[n] = '\0';
    return XN_OK;
}

xn_status xn_secret_read(const char *setting, const char *path, size_t most, bool secret,
                         char **text, size_t *length, xn_error *error) {
    struct stat info;
    char *bytes = NULL;
    xn_status status = XN_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return fail_errno(setting, path, error);
    if (fstat(fd, &info))
        status = fail_errno(setting, path, error);
    else
        status = check_kind(setting, path, secret, &info, error);
    if (status)
        goto done;
    bytes = xn_mem_alloc(most + 1);
    if (!bytes) {
        status = xn_fail(error, XN_ERR_NO_MEMORY, setting, "no memory to read %.200s", path);
        goto done;
    }
    status = read_whole(fd, setting, path, most, bytes, length, error);
    if (status)
        xn_secret_free(bytes, most + 1);
    else
        *text = bytes;
done:
    close(fd);
    return status;
}

void xn_secret_free(char *text, size_t length) {
    if (text)
        explicit_bzero(text, length);
    xn_mem_free(text);
}
