/* SPDX-License-Identifier: BSD-2-Clause */
/* The commands themselves; cmd_table.c names them. All run on the control thread. */
#ifndef CTL_CMD_ROWS_H
#define CTL_CMD_ROWS_H

#include "ctl/cmd.h"

int cmd_getsocks(struct cmd *c);
int cmd_getlock(struct cmd *c);
int cmd_taken(struct cmd *c);
int cmd_help(struct cmd *c);
int cmd_prompt(struct cmd *c);
int cmd_quit(struct cmd *c);
int cmd_set_timeout(struct cmd *c);
int cmd_set_severity(struct cmd *c);
int cmd_operator(struct cmd *c);
int cmd_user(struct cmd *c);
int cmd_echo(struct cmd *c);
int cmd_show_info(struct cmd *c);
int cmd_show_stat(struct cmd *c);
int cmd_show_sess(struct cmd *c);
int cmd_show_servers_state(struct cmd *c);
int cmd_show_proc(struct cmd *c);
int cmd_master_reload(struct cmd *c);
int cmd_master_startup_logs(struct cmd *c);
int cmd_show_threads(struct cmd *c);
int cmd_show_steering(struct cmd *c);
int cmd_show_pools(struct cmd *c);
int cmd_show_fd(struct cmd *c);
int cmd_show_schema(struct cmd *c);
int cmd_show_cli_level(struct cmd *c);
int cmd_expert_mode(struct cmd *c);
int cmd_experimental_mode(struct cmd *c);
int cmd_add_server(struct cmd *c);
int cmd_del_server(struct cmd *c);
int cmd_wait(struct cmd *c);
int cmd_show_profiling(struct cmd *c);
int cmd_set_profiling(struct cmd *c);
/* cmd_server.c: why a server cannot be deleted, NULL: it can; *ret_may_pass: not yet. Its idle connections do not count. */
const char *server_why_not_removable(const struct ctl *ctl, const struct server *s,
				     bool *ret_may_pass);
int cmd_set_maxconn_frontend(struct cmd *c);
int cmd_enable_dynamic_cookie(struct cmd *c);
int cmd_disable_dynamic_cookie(struct cmd *c);
int cmd_set_dynamic_cookie_key(struct cmd *c);
int cmd_shutdown_frontend(struct cmd *c);
int cmd_show_resolvers(struct cmd *c);
int cmd_show_servers_conn(struct cmd *c);
int cmd_show_backend(struct cmd *c);
int cmd_show_env(struct cmd *c);
int cmd_show_errors(struct cmd *c);
int cmd_show_events(struct cmd *c);
int cmd_show_version(struct cmd *c);
int cmd_show_activity(struct cmd *c);
int cmd_show_snapshots(struct cmd *c);
int cmd_show_startup_logs(struct cmd *c);
int cmd_show_cli_sockets(struct cmd *c);
int cmd_show_l4(struct cmd *c);
int cmd_show_services(struct cmd *c);
int cmd_show_backends(struct cmd *c);
int cmd_show_nat(struct cmd *c);
int cmd_clear_counters(struct cmd *c);
int cmd_clear_counters_all(struct cmd *c);
int cmd_clear_counters_server(struct cmd *c);
int cmd_set_server(struct cmd *c);
int cmd_set_weight(struct cmd *c);
int cmd_get_weight(struct cmd *c);
int cmd_enable_server(struct cmd *c);
int cmd_disable_server(struct cmd *c);
int cmd_enable_agent(struct cmd *c);
int cmd_disable_agent(struct cmd *c);
int cmd_enable_health(struct cmd *c);
int cmd_disable_health(struct cmd *c);
int cmd_enable_frontend(struct cmd *c);
int cmd_disable_frontend(struct cmd *c);
int cmd_set_maxconn_server(struct cmd *c);
int cmd_set_rate_limit(struct cmd *c);
int cmd_set_maxconn_global(struct cmd *c);
int cmd_shutdown_session(struct cmd *c);
int cmd_shutdown_sessions_server(struct cmd *c);
int cmd_show_guard(struct cmd *c);
int cmd_show_guid(struct cmd *c);
int cmd_set_guard(struct cmd *c);
int cmd_reload(struct cmd *c);
int cmd_show_table(struct cmd *c);
int cmd_clear_table(struct cmd *c);
int cmd_set_table(struct cmd *c);
int cmd_show_ssl_file(struct cmd *c);
int cmd_new_ssl_file(struct cmd *c);
int cmd_del_ssl_file(struct cmd *c);
int cmd_set_ssl_file(struct cmd *c);
int cmd_commit_ssl_file(struct cmd *c);
int cmd_abort_ssl_file(struct cmd *c);
int cmd_add_ssl_file(struct cmd *c);
int cmd_show_ssl_crt_list(struct cmd *c);
int cmd_add_ssl_crt_list(struct cmd *c);
int cmd_del_ssl_crt_list(struct cmd *c);
int cmd_show_ssl_ocsp(struct cmd *c);
int cmd_set_ssl_ocsp(struct cmd *c);
int cmd_show_ssl_sni(struct cmd *c);
int cmd_show_tls_keys(struct cmd *c);
int cmd_set_ssl_tls_key(struct cmd *c);
int cmd_show_pattern(struct cmd *c);
int cmd_get_pattern(struct cmd *c);
int cmd_add_pattern(struct cmd *c);
int cmd_del_pattern(struct cmd *c);
int cmd_set_map(struct cmd *c);
int cmd_clear_pattern(struct cmd *c);
int cmd_prepare_pattern(struct cmd *c);
int cmd_commit_pattern(struct cmd *c);
int cmd_get_var(struct cmd *c);
int cmd_set_var(struct cmd *c);

#endif
