// The HTTP server of rust/ as C++ sees it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/limits.h"
#include "serve/situ_http.h"
#include "situ/status.h"

namespace situ::serve {

using Headers = std::vector<std::pair<std::string, std::string>>;

// A head, as long as the callback runs that is given it.
class Head {
 public:
  explicit Head(const situ_http_head& head) : head_(head) {}
  std::string_view method() const { return of(head_.method); }
  std::string_view path() const { return of(head_.path); }
  std::string_view query() const { return of(head_.query); }
  std::string_view peer() const { return of(head_.peer); }  // IP address; "": by a Unix socket
  uint64_t connection() const { return head_.connection; }
  bool full() const { return head_.full; }  // see situ_http_head
  // The first of that name, in small letters; "": there is none.
  std::string_view header(std::string_view name) const;

 private:
  static std::string_view of(const situ_http_text& text) { return {text.data, text.size}; }
  const situ_http_head& head_;
};

// What has to be answered to a request that breaks HTTP or a limit. status 0: nothing has.
struct HttpFault {
  int status = 0;
  std::string_view reason;
};

// Called by the server's thread; must not wait. For their order see situ_http.h.
class HttpHandler {
 public:
  // Where these two throw, 500 is answered, unless something was.
  virtual bool on_head(uint64_t id, const Head& head, HttpFault fault) = 0;
  virtual void on_request(uint64_t id, std::string_view body, HttpFault fault) = 0;
  // A head that cannot be read, for this path as far as it is known: what of the answer to it is the handler's own,
  // from its fields on. None where it throws.
  virtual std::string on_broken(HttpFault fault, std::string_view path) = 0;
  virtual void on_gone(uint64_t id) noexcept = 0;
  virtual void on_over(uint64_t id, bool whole) noexcept = 0;

 protected:
  ~HttpHandler() = default;
};

class Http {
 public:
  // `sockets` listen; they are the server's from here on. `handler` must outlive it.
  static Result<std::unique_ptr<Http>> start(HttpHandler& handler, const Limits& limits, int64_t bodies_bytes,
                                             const std::vector<int>& sockets);
  ~Http() { situ_http_free(http_); }
  Http(const Http&) = delete;
  Http& operator=(const Http&) = delete;

  bool respond(uint64_t id, int status, const Headers& headers, std::string_view body, bool close = false);
  bool begin(uint64_t id, int status, const Headers& headers);
  // Bytes that wait for the client; -1: he is gone.
  int64_t write(uint64_t id, std::string_view bytes) { return situ_http_write(http_, id, text(bytes)); }
  void end(uint64_t id) { situ_http_end(http_, id); }
  // False: so many bytes are not left for what is made of a body.
  bool take(uint64_t id, int64_t bytes) { return situ_http_take(http_, id, static_cast<size_t>(bytes)); }
  void abort(uint64_t id) { situ_http_abort(http_, id); }
  void stop() { situ_http_stop(http_); }
  // All exchanges are over, and no callback comes any more; what else is called has no effect.
  void finish() { situ_http_finish(http_); }
  bool wait(std::chrono::milliseconds limit) { return situ_http_wait(http_, static_cast<uint32_t>(limit.count())); }

 private:
  explicit Http(situ_http* http) : http_(http) {}
  static situ_http_text text(std::string_view s) { return {s.data(), s.size()}; }
  static std::vector<situ_http_header> texts(const Headers& headers);
  situ_http* http_;
};

}  // namespace situ::serve
