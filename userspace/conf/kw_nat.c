/* SPDX-License-Identifier: BSD-2-Clause */
/* `nat`: addresses and ports of this host that stand for the clients in a section with `forward nat`. */
#include <errno.h>

#include "conf/conf_priv.h"

/* <addr>[,<addr>...] */
static int parse_sources(struct parser *ps, struct line *l, struct conf_nat *n)
{
	struct str text;
	char *list;
	int r = arg_string(ps, l, "addresses of this host", &list);

	if (r)
		return r;
	n->n_sources = 0;
	for (text = str_from_cstr(list); text.len;) {
		struct str one = str_cut(&text, ',');
		struct addr a = { 0 };

		if (addr_parse_ip(one, &a) != 0 || addr_is_any(&a))
			return conf_fail(
				ps, l, l->at - 1,
				"'nat source' expects IP addresses of this host instead of "
				"'" STR_FMT "'",
				(int)(one.len > 64 ? 64 : one.len), one.p);
		if (n->n_sources == CONF_NAT_SOURCES)
			return conf_fail(ps, l, l->at - 1,
					 "'nat source' takes %d addresses at most",
					 CONF_NAT_SOURCES);
		n->sources[n->n_sources++] = a;
	}
	return 0;
}

/* <first>-<last> */
static int parse_ports(struct parser *ps, struct line *l, struct conf_nat *n)
{
	uint64_t first, last;
	struct str text, left;
	char *range;
	int r = arg_string(ps, l, "a range of ports", &range);

	if (r)
		return r;
	text = str_from_cstr(range);
	left = str_cut(&text, '-');
	if (str_to_u64(left, &first) != 0 || str_to_u64(text, &last) != 0 || first < 1024 ||
	    last > 65535 || first > last)
		return conf_fail(ps, l, l->at - 1,
				 "'ports' expects <first>-<last>, from 1024 to 65535, instead of "
				 "'%.32s'",
				 range);
	n->port_first = (uint16_t)first;
	n->port_last = (uint16_t)last;
	return 0;
}

static int parse_nat(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_nat *n = &((struct proxy_build *)obj)->px.nat;
	int r = 0;

	if (!line_has(l))
		return conf_fail(ps, l, l->at, "'nat' expects 'source', 'ports' or 'log'");
	while (r == 0 && line_has(l)) {
		if (line_accept(l, "source"))
			r = parse_sources(ps, l, n);
		else if (line_accept(l, "ports"))
			r = parse_ports(ps, l, n);
		else if (line_accept(l, "log"))
			n->is_logged = true;
		else
			r = conf_fail(
				ps, l, l->at,
				"'nat' expects 'source', 'ports' or 'log' instead of '" STR_FMT "'",
				(int)(line_peek(l).len > 64 ? 64 : line_peek(l).len),
				line_peek(l).p);
	}
	return r;
}

static const struct keyword rows[] = {
	{ NAME("nat"), SEC_DEFAULTS | SEC_LISTEN, ARG_FUNC, .parse = parse_nat, .grade = '1',
	  .args = "[source <address>[,<address>...]] [ports <first>-<last>] [log]",
	  .def = "the address of the route to the server, ports 10000-32767",
	  .help = "forward nat: what packets to the servers come from; log: a line for each "
		  "connection that begins or ends" },
};
const struct keyword_table conf_kw_nat = KEYWORDS("keyword", rows);
