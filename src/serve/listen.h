// Sockets that listen.
#pragma once

#include <string>
#include <vector>

#include "situ/status.h"

namespace situ::serve {

struct Listening {
  std::vector<int> sockets;
  std::string where;  // "http://127.0.0.1:43651", "unix:PATH"
};
// All addresses of a name, on one port; "", and localhost: 127.0.0.1, and ::1 where the machine has IPv6. port 0: one
// that is free at all of them. Error: the name has no address of this machine, or another program has the port.
Result<Listening> listen_tcp(const std::string& host, int port);
// The file gets mode 0660. One that nobody listens on any more is replaced. Error: somebody does; it is no socket.
Result<Listening> listen_unix(const std::string& path);
// Whether an IP address is one of this machine's own network.
bool is_loopback(const std::string& address);

}  // namespace situ::serve
