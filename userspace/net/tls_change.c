/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files of a built store changed by the runtime API: certificates, CA files, CRL files. One mechanism for all: a
 * payload is read into a copy, the copy and the store's change places when it is committed, and again when what is built
 * from the store does not like it. What differs is in struct tls_file_ops. Changes live until the next reload, when
 * files are the truth again. Control thread.
 */
#include <errno.h>
#include <stdlib.h>

#include "net/tls_priv.h"

struct tls_change {
	enum tls_file_kind kind;
	struct tls_file *file; /* staged; the store's own after tls_change_apply() */
};

static const struct tls_file_ops *const kinds[TLS_FILE_KINDS] = {
	[TLS_CERT] = &cert_file_ops,
	[TLS_CA] = &ca_file_ops,
	[TLS_CRL] = &crl_file_ops,
};

static struct tls_file *file_at(const struct cert_store *s, enum tls_file_kind kind,
				struct str path)
{
	return namemap_get(&s->files[kind], path);
}

/* --- which files are in use --- */

_Static_assert((int)TLS_USED_CERT == TLS_CERT && (int)TLS_USED_CA == TLS_CA &&
		       (int)TLS_USED_CRL == TLS_CRL,
	       "kinds of files that are used are kinds of files");

static uint64_t use_id(enum tls_used_kind kind, const char *path)
{
	return str_hash(str_from_cstr(path), kind + 1);
}

int tls_uses_add(struct cert_store *s, enum tls_used_kind kind, const char *path, struct err *err)
{
	struct tls_uses *u = s->uses;
	uint64_t id = use_id(kind, path);

	if (!u || (u->n && u->ids[u->n - 1] == id))
		return 0;
	if (u->n == u->cap) {
		size_t cap = u->cap ? u->cap * 2 : 4;
		uint64_t *ids = mem_realloc(u->ids, cap * sizeof(*ids));

		if (!ids)
			return err_set(err, -ENOMEM, "out of memory");
		u->ids = ids;
		u->cap = cap;
	}
	u->ids[u->n++] = id;
	return 0;
}

