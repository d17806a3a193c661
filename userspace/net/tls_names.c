/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names of a bind line and their certificates: found in handshakes (workers, which only read), listed for `show ssl
 * sni`, and freed (control thread). tls_server.c fills the tables.
 */
#include <errno.h>
#include <stdlib.h>

#include "net/tls_priv.h"

/* --- finding certificates: workers --- */

static bool is_excepted(const struct sni_entry *exact, const struct cert_set *set)
{
	for (const struct sni_except *x = exact ? exact->excepts : NULL; x; x = x->next) {
		for (unsigned i = 0; i < CERT_TYPES; i++) {
			if (set->certs[i] == x->cert)
				return true;
		}
	}
	return false;
}

const struct cert_set *tls_server_find(const struct tls_server *s, struct str name)
{
	const struct sni_entry *exact, *wild;
	size_t dot;

	if (name.len) {
		exact = namemap_get(&s->exact, name);
		if (exact && exact->has_cert)
			return &exact->set;
		/* A wildcard stands for exactly one label (RFC 6125 6.4.3). */
		dot = str_find_char(name, '.');
		wild = dot == SIZE_MAX || dot == 0 ? NULL
						   : namemap_get(&s->wild, str_from(name, dot));
		if (wild && !is_excepted(exact, &wild->set))
			return &wild->set;
	}
	return s->is_strict || !s->has_default ? NULL : &s->dflt;
}

/* --- listing them: control --- */

/* The names that a filter takes away from a certificate of this wildcard: "!a.example !b.example". */
static void put_excepts(const struct tls_server *s, struct str suffix, const struct cert *c,
			FILE *out)
{
	bool is_first = true;

	for (size_t i = 0; i < s->exact.cap; i++) {
		const struct namemap_slot *slot = &s->exact.slots[i];
		const struct sni_entry *e = slot->key ? slot->value : NULL;
		struct str name = str_make(slot->key, slot->len);
		size_t dot = e ? str_find_char(name, '.') : SIZE_MAX;

		if (!e || dot == SIZE_MAX || !str_is_eq(str_from(name, dot), suffix))
			continue;
		for (const struct sni_except *x = e->excepts; x; x = x->next) {
			if (x->cert != c)
				continue;
			fprintf(out, "%s!" STR_FMT, is_first ? "" : " ", STR_ARG(name));
			is_first = false;
		}
	}
	if (is_first)
		fputc('-', out);
}

static void put_time(const ASN1_TIME *t, FILE *out)
{
	BIO *bio = BIO_new(BIO_s_mem());
	char *text;
	long len;

	if (bio && ASN1_TIME_print(bio, t)) {
		len = BIO_get_mem_data(bio, &text);
		fprintf(out, "%.*s", (int)len, text);
	}
	BIO_free(bio);
}

static void put_row(const struct tls_server *s, const struct namemap_slot *slot, bool is_wild,
		    const struct tls_sni_view *v)
{
	static const char *const types[CERT_TYPES] = { "rsa", "rsa-pss", "ecdsa", "ed25519",
						       "ed448" };
	const struct sni_entry *e = slot->value;
	struct str name = str_make(slot->key, slot->len);
	time_t at = v->expired_at;

	for (unsigned i = 0; i < CERT_TYPES; i++) {
		const struct cert *c = e->set.certs[i];

		if (!c || (v->only_expired && X509_cmp_time(X509_get0_notAfter(c->x509), &at) >= 0))
			continue;
		fprintf(v->out, "%s\t%s" STR_FMT "\t", v->where, is_wild ? "*" : "", STR_ARG(name));
		if (is_wild)
			put_excepts(s, name, c, v->out);
		else
			fputc('-', v->out);
		fprintf(v->out, "\t%s\t%s\t", types[i], c->file.path);
		put_time(X509_get0_notAfter(c->x509), v->out);
		fputc('\t', v->out);
		put_time(X509_get0_notBefore(c->x509), v->out);
		fputc('\n', v->out);
	}
}

static int compare_slots(const void *a, const void *b)
{
	return strcmp((*(const struct namemap_slot *const *)a)->key,
		      (*(const struct namemap_slot *const *)b)->key);
}

static int put_map(const struct tls_server *s, const struct namemap *m, bool is_wild,
		   const struct tls_sni_view *v)
{
	const struct namemap_slot **all = mem_alloc((m->n + 1) * sizeof(*all));
	size_t n = 0;

	if (!all)
		return -ENOMEM;
	for (size_t i = 0; i < m->cap; i++) {
		if (m->slots[i].key && m->slots[i].value)
			all[n++] = &m->slots[i];
	}
	qsort(all, n, sizeof(*all), compare_slots);
	for (size_t i = 0; i < n; i++)
		put_row(s, all[i], is_wild, v);
	mem_free(all);
	return 0;
}

int tls_server_list_names(const struct tls_server *s, const struct tls_sni_view *v)
{
	int r = put_map(s, &s->exact, false, v);

	return r ? r : put_map(s, &s->wild, true, v);
}

/* --- the end --- */

static void set_drop(struct cert_set *set)
{
	for (unsigned i = 0; i < CERT_TYPES; i++)
		cert_put(set->certs[i]);
}

static void entry_drop(void *value)
{
	struct sni_entry *e = value;

	while (e->excepts) {
		struct sni_except *x = e->excepts;

		e->excepts = x->next;
		mem_free(x);
	}
	set_drop(&e->set);
	mem_free(e);
}

void tls_server_drop_names(struct tls_server *s)
{
	namemap_free(&s->exact, entry_drop);
	namemap_free(&s->wild, entry_drop);
	set_drop(&s->dflt);
}
