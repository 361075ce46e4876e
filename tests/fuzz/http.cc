// A connection of the HTTP server: bytes of a client, whatever they are. It answers, ends the connection, and goes on.
#include "serve/http.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>

#include "fuzz_input.h"

namespace {

using namespace situ;
using namespace situ::serve;

// Answers each request at once.
class Echo final : public HttpHandler {
 public:
  Echo() {
    address_.sun_family = AF_UNIX;
    const std::string name = "situ-fuzz-" + std::to_string(getpid());
    for (size_t i = 0; i < name.size(); ++i) address_.sun_path[1 + i] = name[i];
    size_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    const int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(bind(listening, reinterpret_cast<sockaddr*>(&address_), size_), 0);
    EXPECT_EQ(listen(listening, 16), 0);
    Limits limits;
    limits.body_bytes = 100;
    limits.header_seconds = limits.idle_seconds = limits.body_seconds = limits.write_seconds = 1;
    Result<std::unique_ptr<Http>> http = Http::start(*this, limits, 1000, {listening});
    EXPECT_TRUE(http.is_ok()) << http.status().message();
    http_ = std::move(*http);
  }

  // All that comes back for these bytes. The alarm by which the fuzzer's loop looks at its clock interrupts calls,
  // those with a limit of time too.
  std::string ask(std::string_view bytes) const {
    const int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(TEMP_FAILURE_RETRY(connect(s, reinterpret_cast<const sockaddr*>(&address_), size_)), 0);
    const timeval patience{20, 0};
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    static_cast<void>(TEMP_FAILURE_RETRY(send(s, bytes.data(), bytes.size(), MSG_NOSIGNAL)));
    shutdown(s, SHUT_WR);
    std::string answer;
    char part[4096];
    ssize_t got = 0;
    while ((got = TEMP_FAILURE_RETRY(recv(s, part, sizeof(part), 0))) > 0)
      answer.append(part, static_cast<size_t>(got));
    EXPECT_FALSE(got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) << "the connection is not ended";
    close(s);
    return answer;
  }
  int64_t open() const { return open_; }

 private:
  bool on_head(uint64_t id, const Head& head, HttpFault fault) override {
    ++open_;
    EXPECT_FALSE(head.method().empty());
    EXPECT_EQ(head.path().find_first_of(std::string_view("\0\r\n ", 4)), std::string_view::npos);
    if (fault.status != 0) http_->respond(id, fault.status, {}, "fault");
    return fault.status == 0;
  }
  void on_request(uint64_t id, std::string_view body, HttpFault fault) override {
    EXPECT_LE(body.size(), 100u);
    http_->respond(id, fault.status != 0 ? fault.status : 200, {}, body);
  }
  std::string on_broken(HttpFault fault, std::string_view path) override {
    EXPECT_GE(fault.status, 400);
    EXPECT_LE(path.size(), 32u);
    EXPECT_EQ(path.find_first_of("\r\n ?"), std::string_view::npos);
    return "content-length: 1\r\n\r\na";
  }
  void on_gone(uint64_t) noexcept override {}
  void on_over(uint64_t, bool) noexcept override { --open_; }

  sockaddr_un address_{};
  socklen_t size_ = 0;
  std::atomic<int64_t> open_{0};
  std::unique_ptr<Http> http_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kMost = 64 << 10;  // what a socket takes without a reader
  static const Echo echo;
  const std::string answer = echo.ask({reinterpret_cast<const char*>(data), std::min(size, kMost)});
  EXPECT_TRUE(answer.empty() || answer.starts_with("HTTP/1.")) << answer;
  const std::string good = echo.ask("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(good.starts_with("HTTP/1.1 200 OK\r\n")) << good;
  return 0;
}
