/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Addresses of the configuration language: a table of prefixes, then one parser per kind. As in
 * HAProxy the last colon outside brackets separates the port, so "2001:db8::1:80" is port 80; a
 * text that only makes sense as a whole address ("::1") is taken as one. Pure; any thread.
 */
#include <errno.h>
#include <limits.h>

#include "base/addr.h"

enum form {
	FORM_IP,
	FORM_UNIX,
	FORM_ABNS,
	FORM_FD,
	FORM_SOCKPAIR,
	FORM_UNSUPPORTED,
};

struct prefix {
	struct str text;
	enum form form;
	int family;
	bool is_dgram;
};

#define PREFIX(lit, ...) { { lit, sizeof(lit) - 1 }, __VA_ARGS__ }
static const struct prefix prefixes[] = {
	PREFIX("ipv4@", FORM_IP, AF_INET, false),
	PREFIX("ipv6@", FORM_IP, AF_INET6, false),
	PREFIX("ip@", FORM_IP, AF_UNSPEC, false),
	PREFIX("tcp@", FORM_IP, AF_UNSPEC, false),
	PREFIX("tcp4@", FORM_IP, AF_INET, false),
	PREFIX("tcp6@", FORM_IP, AF_INET6, false),
	PREFIX("udp@", FORM_IP, AF_UNSPEC, true),
	PREFIX("udp4@", FORM_IP, AF_INET, true),
	PREFIX("udp6@", FORM_IP, AF_INET6, true),
	PREFIX("unix@", FORM_UNIX, AF_UNIX, false),
	PREFIX("uxst@", FORM_UNIX, AF_UNIX, false),
	PREFIX("uxdg@", FORM_UNIX, AF_UNIX, true),
	PREFIX("abns@", FORM_ABNS, AF_UNIX, false),
	PREFIX("fd@", FORM_FD, AF_UNSPEC, false),
	PREFIX("sockpair@", FORM_SOCKPAIR, AF_UNSPEC, false),
	PREFIX("/", FORM_UNIX, AF_UNIX, false),
	PREFIX("abnsz@", FORM_UNSUPPORTED, AF_UNSPEC, false),
	PREFIX("mptcp@", FORM_UNSUPPORTED, AF_UNSPEC, false),
	PREFIX("mptcp4@", FORM_UNSUPPORTED, AF_UNSPEC, false),
	PREFIX("mptcp6@", FORM_UNSUPPORTED, AF_UNSPEC, false),
	PREFIX("quic4@", FORM_UNSUPPORTED, AF_UNSPEC, false),
	PREFIX("quic6@", FORM_UNSUPPORTED, AF_UNSPEC, false),
	PREFIX("quic+", FORM_UNSUPPORTED, AF_UNSPEC, false),
	PREFIX("rhttp@", FORM_UNSUPPORTED, AF_UNSPEC, false),
};

/* Everything a parser below needs besides the endpoint it fills. */
struct parse {
	struct str whole; /* as written, for messages */
	struct str rest; /* behind the prefixes */
	struct endpoint *ep;
	struct err *err;
};

static int parse_path(struct parse *p, bool is_abstract)
{
	/* Either a NUL ends the path (unix) or begins the name (abns). */
	const size_t max = sizeof(((struct sockaddr_un *)0)->sun_path) - 1;

	p->ep->kind = is_abstract ? ENDPOINT_ABNS : ENDPOINT_UNIX;
	if (p->rest.len == 0)
		return err_set(p->err, -EINVAL, "missing %s in address '" STR_FMT "'",
			       is_abstract ? "name" : "path", STR_ARG(p->whole));
	if (p->rest.len > max)
		return err_set(p->err, -EINVAL, "socket path '" STR_FMT "' is too long (max %zu)",
			       STR_ARG(p->rest), max);
	p->ep->path = p->rest;
	return 0;
}

static int parse_fd(struct parse *p, bool is_sockpair)
{
	uint64_t fd;

	if (str_to_u64(p->rest, &fd) || fd > INT_MAX)
		return err_set(p->err, -EINVAL,
			       "'" STR_FMT "' is not a file descriptor number in '" STR_FMT "'",
			       STR_ARG(p->rest), STR_ARG(p->whole));
	p->ep->kind = ENDPOINT_FD;
	p->ep->fd = (int)fd;
	p->ep->is_sockpair = is_sockpair;
	return 0;
}

