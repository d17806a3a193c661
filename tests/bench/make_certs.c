/* SPDX-License-Identifier: BSD-2-Clause */
/* make_certs DIRECTORY COUNT: so many self-signed P-256 certificates n1.test, n2.test …, each with its key in one PEM file. */
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static void write_cert(const char *path, const char *name)
{
	X509 *x = X509_new();
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509_NAME *n = X509_get_subject_name(x);
	FILE *f = fopen(path, "w");
	char text[80];
	X509_EXTENSION *san;

	snprintf(text, sizeof(text), "DNS:%s", name);
	san = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, text);
	if (!f || !key || !san)
		exit(1);
	X509_set_version(x, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
	X509_gmtime_adj(X509_getm_notBefore(x), -3600);
	X509_gmtime_adj(X509_getm_notAfter(x), 86400 * 30);
	X509_set_pubkey(x, key);
	X509_NAME_add_entry_by_txt(n, "CN", MBSTRING_UTF8, (const unsigned char *)name, -1, -1, 0);
	X509_set_issuer_name(x, n);
	X509_add_ext(x, san, -1);
	if (!X509_sign(x, key, EVP_sha256()) || !PEM_write_X509(f, x) ||
	    !PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL))
		exit(1);
	fclose(f);
	X509_EXTENSION_free(san);
	X509_free(x);
	EVP_PKEY_free(key);
}

int main(int argc, char **argv)
{
	char path[4096], name[32];

	if (argc != 3 || mkdir(argv[1], 0755) != 0)
		return 1;
	for (int i = 1; i <= atoi(argv[2]); i++) {
		snprintf(name, sizeof(name), "n%d.test", i);
		snprintf(path, sizeof(path), "%s/%s.pem", argv[1], name);
		write_cert(path, name);
	}
	return 0;
}
