/* SPDX-License-Identifier: BSD-2-Clause */
/* The keyword tables as one flat list, for the generated documentation. Built at the first call; not for several threads at once. */
#include <stdio.h>

#include "conf/conf_priv.h"
#include "conf/kw_action_priv.h"

#define DOCS_MAX 1024

static struct conf_keyword_doc docs[DOCS_MAX];
static char names[DOCS_MAX][64], sections[DOCS_MAX][160];
static unsigned n_docs;

static void add_names(const char *const *list, const char *prefix, uint16_t bits, char grade,
		      const char *help)
{
	for (; list && *list && n_docs < DOCS_MAX; list++) {
		struct conf_keyword_doc *d = &docs[n_docs];

		snprintf(names[n_docs], sizeof(names[0]), "%s%s", prefix, *list);
		section_list(bits, sections[n_docs]);
		*d = (struct conf_keyword_doc){ .name = names[n_docs],
						.sections = sections[n_docs],
						.grade = grade,
						.help = help };
		n_docs++;
	}
}

static void add_table(const struct keyword_table *t, const char *prefix, unsigned depth)
{
	uint16_t bits = 0;

	for (unsigned i = 0; i < t->n && n_docs < DOCS_MAX; i++) {
		const struct keyword *kw = &t->rows[i];
		struct conf_keyword_doc *d = &docs[n_docs];
		char sub[64];

		bits |= kw->sections;
		if (kw->type == ARG_SUB && depth < 3) {
			snprintf(sub, sizeof(sub), "%s%s ", prefix, kw->name.p);
			add_table(kw->sub, sub, depth + 1);
			continue;
		}
		snprintf(names[n_docs], sizeof(names[0]), "%s%s", prefix, kw->name.p);
		section_list(kw->sections, sections[n_docs]);
		*d = (struct conf_keyword_doc){ .name = names[n_docs],
						.sections = sections[n_docs],
						.args = kw->args,
						.default_value = kw->def,
						.help = kw->help,
						.grade = kw->flags & KW_PENDING ? '2'
							 : kw->grade == '2'	? '1'
										: kw->grade };
		n_docs++;
	}
	add_names(t->noop, prefix, bits, 'n', "accepted, without effect");
	add_names(t->pending, prefix, bits, '2', "not supported by this version");
	add_names(t->refused, prefix, bits, '3', "known by HAProxy, not supported");
}

static void build(void)
{
	static const struct keyword_table *const tables[] = {
		&conf_kw_global,
		&conf_kw_global_tls,
		&conf_kw_env,
		&conf_kw_xdp,
		&conf_kw_vars,
		&conf_kw_log,
		&conf_kw_proxy,
		&conf_kw_balance,
		&conf_kw_check,
		&conf_kw_rules,
		&conf_kw_bind,
		&conf_kw_server,
		&conf_kw_server_link,
		&conf_kw_tls,
		&conf_kw_userlist,
		&conf_kw_stick,
		&conf_kw_guard,
		&conf_kw_errors,
		&conf_kw_h2,
		&conf_kw_l4,
		&conf_kw_nat,
		&conf_kw_resolvers,
		&conf_kw_server_resolve,
		&conf_kw_ring,
		&conf_kw_crt_store,
		&conf_kw_crt_load,
		&conf_kw_crt_files,
		&conf_kw_persist,
		&conf_kw_socket,
		&conf_kw_socket_global,
		&conf_kw_case,
	};

	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		add_table(tables[i], "", 0);
	add_table(&conf_kw_bind_link, "", 0);
	for (unsigned i = 0; n_docs < DOCS_MAX; i++) {
		if (!action_doc(i, &docs[n_docs], sections[n_docs]))
			break;
		n_docs++;
	}
}

const struct conf_keyword_doc *conf_keyword_doc(unsigned i)
{
	if (!n_docs)
		build();
	return i < n_docs ? &docs[i] : NULL;
}
