#include "serve/http.h"

#include <algorithm>

namespace situ::serve {
namespace {

// Connections that /health and /metrics are answered by, whatever the others wait for.
constexpr int64_t kSpareConnections = 16;

HttpHandler& handler_of(void* context) { return *static_cast<HttpHandler*>(context); }

std::string_view view(const situ_http_text& text) { return {text.data, text.size}; }

// What `work` returns; `failed` where it throws, which must not cross the border.
template <typename T, typename Work>
T without_throwing(const T& failed, const Work& work) noexcept {
  try {
    return work();
  } catch (...) {
    return failed;
  }
}

}  // namespace

std::string_view Head::header(std::string_view name) const {
  for (size_t i = 0; i < head_.header_count; ++i)
    if (of(head_.headers[i].name) == name) return of(head_.headers[i].value);
  return {};
}

Result<std::unique_ptr<Http>> Http::start(HttpHandler& handler, const Limits& limits, int64_t bodies_bytes,
                                          const std::vector<int>& sockets) {
  const situ_http_handler callbacks{
      &handler,
      [](void* p, uint64_t id, const situ_http_head* head, int status, situ_http_text reason) {
        return without_throwing(-1,
                                [&] { return handler_of(p).on_head(id, Head(*head), {status, view(reason)}) ? 1 : 0; });
      },
      [](void* p, uint64_t id, situ_http_text body, int status, situ_http_text reason) {
        return without_throwing(false, [&] {
          handler_of(p).on_request(id, view(body), {status, view(reason)});
          return true;
        });
      },
      [](void* p, int status, situ_http_text path, situ_http_text why, char* rest, size_t room) {
        return without_throwing<size_t>(
            0, [&] { return handler_of(p).on_broken({status, view(why)}, view(path)).copy(rest, room); });
      },
      [](void* p, uint64_t id) { handler_of(p).on_gone(id); },
      [](void* p, uint64_t id, bool whole) { handler_of(p).on_over(id, whole); }};
  const auto ms = [](int64_t seconds) { return static_cast<uint32_t>(seconds * 1000); };
  const auto bytes = [](int64_t n) { return static_cast<size_t>(n); };
  situ_http_limits bounds{};
  bounds.header_bytes = bytes(limits.header_bytes);
  bounds.headers = bytes(limits.headers);
  bounds.body_bytes = bytes(limits.body_bytes);
  bounds.bodies_bytes = bytes(bodies_bytes);
  bounds.connections = bytes(limits.connections);
  bounds.spare = bytes(std::min(kSpareConnections, limits.connections / 8));
  bounds.header_ms = ms(limits.header_seconds);
  bounds.idle_ms = ms(limits.idle_seconds);
  bounds.body_ms = ms(limits.body_seconds);
  bounds.write_ms = ms(limits.write_seconds);
  bounds.write_rate = static_cast<uint64_t>(limits.least_write_rate);
  situ_http_error error{};
  situ_http* http = situ_http_start(&callbacks, &bounds, sockets.data(), sockets.size(), &error);
  if (!http) return Status::error(std::string("the HTTP server cannot start: ") + error.text);
  return std::unique_ptr<Http>(new Http(http));
}

std::vector<situ_http_header> Http::texts(const Headers& headers) {
  std::vector<situ_http_header> all;
  for (const auto& [name, value] : headers) all.push_back({text(name), text(value)});
  return all;
}

bool Http::respond(uint64_t id, int status, const Headers& headers, std::string_view body, bool close) {
  const std::vector<situ_http_header> all = texts(headers);
  return situ_http_respond(http_, id, status, all.data(), all.size(), text(body), close);
}

bool Http::begin(uint64_t id, int status, const Headers& headers) {
  const std::vector<situ_http_header> all = texts(headers);
  return situ_http_begin(http_, id, status, all.data(), all.size());
}

}  // namespace situ::serve
