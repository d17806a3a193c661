/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef UNIT_JWT_TOKENS_H
#define UNIT_JWT_TOKENS_H

/* Tokens made with openssl(1) and the keys whose public halves are here. */
#define HS256 \
	"eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJqb2UiLCJleHAiOjE3MDAwMDAwMDAsImF" \
	"kbSI6dHJ1ZSwiciI6WyJhIiwiYiJdLCJodHRwczovL3gueS96Ijp7Im4iOjEuNX19.V83OFWJAZI0mGU" \
	"5siF9DRsl_3PeEnzzrLNeSeY5yNYk"
#define RS256 \
	"eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJqb2UiLCJleHAiOjE3MDAwMDAwMDAsImF" \
	"kbSI6dHJ1ZSwiciI6WyJhIiwiYiJdLCJodHRwczovL3gueS96Ijp7Im4iOjEuNX19.jAFb0Isht11GFS" \
	"fhYj44ba2EjWJ02TUPkaxwVZFI-Ju76p0VkjeNAg_jy3qFm8J7l3ILRkxQUVNgkpe6DKFZXGfkoac-UY" \
	"gXF-mmmBQg5uWzMHk3VA4o1_uA8ieysmbgPokBtZl9Kdw3lEJUvZuzWIOzOPcok3CHDAL3vuOMIZdcv0" \
	"vtxJde-Tr8TjbVFlQkxBly2R_88O3Gl1L7KAerCgh6gwQH3_i27DupbNksMoGhL5CNORhR2sY-9H027p" \
	"eq3k7QGrH3RyyScHgxTCK9K6rRu3Y7UbRSlcOU9oUtQVblkKdFMQNhV3PnYPouCFCZ69zSylvrq-vpIX" \
	"QST4NGzA"
#define PS256 \
	"eyJhbGciOiJQUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJqb2UiLCJleHAiOjE3MDAwMDAwMDAsImF" \
	"kbSI6dHJ1ZSwiciI6WyJhIiwiYiJdLCJodHRwczovL3gueS96Ijp7Im4iOjEuNX19.TaXF3ZBV_cUwOU" \
	"ib3LdybEmINaEtqopjMF40XK8KzMCtVpcFaSigF_ObuQkPeFzTghhtNVRJmTL64qLtuH-_c2qIqT2nEX" \
	"BRa4giIwWTp9HRtyQjdF94epPFRcRLq_RvsCIyo0D-KyXRbePT0FNn0Z5RsjvPK5WCZa-NVXmGRzwgFB" \
	"D8yrjjzw6caN_3AfSIi_Bw3khCF6AoRZ9ocsoviya8YLeSyLjuaZ0rZuWNowra8UiFiOUqFdrl1gRACD" \
	"fNpRtyrONOYQs-THl8UZIXDRbe8o6jPP8PmBAYpfaZwusHyVm0GwbWZtd6OaU_dTPO2LLNyAComTZPT1" \
	"yqObGjOA"
#define ES256 \
	"eyJhbGciOiJFUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJqb2UiLCJleHAiOjE3MDAwMDAwMDAsImF" \
	"kbSI6dHJ1ZSwiciI6WyJhIiwiYiJdLCJodHRwczovL3gueS96Ijp7Im4iOjEuNX19.ri1sq_VsF0XyYo" \
	"ix1lkuzOAumXkoBMvGdTet7WWI8UHCU1_TlQxeOBkebLHCQPq_mdOYa18bFVun-vlIqNIyRA"
static const char rsa_pub[] =
	"-----BEGIN PUBLIC KEY-----\n"
	"MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEArhPDqPnvHd0P7UCX78pt\n"
	"IBYY2d52iw7zb/gqbeuV5mNgb5RX8lkFErd342H4FxhVWxLBekCA9ST5d7htWfeI\n"
	"Xw5negnIaL9n065q1lcjXpkFVVOatMuTrP8KiE6U8GuZ9I10166pqTmp/w6jObzo\n"
	"1aWsLreDVa8wOvpohNS/TqoFFwCsNVmmwtfNKj56gdQZvtoOl/tpNNU0oS32UY2U\n"
	"xMhP622APVjuJc8p0PNwutZ0eMXEkAqFwhpldJzFrx7yTIXOlnz0Y9jyJnPt2ZUf\n"
	"pWNNxErhlJlog4Fs2P+7lrMTd7SWqwmO3uzf4/fIfPDtYXtsi1AYOWAmRk+9sONf\n"
	"nwIDAQAB\n"
	"-----END PUBLIC KEY-----\n";
static const char ec_pub[] =
	"-----BEGIN PUBLIC KEY-----\n"
	"MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEwwwB9OgKtJ71yU1rNuByGj0XYa74\n"
	"MMW48NBo2y73wy/TilF3WUbz54vJnkzIvnBl6lzt2Rs5nHDpvkQQNLVO0g==\n"
	"-----END PUBLIC KEY-----\n";

#endif
