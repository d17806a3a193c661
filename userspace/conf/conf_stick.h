/* SPDX-License-Identifier: BSD-2-Clause */
/* Stick tables in the language: types of keys and what can be stored. Part of conf/conf.h. Any thread. */
#ifndef CONF_CONF_STICK_H
#define CONF_CONF_STICK_H

#include "base/str.h"

/*
 * What a stick table may keep for each key, in the order in which `show table` prints it. A value is one
 * number, a rate a sliding count over a period; arrays have a length of their own.
 */
enum conf_stick_type { STICK_IP, STICK_IPV6, STICK_INTEGER, STICK_STRING, STICK_BINARY };
#define CONF_STICK_DATA(X)                                                               \
	X(SERVER_ID, "server_id", VALUE) X(GPT0, "gpt0", VALUE) X(GPC0, "gpc0", VALUE)   \
	X(GPC0_RATE, "gpc0_rate", RATE) X(CONN_CNT, "conn_cnt", VALUE)                   \
	X(CONN_RATE, "conn_rate", RATE) X(CONN_CUR, "conn_cur", VALUE)                   \
	X(SESS_CNT, "sess_cnt", VALUE) X(SESS_RATE, "sess_rate", RATE)                   \
	X(HTTP_REQ_CNT, "http_req_cnt", VALUE) X(HTTP_REQ_RATE, "http_req_rate", RATE)   \
	X(HTTP_ERR_CNT, "http_err_cnt", VALUE) X(HTTP_ERR_RATE, "http_err_rate", RATE)   \
	X(BYTES_IN_CNT, "bytes_in_cnt", VALUE) X(BYTES_IN_RATE, "bytes_in_rate", RATE)   \
	X(BYTES_OUT_CNT, "bytes_out_cnt", VALUE) X(BYTES_OUT_RATE, "bytes_out_rate", RATE) \
	X(GPC1, "gpc1", VALUE) X(GPC1_RATE, "gpc1_rate", RATE)                           \
	X(HTTP_FAIL_CNT, "http_fail_cnt", VALUE) X(HTTP_FAIL_RATE, "http_fail_rate", RATE) \
	X(GPT, "gpt", VALUES) X(GPC, "gpc", VALUES) X(GPC_RATE, "gpc_rate", RATES)
enum conf_stick_data {
#define X(name, text, kind) STICK_DATA_##name,
	CONF_STICK_DATA(X)
#undef X
	STICK_DATA_COUNT
};
enum conf_stick_kind { STICK_KIND_VALUE, STICK_KIND_RATE, STICK_KIND_VALUES, STICK_KIND_RATES };
#define CONF_STICK_KEY_MAX	1024 /* bytes of a key */
#define CONF_STICK_ARRAY_MAX	100
#define CONF_STICK_COUNTERS_MAX 12 /* tune.stick-counters */

/* "gpc0_rate"; and what it is. */
struct str conf_stick_data_name(enum conf_stick_data d);
enum conf_stick_kind conf_stick_data_kind(enum conf_stick_data d);
const char *conf_stick_type_name(enum conf_stick_type t); /* "ip" */

#endif
