/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `headgate top`: services, servers, queues, workers and drops of a running daemon, a line each, again every second.
 * Keys choose, sort, drain and inspect. With -b the same tables as plain text.
 */
#include <curses.h>
#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "headgate_top.h"

struct top {
	struct tool *tool;
	struct top_sample now, before;
	struct top_table table;
	enum top_view view;
	unsigned sort_col[VIEW_COUNT];
	bool is_reverse[VIEW_COUNT];
	unsigned selected, first; /* line, and the first that is shown */
	char selected_name[160];
	char filter[64];
	char message[512]; /* what the last action said */
	bool is_paused, is_inspecting, is_lost;
	double delay_s;
};

/* --- data ---------------------------------------------------------------------------------------- */

static void take(struct top *t)
{
	struct top_sample was = t->before;

	t->before = t->now;
	t->now = (struct top_sample){ 0 };
	top_free(&was);
	t->is_lost = top_take(t->tool, &t->now) != 0;
}

static void drop_filtered(struct top *t)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < t->table.n; i++)
		if (strstr(t->table.lines[i].name, t->filter))
			t->table.lines[kept++] = t->table.lines[i];
	t->table.n = kept;
}

/* The selection stays with its name, whatever the order becomes. */
static void keep_selection(struct top *t)
{
	for (unsigned i = 0; i < t->table.n; i++)
		if (strcmp(t->table.lines[i].name, t->selected_name) == 0) {
			t->selected = i;
			return;
		}
	if (t->selected >= t->table.n)
		t->selected = t->table.n ? t->table.n - 1 : 0;
}

static void fill(struct top *t)
{
	if (top_fill(&t->table, t->view, &t->now, &t->before) != 0)
		t->table.n = 0;
	top_sort(&t->table, t->view, t->sort_col[t->view], t->is_reverse[t->view]);
	if (t->filter[0])
		drop_filtered(t);
	keep_selection(t);
}

static void note_selection(struct top *t)
{
	snprintf(t->selected_name, sizeof(t->selected_name), "%s",
		 t->table.n ? t->table.lines[t->selected].name : "");
}

static void format_cell(char *out, size_t size, const struct top_col *c, const char *text)
{
	int width = c->width < 0 ? -c->width : c->width;

	/* A name that is too long loses its beginning: its end tells servers apart. */
	if (c->width < 0 && (int)strlen(text) > width)
		text += strlen(text) - (size_t)width;
	snprintf(out, size, "%*.*s", c->width, width, text);
}

static void head_text(const struct top *t, char *out, size_t size)
{
	static const struct {
		const char *title, *name;
	} what[] = { { "up", "Uptime" },      { "conns", "CurrConns" },	 { "conn/s", "ConnRate" },
		     { "req/s", "SessRate" }, { "tls", "CurrSslConns" }, { "idle%", "Idle_pct" } };
	size_t len = (size_t)snprintf(out, size, "headgate %s", HG_VERSION);

	if (t->is_lost) {
		snprintf(out + len, size - len, "   no daemon answers at %s", t->tool->socket);
		return;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(what) && len < size; i++) {
		struct str v = top_info(&t->now, what[i].name);

		if (v.len)
			len += (size_t)snprintf(out + len, size - len, "   %s " STR_FMT,
						what[i].title, STR_ARG(v));
	}
}

/* --- plain text ------------------------------------------------------------------------------------ */

static void print_view(struct top *t)
{
	const struct top_col *cols;
	char text[256];
	unsigned n;

	fill(t);
	cols = top_columns(t->view, &n);
	printf("[%s]\n", top_view_names[t->view]);
	for (unsigned c = 0; c < n; c++) {
		format_cell(text, sizeof(text), &cols[c], cols[c].title);
		printf("%s%s", c ? " " : "", text);
	}
	putchar('\n');
	for (unsigned i = 0; i < t->table.n; i++) {
		for (unsigned c = 0; c < n; c++) {
			format_cell(text, sizeof(text), &cols[c], t->table.lines[i].cells[c].text);
			printf("%s%s", c ? " " : "", text);
		}
		putchar('\n');
	}
}

