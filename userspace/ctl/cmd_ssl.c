/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Certificates, crt-lists, ticket keys and OCSP responses at run time: `… ssl cert`, `… ssl crt-list`, `… tls-key`.
 * One transaction at a time, as HAProxy has it. What is committed serves the next handshake of every worker; a
 * reload reads the files again.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"
#include "ctl/cmd_rows.h"

static struct cert_store *store_of(const struct cmd *c)
{
	return c->ctl->current->certs;
}

void ctl_drop_cert_change(struct ctl *ctl)
{
	cert_change_free(ctl->cert_change);
	ctl->cert_change = NULL;
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

/* --- certificates --- */

static int put_file_name(void *ctx, const char *path, bool is_empty, bool has_ocsp)
{
	fprintf(ctx, "%s%s\n", path, is_empty ? " (empty)" : "");
	return 0;
}

int cmd_show_ssl_cert(struct cmd *c)
{
	const char *path = cmd_arg(c, 0);
	struct cert_change *ch = c->ctl->cert_change;

	if (!path) {
		if (ch)
			fprintf(c->out, "# transaction\n*%s\n", cert_change_path(ch));
		fputs("# filename\n", c->out);
		(void)cert_store_each_cert(store_of(c), put_file_name, c->out);
		return 0;
	}
	if (path[0] == '*' && (!ch || strcmp(cert_change_path(ch), path + 1) != 0))
		cmd_say(c, "There is no transaction about '%s'.", path + 1);
	else if (cert_store_describe(store_of(c), path[0] == '*' ? ch : NULL, path, c->out))
		cmd_say(c,
			"Can't display the certificate: Not found or the certificate is a bundle!");
	return 0;
}

int cmd_new_ssl_cert(struct cmd *c)
{
	const char *path = want(c, 0, "a filename");
	struct err err = { "" };

	if (path && cert_store_new_cert(store_of(c), path, &err))
		cmd_say(c, "%s", err.text);
	else if (path)
		cmd_say(c, "New empty certificate store '%s'!", path);
	return 0;
}

int cmd_del_ssl_cert(struct cmd *c)
{
	const char *path = want(c, 0, "a filename");
	struct cert_change *ch = c->ctl->cert_change;
	struct err err = { "" };

	if (!path)
		return 0;
	if (ch && strcmp(cert_change_path(ch), path) == 0)
		cmd_say(c, "certificate '%s' has a transaction: commit or abort it first", path);
	else if (cert_store_del_cert(store_of(c), path, &err))
		cmd_say(c, "%s", err.text);
	else
		cmd_say(c, "Certificate '%s' deleted!", path);
	return 0;
}

int cmd_set_ssl_cert(struct cmd *c)
{
	const char *name = want(c, 0, "a filename and a certificate as payload");
	struct cert_change *ch = c->ctl->cert_change;
	struct err err = { "" };
	bool is_first;

	if (!name)
		return 0;
	if (!c->payload) {
		cmd_say(c, "This command expects the certificate as payload: set ssl cert %s <<",
			name);
		return 0;
	}
	if (cert_change_stage(store_of(c), &ch, name, payload_of(c), &is_first, &err)) {
		cmd_say(c, "Can't update %s: %s", name, err.text);
		return 0;
	}
	c->ctl->cert_change = ch;
	cmd_say(c, "Transaction %s for certificate %s!", is_first ? "created" : "updated",
		cert_change_path(ch));
	return 0;
}

/* The transaction about the certificate that is named; else says so and returns NULL. */
static struct cert_change *want_change(struct cmd *c)
{
	const char *path = want(c, 0, "a filename");
	struct cert_change *ch = c->ctl->cert_change;

	if (!path)
		return NULL;
	if (!ch)
		cmd_say(c, "No ongoing transaction!");
	else if (strcmp(cert_change_path(ch), path) != 0)
		cmd_say(c, "The ongoing transaction is about '%s' but you are trying to set '%s'",
			cert_change_path(ch), path);
	else
		return ch;
	return NULL;
}

int cmd_commit_ssl_cert(struct cmd *c)
{
	struct cert_change *ch = want_change(c);
	struct ctl *ctl = c->ctl;
	struct err err = { "" };
	int rc;

	if (!ch)
		return 0;
	fprintf(c->out, "Committing %s", cert_change_path(ch));
	rc = cert_change_apply(store_of(c), ch, &err);
	if (rc == 0) {
		rc = ctl_rebuild_tls(ctl, &err);
		if (rc) {
			cert_change_revert(store_of(c), ch);
			ctl_recount_certs(ctl);
		}
	}
	fputs(".\n", c->out);
	if (rc) {
		cmd_say(c, "%s", err.text);
		cmd_say(c, "Failed!");
		return 0;
	}
	log_msg(LOG_LVL_NOTICE, "certificate '%s' replaced by the runtime API", cmd_arg(c, 0));
	ctl_drop_cert_change(ctl);
	cmd_say(c, "Success!");
	return 0;
}

int cmd_abort_ssl_cert(struct cmd *c)
{
	struct cert_change *ch = want_change(c);

	if (!ch)
		return 0;
	cmd_say(c, "Transaction aborted for certificate '%s'!", cert_change_path(ch));
	ctl_drop_cert_change(c->ctl);
	return 0;
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
	int rc = ctl_rebuild_tls(c->ctl, err);

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
	cmd_say(c, "Inserting certificate '" STR_FMT "' in crt-list '%s'.",
		STR_ARG(str_sub(line, 0, line.len)), path);
	cmd_say(c, "Success!");
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
		cmd_say(c, "Entry '" STR_FMT "' deleted in crtlist '%s'!", STR_ARG(cert), path);
	return 0;
}

/* --- OCSP responses --- */

static int put_ocsp_name(void *ctx, const char *path, bool is_empty, bool has_ocsp)
{
	if (has_ocsp)
		fprintf(ctx, "%s\n", path);
	return 0;
}

int cmd_show_ssl_ocsp(struct cmd *c)
{
	const char *path = cmd_arg(c, 0);

	if (!path) {
		fputs("# Certificate path\n", c->out);
		(void)cert_store_each_cert(store_of(c), put_ocsp_name, c->out);
	} else if (cert_store_describe_ocsp(store_of(c), path, c->out)) {
		cmd_say(c, "Certificate path not found, or there is no OCSP response for it.");
	}
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
	cmd_say(c, "TLS ticket key updated!");
	return 0;
}
