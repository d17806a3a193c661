/* SPDX-License-Identifier: BSD-2-Clause */
/* Headgate's own keywords of `global`: the datapath. Whether an interface exists is found out at start-up. */
#include <errno.h>
#include <headgate/flow.h>
#include <headgate/nat.h>

#include "conf/conf_priv.h"

#define INTERFACE_NAME_MAX 15 /* IFNAMSIZ of net/if.h without the NUL */

static const struct keyword_value modes[] = { VALUE("auto", CONF_XDP_AUTO),
					      VALUE("native", CONF_XDP_NATIVE),
					      VALUE("generic", CONF_XDP_GENERIC), VALUES_END };

static int parse_vlan(struct parser *ps, struct line *l, struct conf_xdp_interface *x)
{
	uint64_t id = CONF_VLAN_AUTO;
	int r = 0;

	if (line_accept(l, "keep"))
		id = CONF_VLAN_KEEP;
	else if (!line_accept(l, "auto"))
		r = arg_u64(ps, l, 1, 4094, &id);
	x->vlan = (uint16_t)id;
	return r;
}

static int parse_interface(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_global *g = obj;
	struct conf_xdp_interface *x = arena_zalloc(&ps->conf->arena, sizeof(*x));
	struct list *p;
	int r;

	if (!x)
		return -ENOMEM;
	x->pos = l->pos;
	r = arg_string(ps, l, "the name of a network interface", &x->name);
	if (r)
		return r;
	if (strlen(x->name) > INTERFACE_NAME_MAX || strpbrk(x->name, "/ \t"))
		return conf_fail(ps, l, l->at - 1,
				 "'%.32s' cannot be the name of an interface (max %d "
				 "characters, no '/' and no spaces)",
				 x->name, INTERFACE_NAME_MAX);
	list_for_each(p, &g->xdp_interfaces) {
		if (strcmp(list_entry(p, struct conf_xdp_interface, link)->name, x->name) == 0)
			return conf_fail(ps, l, l->at - 1, "interface '%s' is named twice",
					 x->name);
	}
	while (line_has(l)) {
		if (line_accept(l, "exclusive")) {
			x->is_exclusive = true;
		} else if (line_accept(l, "vlan")) {
			r = parse_vlan(ps, l, x);
			if (r)
				return r;
		} else if (line_accept(l, "mode")) {
			r = arg_value(ps, l, modes, &x->mode);
			if (r)
				return r;
		} else {
			return conf_fail(
				ps, l, l->at,
				"'xdp interface' expects 'mode auto|native|generic', 'vlan "
				"auto|keep|<id>' or 'exclusive' instead of '" STR_FMT "'",
				(int)(line_peek(l).len > 64 ? 64 : line_peek(l).len),
				line_peek(l).p);
		}
	}
	list_push_back(&g->xdp_interfaces, &x->link);
	return 0;
}

static int parse_source(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_global *g = obj;
	struct addr_prefix p;
	struct addr_prefix *slot;

	if (!line_has(l) || addr_prefix_parse(line_peek(l), &p) != 0 || addr_is_any(&p.addr))
		return conf_fail(
			ps, l, l->at,
			"'xdp source' expects an address or a prefix such as 10.255.0.0/16 "
			"or fd00:ed::/96");
	slot = &g->xdp_source[p.addr.sa.sa_family == AF_INET6];
	if (slot->addr.sa.sa_family)
		return conf_fail(ps, l, l->at, "'xdp source' for %s is set twice",
				 slot == g->xdp_source ? "IPv4" : "IPv6");
	l->at++;
	*slot = p;
	return 0;
}

static int parse_seed(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	return arg_u64(ps, l, 0, UINT32_MAX, &((struct conf_global *)obj)->xdp_hash_seed);
}