static void wait_s(double s)
{
	struct timespec ts = { .tv_sec = (time_t)s,
			       .tv_nsec = (long)((s - (double)(time_t)s) * 1e9) };

	nanosleep(&ts, NULL);
}

/* Two looks, because rates need them; one document. */
static int run_json(struct top *t, bool is_one_view)
{
	take(t);
	if (!t->is_lost) {
		wait_s(t->delay_s);
		take(t);
	}
	if (t->is_lost) {
		fprintf(stderr, "headgate: no daemon answers at %s\n", t->tool->socket);
		return 1;
	}
	if (top_put_json(stdout, &t->now, &t->before, is_one_view ? &t->view : NULL) == 0)
		return 0;
	fprintf(stderr, "headgate: out of memory\n");
	return 1;
}

static int run_batch(struct top *t, unsigned n, bool is_one_view)
{
	enum top_view last = is_one_view ? t->view : VIEW_COUNT - 1, first = t->view;
	char head[512];

	for (unsigned i = 0; i < n; i++) {
		if (i)
			wait_s(t->delay_s);
		take(t);
		head_text(t, head, sizeof(head));
		printf("%s\n", head);
		if (t->is_lost)
			return 1;
		for (unsigned v = first; v <= last; v++) {
			t->view = (enum top_view)v;
			print_view(t);
		}
		t->view = first;
		fflush(stdout);
	}
	return 0;
}

/* --- the screen -------------------------------------------------------------------------------------- */

enum color {
	COLOR_BAD = 1,
	COLOR_OFF,
	COLOR_TITLE
};

static void draw_head(const struct top *t)
{
	char text[512];

	head_text(t, text, sizeof(text));
	attron(t->is_lost ? COLOR_PAIR(COLOR_BAD) : A_BOLD);
	mvaddnstr(0, 0, text, COLS);
	attroff(t->is_lost ? COLOR_PAIR(COLOR_BAD) : A_BOLD);
	move(1, 0);
	for (unsigned v = 0; v < VIEW_COUNT; v++) {
		if (v == t->view)
			attron(A_REVERSE);
		printw(" %u %s ", v + 1, top_view_names[v]);
		attroff(A_REVERSE);
	}
	if (t->filter[0])
		printw("  /%s", t->filter);
	if (t->is_paused)
		addstr("  paused");
}

static void draw_titles(const struct top *t)
{
	const struct top_col *cols;
	char text[256];
	unsigned n;

	cols = top_columns(t->view, &n);
	move(2, 0);
	clrtoeol();
	for (unsigned c = 0; c < n; c++) {
		int attr = COLOR_PAIR(COLOR_TITLE) | A_BOLD;

		if (c == t->sort_col[t->view])
			attr |= A_UNDERLINE;
		format_cell(text, sizeof(text), &cols[c], cols[c].title);
		attron(attr);
		addstr(text);
		attroff(attr);
		addch(' ');
	}
}

static void draw_line(const struct top *t, int y, unsigned i)
{
	const struct top_line *l = &t->table.lines[i];
	const struct top_col *cols;
	int attr = l->is_bad ? COLOR_PAIR(COLOR_BAD) : l->is_off ? COLOR_PAIR(COLOR_OFF) : 0;
	char text[256];
	unsigned n;

	cols = top_columns(t->view, &n);
	if (i == t->selected)
		attr |= A_REVERSE;
	move(y, 0);
	attron(attr);
	for (unsigned c = 0; c < n; c++) {
		format_cell(text, sizeof(text), &cols[c], l->cells[c].text);
		addstr(text);
		addch(' ');
	}
	attroff(attr);
}

