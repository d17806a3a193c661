/* SPDX-License-Identifier: BSD-2-Clause */
/* Checking passwords against a userlist. Workers; crypt(3) is slow on purpose, so inputs are bounded. */
#include "expr/expr_priv.h"

#include <crypt.h>

#define PASSWORD_MAX 256

/* Time independent of where the texts differ. */
static bool is_secret_eq(struct str a, struct str b)
{
	unsigned diff = a.len != b.len;

	for (size_t i = 0; i < a.len; i++)
		diff |= (uint8_t)a.p[i] ^ (uint8_t)(b.len ? b.p[i % b.len] : 0);
	return diff == 0;
}

static bool is_crypt_eq(struct str hash, struct str password)
{
	static _Thread_local struct crypt_data data;
	char key[PASSWORD_MAX + 1], setting[PASSWORD_MAX + 1];
	const char *r;

	if (password.len > PASSWORD_MAX || hash.len > PASSWORD_MAX ||
	    (password.len && memchr(password.p, '\0', password.len)))
		return false;
	if (password.len)
		memcpy(key, password.p, password.len);
	key[password.len] = '\0';
	memcpy(setting, hash.p, hash.len);
	setting[hash.len] = '\0';
	r = crypt_r(key, setting, &data);
	return r && is_secret_eq(str_from_cstr(r), hash);
}

const struct expr_user *expr_userlist_check(const struct expr_userlist *list, struct str name,
					    struct str password)
{
	for (unsigned i = 0; i < list->n_users; i++) {
		const struct expr_user *u = &list->users[i];

		if (!str_is_eq(u->name, name))
			continue;
		if (!u->password.p)
			return NULL;
		if (u->is_plain)
			return is_secret_eq(password, u->password) ? u : NULL;
		return is_crypt_eq(u->password, password) ? u : NULL;
	}
	return NULL;
}
