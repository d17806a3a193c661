/* SPDX-License-Identifier: BSD-2-Clause */
/* Maps of NAT and of connection counts. Rules of who writes what: include/headgate/nat.h. */
#ifndef HG_BPF_MAPS_NAT_H
#define HG_BPF_MAPS_NAT_H

#include "bpf/maps.h"

/* Connections. Writer: this program; control thread ends those that are silent. Miss: not ours, or unknown. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HG_NAT_CONNS_MIN);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_nat_conn);
} nat_conns SEC(".maps");

/* Their addresses, by the same rows. Writer: this program, before the row can be found. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HG_NAT_CONNS_MIN);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_nat_addrs);
} nat_addrs SEC(".maps");

/* From a client's packet to its row. Writer: this program; control thread clears words. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HG_NAT_LINES(HG_NAT_CONNS_MIN));
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_nat_line);
} nat_lines SEC(".maps");

/* Tickets, by row. Writer: this program; control thread takes them away. Miss: by the row. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HG_NAT_CONNS_MIN);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_nat_ticket);
} nat_tickets SEC(".maps");

/* How old they are, by row. Writer: this program. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HG_NAT_TICK_LINES(HG_NAT_CONNS_MIN));
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_nat_ticks);
} nat_ticks SEC(".maps");

/* Rows of tickets by the client's side. Writer: this program; control thread clears words. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HG_NAT_HINT_LINES(HG_NAT_CONNS_MIN));
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_nat_hints);
} nat_hints SEC(".maps");

/* What tickets of one service, server and router have in common. Writer: this program; control thread frees. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HG_NAT_PATHS(HG_NAT_CONNS_MIN));
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_nat_path);
} nat_paths SEC(".maps");

/* First fragments that later ones follow, to a row: words as in `nat_lines`, the tick. Writer: this program. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HG_FLOW_LINES_MIN);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_line);
} nat_fragments SEC(".maps");

/* What new connections need, by service id. Writer: control thread, before the service is published. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_nat_service);
} nat_services SEC(".maps");

/* One row: which packets may be answers of backends. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_nat_control);
} nat_control SEC(".maps");

/* Connections now, by backend id. Writers: this program, the workers and the control thread, atomically. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_live_server);
} live_backends SEC(".maps");

/* The same by service id. Writers: this program, `live_conns` and the control thread, atomically. */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_live);
} live_services SEC(".maps");

#endif
