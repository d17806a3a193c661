/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Certificates, CA files and CRL files at run time: `show|new|set|commit|abort|del ssl cert|ca-file|crl-file` and
 * `add ssl ca-file`. One transaction of each kind at a time, as HAProxy has it. What is committed serves the next
 * handshake of every worker; a reload reads the files again.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"
#include "ctl/cmd_rows.h"

/* By the last word of the command. */
static const struct ssl_kind {
	const char *word;
	const char *noun; /* whole, as in "CA file" */
	const char *staged; /* what a transaction is for */
	const char *payload;
} ssl_kinds[TLS_FILE_KINDS] = {
	[TLS_CERT] = { "cert", "certificate", "certificate", "a certificate" },
	[TLS_CA] = { "ca-file", "CA file", "CA", "CA certificates" },
	[TLS_CRL] = { "crl-file", "CRL file", "CRL", "revocation lists" },
};

static enum tls_file_kind kind_of(const struct cmd *c)
{
	const char *word = c->argv[c->n_words - 1];
	unsigned kind = 0;

	while (kind < TLS_FILE_KINDS - 1 && strcmp(ssl_kinds[kind].word, word) != 0)
		kind++;
	return kind;
}

static struct cert_store *store_of(const struct cmd *c)
{
	return c->ctl->current->certs;
}

static void drop_change(struct ctl *ctl, enum tls_file_kind kind)
{
	tls_change_free(ctl->tls_changes[kind]);
	ctl->tls_changes[kind] = NULL;
}

void ctl_drop_tls_changes(struct ctl *ctl)
{
	for (unsigned kind = 0; kind < TLS_FILE_KINDS; kind++)
		drop_change(ctl, kind);
}

/* The file's name, or the complaint that it is missing and NULL. */
static const char *want_name(struct cmd *c)
{
	const char *path = cmd_arg(c, 0);

	if (!path)
		cmd_say(c, "This command expects a filename.");
	return path;
}

static bool is_about(const struct tls_change *ch, const char *path)
{
	return ch && strcmp(tls_change_path(ch), path) == 0;
}

/* --- show --- */

static int put_cert_name(void *ctx, const struct tls_file_facts *f)
{
	fprintf(ctx, "%s%s\n", f->path, f->is_empty ? " (empty)" : "");
	return 0;
}

static int put_ca_name(void *ctx, const struct tls_file_facts *f)
{
	fprintf(ctx, "%s - %u certificate(s)\n", f->path, f->n_certs);
	return 0;
}

static int put_crl_name(void *ctx, const struct tls_file_facts *f)
{
	fprintf(ctx, "%s\n", f->path);
	return 0;
}

static void list_files(struct cmd *c, enum tls_file_kind kind)
{
	static int (*const put[])(void *ctx, const struct tls_file_facts *f) = {
		[TLS_CERT] = put_cert_name,
		[TLS_CA] = put_ca_name,
		[TLS_CRL] = put_crl_name,
	};
	const struct tls_change *ch = c->ctl->tls_changes[kind];

	if (ch) {
		fprintf(c->out, "# transaction\n*%s", tls_change_path(ch));
		if (kind == TLS_CA)
			fprintf(c->out, " - %u certificate(s)", tls_change_n_certs(ch));
		fputc('\n', c->out);
	}
	fputs("# filename\n", c->out);
	(void)cert_store_each_file(store_of(c), kind, put[kind], c->out);
}

/* The number behind the last colon of "ca.pem:2", cut off; 0: there is none. */
static unsigned cut_number(char *path)
{
	char *colon = strrchr(path, ':');
	uint64_t number;

	if (!colon || str_to_u64(str_from_cstr(colon + 1), &number) || number == 0 ||
	    number > UINT32_MAX)
		return 0;
	*colon = '\0';
	return (unsigned)number;
}

int cmd_show_ssl_file(struct cmd *c)
{
	enum tls_file_kind kind = kind_of(c);
	const struct tls_change *ch = c->ctl->tls_changes[kind];
	char path[4096];
	bool is_staged;
	unsigned number;

	ctl_recount_certs(c->ctl);
	if (!cmd_arg(c, 0)) {
		list_files(c, kind);
		return 0;
	}
	snprintf(path, sizeof(path), "%s", cmd_arg(c, 0));
	number = kind == TLS_CERT ? 0 : cut_number(path);
	is_staged = path[0] == '*';
	if (kind == TLS_CERT && (ch || !is_staged) &&
	    cert_store_describe_part(store_of(c), is_staged ? ch : NULL, path + is_staged,
				     c->out) == 0)
		return 0;
	if (is_staged && !is_about(ch, path + 1))
		cmd_say(c, "There is no transaction about '%s'.", path + 1);
	else if (cert_store_describe(store_of(c), kind, is_staged ? ch : NULL, path, number,
				     c->out) == 0)
		return 0;
	else if (kind == TLS_CERT)
		cmd_say(c,
			"Can't display the certificate: Not found or the certificate is a bundle!");
	else
		cmd_say(c, "Can't display the %s : Not found!", ssl_kinds[kind].noun);
	return 0;
}

