/* SPDX-License-Identifier: BSD-2-Clause */
/* Headgate's own keywords of `global`: the datapath. Whether an interface exists is found out at start-up. */
#include <errno.h>

#include "conf/conf_priv.h"

#define INTERFACE_NAME_MAX 15 /* IFNAMSIZ of net/if.h without the NUL */

static const struct keyword_value modes[] = { VALUE("auto", CONF_XDP_AUTO),
					      VALUE("native", CONF_XDP_NATIVE),
					      VALUE("generic", CONF_XDP_GENERIC), VALUES_END };

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
		} else if (line_accept(l, "mode")) {
			r = arg_value(ps, l, modes, &x->mode);
			if (r)
				return r;
		} else {
			return conf_fail(
				ps, l, l->at,
				"'xdp interface' expects 'mode auto|native|generic' or 'exclusive' "
				"instead of '" STR_FMT "'",
				(int)(line_peek(l).len > 64 ? 64 : line_peek(l).len),
				line_peek(l).p);
		}
	}
	list_push_back(&g->xdp_interfaces, &x->link);
	return 0;
}

static int parse_seed(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	return arg_u64(ps, l, 0, UINT32_MAX, &((struct conf_global *)obj)->xdp_hash_seed);
}

static const struct keyword xdp_rows[] = {
	{ NAME("interface"), SEC_GLOBAL, ARG_FUNC, .parse = parse_interface, .grade = '1',
	  .args = "<name> [mode auto|native|generic] [exclusive]",
	  .help = "receive queues that the datapath works on" },
	{ NAME("hash-seed"), SEC_GLOBAL, ARG_FUNC, .parse = parse_seed, .grade = '1',
	  .args = "<number>", .def = "0",
	  .help = "seed of the flow hash; the same on every host of a fleet" },
	{ NAME("bpffs"), SEC_GLOBAL, ARG_STRING, .offset = offsetof(struct conf_global, xdp_bpffs),
	  .grade = '1', .args = "<directory>", .def = "/sys/fs/bpf",
	  .help = "where the BPF file system is mounted" },
};
static const char *const xdp_pending[] = { "guard", "steer", "deny-file", NULL };
static const struct keyword_table xdp_table = KEYWORDS("xdp keyword", xdp_rows,
						       .pending = xdp_pending);

static const struct keyword rows[] = {
	{ NAME("xdp"), SEC_GLOBAL, ARG_SUB, .sub = &xdp_table, .grade = '1',
	  .help = "the datapath" },
};
const struct keyword_table conf_kw_xdp = KEYWORDS("keyword", rows);
