/* address.c: see address.h. */
#include "address.h"

#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

void xn_address_text(const struct sockaddr *address, char text[XN_ADDRESS_MAX]) {
    const bool v4 = address && address->sa_family == AF_INET;
    const bool v6 = address && address->sa_family == AF_INET6;
    const socklen_t length = v4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    char host[INET6_ADDRSTRLEN + IF_NAMESIZE] = "", port[8] = "";
    snprintf(text, XN_ADDRESS_MAX, "-");
    if ((!v4 && !v6) || getnameinfo(address, length, host, sizeof host, port, sizeof port,
                                    NI_NUMERICHOST | NI_NUMERICSERV))
        return;
    const bool mapped =
        v6 && IN6_IS_ADDR_V4MAPPED(&((const struct sockaddr_in6 *)address)->sin6_addr);
    snprintf(text, XN_ADDRESS_MAX, v6 && !mapped ? "[%s]:%s" : "%s:%s",
             mapped ? host + strlen("::ffff:") : host, port);
}

void xn_address_identity(const struct sockaddr *address,
                         unsigned char out[XN_CLIENT_IDENTITY_BYTES]) {
    memset(out, 0, XN_CLIENT_IDENTITY_BYTES);
    if (address->sa_family == AF_INET) {
        memcpy(out, &((const struct sockaddr_in *)address)->sin_addr, 4);
    } else if (address->sa_family == AF_INET6) {
        const struct in6_addr *v6 = &((const struct sockaddr_in6 *)address)->sin6_addr;
        bool mapped = IN6_IS_ADDR_V4MAPPED(v6);
        memcpy(out, mapped ? &v6->s6_addr[12] : v6->s6_addr, mapped ? 4 : 8);
    }
}