static int compare_ids(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

void tls_uses_sort(struct tls_uses *u)
{
	if (u->n)
		qsort(u->ids, u->n, sizeof(*u->ids), compare_ids);
}

int tls_uses_copy(struct tls_uses *to, const struct tls_uses *from)
{
	if (!from->n)
		return 0;
	to->ids = mem_alloc(from->n * sizeof(*to->ids));
	if (!to->ids)
		return -ENOMEM;
	memcpy(to->ids, from->ids, from->n * sizeof(*to->ids));
	to->n = to->cap = from->n;
	return 0;
}

static bool uses_has(const struct tls_uses *u, enum tls_used_kind kind, const char *path)
{
	uint64_t id = use_id(kind, path);

	return u->n && bsearch(&id, u->ids, u->n, sizeof(*u->ids), compare_ids);
}

bool tls_server_uses(const struct tls_server *s, enum tls_used_kind kind, const char *path)
{
	return uses_has(&s->uses, kind, path);
}

bool tls_client_uses(const struct tls_client *cli, enum tls_used_kind kind, const char *path)
{
	return uses_has(&cli->uses, kind, path);
}

/* Marks the files in `u`; NULL: unmarks all. */
static void mark(struct cert_store *s, const struct tls_uses *u)
{
	for (unsigned kind = 0; kind < TLS_FILE_KINDS; kind++) {
		for (size_t i = 0; i < s->files[kind].cap; i++) {
			const struct namemap_slot *slot = &s->files[kind].slots[i];
			struct tls_file *f = slot->key ? slot->value : NULL;

			if (f)
				f->is_used = u && (f->is_used ||
						   uses_has(u, (enum tls_used_kind)kind, f->path));
		}
	}
}

void cert_store_recount(struct cert_store *s)
{
	struct list *l;

	mark(s, NULL);
	list_for_each(l, &s->servers)
		mark(s, &list_entry(l, struct tls_server, link)->uses);
	list_for_each(l, &s->clients)
		mark(s, &list_entry(l, struct tls_client, link)->uses);
}

void tls_client_mark(struct cert_store *s, const struct tls_client *cli)
{
	mark(s, &cli->uses);
}

/* --- files that come and go --- */

int cert_store_new_file(struct cert_store *s, enum tls_file_kind kind, const char *path,
			struct err *err)
{
	const struct tls_file_ops *ops = kinds[kind];
	struct tls_file *f;
	void **slot;

	if (file_at(s, kind, str_from_cstr(path)))
		return err_set(err, -EEXIST, "%s '%s' already exists!", ops->noun, path);
	f = ops->make(path);
	slot = f ? namemap_put(&s->files[kind], str_from_cstr(path)) : NULL;
	if (!slot) {
		if (f)
			ops->put(f);
		return err_set(err, -ENOMEM, "out of memory");
	}
	f->is_live = true;
	*slot = f;
	return 0;
}

int cert_store_del_file(struct cert_store *s, enum tls_file_kind kind, const char *path,
			struct err *err)
{
	const struct tls_file_ops *ops = kinds[kind];
	struct tls_file *f = file_at(s, kind, str_from_cstr(path));
	void **slot;

	if (!f)
		return err_set(err, -ENOENT, "%s '%s' doesn't exist!", ops->noun, path);
	if (f->is_used)
		return err_set(err, -EBUSY, "%s '%s' in use, can't be deleted!", ops->noun, path);
	slot = namemap_put(&s->files[kind], str_from_cstr(path));
	if (!slot)
		return err_set(err, -ENOMEM, "out of memory");
	ops->put(f);
	*slot = NULL;
	return 0;
}

/* --- transactions --- */

/* The file that a name means: itself, or with a part's suffix. */
static const struct tls_file *find_named(const struct cert_store *s, enum tls_file_kind kind,
					 const char *name, const struct tls_file_part **ret_part)
{
	const struct tls_file_ops *ops = kinds[kind];
	struct str n = str_from_cstr(name);

	for (unsigned i = 0; i < ops->n_parts; i++) {
		const struct tls_file_part *part = &ops->parts[i];
		const struct tls_file *f = NULL;

		if (str_is_suffix(n, part->suffix))
			f = file_at(s, kind, str_sub(n, 0, n.len - part->suffix.len));
		if (f) {
			*ret_part = part;
			return f;
		}
	}
	return NULL;
}

int tls_change_stage(struct cert_store *s, enum tls_file_kind kind, struct tls_change **change,
		     const char *name, struct str payload, bool adds, struct err *err)
{
	const struct tls_file_ops *ops = kinds[kind];
	struct tls_change *ch = *change;
	const struct tls_file_part *part;
	const struct tls_file *old = find_named(s, kind, name, &part);
	struct tls_file *f;
	int r;

	if (!old)
		return err_set(err, -ENOENT, "the %s '%s' does not exist: 'new ssl' makes one",
			       ops->noun, name);
	if (ch && strcmp(ch->file->path, old->path) != 0)
		return err_set(
			err, -EBUSY,
			"the ongoing transaction is about '%s' but you are trying to set '%s'",
			ch->file->path, name);
	f = ops->copy(ch ? ch->file : old);
	r = f ? part->stage(f, payload, adds, err) : err_set(err, -ENOMEM, "out of memory");
	if (r == 0 && !ch && !(ch = mem_zalloc(sizeof(*ch))))
		r = err_set(err, -ENOMEM, "out of memory");
	if (r) {
		if (f)
			ops->put(f);
		return r;
	}
	if (ch->file)
		ops->put(ch->file);
	ch->kind = kind;
	ch->file = f;
	*change = ch;
	return 0;
}

const char *tls_change_path(const struct tls_change *ch)
{
	return ch->file->path;
}

const struct tls_file *tls_change_file(const struct tls_change *ch)
{
	return ch->file;
}

void tls_change_free(struct tls_change *ch)
{
	if (!ch)
		return;
	kinds[ch->kind]->put(ch->file);
	mem_free(ch);
}

/* The change's file and the store's change places: again to take it back. */
static int swap_files(struct cert_store *s, struct tls_change *ch)
{
	void **slot = namemap_put(&s->files[ch->kind], str_from_cstr(ch->file->path));
	struct tls_file *old;

	if (!slot)
		return -ENOMEM;
	old = *slot;
	*slot = ch->file;
	ch->file = old;
	tls_client_ctxs_forget(s);
	if (ch->kind != TLS_CERT)
		ca_stores_forget(s);
	return 0;
}

int tls_change_apply(struct cert_store *s, struct tls_change *ch, struct err *err)
{
	const struct tls_file_ops *ops = kinds[ch->kind];
	int r;

	if (!file_at(s, ch->kind, str_from_cstr(ch->file->path)))
		return err_set(err, -ENOENT, "%s '%s' was deleted meanwhile", ops->noun,
			       ch->file->path);
	r = ops->finish(ch->file, err);
	if (r == 0 && swap_files(s, ch))
		r = err_set(err, -ENOMEM, "out of memory");
	return r;
}

void tls_change_revert(struct cert_store *s, struct tls_change *ch)
{
	/* The key is there: nothing is allocated. */
	BUG_ON(swap_files(s, ch));
}
