/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The Forwarded header (RFC 7239): `for="[2001:db8::1]:80";proto=https`, one element at a time. A header
 * that is wrong anywhere has no fields: half of it is not trusted. Workers; results in the arena.
 */
#include "expr/expr_priv.h"

#include <arpa/inet.h>

enum field {
	FIELD_FOR,
	FIELD_BY,
	FIELD_HOST,
	FIELD_PROTO,
	FIELD_COUNT
};
static const struct str field_names[FIELD_COUNT] = {
	[FIELD_FOR] = { "for", 3 },
	[FIELD_BY] = { "by", 2 },
	[FIELD_HOST] = { "host", 4 },
	[FIELD_PROTO] = { "proto", 5 },
};

/* A node or a half of one: an address, a port, "unknown" or an obfuscated "_name". */
enum node_kind {
	NODE_NONE,
	NODE_ADDR,
	NODE_PORT,
	NODE_TEXT
};
struct node {
	enum node_kind name_kind, port_kind;
	struct addr addr;
	struct str name, port;
	uint16_t port_number;
};

static bool is_alnum(char c)
{
	char l = str_lower_char(c);

	return (l >= 'a' && l <= 'z') || (c >= '0' && c <= '9');
}

/* RFC 9110 5.6.2 */
static bool is_token(struct str s)
{
	for (size_t i = 0; i < s.len; i++) {
		if (!s.p[i] || (!is_alnum(s.p[i]) && !strchr("!#$%&'*+-.^_`|~", s.p[i])))
			return false;
	}
	return s.len != 0;
}

/* What may follow the '_' (RFC 7239 6.3). */
static bool is_obfuscated(struct str s)
{
	for (size_t i = 0; i < s.len; i++) {
		if (!s.p[i] || (!is_alnum(s.p[i]) && !strchr("._-", s.p[i])))
			return false;
	}
	return s.len != 0;
}

static bool port_parse(struct str s, struct node *n)
{
	uint64_t v;

	if (s.len > 1 && s.p[0] == '_' && is_obfuscated(str_from(s, 1))) {
		n->port_kind = NODE_TEXT;
		n->port = s;
		return true;
	}
	if (s.len > 5 || str_to_u64(s, &v) || v > UINT16_MAX)
		return false;
	n->port_kind = NODE_PORT;
	n->port_number = (uint16_t)v;
	return true;
}

/* IPv6 only in brackets, IPv4 only without (RFC 7239 6). */
static bool node_parse(struct str s, struct node *n)
{
	bool is_v6 = s.len && s.p[0] == '[';
	size_t end = str_find_char(s, is_v6 ? ']' : ':');
	struct str name, rest;

	memset(n, 0, sizeof(*n));
	if (is_v6 && end == SIZE_MAX)
		return false;
	name = is_v6 ? str_sub(s, 1, end - 1) : str_sub(s, 0, end == SIZE_MAX ? s.len : end);
	rest = is_v6 ? str_from(s, end + 1) : end == SIZE_MAX ? STR("") : str_from(s, end);
	if (is_v6 || (name.len && name.p[0] >= '0' && name.p[0] <= '9')) {
		if (addr_parse_ip(name, &n->addr) ||
		    n->addr.sa.sa_family != (is_v6 ? AF_INET6 : AF_INET))
			return false;
		n->name_kind = NODE_ADDR;
	} else {
		if (!str_is_case_eq(name, STR("unknown")) &&
		    !(name.len > 1 && name.p[0] == '_' && is_obfuscated(str_from(name, 1))))
			return false;
		n->name_kind = NODE_TEXT;
		n->name = name;
	}
	return rest.len == 0 || (rest.p[0] == ':' && port_parse(str_from(rest, 1), n));
}

static bool is_host(struct str s)
{
	struct str name = host_without_port(s), port = str_from(s, name.len);

	for (size_t i = 0; i < name.len; i++) {
		char c = name.p[i];

		if (c <= ' ' || c == 0x7f || strchr("\"\\/@?#<>{}|^`", c))
			return false;
	}
	return name.len && port.len <= 6;
}

static bool value_is_valid(enum field f, struct str v)
{
	struct node n;

	switch (f) {
	case FIELD_FOR:
	case FIELD_BY:
		return node_parse(v, &n);
	case FIELD_HOST:
		return is_host(v);
	default:
		return str_is_eq(v, STR("http")) || str_is_eq(v, STR("https"));
	}
}

/* name=token or name="quoted"; what needs quoting is in none of the values, escapes neither. */
static bool pair_parse(struct str pair, unsigned *seen, struct str values[FIELD_COUNT])
{
	size_t eq = str_find_char(pair, '=');
	struct str name = str_sub(pair, 0, eq), v;

	if (eq == SIZE_MAX)
		return false;
	v = str_from(pair, eq + 1);
	if (v.len >= 2 && v.p[0] == '"' && v.p[v.len - 1] == '"')
		v = str_sub(v, 1, v.len - 2);
	else if (!is_token(v))
		return false;
	for (unsigned f = 0; f < FIELD_COUNT; f++) {
		if (!str_is_case_eq(name, field_names[f]))
			continue;
		if (*seen & 1u << f || !value_is_valid((enum field)f, v))
			return false;
		*seen |= 1u << f;
		values[f] = v;
		return true;
	}
	return false;
}