/* Every column of `show stat` that has a value, as many beside each other as fit. */
static void draw_details(const struct top *t)
{
	const struct top_line *l = t->selected < t->table.n ? &t->table.lines[t->selected] : NULL;
	int y = 3, x = 0;

	if (!l || !l->stat) {
		mvaddstr(y, 0, "nothing more is known about this line");
		return;
	}
	attron(A_BOLD);
	mvaddnstr(y++, 0, l->name, COLS);
	attroff(A_BOLD);
	for (unsigned i = 2; i < t->now.n_names; i++) {
		if (!l->stat->all[i][0] || !t->now.names[i][0] || t->now.names[i][0] == '-')
			continue;
		mvprintw(y, x, "%-18.18s %-18.18s", t->now.names[i], l->stat->all[i]);
		if (++y >= LINES - 1) {
			y = 4;
			x += 40;
			if (x + 40 > COLS)
				return;
		}
	}
}

static void draw(struct top *t)
{
	int rows = LINES - 4;

	if (rows < 1)
		rows = 1;
	if (t->selected < t->first)
		t->first = t->selected;
	if (t->selected >= t->first + (unsigned)rows)
		t->first = t->selected - (unsigned)rows + 1;
	erase();
	draw_head(t);
	if (t->is_inspecting) {
		draw_details(t);
	} else {
		draw_titles(t);
		for (int y = 0; y < rows && t->first + (unsigned)y < t->table.n; y++)
			draw_line(t, y + 3, t->first + (unsigned)y);
	}
	if (t->message[0])
		mvaddnstr(LINES - 1, 0, t->message, COLS - 1);
	else
		mvaddnstr(LINES - 1, 0,
			  "1-5 view  arrows select  <> sort  r reverse  Enter inspect  d drain  u "
			  "undrain  "
			  "m maint  / filter  p pause  q quit",
			  COLS - 1);
	refresh();
}

/* --- keys ---------------------------------------------------------------------------------------------- */

static void act(struct top *t, const char *state)
{
	const struct top_line *l = t->selected < t->table.n ? &t->table.lines[t->selected] : NULL;
	char command[256], *answer;

	if (!l || !l->is_server) {
		snprintf(t->message, sizeof(t->message), "select a server first (view 2)");
		return;
	}
	snprintf(command, sizeof(command), "set server %s state %s", l->name, state);
	answer = tool_ask(t->tool, command, 1);
	snprintf(t->message, sizeof(t->message), "%s: %s", command,
		 !answer     ? "nobody answers"
		 : answer[0] ? answer
			     : "done");
	t->message[strcspn(t->message, "\n")] = '\0';
	mem_free(answer);
	take(t);
}

static void ask_filter(struct top *t)
{
	move(LINES - 1, 0);
	clrtoeol();
	addstr("show names with: ");
	echo();
	timeout(-1);
	if (getnstr(t->filter, sizeof(t->filter) - 1) != OK)
		t->filter[0] = '\0';
	noecho();
}

static void move_sort(struct top *t, int by)
{
	unsigned n;

	top_columns(t->view, &n);
	t->sort_col[t->view] = (t->sort_col[t->view] + n + (unsigned)by) % n;
}

static void move_selection(struct top *t, int by)
{
	long to = (long)t->selected + by;

	t->selected = to < 0		       ? 0
		      : to >= (long)t->table.n ? (t->table.n ? t->table.n - 1 : 0)
					       : (unsigned)to;
	note_selection(t);
}

static void choose_view(struct top *t, unsigned v)
{
	t->view = (enum top_view)v;
	t->selected = t->first = 0;
	t->selected_name[0] = '\0';
	t->is_inspecting = false;
}

