/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * default-path: where names of files begin that are not absolute. HAProxy changes its directory while it reads; here
 * names are completed instead, so that nothing else of the process moves. Of maps, lists and error files only what is
 * opened: they go on being called what the line calls them. Control thread, configuration's arena.
 */
#include <errno.h>

#include "conf/kw_action_priv.h"

/* "dir" of "dir/file"; empty: none. */
static struct str directory_of(const char *file)
{
	const char *slash = strrchr(file, '/');

	return slash ? str_make(file, slash == file ? 1 : (size_t)(slash - file)) : STR("");
}

static bool has_base(const struct parser *ps, enum path_kind kind)
{
	const struct conf_crt_store *cs = ps->section == SEC_CRT_STORE ? ps->crt_store : NULL;
	const struct conf_global *g = &ps->conf->global;

	switch (kind) {
	case PATH_CRT:
		return g->crt_base || (cs && crt_store_base(cs, false));
	case PATH_KEY:
		return g->crt_files.key_base || (cs && crt_store_base(cs, true));
	case PATH_CA:
		return g->ca_base;
	default:
		return false;
	}
}

char *conf_path(struct parser *ps, enum path_kind kind, const char *path)
{
	struct str dir = directory_of(ps->main_file ? ps->main_file : "");
	enum default_path mode = (enum default_path)ps->default_path;
	struct str s = str_from_cstr(path);

	/* What belongs under a base is put there later, and "@" begins a name that is no file. */
	if (!mode || path[0] == '/' || path[0] == '@' || has_base(ps, kind))
		return (char *)(uintptr_t)path;
	if (mode == DEFAULT_PATH_ORIGIN)
		dir = str_from_cstr(ps->path_origin);
	else if (mode == DEFAULT_PATH_PARENT)
		dir = arena_printf(&ps->conf->arena, STR_FMT "%s..", STR_ARG(dir),
				   dir.len ? "/" : "");
	if (!dir.p)
		return NULL;
	if (dir.len)
		s = arena_printf(&ps->conf->arena, STR_FMT "%s" STR_FMT, STR_ARG(dir),
				 dir.p[dir.len - 1] == '/' ? "" : "/", STR_ARG(s));
	return (char *)(uintptr_t)s.p;
}

int arg_path(struct parser *ps, struct line *l, const char *what, enum path_kind kind, char **ret)
{
	int r = arg_string(ps, l, what, ret);

	if (r == 0)
		*ret = conf_path(ps, kind, *ret);
	return r || *ret ? r : -ENOMEM;
}

int conf_read_path(struct parser *ps, struct arena *arena, const char *path, struct str *ret_text,
		   struct err *err)
{
	const char *full = conf_path(ps, PATH_FILE, path);

	if (!full)
		return err_set(err, -ENOMEM, "out of memory");
	return conf_read_file(arena, full, ret_text, err);
}

/* default-path current|config|parent|origin <path> */
int parse_default_path(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	static const struct keyword_value modes[] = { VALUE("current", DEFAULT_PATH_CURRENT),
						      VALUE("config", DEFAULT_PATH_CONFIG),
						      VALUE("parent", DEFAULT_PATH_PARENT),
						      VALUE("origin", DEFAULT_PATH_ORIGIN),
						      VALUES_END };
	char *origin = NULL;
	uint8_t mode;
	int r = arg_value(ps, l, modes, &mode);

	if (r == 0 && mode == DEFAULT_PATH_ORIGIN)
		r = arg_string(ps, l, "a directory", &origin);
	if (r)
		return r;
	ps->default_path = mode;
	ps->path_origin = origin;
	return 0;
}
