/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Section `crt-store`: certificates whose parts are in files of any name, and names for them: `crt "@store/alias"`. And
 * where certificates' other files are looked for. Files are named here and read by net/. Control thread.
 */
#include <errno.h>

#include "conf/kw_action_priv.h"

struct conf_crt_store {
	struct list link;
	char *name; /* "": none */
	char *crt_base, *key_base; /* NULL: as global says */
	struct list crts; /* conf_crt */
};

const char *crt_store_base(const struct conf_crt_store *cs, bool of_keys)
{
	return of_keys ? cs->key_base : cs->crt_base;
}

int crt_store_open(struct parser *ps, struct line *l)
{
	struct conf_crt_store *cs = arena_zalloc(&ps->conf->arena, sizeof(*cs));
	struct str name = STR_NULL;
	int r = 0;

	if (!cs)
		return -ENOMEM;
	if (line_has(l))
		r = section_want_name(ps, l, &name);
	cs->name = arena_strdup(&ps->conf->arena, name);
	if (!cs->name)
		return -ENOMEM;
	list_init(&cs->crts);
	list_push_back(&ps->crt_stores, &cs->link);
	ps->crt_store = cs;
	return r;
}

/* --- lines ------------------------------------------------------------------------------------- */

static int parse_load(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_crt_store *cs = obj;
	struct conf_crt *c = arena_zalloc(&ps->conf->arena, sizeof(*c));
	const struct scope scope = { .table = &conf_kw_crt_load, .obj = c };
	int r;

	if (!c)
		return -ENOMEM;
	c->pos = l->pos;
	r = keyword_options(ps, l, SEC_LOAD, &scope, 1);
	if (r)
		return r;
	if (!c->crt)
		return conf_fail(ps, l, 0, "'load' needs 'crt <file>'");
	if (c->alias && strchr(c->alias, '/'))
		return conf_fail(ps, l, 0, "an alias has no '/'");
	c->written = c->crt;
	c->crt = conf_path(ps, PATH_CRT, c->crt);
	if (!c->crt)
		return -ENOMEM;
	list_push_back(&cs->crts, &c->link);
	return 0;
}

#define AT(field)  .offset = offsetof(struct conf_crt, field)
#define SAT(field) .offset = offsetof(struct conf_crt_store, field)
#define GT(field)  .offset = offsetof(struct conf_global, crt_files.field)

static const struct keyword load_rows[] = {
	{ NAME("crt"), SEC_LOAD, ARG_STRING, AT(crt), .grade = '2', .args = "<file>",
	  .help = "the certificate, and what else the file holds" },
	{ NAME("key"), SEC_LOAD, ARG_STRING, AT(key), .min = PATH_KEY, .grade = '2',
	  .args = "<file>", .help = "its private key, whatever the file of the certificate holds" },
	{ NAME("ocsp"), SEC_LOAD, ARG_STRING, AT(ocsp), .min = PATH_CRT, .grade = '2',
	  .args = "<file>", .help = "its OCSP response" },
	{ NAME("issuer"), SEC_LOAD, ARG_STRING, AT(issuer), .min = PATH_CRT, .grade = '2',
	  .args = "<file>", .help = "the certificate of its issuer, to know its OCSP response by" },
	{ NAME("sctl"), SEC_LOAD, ARG_STRING, AT(sctl), .min = PATH_CRT, .grade = '2',
	  .args = "<file>", .help = "its signed certificate timestamps" },
	{ NAME("alias"), SEC_LOAD, ARG_STRING, AT(alias), .grade = '2', .args = "<name>",
	  .help = "what it is called elsewhere: `@<section>/<name>`, or `@/<name>`" },
};
static const char *const load_refused[] = { "ocsp-update", "acme", "domains", "jwt", NULL };
const struct keyword_table conf_kw_crt_load = KEYWORDS("load option", load_rows,
						       .refused = load_refused);

static const struct keyword rows[] = {
	{ NAME("crt-base"), SEC_CRT_STORE, ARG_STRING, SAT(crt_base), .min = PATH_FILE,
	  .grade = '2', .args = "<directory>",
	  .help = "where relative names of this section start" },
	{ NAME("key-base"), SEC_CRT_STORE, ARG_STRING, SAT(key_base), .min = PATH_FILE,
	  .grade = '2', .args = "<directory>",
	  .help = "where relative `key` names of this section start" },
	{ NAME("load"), SEC_CRT_STORE, ARG_FUNC, .parse = parse_load, .grade = '2',
	  .args = "crt <file> [key <file>] [ocsp <file>] [issuer <file>] [sctl <file>] [alias "
		  "<name>]",
	  .help = "a certificate; `crt @<section>/<alias or file>` uses it" },
};
const struct keyword_table conf_kw_crt_store = KEYWORDS("keyword", rows);

/* --- global ------------------------------------------------------------------------------------ */