/* False: quit. */
static bool on_key(struct top *t, int key)
{
	if (key != 12) /* drawing again says nothing new */
		t->message[0] = '\0';
	if (key >= '1' && key < '1' + VIEW_COUNT) {
		choose_view(t, (unsigned)(key - '1'));
		return true;
	}
	switch (key) {
	case 'q':
		return false;
	case '\t':
		choose_view(t, (t->view + 1) % VIEW_COUNT);
		break;
	case KEY_UP:
	case 'k':
		move_selection(t, -1);
		break;
	case KEY_DOWN:
	case 'j':
		move_selection(t, 1);
		break;
	case KEY_PPAGE:
		move_selection(t, -(LINES - 4));
		break;
	case KEY_NPAGE:
		move_selection(t, LINES - 4);
		break;
	case '<':
	case KEY_LEFT:
		move_sort(t, -1);
		break;
	case '>':
	case KEY_RIGHT:
		move_sort(t, 1);
		break;
	case 'r':
		t->is_reverse[t->view] = !t->is_reverse[t->view];
		break;
	case 'd':
		act(t, "drain");
		break;
	case 'u':
		act(t, "ready");
		break;
	case 'm':
		act(t, "maint");
		break;
	case '/':
		ask_filter(t);
		break;
	case 'p':
		t->is_paused = !t->is_paused;
		break;
	case '\n':
	case KEY_ENTER:
		t->is_inspecting = !t->is_inspecting;
		break;
	case 27: /* Esc */
		t->is_inspecting = false;
		t->filter[0] = '\0';
		break;
	case 12: /* ^L */
		clearok(curscr, TRUE);
		break;
	}
	return true;
}

static int run_screen(struct top *t)
{
	bool goes_on = true;

	setlocale(LC_ALL, "");
	if (!newterm(NULL, stdout, stdin)) {
		fprintf(stderr, "headgate: this terminal cannot show a screen: use 'top -b'\n");
		return 1;
	}
	set_escdelay(50);
	cbreak();
	noecho();
	keypad(stdscr, TRUE);
	curs_set(0);
	if (has_colors()) {
		start_color();
		use_default_colors();
		init_pair(COLOR_BAD, COLOR_RED, -1);
		init_pair(COLOR_OFF, COLOR_YELLOW, -1);
		init_pair(COLOR_TITLE, COLOR_CYAN, -1);
	}
	while (goes_on) {
		int key;

		if (!t->is_paused)
			take(t);
		fill(t);
		draw(t);
		timeout((int)(t->delay_s * 1000));
		/* Keys that come at once are answered at once, from the sample that is there. */
		while (goes_on && (key = getch()) != ERR) {
			goes_on = on_key(t, key);
			fill(t);
			draw(t);
			timeout((int)(t->delay_s * 1000));
		}
		/* A terminal that has gone reads as no key, at once. */
		goes_on = goes_on && isatty(STDIN_FILENO);
	}
	endwin();
	return 0;
}

/* --- the command ----------------------------------------------------------------------------------------- */

static int top_usage(void)
{
	fprintf(stderr, "usage: headgate top [-d SECONDS] [-b [-n TIMES] | --json] "
			"[services|servers|queues|workers|drops]\n");
	return 1;
}

static bool parse_view(struct top *t, const char *word)
{
	for (unsigned v = 0; v < VIEW_COUNT; v++) {
		if (strcmp(word, top_view_names[v]) == 0) {
			t->view = (enum top_view)v;
			return true;
		}
	}
	return false;
}

int tool_top(struct tool *tool, int argc, char **argv)
{
	struct top t = { .tool = tool, .delay_s = 1 };
	bool is_batch = false, is_json = false, is_one_view = false;
	uint64_t n = 1;
	int status;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "-b") == 0)
			is_batch = true;
		else if (strcmp(argv[i], "--json") == 0)
			is_json = true;
		else if (strcmp(argv[i], "-d") == 0 && i + 1 < argc)
			t.delay_s = strtod(argv[++i], NULL);
		else if (strcmp(argv[i], "-n") == 0 && i + 1 < argc &&
			 str_to_u64(str_from_cstr(argv[i + 1]), &n) == 0)
			i++;
		else if (parse_view(&t, argv[i]))
			is_one_view = true;
		else
			return top_usage();
	}
	if (!(t.delay_s >= 0.1 && t.delay_s <= 3600) || n == 0 || n > UINT32_MAX)
		return top_usage();
	status = is_json    ? run_json(&t, is_one_view)
		 : is_batch ? run_batch(&t, (unsigned)n, is_one_view)
			    : run_screen(&t);
	top_free(&t.now);
	top_free(&t.before);
	mem_free(t.table.lines);
	return status;
}
