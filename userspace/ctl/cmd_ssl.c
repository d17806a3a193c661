/* SPDX-License-Identifier: BSD-2-Clause */
/* crt-lists, ticket keys and OCSP responses at run time: `… ssl crt-list`, `… tls-key`, `… ssl ocsp-response`. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/mem.h"
#include "ctl/cmd_rows.h"

static struct cert_store *store_of(const struct cmd *c)
{
	return c->ctl->current->certs;
}

/* Argument i, or the complaint that it is missing and NULL. */
static const char *want(struct cmd *c, unsigned i, const char *what)
{
	const char *arg = cmd_arg(c, i);

	if (!arg)
		cmd_say(c, "This command expects %s.", what);
	return arg;
}

static struct str payload_of(const struct cmd *c)
{
	return c->payload ? str_from_cstr(c->payload) : STR_NULL;
}

/* --- crt-lists --- */

static int put_list_name(void *ctx, const char *path, const char *text)
{
	fprintf(ctx, "%s\n", path);
	return 0;
}

struct list_view {
	FILE *out;
	const char *path;
	bool has_numbers, is_found;
};

static int put_list(void *ctx, const char *path, const char *text)
{
	struct list_view *v = ctx;
	struct str rest = str_from_cstr(text);
	unsigned number = 0;

	if (strcmp(path, v->path) != 0)
		return 0;
	v->is_found = true;
	fprintf(v->out, "# %s\n", path);
	while (rest.p) {
		struct str line = str_trim(str_cut(&rest, '\n')), word = line;
		size_t n = 0;

		number++;
		if (line.len == 0 || line.p[0] == '#')
			continue;
		while (n < word.len && word.p[n] != ' ' && word.p[n] != '\t')
			n++;
		fprintf(v->out, STR_FMT, STR_ARG(str_sub(line, 0, n)));
		if (v->has_numbers)
			fprintf(v->out, ":%u", number);
		fprintf(v->out, STR_FMT "\n", STR_ARG(str_from(line, n)));
	}
	return 1;
}

int cmd_show_ssl_crt_list(struct cmd *c)
{
	struct list_view v = { .out = c->out, .path = cmd_arg(c, 0) };

	if (v.path && strcmp(v.path, "-n") == 0) {
		v.has_numbers = true;
		v.path = cmd_arg(c, 1);
	}
	(void)cert_store_each_list(store_of(c), v.path ? put_list : put_list_name,
				   v.path ? (void *)&v : c->out);
	if (v.path && !v.is_found)
		cmd_say(c, "didn't find the specified filename");
	return 0;
}

/* Builds from the changed list; takes the change back when that fails. */
static int apply_list(struct cmd *c, const char *path, char *old, struct err *err)
{
	int rc = ctl_rebuild_tls(c->ctl, TLS_USED_LIST, path, err);

	if (rc == 0) {
		mem_free(old);
		return 0;
	}
	if (cert_store_list_restore(store_of(c), path, old))
		log_msg(LOG_LVL_ERR, "out of memory: the crt-list '%s' keeps a faulty line", path);
	ctl_recount_certs(c->ctl);
	return rc;
}

int cmd_add_ssl_crt_list(struct cmd *c)
{
	const char *path = want(c, 0, "a crt-list and a certificate");
	const char *cert = path ? cmd_arg(c, 1) : NULL;
	struct str line = cert ? str_from_cstr(cert) : str_trim(payload_of(c));
	struct err err = { "" };
	char *old;

	if (!path)
		return 0;
	if (line.len == 0 || str_find_char(line, '\n') != SIZE_MAX) {
		cmd_say(c, "This command expects a certificate, or one line of a crt-list as "
			   "payload.");
		return 0;
	}
	if (cert_store_list_add(store_of(c), path, line, &old, &err) ||
	    apply_list(c, path, old, &err)) {
		cmd_say(c, "Can't edit the crt-list: %s", err.text);
		return 0;
	}
	cmd_data(c, "Inserting certificate '" STR_FMT "' in crt-list '%s'.",
		 STR_ARG(str_sub(line, 0, line.len)), path);
	cmd_tell(c, "Success!");
	return 0;
}

int cmd_del_ssl_crt_list(struct cmd *c)
{
	const char *path = want(c, 0, "a crt-list and a certificate");
	const char *entry = path ? want(c, 1, "a crt-list and a certificate") : NULL;
	struct str cert = str_from_cstr(entry);
	struct err err = { "" };
	uint64_t number = 0;
	size_t colon;
	char *old;

	if (!entry)
		return 0;
	for (colon = cert.len; colon && cert.p[colon - 1] != ':';)
		colon--;
	if (colon && str_to_u64(str_from(cert, colon), &number) == 0)
		cert = str_sub(cert, 0, colon - 1);
	if (cert_store_list_del(store_of(c), path, cert, (unsigned)number, &old, &err) ||
	    apply_list(c, path, old, &err))
		cmd_say(c, "Can't delete the entry: %s", err.text);
	else
		cmd_tell(c, "Entry '" STR_FMT "' deleted in crtlist '%s'!", STR_ARG(cert), path);
	return 0;
}

/* --- OCSP responses --- */