static bool forwarded_parse(struct str text, struct str values[FIELD_COUNT])
{
	unsigned seen = 0;

	while (text.p) {
		/* None of the four values can hold a ';'. */
		if (!pair_parse(str_trim(str_cut(&text, ';')), &seen, values))
			return false;
	}
	return seen != 0;
}

/* --- converters --- */

static int conv_is_valid(struct eval *ev, const struct expr_arg *args, unsigned kw,
			 struct sample *smp)
{
	struct str values[FIELD_COUNT];

	sample_set_bool(smp, forwarded_parse(smp->str, values));
	return 0;
}

static int check_field(struct fn_check *c, struct err *err)
{
	for (unsigned f = 0; f < FIELD_COUNT; f++) {
		if (str_is_eq(c->args[0].str, field_names[f])) {
			c->args[0].num = f;
			return 0;
		}
	}
	return err_set(err, -EINVAL, "'" STR_FMT "' is not for, by, host or proto",
		       STR_ARG(str_sub(c->args[0].str, 0, 60)));
}

static int conv_field(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *smp)
{
	struct str values[FIELD_COUNT] = { 0 };

	if (!forwarded_parse(smp->str, values) || !values[args[0].num].p)
		return -ENOENT;
	sample_set_str(smp, SAMPLE_STR, values[args[0].num]);
	return 0;
}

static int conv_node_name(struct eval *ev, const struct expr_arg *args, unsigned kw,
			  struct sample *smp)
{
	struct node n;

	if (!node_parse(smp->str, &n))
		return -ENOENT;
	if (n.name_kind == NODE_TEXT) {
		sample_set_str(smp, SAMPLE_STR, n.name);
		return 0;
	}
	smp->type = SAMPLE_ADDR;
	smp->is_const = false;
	smp->addr = n.addr;
	return 0;
}

static int conv_node_port(struct eval *ev, const struct expr_arg *args, unsigned kw,
			  struct sample *smp)
{
	struct node n;

	if (!node_parse(smp->str, &n) || n.port_kind == NODE_NONE)
		return -ENOENT;
	if (n.port_kind == NODE_TEXT)
		sample_set_str(smp, SAMPLE_STR, n.port);
	else
		sample_set_int(smp, n.port_number);
	return 0;
}

/* "_" and the text. */
static int obfuscated(struct eval *ev, struct sample *smp)
{
	char *p;

	if (sample_cast(smp, SAMPLE_STR, ev->arena) || !is_obfuscated(smp->str))
		return -ENOENT;
	p = eval_alloc(ev, smp->str.len + 1);
	if (!p)
		return -ENOMEM;
	p[0] = '_';
	memcpy(p + 1, smp->str.p, smp->str.len);
	sample_set_str(smp, SAMPLE_STR, str_make(p, smp->str.len + 1));
	return 0;
}

static int conv_make_name(struct eval *ev, const struct expr_arg *args, unsigned kw,
			  struct sample *smp)
{
	char *p;
	size_t n;

	if (smp->type >= SAMPLE_STR && smp->str.len == 0) {
		sample_set_str(smp, SAMPLE_STR, STR("unknown"));
		return 0;
	}
	if (smp->type != SAMPLE_ADDR)
		return obfuscated(ev, smp);
	if (smp->addr.sa.sa_family == AF_INET)
		return sample_cast(smp, SAMPLE_STR, ev->arena);
	p = eval_alloc(ev, INET6_ADDRSTRLEN + 4);
	if (!p)
		return -ENOMEM;
	if (smp->addr.sa.sa_family != AF_INET6 ||
	    !inet_ntop(AF_INET6, &smp->addr.in6.sin6_addr, p + 1, INET6_ADDRSTRLEN))
		return -ENOENT;
	p[0] = '[';
	n = strlen(p);
	p[n++] = ']';
	sample_set_str(smp, SAMPLE_STR, str_make(p, n));
	return 0;
}

static int conv_make_port(struct eval *ev, const struct expr_arg *args, unsigned kw,
			  struct sample *smp)
{
	if (smp->type != SAMPLE_SINT)
		return obfuscated(ev, smp);
	if (smp->sint < 0 || smp->sint > UINT16_MAX)
		return -ENOENT;
	return sample_cast(smp, SAMPLE_STR, ev->arena);
}

static const struct conv_def convs[] = {
	C("rfc7239_is_valid", "", "", STR, BOOL, 0, conv_is_valid, NULL,
	  "is it an element of a Forwarded header"),
	C("rfc7239_field", "for|by|host|proto", "s", STR, STR, 0, conv_field, check_field,
	  "a field of an element of a Forwarded header"),
	C("rfc7239_n2nn", "", "", STR, ANY, 0, conv_node_name, NULL,
	  "the address of such a node, or its _name"),
	C("rfc7239_n2np", "", "", STR, ANY, 0, conv_node_port, NULL,
	  "the port of such a node, or its _name"),
	C("rfc7239_nn", "", "", ANY, STR, 0, conv_make_name, NULL,
	  "address or text as the name of a node: 192.0.2.1, [2001:db8::1], _text, unknown"),
	C("rfc7239_np", "", "", ANY, STR, 0, conv_make_port, NULL,
	  "number or text as the port of a node: 80, _text"),
};

const struct conv_table conv_forwarded_table = { convs, ARRAY_SIZE(convs) };
