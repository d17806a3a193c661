/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Socket addresses and their text forms, as the configuration language writes them. Values, no
 * ownership, any thread. Never resolves a name: that is the resolver's work.
 */
#ifndef BASE_ADDR_H
#define BASE_ADDR_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/err.h"
#include "base/str.h"

/* Only the IP forms, 28 bytes: what connections and servers carry by the thousand. */
struct addr {
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	};
}; /* sa.sa_family: AF_UNSPEC (none), AF_INET, AF_INET6, or AF_UNIX for "a unix peer", no path */

/* Room for "[ffff:…:255.255.255.255]:65535" and a NUL. */
#define ADDR_TEXT_MAX 72

socklen_t addr_len(const struct addr *a);
bool addr_is_eq(const struct addr *a, const struct addr *b); /* family, address and port */
bool addr_is_ip_eq(const struct addr *a, const struct addr *b); /* without the port */
bool addr_is_any(const struct addr *a); /* 0.0.0.0 or :: */
uint16_t addr_port(const struct addr *a); /* host order */
void addr_set_port(struct addr *a, uint16_t port);
/* The 16 bytes used as key in maps: IPv6 as it is, IPv4 as ::ffff:a.b.c.d. */
void addr_to_v6_mapped(const struct addr *a, uint8_t ret_bytes[16]);

/* "192.0.2.1", "2001:db8::1" (with or without brackets). 0 or -EINVAL. Port becomes 0. */
HG_WUR int addr_parse_ip(struct str s, struct addr *ret_addr);
/* Text without port; returns the length. `size` at least ADDR_TEXT_MAX. */
size_t addr_format_ip(const struct addr *a, char *out, size_t size);
/* "192.0.2.1:80", "[2001:db8::1]:80", "unix" for AF_UNIX. */
size_t addr_format(const struct addr *a, char *out, size_t size);

/*
 * A prefix such as 192.0.2.0/24 or 192.0.2.0/255.255.255.0; without "/n" a host. Host bits are
 * cleared. 0 or -EINVAL. An IPv4-mapped IPv6 address is in a prefix when its IPv4 form is.
 */
struct addr_prefix {
	struct addr addr;
	uint8_t bits;
};
HG_WUR int addr_prefix_parse(struct str s, struct addr_prefix *ret_prefix);
bool addr_prefix_has(const struct addr_prefix *p, const struct addr *a);

/*
 * A whole address of the configuration language:
 *   ip:port  :port  *:port  [v6]:port  v6:port  ip  ip:port-port  ip:+offset
 *   ipv4@ ipv6@ tcp4@ tcp6@ udp@ udp4@ udp6@ unix@path abns@name fd@N sockpair@N stream+… dgram+…  /path
 */
enum endpoint_kind {
	ENDPOINT_IP, /* addr is an address (perhaps 0.0.0.0 or ::) */
	ENDPOINT_NAME, /* host is a name to resolve; addr has only the port */
	ENDPOINT_UNIX, /* path */
	ENDPOINT_ABNS, /* path without the leading NUL */
	ENDPOINT_FD, /* fd, inherited, bound and listening */
};

struct endpoint {
	enum endpoint_kind kind;
	bool is_dgram; /* udp@ */
	bool has_port;
	bool is_sockpair; /* ENDPOINT_FD: connections arrive as descriptors over this socket */
	bool has_any_host; /* "*" or empty host: 0.0.0.0 (:: after ipv6@); "::": IPv6 and, where the socket allows, IPv4 */
	int8_t port_offset_sign; /* server "ip:+80" or "ip:-80": the client's port plus that; 0: none */
	int family; /* AF_UNSPEC, or what ipv4@/ipv6@ demand */
	struct addr addr;
	uint16_t port, port_last; /* equal unless a range was given; host order */
	int fd;
	struct str host; /* ENDPOINT_NAME; points into the parsed text */
	struct str path; /* ENDPOINT_UNIX, ENDPOINT_ABNS; points into the parsed text */
};

/* 0 or -EINVAL with a text. Port 0, missing ports and offsets are the caller's to judge. */
HG_WUR int endpoint_parse(struct str s, struct endpoint *ret_ep, struct err *err);

#endif
