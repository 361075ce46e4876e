/* The C border between Situ and the Rust library in rust/ (an HTTP client, and digests of files).
 *
 * Texts end with a NUL. Functions that return int return 0, or a code of an error whose text they write. Nothing
 * prints, exits or unwinds. Any thread; an answer and a digest one at a time.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct situ_hub_answer situ_hub_answer;
typedef struct situ_hub_digest situ_hub_digest;
typedef struct {
  char text[512];
} situ_hub_text;

/* Sends "GET" or "HEAD" and waits for the head of the answer, whatever its status: no redirect is followed. token: "",
 * or what goes into Authorization. from: 0, or the first byte that is asked for (Range). direct: not 0: through no
 * proxy. Error: there is no answer; SITU_HUB_FOR_GOOD: and no other call will have one, since TLS refuses the server.
 */
#define SITU_HUB_FOR_GOOD 3
int situ_hub_send(const char* method, const char* url, const char* token, uint64_t from, int direct,
                  situ_hub_answer** answer, situ_hub_text* error);
int situ_hub_status(const situ_hub_answer* answer);
/* The bytes of the header's value, which is written where they fit into `room`; 0: there is none. */
size_t situ_hub_header(const situ_hub_answer* answer, const char* name, char* to, size_t room);
/* The next bytes of the body; *size 0: it is over. Error: the connection broke, or the body was cut or no byte comes
 * for a minute. */
int situ_hub_read(situ_hub_answer* answer, char* to, size_t room, size_t* size, situ_hub_text* error);
void situ_hub_free(situ_hub_answer* answer);

/* bits: 256 for SHA-256, 160 for SHA-1. */
situ_hub_digest* situ_hub_digest_new(int bits);
void situ_hub_digest_add(situ_hub_digest* digest, const char* data, size_t size);
/* Writes hexadecimal digits and a NUL, and frees the digest. */
void situ_hub_digest_end(situ_hub_digest* digest, char to[65]);

#ifdef __cplusplus
}
#endif
