/* The C border between Situ and the Rust library in rust/ (an HTTP/1.1 server).
 *
 * One thread reads and writes all connections. Callbacks come from that thread and must not wait; whatever they are
 * given is theirs until they return. All functions may be called by any thread, also from a callback, but for
 * situ_http_free. Texts are bytes with a size and no terminator. Nothing prints, exits or unwinds, callbacks neither.
 *
 * An exchange is a request and its answer. For each: `head` once; if it returned 1, `request` once, unless the
 * client goes first; then situ_http_respond once, or situ_http_begin, any number of situ_http_write, and situ_http_end;
 * and `over` once, when the answer is wholly written or the client is gone.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct situ_http situ_http;

typedef struct {
  const char* data;
  size_t size;
} situ_http_text;

typedef struct {
  situ_http_text name, value; /* names of requests are in small letters */
} situ_http_header;

typedef struct {
  situ_http_text method, path, query; /* as they were sent: escapes are not resolved */
  situ_http_text peer;                /* IP address; empty: a Unix socket */
  uint64_t connection;
  bool full; /* all connections but `spare` are at work already: what is not to be answered then is refused by `head` */
  const situ_http_header* headers;
  size_t header_count;
} situ_http_head;

typedef struct {
  void* context;
  /* status: 0, or what has to be answered to this head, with the reason. 1: the body is wanted; 0: it is not read, and
   * the answer comes; -1: it fails, and 500 is answered where nothing is yet. */
  int (*head)(void* context, uint64_t id, const situ_http_head* head, int status, situ_http_text reason);
  /* status: 0, or what has to be answered, with the reason: 408, 413, 429. False: as -1 of a head. */
  bool (*request)(void* context, uint64_t id, situ_http_text body, int status, situ_http_text reason);
  /* A head that cannot be read is answered with this status; no exchange begins. path: as far as it came, and is short.
   * Writes what stands in the answer behind the fields that all answers have: fields, an empty line and the body, of at
   * most `room` bytes; returns how many. 0: there is no memory for it. */
  size_t (*broken)(void* context, int status, situ_http_text path, situ_http_text why, char* rest, size_t room);
  /* The client sends no more: it went, or closed its side only, which cannot be told apart until something is written:
   * a client that went resets the connection, which ends the exchange. It gets its answer unless situ_http_abort is
   * called. At most once an exchange, while it is not over. */
  void (*gone)(void* context, uint64_t id);
  /* whole: the answer was written to its end. */
  void (*over)(void* context, uint64_t id, bool whole);
} situ_http_handler;

typedef struct {
  size_t header_bytes, headers; /* of a head, request line included */
  size_t body_bytes;            /* of one request */
  size_t bodies_bytes;          /* of all that are not over, with what situ_http_take took */
  size_t connections;           /* beyond them the oldest without a request is closed, else new ones wait */
  size_t spare;                 /* of these: when all others are at work, heads are told so */
  uint32_t header_ms, idle_ms;  /* for a head; that a connection is silent between two requests */
  uint32_t body_ms;
  uint32_t write_ms;   /* while bytes wait for a client, it takes one of them in such a time, ... */
  uint64_t write_rate; /* ... and so many for each second of it */
} situ_http_limits;

typedef struct {
  char text[512];
} situ_http_error;

/* sockets: bound, listening, and owned by the server from here on. Null: `error` says why. */
situ_http* situ_http_start(const situ_http_handler* handler, const situ_http_limits* limits, const int* sockets,
                           size_t count, situ_http_error* error);

/* False: the exchange is over. Content-Length is added; with `close` the connection ends behind the answer. */
bool situ_http_respond(situ_http* server, uint64_t id, int status, const situ_http_header* headers, size_t count,
                       situ_http_text body, bool close);
/* An answer without a length. */
bool situ_http_begin(situ_http* server, uint64_t id, int status, const situ_http_header* headers, size_t count);
/* Bytes that wait for the client, these included; -1: the exchange is over. */
int64_t situ_http_write(situ_http* server, uint64_t id, situ_http_text bytes);
void situ_http_end(situ_http* server, uint64_t id);
/* Memory for what is made of the body, which is given back when the exchange is over. False: there is not so much left
 * of `bodies_bytes`, or the exchange is over. */
bool situ_http_take(situ_http* server, uint64_t id, size_t bytes);
/* Drops the connection, whatever waits. */
void situ_http_abort(situ_http* server, uint64_t id);

/* New connections are refused, idle ones closed; answers go on. */
void situ_http_stop(situ_http* server);
/* After situ_http_stop: waits until all connections are closed, at most so long. False: they are not. */
bool situ_http_wait(situ_http* server, uint32_t ms);
/* Drops what there is, waits for the thread: all exchanges are over. No callback comes after it. Not from one. */
void situ_http_finish(situ_http* server);
/* The same where it was not done before. No other function may be running, or be called after it. */
void situ_http_free(situ_http* server);

#ifdef __cplusplus
}
#endif
