#include "cli/hub/url.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace situ::hub {
namespace {

constexpr std::string_view kHttp = "http://", kHttps = "https://";

std::string small(std::string_view text) {
  std::string made(text);
  for (char& c : made)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return made;
}

bool begins(std::string_view url, std::string_view scheme) { return small(url.substr(0, scheme.size())) == scheme; }

// "host:port" of an address.
std::string_view authority_of(std::string_view url) {
  const size_t begin = url.find("//") + 2;
  return url.substr(begin, url.find_first_of("/?#", begin) - begin);
}

std::string host_of(std::string_view url) {
  const std::string_view authority = authority_of(url);
  if (authority.starts_with('[')) return small(authority.substr(0, authority.find(']') + 1));
  return small(authority.substr(0, authority.find(':')));
}

}  // namespace

Status check_url(std::string_view url) {
  const auto refuse = [&](const char* why) {
    return Status::error(Code::kInvalidArgument, "'" + std::string(url) + "' " + why);
  };
  if (!begins(url, kHttp) && !begins(url, kHttps)) return refuse("is no address of http or https");
  const auto bad = [](char c) {
    return static_cast<uint8_t>(c) <= ' ' || static_cast<uint8_t>(c) >= 0x7F || c == '\\' || c == '"' || c == '<' ||
           c == '>';
  };
  if (std::any_of(url.begin(), url.end(), bad)) return refuse("holds a character that addresses do not have");
  const std::string_view authority = authority_of(url);
  const std::string host = host_of(url);
  if (host.empty() || host == "[]") return refuse("names no host");
  if (authority.find('@') != std::string_view::npos) return refuse("holds a user name");
  std::string_view port = authority.substr(host.size());
  uint16_t number = 1;
  if (port.starts_with(':')) {
    port.remove_prefix(1);
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
    if (error != std::errc() || end != port.data() + port.size() || number == 0) return refuse("has no good port");
  } else if (!port.empty()) {
    return refuse("names no host");
  }
  return Status::ok();
}

bool is_https(std::string_view url) { return begins(url, kHttps); }

std::string origin_of(std::string_view url) {
  const std::string host = host_of(url);
  std::string port(authority_of(url).substr(host.size()));
  if (port.empty()) port = is_https(url) ? ":443" : ":80";
  return (is_https(url) ? "https://" : "http://") + host + port;
}

bool is_loopback(std::string_view url) {
  const std::string host = host_of(url);
  const bool digits = host.find_first_not_of("0123456789.") == std::string::npos;
  return host == "localhost" || host == "[::1]" || (digits && host.starts_with("127."));
}

Result<std::string> join_url(std::string_view url, std::string_view location) {
  const size_t begin = url.find("//") + 2;
  const std::string_view root = url.substr(0, url.find_first_of("/?#", begin)),  // scheme and authority
      place = url.substr(0, url.find_first_of("?#", begin));                     // and the path
  std::string made;
  if (begins(location, kHttp) || begins(location, kHttps))
    made = location;
  else if (location.starts_with("//"))
    made = (is_https(url) ? "https:" : "http:") + std::string(location);
  else if (location.starts_with('/'))
    made = std::string(root) + std::string(location);
  else if (location.find(':') < location.find_first_of("/?#"))
    return check_url(location);  // another scheme
  else
    made = (place == root ? std::string(root) + "/" : std::string(place.substr(0, place.rfind('/') + 1))) +
           std::string(location);
  SITU_RETURN_IF_ERROR(check_url(made));
  return made;
}

std::string encode(std::string_view text, std::string_view kept) {
  constexpr std::string_view kPlain = "-._~", kDigits = "0123456789ABCDEF";
  std::string made;
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter || kPlain.find(c) != std::string_view::npos || kept.find(c) != std::string_view::npos) {
      made += c;
      continue;
    }
    const uint8_t byte = static_cast<uint8_t>(c);
    made += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return made;
}

}  // namespace situ::hub
