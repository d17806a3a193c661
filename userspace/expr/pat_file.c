/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pattern files: one entry per line, `#` comments, empty lines; a map's value is what follows the
 * first blank. `virt@name` is empty without a file, `opt@path` may be missing. Control thread; the
 * text lives in the snapshot's arena and entries point into it.
 */
#include "expr/expr_priv.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX (256l << 20)

static int read_all(int fd, char *p, size_t n, size_t *ret_n)
{
	for (*ret_n = 0; *ret_n < n;) {
		ssize_t r = read(fd, p + *ret_n, n - *ret_n);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		if (r == 0)
			break;
		*ret_n += (size_t)r;
	}
	return 0;
}

static int read_plain(struct expr_env *env, struct str path, struct str *ret, struct err *err)
{
	char *name = arena_strdup(env->arena, path), *p;
	struct stat st;
	size_t n;
	int fd, r;

	if (!name)
		return -ENOMEM;
	fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st)) {
		r = -errno;
		if (fd >= 0)
			close(fd);
		return err_set(err, r == -ENOENT ? r : -EINVAL, "%s: %s", name, strerror(-r));
	}
	if (!S_ISREG(st.st_mode) || st.st_size > FILE_MAX) {
		close(fd);
		return err_set(err, -EINVAL, "%s: not a plain file of at most 256 MiB", name);
	}
	p = arena_alloc(env->arena, (size_t)st.st_size + 1);
	r = p ? read_all(fd, p, (size_t)st.st_size, &n) : -ENOMEM;
	close(fd);
	if (r == -ENOMEM)
		return r;
	if (r)
		return err_set(err, -EINVAL, "%s: %s", name, strerror(-r));
	*ret = str_make(p, n);
	return 0;
}

int pat_file_text(struct expr_env *env, struct str path, struct str *ret, struct err *err)
{
	bool is_optional = str_is_prefix(path, STR("opt@"));
	int r;

	*ret = STR("");
	if (str_is_prefix(path, STR("virt@")))
		return 0;
	if (is_optional)
		path = str_from(path, 4);
	else if (str_is_prefix(path, STR("file@")))
		path = str_from(path, 5);
	r = env->read_file ? env->read_file(env, path, ret, err) : read_plain(env, path, ret, err);
	if (r == -ENOENT && is_optional) {
		*ret = STR("");
		return 0;
	}
	return r == 0 || r == -ENOMEM ? r : -EINVAL;
}

static void split_line(struct str line, bool is_map, struct str *ret_key, struct str *ret_value)
{
	size_t i = 0;

	while (is_map && i < line.len && line.p[i] != ' ' && line.p[i] != '\t')
		i++;
	*ret_key = is_map ? str_sub(line, 0, i) : line;
	*ret_value = is_map ? str_trim(str_from(line, i)) : STR_NULL;
}

int pat_file_read(struct expr_env *env, struct str path, bool is_map, struct pat_file *ret,
		  struct err *err)
{
	struct str text, rest;
	uint32_t line_no = 0;
	size_t lines = 1;
	int r = pat_file_text(env, path, &text, err);

	memset(ret, 0, sizeof(*ret));
	if (r)
		return r;
	for (size_t i = 0; i < text.len; i++)
		lines += text.p[i] == '\n';
	if (lines > INT32_MAX / 2)
		return err_set(err, -EINVAL, STR_FMT ": too many lines", STR_ARG(path));
	ret->entries = arena_alloc(env->arena, lines * sizeof(*ret->entries));
	ret->values = is_map ? arena_alloc(env->arena, lines * sizeof(*ret->values)) : NULL;
	if (!ret->entries || (is_map && !ret->values))
		return -ENOMEM;
	for (rest = text; rest.p;) {
		struct str line = str_trim(str_cut(&rest, '\n')), key, value;

		line_no++;
		if (line.len == 0 || line.p[0] == '#')
			continue;
		split_line(line, is_map, &key, &value);
		ret->entries[ret->n] =
			(struct pat_entry){ .text = key, .op = OP_EQ, .line = line_no };
		if (is_map)
			ret->values[ret->n] = value;
		ret->n++;
	}
	return 0;
}
