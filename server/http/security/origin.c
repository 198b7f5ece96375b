/* origin.c: see origin.h. */
#include "origin.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

static bool is_listed(const char *text, size_t length, const char *list) {
    while (*list) {
        size_t item = strcspn(list, ",");
        if ((item == 1 && *list == '*') || (item == length && !strncasecmp(list, text, length)))
            return true;
        list += item + (list[item] == ',');
    }
    return false;
}

static bool is_ipv4(const char *text, size_t length) {
    char copy[INET_ADDRSTRLEN] = "";
    struct in_addr address;
    if (length >= sizeof copy)
        return false;
    memcpy(copy, text, length);
    return inet_pton(AF_INET, copy, &address) == 1;
}

bool xn_origin_host_known(const char *host, const char *names, const char *machine) {
    if (!host || !*host || *host == '[')
        return true;
    size_t length = strcspn(host, ":");
    if (length > 1 && host[length - 1] == '.') /* the same name, fully qualified */
        length--;
    return is_ipv4(host, length) || is_listed(host, length, "localhost") ||
           (strlen(machine) == length && !strncasecmp(host, machine, length)) ||
           is_listed(host, length, names);
}

bool xn_origin_is_own(const char *origin, const char *host) {
    const char *authority = strstr(origin, "://");
    return authority && host && !strcasecmp(authority + 3, host);
}

bool xn_origin_listed(const char *origin, const char *origins) {
    return is_listed(origin, strlen(origin), origins);
}
