/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files and directories into one configuration: the public entry points. Reads files and blocks;
 * control thread only. On success the caller owns the configuration (conf_free()).
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conf/conf_priv.h"

static int read_fd(struct arena *arena, int fd, size_t hint, const char *path, struct str *ret,
		   struct err *err)
{
	size_t cap = hint + 4096, len = 0;
	char *buf = mem_alloc(cap);
	int r = 0;

	while (buf) {
		ssize_t n = read(fd, buf + len, cap - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			r = err_set(err, -errno, "cannot read '%s': %s", path, strerror(errno));
		if (n <= 0)
			break;
		len += (size_t)n;
		if (len > CONF_MAX_FILE) {
			r = err_set(err, -EFBIG, "'%s' is larger than 64 MiB", path);
			break;
		}
		if (len == cap) {
			char *more = mem_realloc(buf, cap * 2);

			if (!more) {
				mem_free(buf);
				buf = NULL;
				break;
			}
			buf = more;
			cap *= 2;
		}
	}
	if (!buf)
		return err_set(err, -ENOMEM, "out of memory");
	if (r == 0) {
		char *copy = arena_strdup(arena, str_make(buf, len));

		*ret = str_make(copy, len);
		if (!copy)
			r = err_set(err, -ENOMEM, "out of memory");
	}
	mem_free(buf);
	return r;
}

int conf_read_file(struct arena *arena, const char *path, struct str *ret_text, struct err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	struct stat st;
	int r;

	if (fd < 0)
		return err_set(err, -errno, "cannot open '%s': %s", path, strerror(errno));
	if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
		r = err_set(err, -EISDIR, "'%s' is a directory", path);
	else
		r = read_fd(arena, fd,
			    st.st_size > 0 && st.st_size < CONF_MAX_FILE ? (size_t)st.st_size : 0,
			    path, ret_text, err);
	close(fd);
	return r;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int fail_file(struct parser *ps, const char *path, const char *text)
{
	struct conf_pos pos = { .file = path, .line = 0, .column = 0 };
	int r = report_at(ps, CONF_ERROR, &pos, text);

	return r ? r : -EINVAL;
}

static int load_file(struct parser *ps, const char *path)
{
	struct str text;
	struct err err;
	int r;

	ps->file = arena_strdup(&ps->conf->arena, str_from_cstr(path));
	if (!ps->file)
		return -ENOMEM;
	ps->main_file = ps->file;
	ps->file_no++;
	r = conf_read_file(&ps->arena, path, &text, &err);
	if (r == -ENOMEM)
		return r;
	return r ? fail_file(ps, ps->file, err.text) : parser_text(ps, text);
}

/* The *.cfg files of a directory, by name. */
static int list_directory(struct parser *ps, const char *path, char ***ret_names, unsigned *ret_n)
{
	unsigned n = 0, cap = 0;
	char **names = NULL;
	struct dirent *e;
	DIR *d = opendir(path);

	if (!d)
		return fail_file(ps, path, "cannot open the directory");
	while ((e = readdir(d))) {
		struct str name = str_from_cstr(e->d_name), full;

		if (name.p[0] == '.' || !str_is_suffix(name, STR(".cfg")))
			continue;
		if (n == cap) {
			char **more = arena_alloc(&ps->arena, (cap * 2 + 16) * sizeof(*more));

			if (!more)
				goto no_memory;
			if (n)
				memcpy(more, names, n * sizeof(*more));
			names = more;
			cap = cap * 2 + 16;
		}
		full = arena_printf(&ps->arena, "%s/%s", path, e->d_name);
		if (!full.p)
			goto no_memory;
		names[n++] = (char *)full.p;
	}
	closedir(d);
	if (n)
		qsort(names, n, sizeof(*names), compare_names);
	*ret_names = names;
	*ret_n = n;
	return 0;
no_memory:
	closedir(d);
	return -ENOMEM;
}

static int load_path(struct parser *ps, const char *path)
{
	char **names = NULL;
	struct stat st;
	unsigned n = 0;
	int r = 0;

	if (stat(path, &st) || !S_ISDIR(st.st_mode))
		return load_file(ps, path);
	r = list_directory(ps, path, &names, &n);
	for (unsigned i = 0; i < n && r != -ENOMEM; i++)
		r = load_file(ps, names[i]);
	return r;
}

/* --- a load ------------------------------------------------------------------------------------ */

static int define(struct parser *ps, struct str name, const char *value)
{
	/* The formats are given in quotes, so that `log-format "${…}"` and others see one word. */
	return value ? parser_setenv(ps, name, str_from_cstr(value)) : 0;
}

static int define_environment(struct parser *ps, const char *files)
{
	const struct conf_source *src = ps->src;
	int r = define(ps, STR("HAPROXY_HTTP_LOG_FMT"), logfmt_httplog);

	if (r == 0)
		r = define(ps, STR("HAPROXY_TCP_LOG_FMT"), logfmt_tcplog);
	if (r == 0)
		r = define(ps, STR("HAPROXY_HTTPS_LOG_FMT"), logfmt_httpslog);
	if (r == 0)
		r = define(ps, STR("HAPROXY_HTTP_CLF_LOG_FMT"), logfmt_clf);
	if (r == 0)
		r = define(ps, STR("HAPROXY_LOCALPEER"), src->localpeer);
	if (r == 0)
		r = define(ps, STR("HAPROXY_MWORKER"), src->is_master_worker ? "1" : NULL);
	if (r == 0)
		r = define(ps, STR("HAPROXY_CFGFILES"), files);
	return r;
}

static void statuses_init(struct conf_global *g)
{
	for (unsigned i = 400; i < 600; i++) {
		struct conf_statuses *s = i < 500 ? &g->http_err : &g->http_fail;

		if (i != 501 && i != 505)
			s->bits[(i - 100) / 64] |= 1ull << (i - 100) % 64;
	}
}

static void global_init(struct conf_global *g)
{
	*g = (struct conf_global){ .unix_bind = { NULL, -1, -1, -1 },
				   .uid = -1,
				   .gid = -1,
				   .bufsize = 16384,
				   .maxrewrite = 1024,
				   .maxhdr = 101,
				   .maxaccept = 64,
				   .stick_counters = 3,
				   .ssl_cachesize = 20000,
				   .ssl_lifetime = 300ull * 1000000000,
				   .dh_param = 2048,
				   .stats_timeout = 10ull * 1000000000 };
	for (size_t i = 0; i < ARRAY_SIZE(g->cpu_map.cpu_of_thread); i++)
		g->cpu_map.cpu_of_thread[i] = -1;
	list_init(&g->stats_sockets);
	list_init(&g->proc_vars);
	list_init(&g->xdp_interfaces);
	statuses_init(g);
}

int parser_init(struct parser *ps, const struct conf_source *src)
{
	struct conf *c;

	*ps = (struct parser){ .src = src };
	arena_init_mapped(&ps->arena, 64 * 1024);
	list_init(&ps->env);
	list_init(&ps->builds);
	list_init(&ps->all_defaults);
	list_init(&ps->stick_uses);
	list_init(&ps->pattern_edits);
	list_init(&ps->guards);
	list_init(&ps->errors);
	list_init(&ps->errors_uses);
	c = mem_zalloc(sizeof(*c));
	if (!c)
		return -ENOMEM;
	ps->conf = c;
	arena_init_mapped(&c->arena, 64 * 1024);
	list_init(&c->proxies);
	list_init(&c->userlists);
	list_init(&c->stick_tables);
	list_init(&c->resolvers);
	list_init(&c->rings);
	list_init(&c->crts);
	list_init(&ps->crt_stores);
	global_init(&c->global);
	c->pat_refs = pat_refs_new(&c->arena);
	c->frontends = names_new(&c->arena);
	c->backends = names_new(&c->arena);
	ps->defaults_names = names_new(&ps->arena);
	ps->userlist_names = names_new(&ps->arena);
	ps->stick_names = names_new(&ps->arena);
	ps->errors_names = names_new(&ps->arena);
	ps->resolvers_names = names_new(&ps->arena);
	ps->ring_names = names_new(&ps->arena);
	ps->crt_names = names_new(&ps->arena);
	ps->lexer = (struct lexer){
		.text_arena = &c->arena, .arena = &ps->arena, .getenv = parser_getenv, .ctx = ps
	};
	if (!c->pat_refs || !c->frontends || !c->backends || !ps->defaults_names ||
	    !ps->userlist_names || !ps->stick_names || !ps->errors_names || !ps->resolvers_names ||
	    !ps->ring_names || !ps->crt_names)
		return -ENOMEM;
	return 0;
}

static void parser_free(struct parser *ps)
{
	lexer_free(&ps->lexer);
	mem_free(ps->findings);
	arena_free(&ps->arena);
	conf_free(ps->conf);
}

int parser_end(struct parser *ps, int r, struct conf **ret_conf)
{
	if (r != -ENOMEM)
		r = conf_finalize(ps);
	if (ps->is_out_of_memory)
		r = -ENOMEM;
	if (r != -ENOMEM) {
		if (ps->is_zero_warning && ps->n_warnings && !ps->n_errors) {
			struct conf_pos pos = { .file = ps->file ? ps->file : "", .line = 0 };

			r = report_at(ps, CONF_ERROR, &pos,
				      "there are warnings, and 'zero-warning' is set");
		}
		report_flush(ps);
		if (r != -ENOMEM)
			r = ps->n_errors ? -EINVAL : 0;
	}
	if (r == 0) {
		pat_refs_number(ps->conf->pat_refs);
		ps->conf->n_warnings = ps->n_warnings;
		*ret_conf = ps->conf;
		ps->conf = NULL;
	}
	parser_free(ps);
	return r;
}

static int join_paths(struct parser *ps, const struct conf_source *src, const char **ret)
{
	size_t len = 1;
	char *out;

	for (unsigned i = 0; i < src->n_paths; i++)
		len += strlen(src->paths[i]) + 1;
	out = arena_alloc(&ps->arena, len);
	if (!out)
		return -ENOMEM;
	out[0] = '\0';
	*ret = out;
	for (unsigned i = 0; i < src->n_paths; i++)
		out = stpcpy(stpcpy(out, i ? ";" : ""), src->paths[i]);
	return 0;
}

int conf_load(const struct conf_source *src, struct conf **ret_conf)
{
	struct parser ps;
	const char *files;
	int r = parser_init(&ps, src);

	if (r == 0)
		r = join_paths(&ps, src, &files);
	if (r == 0)
		r = define_environment(&ps, files);
	for (unsigned i = 0; i < src->n_paths && r != -ENOMEM; i++)
		r = load_path(&ps, src->paths[i]);
	return parser_end(&ps, r, ret_conf);
}

int conf_load_text(struct str text, const char *name, const struct conf_source *src,
		   struct conf **ret_conf)
{
	struct parser ps;
	int r = parser_init(&ps, src);

	if (r == 0)
		r = define_environment(&ps, name);
	if (r == 0) {
		ps.file = arena_strdup(&ps.conf->arena, str_from_cstr(name));
		r = ps.file ? parser_text(&ps, text) : -ENOMEM;
	}
	return parser_end(&ps, r, ret_conf);
}

void conf_free(struct conf *c)
{
	if (!c)
		return;
	pat_refs_free(c->pat_refs);
	expr_owned_free(&c->expr_owned);
	arena_free(&c->arena);
	mem_free(c);
}
