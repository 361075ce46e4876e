// Addresses of http and https: whose they are, and where a redirect leads.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace situ::hub {

// An address that is safe to send somewhere. Error: no http(s), no host, a user name, characters that URLs do not have.
Status check_url(std::string_view url);
// Scheme, host and port, in small letters: "https://host:443". Precondition: check_url.
std::string origin_of(std::string_view url);
bool is_https(std::string_view url);
// Whether the host is this machine: localhost, 127.0.0.0/8, ::1.
bool is_loopback(std::string_view url);
// Where `location`, whole or relative, leads from `url`. Error: check_url.
Result<std::string> join_url(std::string_view url, std::string_view location);
// Percent-encodes all but letters, digits and "-._~", and but `kept`.
std::string encode(std::string_view text, std::string_view kept = "");

}  // namespace situ::hub
