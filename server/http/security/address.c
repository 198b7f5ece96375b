/* address.c: see address.h. */
#include "address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static void ipv4_text(const void *bytes, in_port_t port, char text[XN_ADDRESS_MAX]) {
    char host[INET_ADDRSTRLEN] = "";
    inet_ntop(AF_INET, bytes, host, sizeof host);
    snprintf(text, XN_ADDRESS_MAX, "%s:%d", host, ntohs(port));
}

void xn_address_text(const struct sockaddr *address, char text[XN_ADDRESS_MAX]) {
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    char host[INET6_ADDRSTRLEN] = "";
    snprintf(text, XN_ADDRESS_MAX, "-");
    if (!address)
        return;
    if (address->sa_family == AF_INET) {
        memcpy(&v4, address, sizeof v4);
        ipv4_text(&v4.sin_addr, v4.sin_port, text);
    } else if (address->sa_family == AF_INET6) {
        memcpy(&v6, address, sizeof v6);
        if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
            ipv4_text(&v6.sin6_addr.s6_addr[12], v6.sin6_port, text);
            return;
        }
        inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof host);
        snprintf(text, XN_ADDRESS_MAX, "[%s]:%d", host, ntohs(v6.sin6_port));
    }
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
