// Sockets that listen.
#pragma once

#include <string>

#include "situ/status.h"

namespace situ::serve {

struct Listening {
  int socket = -1;
  std::string where;  // "http://127.0.0.1:43651", "unix:PATH"
};
// port 0: a free one. Error: the address is none of this machine, or another program has the port.
Result<Listening> listen_tcp(const std::string& host, int port);
// The file gets mode 0660. One that nobody listens on any more is replaced. Error: somebody does; it is no socket.
Result<Listening> listen_unix(const std::string& path);
// Whether an IP address is one of this machine's own network.
bool is_loopback(const std::string& address);

}  // namespace situ::serve