static const struct keyword xdp_rows[] = {
	{ NAME("interface"), SEC_GLOBAL, ARG_FUNC, .parse = parse_interface, .grade = '1',
	  .args = "<name> [mode auto|native|generic] [vlan auto|keep|<id>] [exclusive]",
	  .help = "receive queues that the datapath works on" },
	{ NAME("source"), SEC_GLOBAL, ARG_FUNC, .parse = parse_source, .grade = '1',
	  .args = "<address>[/<bits>]", .def = "the route's",
	  .help = "outer source address of tunnels, once per family; host bits carry flow "
		  "entropy" },
	{ NAME("flow-entries"), SEC_GLOBAL, ARG_UINT,
	  .offset = offsetof(struct conf_global, xdp_flow_entries),
	  NUMBER(1000, HG_FLOW_LINES_MAX *HG_LINE_WAYS), .grade = '1', .args = "<number>",
	  .def = "81920",
	  .help = "room for connections that a change would break, 12.8 bytes each" },
	{ NAME("hash-seed"), SEC_GLOBAL, ARG_FUNC, .parse = parse_seed, .grade = '1',
	  .args = "<number>", .def = "0",
	  .help = "seed of the flow hash; the same on every host of a fleet" },
	{ NAME("nat-connections"), SEC_GLOBAL, ARG_UINT,
	  .offset = offsetof(struct conf_global, xdp_nat_connections),
	  NUMBER(HG_NAT_CONNS_MIN, HG_NAT_CONNS_MAX), .grade = '1', .args = "<number>",
	  .def = "131072 when a section needs it",
	  .help = "room for connections of 'forward nat'; a power of two, or the next one" },
	{ NAME("guard"), SEC_GLOBAL, ARG_FUNC, .parse = parse_guard, .grade = '1',
	  .args = "packet-rate|syn-rate <number>/s [burst <number>] per source, max-conn <number> "
		  "per source, syn-cookies auto|on|off [above <number>/s] [keys <file>]",
	  .help = "what a source may send to services, and how many connections to the L7 tier it "
		  "may have: more is dropped; when SYNs are answered by cookies" },
	{ NAME("deny-file"), SEC_GLOBAL, ARG_FUNC, .parse = parse_deny_file, .grade = '1',
	  .args = "<file>", .help = "prefixes whose packets services do not get, one a line" },
	{ NAME("steer"), SEC_GLOBAL, ARG_FUNC, .parse = parse_steer, .grade = '1',
	  .args = "[cpus] <list> | auto | off", .def = "off",
	  .help = "CPUs that packets for the L7 tier go to, by flow; auto: all that are online" },
	{ NAME("bpffs"), SEC_GLOBAL, ARG_STRING, .offset = offsetof(struct conf_global, xdp_bpffs),
	  .grade = '1', .args = "<directory>", .def = "/sys/fs/bpf",
	  .help = "where the BPF file system is mounted" },
};
static const struct keyword_table xdp_table = KEYWORDS("xdp keyword", xdp_rows);

static const struct keyword rows[] = {
	{ NAME("xdp"), SEC_GLOBAL, ARG_SUB, .sub = &xdp_table, .grade = '1',
	  .help = "the datapath" },
	{ NAME("sk-steer"), SEC_GLOBAL, ARG_FUNC, .parse = parse_sk_steer, .grade = '1',
	  .args = "cpu | least | off", .def = "off",
	  .help = "which worker gets a new connection: the one on the CPU that took its SYN, or "
		  "the "
		  "one with the fewest; off: by the kernel's hash" },
};
const struct keyword_table conf_kw_xdp = KEYWORDS("keyword", rows);

/* --- in sections -------------------------------------------------------------------------------------- */

static const struct keyword section_rows[] = {
	{ NAME("guard"), SEC_FL, ARG_FUNC, .parse = parse_section_guard, .grade = '1',
	  .args = "syn-rate <number>/s [burst <number>], max-conn <number>, syn-cookies",
	  .help = "what each service of the section gets in all; more is dropped in XDP; SYNs of a "
		  "section of 'mode l4' may be answered by cookies" },
	{ NAME("allow"), SEC_FL, ARG_FUNC, .parse = parse_allow, .grade = '1',
	  .args = "<prefix>...",
	  .help = "who may use the services of the section; others are dropped in XDP" },
	{ NAME("allow-file"), SEC_FL, ARG_FUNC, .parse = parse_allow_file, .grade = '1',
	  .args = "<file>", .help = "the same from a file, one prefix a line" },
};
static const struct keyword_table section_table = KEYWORDS("xdp keyword", section_rows);

static const struct keyword proxy_rows[] = {
	{ NAME("xdp"), SEC_FL, ARG_SUB, .sub = &section_table, .grade = '1',
	  .help = "the datapath's guard of the section's services" },
};
const struct keyword_table conf_kw_guard = KEYWORDS("keyword", proxy_rows);
