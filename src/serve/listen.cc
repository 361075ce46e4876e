#include "serve/listen.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>

namespace situ::serve {
namespace {

Status failed(const std::string& where, const char* what, int error) {
  return Status::error(where + ": " + what + ": " + std::generic_category().message(error));
}

struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;

  bool is_six() const { return bytes.ss_family == AF_INET6; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
  in_port_t& port() {
    return is_six() ? reinterpret_cast<sockaddr_in6&>(bytes).sin6_port : reinterpret_cast<sockaddr_in&>(bytes).sin_port;
  }
  std::string text() const {
    char host[INET6_ADDRSTRLEN] = "";
    getnameinfo(get(), size, host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
    return is_six() ? "[" + std::string(host) + "]" : host;
  }
};

// Each once, in the order of the system's resolver.
Status add_addresses(const std::string& host, std::vector<Address>& addresses) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0)
    return Status::error(host + ": is no address to listen at: " + gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> held(found, freeaddrinfo);
  for (const addrinfo* a = found; a; a = a->ai_next) {
    if (a->ai_family != AF_INET && a->ai_family != AF_INET6) continue;
    Address address;
    address.size = a->ai_addrlen;
    if (a->ai_family == AF_INET6)
      reinterpret_cast<sockaddr_in6&>(address.bytes) = *reinterpret_cast<const sockaddr_in6*>(a->ai_addr);
    else
      reinterpret_cast<sockaddr_in&>(address.bytes) = *reinterpret_cast<const sockaddr_in*>(a->ai_addr);
    const auto same = [&](const Address& other) { return other.text() == address.text(); };
    if (std::none_of(addresses.begin(), addresses.end(), same)) addresses.push_back(address);
  }
  return Status::ok();
}

Result<std::vector<Address>> addresses_of(const std::string& host) {
  std::vector<Address> addresses;
  if (host.empty() || host == "localhost") {
    SITU_RETURN_IF_ERROR(add_addresses("127.0.0.1", addresses));
    SITU_RETURN_IF_ERROR(add_addresses("::1", addresses));
  } else {
    SITU_RETURN_IF_ERROR(add_addresses(host, addresses));
  }
  return addresses;
}

// The machine lacks the address: it has no IPv6, or a resolver names one of another machine.
bool is_lacking(int error) { return error == EAFNOSUPPORT || error == EADDRNOTAVAIL || error == EPROTONOSUPPORT; }

// -1: the machine lacks the address. `alone`: an IPv6 socket takes IPv4 too, as the system has it.
Result<int> listen_at(Address& address, bool alone) {
  const std::string where = "http://" + address.text() + ":" + std::to_string(ntohs(address.port()));
  const int s = socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (s < 0) return is_lacking(errno) ? Result<int>(-1) : failed(where, "no socket", errno);
  const int on = 1;
  setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.is_six() && !alone) setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  if (bind(s, address.get(), address.size) == 0 && listen(s, SOMAXCONN) == 0) {
    getsockname(s, reinterpret_cast<sockaddr*>(&address.bytes), &address.size);
    return s;
  }
  const int error = errno;
  close(s);
  if (is_lacking(error)) return -1;
  return failed(where, "cannot listen", error);
}

// One port for all addresses. port 0: that of the first, which another may lack.
Result<Listening> listen_at_all(const std::string& shown, std::vector<Address> addresses, int port) {
  Listening listening;
  auto in_order = htons(static_cast<uint16_t>(port));
  for (Address& address : addresses) {
    address.port() = in_order;
    Result<int> s = listen_at(address, addresses.size() == 1);
    if (!s.is_ok()) {
      for (const int open : listening.sockets) close(open);
      return s.status();
    }
    if (*s < 0) continue;
    in_order = address.port();
    listening.sockets.push_back(*s);
  }
  listening.where = "http://" + shown + ":" + std::to_string(ntohs(in_order));
  if (listening.sockets.empty()) return failed(listening.where, "cannot listen", EADDRNOTAVAIL);
  return listening;
}

bool is_alive(const sockaddr_un& address) {
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool alive = connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(probe);
  return alive;
}

}  // namespace

Result<Listening> listen_tcp(const std::string& host, int port) {
  constexpr int kTries = 16;  // ports that are free at the first address only
  const Result<std::vector<Address>> addresses = addresses_of(host);
  if (!addresses.is_ok()) return addresses.status();
  const bool bare_six = host.find(':') != std::string::npos;
  const std::string shown = host.empty() ? "127.0.0.1" : bare_six ? "[" + host + "]" : host;
  Result<Listening> listening = listen_at_all(shown, *addresses, port);
  for (int i = 1; i < kTries && port == 0 && !listening.is_ok(); ++i)
    listening = listen_at_all(shown, *addresses, port);
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
  const bool listens =
      bind(s, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 && listen(s, SOMAXCONN) == 0;
  const int error = errno;
  umask(before);
  if (listens) return Listening{{s}, where};
  close(s);
  return failed(where, "cannot listen", error);
}

bool is_loopback(const std::string& address) {
  in6_addr six{};
  if (inet_pton(AF_INET6, address.c_str(), &six) == 1) return IN6_IS_ADDR_LOOPBACK(&six);
  in_addr four{};
  return inet_pton(AF_INET, address.c_str(), &four) == 1 && (ntohl(four.s_addr) >> 24) == 127;
}

}  // namespace situ::serve
