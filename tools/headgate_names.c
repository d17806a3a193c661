/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The pinned maps know numbers and addresses; the names of sections and servers come from the daemon's
 * `show l4`, when one runs.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ctl/l4_text.h"
#include "tools_priv.h"

void tool_service_key(const struct hg_service_key *k, char *out, size_t size)
{
	l4_key_text(k, out, size);
}

static int names_add(struct tool_names *n, const char *key, uint32_t id, const char *section,
		     const char *server)
{
	if (n->n == n->cap) {
		unsigned cap = n->cap ? n->cap * 2 : 64;
		struct tool_name *more = mem_realloc(n->rows, cap * sizeof(*more));

		if (!more)
			return -1;
		n->rows = more;
		n->cap = cap;
	}
	n->rows[n->n] = (struct tool_name){ .id = id };
	snprintf(n->rows[n->n].key, sizeof(n->rows[0].key), "%s", key);
	snprintf(n->rows[n->n].section, sizeof(n->rows[0].section), "%s", section);
	snprintf(n->rows[n->n].server, sizeof(n->rows[0].server), "%s", server);
	n->n++;
	return 0;
}

void tool_names_load(struct tool *t, struct tool_names *ret)
{
	char *text = tool_ask(t, "show l4", 1), *line, *save = NULL;
	char key[TOOL_KEY_MAX], section[TOOL_NAME_MAX], server[TOOL_NAME_MAX];
	unsigned id;

	*ret = (struct tool_names){ .is_known = text && text[0] == '#' };
	for (line = text ? strtok_r(text, "\n", &save) : NULL; line && ret->is_known;
	     line = strtok_r(NULL, "\n", &save)) {
		if (sscanf(line, "%u %127s %127s", &id, section, server) == 3)
			(void)names_add(ret, "", id, section, server);
		else if (sscanf(line, "%79s %127s", key, section) == 2 && strchr(key, '@'))
			(void)names_add(ret, key, 0, section, "");
	}
	mem_free(text);
}

void tool_names_free(struct tool_names *n)
{
	mem_free(n->rows);
}

const char *tool_service_name(const struct tool_names *n, const char *key)
{
	for (unsigned i = 0; i < n->n; i++)
		if (strcmp(n->rows[i].key, key) == 0)
			return n->rows[i].section;
	return "";
}

static const struct tool_name *backend_row(const struct tool_names *n, uint32_t id)
{
	for (unsigned i = 0; id && i < n->n; i++)
		if (n->rows[i].id == id)
			return &n->rows[i];
	return NULL;
}

const char *tool_backend_name(const struct tool_names *n, uint32_t id)
{
	const struct tool_name *row = backend_row(n, id);

	return row ? row->server : "";
}

bool tool_is_backend(const struct tool_names *n, uint32_t id, const char *text)
{
	const struct tool_name *row = backend_row(n, id);
	size_t len = row ? strlen(row->section) : 0;

	if (!row)
		return false;
	return strcmp(row->server, text) == 0 ||
	       (strncmp(row->section, text, len) == 0 && text[len] == '/' &&
		strcmp(row->server, text + len + 1) == 0);
}