int cmd_show_ssl_ocsp(struct cmd *c)
{
	const char *word = cmd_arg(c, 0), *name = word;
	bool is_base64 = word && strcmp(word, "base64") == 0;

	if (is_base64 || (word && strcmp(word, "text") == 0))
		name = want(c, 1, "the id or the path of a certificate");
	if (!word)
		cert_store_list_ocsp(store_of(c), c->out);
	else if (name && cert_store_describe_ocsp(store_of(c), name, is_base64, c->out))
		cmd_say(c, "Certificate ID or path does not match any certificate, or there is no "
			   "OCSP response for it.");
	return 0;
}

static void retire_ocsp(void *ctx, void *old)
{
	struct ctl *ctl = ctx;

	quiesce_after(&ctl->registry, ocsp_response_free, old);
}

int cmd_set_ssl_ocsp(struct cmd *c)
{
	const char *arg = cmd_arg(c, 0);
	struct str base64 = arg ? str_from_cstr(arg) : payload_of(c);
	struct err err = { "" };

	if (base64.len == 0)
		cmd_say(c, "'set ssl ocsp-response' expects response in base64 encoding.");
	else if (cert_store_set_ocsp(store_of(c), base64, retire_ocsp, c->ctl, &err))
		cmd_say(c, "'set ssl ocsp-response': %s.", err.text);
	else
		cmd_say(c, "OCSP Response updated!");
	return 0;
}

/* --- names --- */

struct sni_options {
	const char *frontend;
	bool only_expired;
	uint64_t offset_ns;
};

static bool parse_sni_options(struct cmd *c, struct sni_options *o)
{
	for (unsigned i = 0; cmd_arg(c, i); i++) {
		const char *word = cmd_arg(c, i), *value = cmd_arg(c, i + 1);

		if (strcmp(word, "-A") == 0) {
			o->only_expired = true;
			continue;
		}
		if (strcmp(word, "-f") == 0 && value) {
			o->frontend = value;
		} else if (strcmp(word, "-t") != 0 || !value ||
			   str_to_duration(str_from_cstr(value), 1000000000, &o->offset_ns)) {
			cmd_say(c,
				"'show ssl sni' expects -f <frontend>, -A, -t <time> instead of "
				"'%s'.",
				word);
			return false;
		}
		i++;
	}
	return true;
}

int cmd_show_ssl_sni(struct cmd *c)
{
	const struct proxy_snapshot *snap = c->ctl->current;
	struct sni_options o = { 0 };
	unsigned n_found = 0;

	if (!parse_sni_options(c, &o))
		return 0;
	fputs("# Frontend/Bind\tSNI\tNegative Filter\tType\tFilename\tNotAfter\tNotBefore\n",
	      c->out);
	for (unsigned i = 0; i < snap->n_binds; i++) {
		const struct conf_bind *b = snap->binds[i].conf;
		const struct tls_server *srv = atomic_load_explicit(&snap->binds[i].tls,
								    memory_order_relaxed);
		char where[512];
		struct tls_sni_view v = {
			.out = c->out,
			.where = where,
			.only_expired = o.only_expired,
			.expired_at = (int64_t)time(NULL) + (int64_t)(o.offset_ns / 1000000000),
		};

		if (o.frontend && strcmp(o.frontend, b->proxy->name) != 0)
			continue;
		n_found++;
		snprintf(where, sizeof(where), "%s/%s:%u", b->proxy->name,
			 b->pos.file ? b->pos.file : "?", b->pos.line);
		if (srv && tls_server_list_names(srv, &v))
			cmd_say(c, "out of memory");
	}
	if (o.frontend && !n_found)
		cmd_say(c, "Didn't find the specified frontend");
	return 0;
}

/* --- ticket keys --- */

struct key_view {
	FILE *out;
	bool has_secrets;
	unsigned last;
};

static void put_key(void *ctx, unsigned id, const char *file, unsigned index, const char *base64)
{
	struct key_view *v = ctx;

	if (v->has_secrets && index == 0)
		fprintf(v->out, "# %u (%s)\n", id, file);
	if (v->has_secrets)
		fprintf(v->out, "%u.%u %s\n", id, index, base64);
	else if (index == 0)
		fprintf(v->out, "%u (%s)\n", id, file);
}

int cmd_show_tls_keys(struct cmd *c)
{
	const char *id = cmd_arg(c, 0);
	struct key_view v = { .out = c->out, .has_secrets = id != NULL };
	struct str only = id && strcmp(id, "*") != 0 ? str_from_cstr(id) : STR_NULL;

	if (v.has_secrets && c->level != CONF_LEVEL_ADMIN) {
		cmd_say(c, "Permission denied: keys are shown to admins only.");
		return 0;
	}
	fputs(v.has_secrets ? "# id secret\n" : "# id (file)\n", c->out);
	if (cert_store_each_ticket_key(store_of(c), only, put_key, &v))
		cmd_say(c, "'show tls-keys' unable to locate referenced filename");
	return 0;
}

int cmd_set_ssl_tls_key(struct cmd *c)
{
	const char *id = want(c, 0, "a TLS ticket keys file and a key in base64");
	const char *key = id ? cmd_arg(c, 1) : NULL;
	struct err err = { "" };
	void *old;

	if (!id)
		return 0;
	if (cert_store_push_ticket_key(store_of(c), str_from_cstr(id),
				       key ? str_from_cstr(key) : payload_of(c), &old, &err)) {
		cmd_say(c, "'set ssl tls-key': %s.", err.text);
		return 0;
	}
	quiesce_after(&c->ctl->registry, ticket_keys_free, old);
	cmd_tell(c, "TLS ticket key updated!");
	return 0;
}