static int parse_extra(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	static const struct {
		const char *word;
		unsigned bits;
	} words[] = {
		{ "none", 0 },
		{ "all", CONF_EXTRA_ALL },
		{ "bundle", CONF_EXTRA_BUNDLE },
		{ "sctl", CONF_EXTRA_SCTL },
		{ "ocsp", CONF_EXTRA_OCSP },
		{ "issuer", CONF_EXTRA_ISSUER },
		{ "key", CONF_EXTRA_KEY },
		{ "dh", 0 },
	};
	struct conf_crt_files *f = &((struct conf_global *)obj)->crt_files;
	struct str w;
	int r = line_want(ps, l, "none, all, or bundle, sctl, ocsp, issuer, key", &w);

	f->not_extra = CONF_EXTRA_ALL;
	while (r == 0) {
		size_t i = 0;

		while (i < ARRAY_SIZE(words) && !str_is_eq(w, str_from_cstr(words[i].word)))
			i++;
		if (i == ARRAY_SIZE(words))
			return conf_fail(ps, l, l->at - 1,
					 "'ssl-load-extra-files' expects none, all, bundle, sctl, "
					 "ocsp, issuer or key instead of '" STR_FMT "'",
					 STR_ARG(str_sub(w, 0, 64)));
		f->not_extra &= ~words[i].bits;
		if (!line_has(l))
			break;
		r = line_want(ps, l, "a kind of file", &w);
	}
	return r;
}

static const struct keyword global_rows[] = {
	{ NAME("key-base"), SEC_GLOBAL, ARG_STRING, GT(key_base), .min = PATH_FILE, .grade = '2',
	  .args = "<directory>", .help = "where relative `key` names of crt-stores start" },
	{ NAME("ssl-load-extra-files"), SEC_GLOBAL, ARG_FUNC, .parse = parse_extra, .grade = '2',
	  .args = "none|all|bundle|sctl|ocsp|issuer|key...", .def = "all",
	  .help = "which files beside a certificate are looked for" },
	{ NAME("ssl-load-extra-del-ext"), SEC_GLOBAL, ARG_FLAG, GT(drops_ext), .grade = '2',
	  .help = "site.key instead of site.crt.key" },
	{ NAME("issuers-chain-path"), SEC_GLOBAL, ARG_STRING, GT(issuers), .min = PATH_FILE,
	  .grade = '2', .args = "<directory>",
	  .help = "chains for certificates that come without theirs" },
	{ NAME("ssl-dh-param-file"), SEC_GLOBAL, ARG_STRING, GT(dh_params), .min = PATH_FILE,
	  .grade = '2', .args = "<file>", .help = "parameters for DHE ciphers, in PEM" },
};
const struct keyword_table conf_kw_crt_files = KEYWORDS("keyword", global_rows);

/* --- when all is known ------------------------------------------------------------------------- */

static int place(struct parser *ps, char **path, const char *base)
{
	char *old = *path;

	*path = under_base(ps, base, old);
	return old && !*path ? -ENOMEM : 0;
}

static int finish_crt(struct parser *ps, struct conf_crt_store *cs, struct conf_crt *c)
{
	const struct conf_global *g = &ps->conf->global;
	const char *base = cs->crt_base ? cs->crt_base : g->crt_base;
	const char *key_base = cs->key_base ? cs->key_base : g->crt_files.key_base;
	const struct conf_crt *twin;

	if (place(ps, &c->crt, base) || place(ps, &c->key, key_base) || place(ps, &c->ocsp, base) ||
	    place(ps, &c->issuer, base) || place(ps, &c->sctl, base))
		return -ENOMEM;
	c->name = str_from_cstr(c->crt);
	if (c->alias || cs->name[0])
		c->name = arena_printf(&ps->conf->arena, "@%s/%s", cs->name,
				       c->alias ? c->alias : c->written);
	if (!c->name.p)
		return -ENOMEM;
	twin = names_find(ps->crt_names, c->name);
	if (twin)
		return conf_fail_pos(ps, &c->pos, "'" STR_FMT "' is there twice, first in %s:%u",
				     STR_ARG(str_sub(c->name, 0, 200)), twin->pos.file,
				     twin->pos.line);
	list_del(&c->link);
	list_push_back(&ps->conf->crts, &c->link);
	return names_add(ps->crt_names, c->name, c);
}

int finalize_crt_stores(struct parser *ps)
{
	struct list *s, *l, *next;

	list_for_each(s, &ps->crt_stores) {
		struct conf_crt_store *cs = list_entry(s, struct conf_crt_store, link);

		list_for_each_safe(l, next, &cs->crts) {
			if (finish_crt(ps, cs, list_entry(l, struct conf_crt, link)) == -ENOMEM)
				return -ENOMEM;
		}
	}
	return 0;
}

int check_crt_name(struct parser *ps, const struct conf_pos *pos, const char *crt)
{
	struct str name = str_from_cstr(crt);
	struct nearest near;
	char hint[96];

	if (!crt || crt[0] != '@' || names_find(ps->crt_names, name))
		return 0;
	nearest_init(&near, str_sub(name, 0, 64));
	nearest_offer_names(&near, ps->crt_names);
	return conf_fail_pos(ps, pos, "no 'load' line of a crt-store is called '" STR_FMT "'%s",
			     STR_ARG(str_sub(name, 0, 64)), nearest_hint(&near, hint));
}
