/* SPDX-License-Identifier: BSD-2-Clause */
/* Names of the files in a directory, sorted. Control thread; blocks. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>

#include "net/tls_priv.h"

void name_list_free(struct name_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		mem_free(l->names[i]);
	mem_free(l->names);
}

static int name_list_add(struct name_list *l, struct str name)
{
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 64;
		char **names = mem_realloc(l->names, cap * sizeof(*names));

		if (!names)
			return -ENOMEM;
		l->names = names;
		l->cap = cap;
	}
	l->names[l->n] = mem_strdup(name);
	if (!l->names[l->n])
		return -ENOMEM;
	l->n++;
	return 0;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int name_list_read(struct name_list *l, const char *dir, bool (*is_wanted)(struct str name),
		   struct err *err)
{
	DIR *d = opendir(dir);
	const struct dirent *e;
	int r = 0;

	if (!d)
		return err_set(err, -errno, "cannot read directory '%s': %s", dir, strerror(errno));
	while (r == 0 && (e = readdir(d))) {
		if (e->d_name[0] != '.' && is_wanted(str_from_cstr(e->d_name)))
			r = name_list_add(l, str_from_cstr(e->d_name));
	}
	closedir(d);
	if (r)
		return err_set(err, r, "out of memory");
	if (l->n)
		qsort(l->names, l->n, sizeof(*l->names), compare_names);
	return 0;
}