static int parse_port_number(struct parse *p, struct str s, uint16_t *ret_port)
{
	uint64_t port;
	int r = str_to_u64(s, &port);

	for (size_t i = 0; r == -EINVAL && i < s.len; i++) {
		if (s.p[i] < '0' || s.p[i] > '9')
			return err_set(p->err, -EINVAL,
				       "invalid character '%c' in port '" STR_FMT "' of '" STR_FMT
				       "'",
				       s.p[i] >= ' ' && s.p[i] < 127 ? s.p[i] : '?', STR_ARG(s),
				       STR_ARG(p->whole));
	}
	if (r == -EINVAL)
		return err_set(p->err, -EINVAL, "missing port number in '" STR_FMT "'",
			       STR_ARG(p->whole));
	if (r || port > UINT16_MAX)
		return err_set(p->err, -EINVAL,
			       "port '" STR_FMT "' of '" STR_FMT "' is not in the range 0-65535",
			       STR_ARG(s), STR_ARG(p->whole));
	*ret_port = (uint16_t)port;
	return 0;
}

/* "80", "80-90", "+80", "-80", or nothing. */
static int parse_port(struct parse *p, struct str s)
{
	struct endpoint *ep = p->ep;
	int r;

	if (s.len == 0)
		return 0;
	ep->has_port = true;
	if (s.p[0] == '+' || s.p[0] == '-') {
		ep->port_offset_sign = s.p[0] == '+' ? 1 : -1;
		r = parse_port_number(p, str_from(s, 1), &ep->port);
		ep->port_last = ep->port;
		return r;
	}
	r = parse_port_number(p, str_cut(&s, '-'), &ep->port);
	if (r)
		return r;
	ep->port_last = ep->port;
	if (!s.p)
		return 0;
	r = parse_port_number(p, s, &ep->port_last);
	if (r)
		return r;
	if (ep->port_last < ep->port)
		return err_set(p->err, -EINVAL,
			       "port range of '" STR_FMT "' ends before it begins (%u-%u)",
			       STR_ARG(p->whole), ep->port, ep->port_last);
	return 0;
}

/* Letters, digits and "-_." (RFC 1123 2.1, and the underscore people use), not only digits and dots. */
static bool is_host_name(struct str s)
{
	bool has_letter = false;

	if (s.len == 0 || s.len > 253 || s.p[0] == '.' || s.p[0] == '-')
		return false;
	for (size_t i = 0; i < s.len; i++) {
		char c = str_lower_char(s.p[i]);

		if ((c >= 'a' && c <= 'z') || c == '_' || c == '-')
			has_letter = true;
		else if (!(c >= '0' && c <= '9') && c != '.')
			return false;
	}
	return has_letter;
}

static void set_any(struct endpoint *ep, int family)
{
	memset(&ep->addr, 0, sizeof(ep->addr));
	ep->addr.sa.sa_family = (sa_family_t)family;
	ep->has_any_host = true;
}

static int parse_host(struct parse *p, struct str host)
{
	static const char *const kinds[] = { "an IP address or host name", "an IPv4 address",
					     "an IPv6 address" };
	struct endpoint *ep = p->ep;
	int family = ep->family;

	ep->kind = ENDPOINT_IP;
	if (host.len == 0 || str_is_eq(host, STR("*"))) {
		set_any(ep, family == AF_INET6 ? AF_INET6 : AF_INET);
		return 0;
	}
	if (addr_parse_ip(host, &ep->addr) == 0) {
		if (family != AF_UNSPEC && ep->addr.sa.sa_family != family)
			goto bad;
		if (ep->addr.sa.sa_family == AF_INET6 && addr_is_any(&ep->addr))
			ep->has_any_host = true;
		return 0;
	}
	if (!is_host_name(host))
		goto bad;
	ep->kind = ENDPOINT_NAME;
	ep->host = host;
	return 0;
bad:
	return err_set(p->err, -EINVAL, "'" STR_FMT "' is not %s in '" STR_FMT "'", STR_ARG(host),
		       kinds[family == AF_INET	  ? 1
			     : family == AF_INET6 ? 2
						  : 0],
		       STR_ARG(p->whole));
}

