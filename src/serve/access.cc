#include "serve/access.h"

#include <arpa/inet.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <functional>
#include <sstream>

#include "serve/text_file.h"

namespace situ::serve {
namespace {

// Looks at every byte, wherever the first difference is.
bool equal(std::string_view given, const std::string& key) {
  size_t different = given.size() ^ key.size();
  for (size_t i = 0; i < given.size(); ++i)
    different |= static_cast<unsigned char>(given[i] ^ key[i % std::max<size_t>(1, key.size())]);
  return different == 0;
}

std::string small_letters(std::string_view text) {
  std::string small(text);
  for (char& c : small) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return small;
}

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r");
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// Takes " priority=N" from the end of a line, where it is. False: N is none.
bool take_priority(std::string& line, int* priority) {
  constexpr std::string_view kName = "priority=";
  constexpr ptrdiff_t kMostDigits = 9;
  const size_t space = line.find_last_of(" \t");
  if (space == std::string::npos || !std::string_view(line).substr(space + 1).starts_with(kName)) return true;
  const std::string number = line.substr(space + 1 + kName.size());
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), *priority);
  line = trimmed(line.substr(0, space));
  return error == std::errc() && end == number.data() + number.size() && std::ssize(number) <= kMostDigits;
}

bool is_address(const std::string& host) {
  in6_addr address{};
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    return inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &address) == 1;
  return inet_pton(AF_INET, host.c_str(), &address) == 1;
}

}  // namespace

Status Keys::read(const std::string& path) {
  struct stat file{};
  const auto refused = [&](const std::string& why) { return Status::error(Code::kInvalidArgument, path + ": " + why); };
  if (stat(path.c_str(), &file) != 0) return refused("cannot be read");
  if (file.st_mode & S_IROTH) return refused("has keys that every user can read: chmod o-r");
  const Result<std::string> text = text_of_file(path);
  if (!text.is_ok()) return text.status();
  std::istringstream in(*text);
  std::vector<Key> keys;
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    line = trimmed(line);
    if (line.empty() || line[0] == '#') continue;
    const std::string where = "line " + std::to_string(number);
    Key key;
    if (!take_priority(line, &key.most_priority))
      return refused(where + " should end with priority=N, an integer of at most 9 digits");
    const size_t colon = line.find(':');
    const bool named = colon != std::string::npos;
    key.name = named ? trimmed(line.substr(0, colon)) : "key" + std::to_string(number);
    key.text = named ? trimmed(line.substr(colon + 1)) : line;
    key.salt = named ? "name:" + key.name : "key:" + std::to_string(std::hash<std::string>()(key.text));
    if (key.text.empty() || key.name.empty()) return refused(where + " should be KEY or NAME:KEY");
    const auto is_control = [](unsigned char c) { return c < ' ' || c == 0x7f; };
    if (std::any_of(key.text.begin(), key.text.end(), is_control))  // such as a line end of another system
      return refused(where + " has a control character, which no header can have");
    const auto same = [&](const Key& k) { return k.name == key.name; };
    if (key.text.find_first_of(" \t") != std::string::npos)
      return refused(where + " has a blank in its key, behind which comes priority=N alone, once");
    if (std::any_of(keys.begin(), keys.end(), [&](const Key& k) { return k.text == key.text; }))
      return refused(where + " has the key of another line");
    if (std::any_of(keys.begin(), keys.end(), same)) return refused(where + " has the name of another key");
    keys.push_back(std::move(key));
  }
  if (keys.empty()) return refused("has no key");
  const std::lock_guard held(mutex_);
  keys_ = std::move(keys);
  return Status::ok();
}

bool Keys::any() const {
  const std::lock_guard held(mutex_);
  return !keys_.empty();
}

std::optional<KeyHolder> Keys::holder_of(std::string_view key) const {
  const std::lock_guard held(mutex_);
  const Key* found = nullptr;
  for (const Key& k : keys_)
    if (equal(key, k.text)) found = &k;
  if (!found) return std::nullopt;
  return *found;
}

std::string_view bearer_of(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer", kBlanks = " \t";
  if (small_letters(authorization.substr(0, kScheme.size())) != kScheme) return {};
  authorization.remove_prefix(kScheme.size());
  const size_t key = authorization.find_first_not_of(kBlanks);
  return key == 0 || key == std::string_view::npos ? std::string_view() : authorization.substr(key);
}

bool is_own_host(std::string_view host, const std::vector<std::string>& allowed) {
  std::string name = small_letters(host);
  const size_t colon = name.rfind(':'), bracket = name.rfind(']');
  if (colon != std::string::npos && (bracket == std::string::npos || colon > bracket)) {
    if (name.find_first_not_of("0123456789", colon + 1) != std::string::npos) return false;
    name.resize(colon);
  }
  if (name.empty() || name == "localhost" || is_address(name)) return true;
  return std::any_of(allowed.begin(), allowed.end(),
                     [&](const std::string& a) { return a == "*" || small_letters(a) == name; });
}

bool is_own_origin(std::string_view origin, std::string_view host) {
  const std::string small = small_letters(origin), own = small_letters(host);
  return small == "http://" + own || small == "https://" + own;
}

bool is_allowed_origin(std::string_view origin, const std::vector<std::string>& allowed) {
  return std::any_of(allowed.begin(), allowed.end(), [&](const std::string& a) { return a == "*" || a == origin; });
}

}  // namespace situ::serve