/* --- new, del --- */

int cmd_new_ssl_file(struct cmd *c)
{
	enum tls_file_kind kind = kind_of(c);
	const char *path = want_name(c);
	struct err err = { "" };

	if (path && cert_store_new_file(store_of(c), kind, path, &err))
		cmd_say(c, "%s", err.text);
	else if (path && kind == TLS_CERT)
		cmd_tell(c, "New empty certificate store '%s'!", path);
	else if (path)
		cmd_tell(c, "New %s created '%s'!", ssl_kinds[kind].noun, path);
	return 0;
}

int cmd_del_ssl_file(struct cmd *c)
{
	enum tls_file_kind kind = kind_of(c);
	const char *noun = ssl_kinds[kind].noun, *path = want_name(c);
	struct err err = { "" };

	if (!path)
		return 0;
	ctl_recount_certs(c->ctl);
	if (is_about(c->ctl->tls_changes[kind], path))
		cmd_say(c, "%s '%s' has a transaction: commit or abort it first", noun, path);
	else if (cert_store_del_file(store_of(c), kind, path, &err))
		cmd_say(c, "Can't remove the %s: %s", noun, err.text);
	else
		cmd_tell(c, "%s '%s' deleted!", kind == TLS_CERT ? "Certificate" : noun, path);
	return 0;
}

/* --- transactions --- */

static int stage(struct cmd *c, bool adds)
{
	enum tls_file_kind kind = kind_of(c);
	const struct ssl_kind *k = &ssl_kinds[kind];
	struct tls_change **ch = &c->ctl->tls_changes[kind];
	const char *name = want_name(c);
	bool is_first = !*ch;
	struct err err = { "" };

	if (!name)
		return 0;
	if (!c->payload)
		cmd_say(c, "This command expects %s as payload: %s ssl %s %s <<", k->payload,
			c->argv[0], k->word, name);
	else if (tls_change_stage(store_of(c), kind, ch, name, str_from_cstr(c->payload), adds,
				  &err))
		cmd_say(c, "Can't update %s: %s", name, err.text);
	else
		cmd_tell(c, "Transaction %s for %s %s!", is_first ? "created" : "updated",
			 k->staged, tls_change_path(*ch));
	return 0;
}

int cmd_set_ssl_file(struct cmd *c)
{
	return stage(c, false);
}

int cmd_add_ssl_file(struct cmd *c)
{
	return stage(c, true);
}

/* The transaction about the file that is named; else says so and returns NULL. */
static struct tls_change *want_change(struct cmd *c)
{
	struct tls_change *ch = c->ctl->tls_changes[kind_of(c)];
	const char *path = want_name(c);

	if (!path)
		return NULL;
	if (!ch)
		cmd_say(c, "No ongoing transaction!");
	else if (!is_about(ch, path))
		cmd_say(c, "The ongoing transaction is about '%s' but you are trying to set '%s'",
			tls_change_path(ch), path);
	else
		return ch;
	return NULL;
}

int cmd_commit_ssl_file(struct cmd *c)
{
	enum tls_file_kind kind = kind_of(c);
	struct tls_change *ch = want_change(c);
	struct ctl *ctl = c->ctl;
	struct err err = { "" };
	int rc;

	if (!ch)
		return 0;
	fprintf(c->out, "Committing %s", tls_change_path(ch));
	rc = tls_change_apply(store_of(c), ch, &err);
	if (rc == 0) {
		rc = ctl_rebuild_tls(ctl, (enum tls_used_kind)kind, tls_change_path(ch), &err);
		if (rc) {
			tls_change_revert(store_of(c), ch);
			ctl_recount_certs(ctl);
		}
	}
	fputs(".\n", c->out);
	if (rc) {
		cmd_say(c, "%s", err.text);
		cmd_say(c, "Failed!");
		return 0;
	}
	log_msg(LOG_LVL_NOTICE, "%s '%s' replaced by the runtime API", ssl_kinds[kind].noun,
		cmd_arg(c, 0));
	drop_change(ctl, kind);
	cmd_tell(c, "Success!");
	return 0;
}

int cmd_abort_ssl_file(struct cmd *c)
{
	struct tls_change *ch = want_change(c);

	if (!ch)
		return 0;
	cmd_tell(c, "Transaction aborted for certificate '%s'!", tls_change_path(ch));
	drop_change(c->ctl, kind_of(c));
	return 0;
}
