/*
 * net_tcp_proof: what a caller and who is called show each other. Both know a secret that never
 * crosses the wire: each sends a random number, and a keyed hash (HMAC-SHA256, of libcrypto) of all
 * that was said, with the other's number in it. So a proof is of use once, in one direction, to one
 * rank.
 */
#include "net/net_tcp.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <sys/random.h>

bool net_tcp_random(uint8_t *bytes, size_t n)
{
    return getrandom(bytes, n, 0) == (ssize_t)n;
}

bool net_tcp_prove(const char *secret, const char *who, const struct net_tcp_hello *hello,
                   const uint8_t *number, uint8_t *proof)
{
    uint8_t said[16 + sizeof *hello + NET_TCP_NUMBER] = {0};
    memcpy(said, who, strlen(who));
    memcpy(said + 16, hello, sizeof *hello);
    memcpy(said + 16 + sizeof *hello, number, NET_TCP_NUMBER);
    return HMAC(EVP_sha256(), secret, (int)strlen(secret), said, sizeof said, proof, NULL);
}

bool net_tcp_is_proven(const char *secret, const char *who, const struct net_tcp_hello *hello,
                       const uint8_t *number, const uint8_t *proof)
{
    uint8_t right[NET_TCP_PROOF];
    return net_tcp_prove(secret, who, hello, number, right) &&
           !CRYPTO_memcmp(right, proof, sizeof right);
}
