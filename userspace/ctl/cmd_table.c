/* SPDX-License-Identifier: BSD-2-Clause */
/* The runtime API as a table: words, least level, function, arguments, help. `help` and the docs are printed from it. */
#include "ctl/cmd_rows.h"

#define U CONF_LEVEL_USER
#define O CONF_LEVEL_OPERATOR
#define A CONF_LEVEL_ADMIN

static const struct cmd_row show_rows[] = {
	{ "show activity", O, cmd_show_activity, "", "per-worker loop and connection counters" },
	{ "show backend", U, cmd_show_backend, "", "list the backends" },
	{ "show cli sockets", O, cmd_show_cli_sockets, "", "sockets of this API" },
	{ "show env", O, cmd_show_env, "[var]", "environment of the process" },
	{ "show info", U, cmd_show_info, "[typed|json]", "information about the process" },
	{ "show l4", U, cmd_show_l4, "[json]",
	  "services, backends and verdicts of the kernel tier" },
	{ "show servers conn", U, cmd_show_servers_conn, "[backend]",
	  "connections of the servers" },
	{ "show servers state", U, cmd_show_servers_state, "[backend]",
	  "volatile state of the servers" },
	{ "show sess", O, cmd_show_sess, "[all|id]", "streams and what they are doing" },
	{ "show session", O, cmd_show_sess, NULL, NULL },
	{ "show snapshots", O, cmd_show_snapshots, "", "configurations that are still in use" },
	{ "show startup-logs", U, cmd_show_startup_logs, "", "what was reported while starting" },
	{ "show stat", U, cmd_show_stat, "[{iid|name} type sid] [typed|json] [up|no-maint]",
	  "statistics" },
	{ "show table", O, cmd_show_table, "[<table> [data.<type> <op> <value>|key <key>]]",
	  "stick tables, or entries of one" },
	{ "show version", U, cmd_show_version, "", "version whose interface is offered" },
	{ NULL, U, NULL, NULL, NULL },
};

static const struct cmd_row change_rows[] = {
	{ "clear counters", O, cmd_clear_counters, "", "clear maxima" },
	{ "clear counters all", A, cmd_clear_counters_all, "", "clear all counters" },
	{ "clear counters server", A, cmd_clear_counters_server, "<bk>/<srv>",
	  "clear one server's counters" },
	{ "clear table", O, cmd_clear_table, "<table> [data.<type> <op> <value>|key <key>]",
	  "remove entries of a stick table" },
	{ "disable frontend", A, cmd_disable_frontend, "<frontend>",
	  "stop accepting, connections wait" },
	{ "disable health", A, cmd_disable_health, "<bk>/<srv>", "stop the health checks" },
	{ "disable server", A, cmd_disable_server, "<bk>/<srv>", "put a server into maintenance" },
	{ "enable frontend", A, cmd_enable_frontend, "<frontend>", "accept again" },
	{ "enable health", A, cmd_enable_health, "<bk>/<srv>", "start the health checks" },
	{ "enable server", A, cmd_enable_server, "<bk>/<srv>", "end a server's maintenance" },
	{ "get weight", U, cmd_get_weight, "<bk>/<srv>", "current and initial weight" },
	{ "reload", A, cmd_reload, "", "read the configuration again, break nothing" },
	{ "set maxconn global", A, cmd_set_maxconn_global, "<n>",
	  "limit of connections of the process" },
	{ "set maxconn server", A, cmd_set_maxconn_server, "<bk>/<srv> <n>", "limit of a server" },
	{ "set server", A, cmd_set_server, "<bk>/<srv> state|weight|health|addr …",
	  "change a server" },
	{ "set table", O, cmd_set_table, "<table> key <key> [data.<type> <value>]...",
	  "write an entry of a stick table" },
	{ "set weight", A, cmd_set_weight, "<bk>/<srv> <n>[%]", "change a server's weight" },
	{ "shutdown session", A, cmd_shutdown_session, "<id>", "end one stream" },
	{ "shutdown sessions server", A, cmd_shutdown_sessions_server, "<bk>/<srv>",
	  "end all streams of a server" },
	{ NULL, U, NULL, NULL, NULL },
};

static const struct cmd_row session_rows[] = {
	{ "help", U, cmd_help, "[command]", "this list" },
	{ "echo", U, cmd_echo, "<text>", "say it again" },
	{ "operator", U, cmd_operator, "", "lower the level of this connection to operator" },
	{ "prompt", U, cmd_prompt, "[n|i|p|timed]", "stay and prompt, or not" },
	{ "quit", U, cmd_quit, "", "close the connection" },
	{ "set timeout cli", U, cmd_set_timeout, "<delay>",
	  "idle time after which the connection is closed" },
	{ "user", U, cmd_user, "", "lower the level of this connection to user" },
	{ NULL, U, NULL, NULL, NULL },
};

const struct cmd_row *const cmd_tables[] = { session_rows, show_rows, change_rows, NULL };
