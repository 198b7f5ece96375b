/* secrets.c: see secrets.h. */
#include "secrets.h"

#include "file.h"
#include "log.h"
#include "xn_mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static xn_status fail_errno(const char *setting, const char *path, xn_error *error) {
    return xn_fail(error, XN_ERR_IO, setting, "--%s %.200s: %s", setting, path, strerror(errno));
}

static xn_status check_kind(const char *setting, const char *path, bool secret,
                            const struct stat *info, xn_error *error) {
    if (!S_ISREG(info->st_mode))
        return xn_fail(error, XN_ERR_IO, setting, "--%s %.200s is %s; a regular file is needed",
                       setting, path, xn_file_kind(info->st_mode));
    if (secret && info->st_mode & (S_IROTH | S_IWOTH))
        xn_log(XN_LOG_WARN, NULL,
               "--%s %s can be %s by every user of this machine (mode %03o); take that right away: "
               "chmod o-rw",
               setting, path, info->st_mode & S_IWOTH ? "changed" : "read",
               (unsigned)info->st_mode & 0777u);
    return XN_OK;
}

xn_status xn_secret_read(const char *setting, const char *path, size_t most, bool secret,
                         char **text, size_t *length, xn_error *error) {
    struct stat info;
    char name[240];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return fail_errno(setting, path, error);
    snprintf(name, sizeof name, "--%s %.200s", setting, path);
    xn_status status = fstat(fd, &info) ? fail_errno(setting, path, error)
                                        : check_kind(setting, path, secret, &info, error);
    if (!status)
        status = xn_file_read(fd, setting, name, most, text, length, error);
    close(fd);
    return status;
}

void xn_secret_free(char *text, size_t length) {
    if (text)
        explicit_bzero(text, length);
    xn_mem_free(text);
}