static int parse_ip(struct parse *p)
{
	struct str s = p->rest, host = s, port = STR_NULL;
	struct addr a;
	size_t i = s.len;
	int r;

	/* The first ':' or ']' from the right decides: a colon outside brackets begins the port. */
	while (i > 0 && s.p[i - 1] != ':' && s.p[i - 1] != ']')
		i--;
	if (i > 0 && s.p[i - 1] == ':') {
		host = str_sub(s, 0, i - 1);
		port = str_from(s, i);
	}
	/* "::1" and "2001:db8::1" have no port: what is before the last colon is no address. */
	if (port.p && str_find_char(host, ':') != SIZE_MAX && addr_parse_ip(host, &a) &&
	    addr_parse_ip(s, &a) == 0) {
		host = s;
		port = STR_NULL;
	}
	r = parse_port(p, port);
	if (r == 0)
		r = parse_host(p, host);
	if (r)
		return r;
	if (p->ep->kind == ENDPOINT_NAME)
		memset(&p->ep->addr, 0, sizeof(p->ep->addr));
	if (p->ep->has_port && p->ep->port_offset_sign == 0)
		addr_set_port(&p->ep->addr, p->ep->port);
	return 0;
}

static int parse_form(struct parse *p, enum form form, struct str prefix)
{
	switch (form) {
	case FORM_UNIX:
		return parse_path(p, false);
	case FORM_ABNS:
		return parse_path(p, true);
	case FORM_FD:
		return parse_fd(p, false);
	case FORM_SOCKPAIR:
		return parse_fd(p, true);
	case FORM_UNSUPPORTED:
		return err_set(p->err, -EINVAL,
			       "addresses that begin with '" STR_FMT
			       "' are not supported, in '" STR_FMT "'",
			       STR_ARG(prefix), STR_ARG(p->whole));
	case FORM_IP:
		break;
	}
	return parse_ip(p);
}

/* An address such as "tcp5@…" is a misspelt prefix, not a host name. */
static int refuse_unknown_prefix(struct parse *p)
{
	struct str rest = p->rest, word = str_cut(&rest, '@');
	const struct prefix *nearest = NULL;
	unsigned best = 3;

	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
		struct str known = str_sub(prefixes[i].text, 0, prefixes[i].text.len - 1);
		unsigned d = str_distance(word, known);

		if (prefixes[i].form != FORM_UNSUPPORTED && known.len && d < best) {
			best = d;
			nearest = &prefixes[i];
		}
	}
	if (nearest)
		return err_set(p->err, -EINVAL,
			       "unknown address prefix '" STR_FMT "@' in '" STR_FMT
			       "', did you mean '" STR_FMT "'?",
			       STR_ARG(word), STR_ARG(p->whole), STR_ARG(nearest->text));
	return err_set(p->err, -EINVAL, "unknown address prefix '" STR_FMT "@' in '" STR_FMT "'",
		       STR_ARG(word), STR_ARG(p->whole));
}

int endpoint_parse(struct str s, struct endpoint *ret_ep, struct err *err)
{
	struct endpoint ep = { .fd = -1 };
	struct parse p = { .whole = s, .rest = s, .ep = &ep, .err = err };
	bool is_forced_stream = false;
	int r;

	if (s.len == 0)
		return err_set(err, -EINVAL, "missing address");
	if (memchr(s.p, '\0', s.len))
		return err_set(err, -EINVAL, "address with a NUL character");
	if (str_is_prefix(p.rest, STR("stream+"))) {
		is_forced_stream = true;
		p.rest = str_from(p.rest, 7);
	} else if (str_is_prefix(p.rest, STR("dgram+"))) {
		ep.is_dgram = true;
		p.rest = str_from(p.rest, 6);
	}
	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
		const struct prefix *x = &prefixes[i];

		if (!str_is_prefix(p.rest, x->text))
			continue;
		if (is_forced_stream && x->is_dgram)
			return err_set(err, -EINVAL,
				       "'stream+' contradicts '" STR_FMT "' in '" STR_FMT "'",
				       STR_ARG(x->text), STR_ARG(s));
		/* The slash of a bare path belongs to the path. */
		if (x->text.len > 1)
			p.rest = str_from(p.rest, x->text.len);
		ep.family = x->family;
		ep.is_dgram |= x->is_dgram;
		r = parse_form(&p, x->form, x->text);
		goto out;
	}
	if (str_find_char(p.rest, '@') != SIZE_MAX)
		return refuse_unknown_prefix(&p);
	r = parse_ip(&p);
out:
	if (r == 0)
		*ret_ep = ep;
	return r;
}
