#include "cli/health_check.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <optional>
#include <thread>

#include "cli/common.h"

namespace situ::cli {
namespace {

constexpr auto kPatience = std::chrono::seconds(5);

struct Target {
  std::string host, port, prefix, unix_path;
};

std::optional<Target> target_of(const std::string& url) {
  Target to;
  if (url.rfind("unix:", 0) == 0) {
    to.unix_path = url.substr(5);
    return to.unix_path.empty() || to.unix_path.size() >= sizeof(sockaddr_un::sun_path) ? std::nullopt
                                                                                        : std::optional(to);
  }
  const std::string scheme = "http://";
  if (url.rfind(scheme, 0) != 0 || url.find_first_of(" \t\r\n?#@") != std::string::npos) return std::nullopt;
  const size_t slash = std::min(url.find('/', scheme.size()), url.size());
  std::string where = url.substr(scheme.size(), slash - scheme.size());
  to.prefix = url.substr(slash);
  while (!to.prefix.empty() && to.prefix.back() == '/') to.prefix.pop_back();
  const bool bracketed = !where.empty() && where[0] == '[';
  const size_t end = bracketed ? where.find(']') : std::min(where.find(':'), where.size());
  if (end == std::string::npos) return std::nullopt;
  to.host = bracketed ? where.substr(1, end - 1) : where.substr(0, end);
  where = where.substr(bracketed ? end + 1 : end);
  to.port = where.empty() ? "80" : where.substr(1);
  const bool number = !to.port.empty() && to.port.find_first_not_of("0123456789") == std::string::npos;
  if (to.host.empty() || !number || to.port.size() > 5 || std::stoi(to.port) > 65535 ||
      (!where.empty() && where[0] != ':'))
    return std::nullopt;
  return to;
}

int connect_unix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  for (size_t i = 0; i < path.size(); ++i) address.sun_path[i] = path[i];
  const int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (s < 0 || connect(s, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return s;
  close(s);
  return -1;
}

// A socket, or -1 and *error.
int connect_to(const Target& to, std::string* error) {
  errno = 0;
  int s = -1;
  if (!to.unix_path.empty()) {
    s = connect_unix(to.unix_path);
  } else {
    addrinfo wanted{}, *found = nullptr;
    wanted.ai_socktype = SOCK_STREAM;
    if (const int code = getaddrinfo(to.host.c_str(), to.port.c_str(), &wanted, &found); code != 0) {
      *error = gai_strerror(code);
      return -1;
    }
    for (const addrinfo* a = found; a && s < 0; a = a->ai_next) {
      s = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
      if (s < 0 || connect(s, a->ai_addr, a->ai_addrlen) == 0) continue;
      close(s);
      s = -1;
    }
    freeaddrinfo(found);
  }
  if (s < 0) *error = std::strerror(errno);
  return s;
}

// The first line of the answer to GET; "" and *error: there is none.
std::string status_line(const Target& to, std::string* error) {
  const int s = connect_to(to, error);
  if (s < 0) return "";
  const bool bracketed = to.host.find(':') != std::string::npos;
  const std::string host = to.host.empty() ? "localhost" : (bracketed ? "[" + to.host + "]" : to.host) + ":" + to.port;
  const std::string request =
      "GET " + to.prefix + "/health/ready HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n";
  std::string line;
  constexpr size_t kMost = 1024;
  char byte = 0;
  if (send(s, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size()))
    while (line.size() < kMost && recv(s, &byte, 1, 0) == 1 && byte != '\n') line += byte;
  if (byte != '\n') *error = "no HTTP answer";
  close(s);
  return byte == '\n' ? line : "";
}

// "" where the server is ready, else why not.
std::string trouble(const std::string& url) {
  const std::optional<Target> to = target_of(url);
  if (!to) return "is neither http://HOST[:PORT] nor unix:PATH";
  std::string error;
  const std::string line = status_line(*to, &error);
  if (line.empty()) return error;
  // "HTTP/1.1 200 OK\r"
  const bool http = line.rfind("HTTP/1.0 ", 0) == 0 || line.rfind("HTTP/1.1 ", 0) == 0;
  if (!http || line.size() < 13 || (line[12] != ' ' && line[12] != '\r')) return "no HTTP answer";
  const std::string status = line.substr(9, 3);
  return status == "200" ? "" : "/health/ready answers " + status;
}

}  // namespace

int check_health(const std::string& url) {
  // A thread of its own, since a resolver of names knows no deadline; the process ends without it.
  const auto done = std::make_shared<std::promise<std::string>>();
  std::future<std::string> told = done->get_future();
  std::thread([done, url] { done->set_value(trouble(url)); }).detach();
  const bool in_time = told.wait_for(kPatience) == std::future_status::ready;
  const std::string why = in_time ? told.get() : "no answer within 5 s";
  return why.empty() ? kDone : fail(url + ": " + why, kFailed);
}

}  // namespace situ::cli
