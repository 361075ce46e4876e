#include "serve/listen.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <system_error>

namespace situ::serve {
namespace {

constexpr int kBacklog = 1024;

Status failed(const std::string& where, const char* what, int error) {
  return Status::error(where + ": " + what + ": " + std::generic_category().message(error));
}

Result<Listening> listen_at(int socket, const sockaddr* address, socklen_t size, std::string where) {
  if (bind(socket, address, size) != 0 || listen(socket, kBacklog) != 0) {
    const int error = errno;
    close(socket);
    return failed(where, "cannot listen", error);
  }
  return Listening{socket, std::move(where)};
}

bool is_alive(const sockaddr_un& address) {
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool alive = connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(probe);
  return alive;
}

}  // namespace

Result<Listening> listen_tcp(const std::string& host, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  const std::string service = std::to_string(port);
  if (const int error = getaddrinfo(host.c_str(), service.c_str(), &hints, &found); error != 0)
    return Status::error(host + ": is no address to listen at: " + gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> held(found, freeaddrinfo);
  const bool six = found->ai_family == AF_INET6;
  const std::string shown = "http://" + (six ? "[" + host + "]" : host) + ":";
  const int s = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (s < 0) return failed(shown + service, "no socket", errno);
  const int on = 1;
  setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  Result<Listening> listening = listen_at(s, found->ai_addr, found->ai_addrlen, shown + service);
  if (!listening.is_ok()) return listening;
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  getsockname(s, reinterpret_cast<sockaddr*>(&address), &length);
  const in_port_t taken =
      six ? reinterpret_cast<sockaddr_in6&>(address).sin6_port : reinterpret_cast<sockaddr_in&>(address).sin_port;
  listening->where = shown + std::to_string(ntohs(taken));
  return listening;
}

Result<Listening> listen_unix(const std::string& path) {
  const std::string where = "unix:" + path;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path))
    return Status::error(Code::kInvalidArgument, where + ": the path should have 1 to " +
                                                     std::to_string(sizeof(address.sun_path) - 1) + " bytes");
  for (size_t i = 0; i < path.size(); ++i) address.sun_path[i] = path[i];
  struct stat file{};
  if (lstat(path.c_str(), &file) == 0) {
    if (!S_ISSOCK(file.st_mode)) return Status::error(where + ": is there and no socket");
    if (is_alive(address)) return Status::error(where + ": another program listens there");
    unlink(path.c_str());
  }
  const int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (s < 0) return failed(where, "no socket", errno);
  const mode_t before = umask(0117);  // nobody else may connect before the mode is set
  Result<Listening> listening = listen_at(s, reinterpret_cast<sockaddr*>(&address), sizeof(address), where);
  umask(before);
  return listening;
}

bool is_loopback(const std::string& address) {
  in6_addr six{};
  if (inet_pton(AF_INET6, address.c_str(), &six) == 1) return IN6_IS_ADDR_LOOPBACK(&six);
  in_addr four{};
  return inet_pton(AF_INET, address.c_str(), &four) == 1 && (ntohl(four.s_addr) >> 24) == 127;
}

}  // namespace situ::serve
