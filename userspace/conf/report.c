/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Findings: kept until the end of loading, then sorted by file, line and column, so that what is found
 * late (cross references) stands where a reader expects it. Equal findings at one place are told
 * once. Control thread; texts live in the parser's arena.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "conf/conf_priv.h"

unsigned line_column(const struct line *l, unsigned word, size_t off)
{
	const struct str *w;

	if (!l->n)
		return l->pos.column ? l->pos.column : 1;
	if (word >= l->n) { /* something is missing: behind the last word */
		w = &l->words[l->n - 1];
		return l->map[(size_t)(w->p - l->text) + w->len];
	}
	w = &l->words[word];
	if (off == 0 || !w->len)
		return l->columns[word];
	return l->map[(size_t)(w->p - l->text) + (off < w->len ? off : w->len)];
}

static int findings_reserve(struct parser *ps)
{
	unsigned cap = ps->cap_findings ? ps->cap_findings * 2 : 16;
	struct finding *p;

	if (ps->n_findings < ps->cap_findings)
		return 0;
	p = mem_realloc(ps->findings, cap * sizeof(*p));
	if (!p)
		return -ENOMEM;
	ps->findings = p;
	ps->cap_findings = cap;
	return 0;
}

int report_at(struct parser *ps, enum conf_severity sev, const struct conf_pos *pos,
	      const char *text)
{
	struct finding *f;
	char *copy;

	if (sev == CONF_ERROR)
		ps->n_errors++;
	if (sev == CONF_WARNING)
		ps->n_warnings++;
	if (ps->n_findings >= CONF_MAX_FINDINGS) {
		ps->is_flooded = true;
		return 0;
	}
	copy = arena_strdup(&ps->arena, str_from_cstr(text));
	if (!copy || findings_reserve(ps))
		return -ENOMEM;
	f = &ps->findings[ps->n_findings];
	*f = (struct finding){
		.pos = *pos, .sev = sev, .text = copy, .file_no = ps->file_no, .no = ps->n_findings
	};
	/* A finding of the last phase may be about an earlier file: files are sorted by first use. */
	for (unsigned i = 0; i < ps->n_findings; i++) {
		if (ps->findings[i].pos.file == pos->file) {
			f->file_no = ps->findings[i].file_no;
			break;
		}
	}
	ps->n_findings++;
	return 0;
}

static HG_PRINTF(4, 0) int report_va(struct parser *ps, enum conf_severity sev,
				     const struct conf_pos *pos, const char *fmt, va_list ap)
{
	char text[1024];

	vsnprintf(text, sizeof(text), fmt, ap);
	for (char *p = text; *p; p++) {
		if ((unsigned char)*p < ' ' || *p == 127)
			*p = '?';
	}
	return report_at(ps, sev, pos, text);
}

int conf_fail(struct parser *ps, const struct line *l, unsigned word, const char *fmt, ...)
{
	struct conf_pos pos = l->pos;
	va_list ap;
	int r;

	pos.column = line_column(l, word, 0);
	va_start(ap, fmt);
	r = report_va(ps, CONF_ERROR, &pos, fmt, ap);
	va_end(ap);
	return r ? r : -EINVAL;
}

int conf_fail_off(struct parser *ps, const struct line *l, unsigned word, size_t off,
		  const char *fmt, ...)
{
	struct conf_pos pos = l->pos;
	va_list ap;
	int r;

	pos.column = line_column(l, word, off);
	va_start(ap, fmt);
	r = report_va(ps, CONF_ERROR, &pos, fmt, ap);
	va_end(ap);
	return r ? r : -EINVAL;
}

int conf_fail_pos(struct parser *ps, const struct conf_pos *pos, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = report_va(ps, CONF_ERROR, pos, fmt, ap);
	va_end(ap);
	return r ? r : -EINVAL;
}

int conf_warn(struct parser *ps, const struct line *l, unsigned word, const char *fmt, ...)
{
	struct conf_pos pos = l->pos;
	va_list ap;
	int r;

	pos.column = line_column(l, word, 0);
	va_start(ap, fmt);
	r = report_va(ps, CONF_WARNING, &pos, fmt, ap);
	va_end(ap);
	return r;
}

static int compare(const void *pa, const void *pb)
{
	const struct finding *a = pa, *b = pb;

	if (a->file_no != b->file_no)
		return a->file_no < b->file_no ? -1 : 1;
	if (a->pos.line != b->pos.line)
		return a->pos.line < b->pos.line ? -1 : 1;
	if (a->pos.column != b->pos.column)
		return a->pos.column < b->pos.column ? -1 : 1;
	return a->no < b->no ? -1 : 1;
}

void report_flush(struct parser *ps)
{
	conf_report_fn *report = ps->src->report;
	const struct finding *last = NULL;

	if (!report || !ps->n_findings)
		return;
	qsort(ps->findings, ps->n_findings, sizeof(*ps->findings), compare);
	for (unsigned i = 0; i < ps->n_findings; i++) {
		const struct finding *f = &ps->findings[i];

		if (last && last->file_no == f->file_no && last->pos.line == f->pos.line &&
		    last->pos.column == f->pos.column && strcmp(last->text, f->text) == 0)
			continue;
		report(ps->src->report_ctx, f->sev, &f->pos, f->text);
		last = f;
	}
	if (ps->is_flooded)
		report(ps->src->report_ctx, CONF_NOTICE, &last->pos,
		       "too many findings, the others are not shown");
}
