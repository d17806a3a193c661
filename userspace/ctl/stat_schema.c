/* SPDX-License-Identifier: BSD-2-Clause */
/* The JSON schema of `show info json` and `show stat json`, as HAProxy gives it. */
#include "ctl/stat_cols.h"

#define SCHEMA_ENUM(...) "{\"type\":\"string\",\"enum\":[" __VA_ARGS__ "]}"

void stat_schema(FILE *f)
{
	static const char *const values[][3] = {
		{ "s32", "-2147483648", "2147483647" },
		{ "s64", "-9007199254740991", "9007199254740991" },
		{ "u32", "0", "4294967295" },
		{ "u64", "0", "9007199254740991" },
	};

	fputs("{\"$schema\":\"http://json-schema.org/draft-04/schema#\",\"oneOf\":["
	      "{\"title\":\"Info\",\"type\":\"array\",\"items\":{\"title\":\"InfoItem\","
	      "\"type\":\"object\",\"properties\":{\"field\":{\"$ref\":\"#/definitions/field\"},"
	      "\"processNum\":{\"$ref\":\"#/definitions/processNum\"},"
	      "\"tags\":{\"$ref\":\"#/definitions/tags\"},"
	      "\"value\":{\"$ref\":\"#/definitions/typedValue\"}},"
	      "\"required\":[\"field\",\"processNum\",\"tags\",\"value\"]}},"
	      "{\"title\":\"Stat\",\"type\":\"array\",\"items\":{\"title\":\"StatItem\","
	      "\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{"
	      "\"objType\":",
	      f);
	fputs(SCHEMA_ENUM("\"Frontend\",\"Backend\",\"Listener\",\"Server\",\"Unknown\""), f);
	fputs(",\"proxyId\":{\"type\":\"integer\",\"minimum\":0},"
	      "\"id\":{\"type\":\"integer\",\"minimum\":0},"
	      "\"field\":{\"$ref\":\"#/definitions/field\"},"
	      "\"processNum\":{\"$ref\":\"#/definitions/processNum\"},"
	      "\"tags\":{\"$ref\":\"#/definitions/tags\"},"
	      "\"value\":{\"$ref\":\"#/definitions/typedValue\"}},"
	      "\"required\":[\"objType\",\"proxyId\",\"id\",\"field\",\"processNum\",\"tags\","
	      "\"value\"]}}}],\"definitions\":{"
	      "\"field\":{\"type\":\"object\",\"pos\":{\"type\":\"integer\",\"minimum\":0},"
	      "\"name\":{\"type\":\"string\"},\"required\":[\"pos\",\"name\"]},"
	      "\"processNum\":{\"type\":\"integer\",\"minimum\":1},"
	      "\"tags\":{\"type\":\"object\",\"origin\":",
	      f);
	fputs(SCHEMA_ENUM("\"Metric\",\"Status\",\"Key\",\"Config\",\"Product\",\"Unknown\""), f);
	fputs(",\"nature\":", f);
	fputs(SCHEMA_ENUM("\"Gauge\",\"Limit\",\"Min\",\"Max\",\"Rate\",\"Counter\",\"Duration\","
			  "\"Age\",\"Time\",\"Name\",\"Output\",\"Avg\",\"Unknown\""),
	      f);
	fputs(",\"scope\":", f);
	fputs(SCHEMA_ENUM("\"Cluster\",\"Process\",\"Service\",\"System\",\"Unknown\""), f);
	fputs(",\"required\":[\"origin\",\"nature\",\"scope\"]},\"typedValue\":{\"type\":"
	      "\"object\","
	      "\"oneOf\":[",
	      f);
	for (size_t i = 0; i < ARRAY_SIZE(values); i++)
		fprintf(f, "{\"$ref\":\"#/definitions/%sValue\"},", values[i][0]);
	fputs("{\"$ref\":\"#/definitions/strValue\"}],\"definitions\":{", f);
	for (size_t i = 0; i < ARRAY_SIZE(values); i++)
		fprintf(f,
			"\"%sValue\":{\"properties\":{\"type\":{\"type\":\"string\",\"enum\":["
			"\"%s\"]},\"value\":{\"type\":\"integer\",\"minimum\":%s,\"maximum\":%s}},"
			"\"required\":[\"type\",\"value\"]},",
			values[i][0], values[i][0], values[i][1], values[i][2]);
	fputs("\"strValue\":{\"properties\":{\"type\":{\"type\":\"string\",\"enum\":[\"str\"]},"
	      "\"value\":{\"type\":\"string\"}},\"required\":[\"type\",\"value\"]}}}}}\n",
	      f);
}
