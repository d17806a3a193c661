/* SPDX-License-Identifier: BSD-2-Clause */
/* The commands themselves; cmd_table.c names them. All run on the control thread. */
#ifndef CTL_CMD_ROWS_H
#define CTL_CMD_ROWS_H

#include "ctl/cmd.h"

int cmd_help(struct cmd *c);
int cmd_prompt(struct cmd *c);
int cmd_quit(struct cmd *c);
int cmd_set_timeout(struct cmd *c);
int cmd_operator(struct cmd *c);
int cmd_user(struct cmd *c);
int cmd_echo(struct cmd *c);
int cmd_show_info(struct cmd *c);
int cmd_show_stat(struct cmd *c);
int cmd_show_sess(struct cmd *c);
int cmd_show_servers_state(struct cmd *c);
int cmd_show_servers_conn(struct cmd *c);
int cmd_show_backend(struct cmd *c);
int cmd_show_env(struct cmd *c);
int cmd_show_version(struct cmd *c);
int cmd_show_activity(struct cmd *c);
int cmd_show_snapshots(struct cmd *c);
int cmd_show_startup_logs(struct cmd *c);
int cmd_show_cli_sockets(struct cmd *c);
int cmd_show_l4(struct cmd *c);
int cmd_clear_counters(struct cmd *c);
int cmd_clear_counters_all(struct cmd *c);
int cmd_clear_counters_server(struct cmd *c);
int cmd_set_server(struct cmd *c);
int cmd_set_weight(struct cmd *c);
int cmd_get_weight(struct cmd *c);
int cmd_enable_server(struct cmd *c);
int cmd_disable_server(struct cmd *c);
int cmd_enable_health(struct cmd *c);
int cmd_disable_health(struct cmd *c);
int cmd_enable_frontend(struct cmd *c);
int cmd_disable_frontend(struct cmd *c);
int cmd_set_maxconn_server(struct cmd *c);
int cmd_set_maxconn_global(struct cmd *c);
int cmd_shutdown_session(struct cmd *c);
int cmd_shutdown_sessions_server(struct cmd *c);
int cmd_reload(struct cmd *c);
int cmd_show_table(struct cmd *c);
int cmd_clear_table(struct cmd *c);
int cmd_set_table(struct cmd *c);

#endif
