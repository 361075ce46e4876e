#include "cli/hub/name.h"

#include <algorithm>

namespace situ::hub {
namespace {

constexpr ShortName kShortNames[] = {
#define SHORT_NAME(name, repository, source) {name, repository, source},
#include "cli/hub/short_names.inc"
#undef SHORT_NAME
};

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

// As the hub's organisations and repositories are called.
bool is_part(std::string_view text) {
  const auto good = [](char c) { return is_letter(c) || c == '-' || c == '_' || c == '.'; };
  return !text.empty() && text.size() <= 96 && is_letter(text.front()) && std::all_of(text.begin(), text.end(), good) &&
         text.find("--") == std::string_view::npos && text.find("..") == std::string_view::npos &&
         !text.ends_with(".git");
}

Status bad(const std::string& text, const std::string& why) {
  return Status::error(Code::kInvalidArgument, "'" + text + "': " + why);
}

}  // namespace

std::span<const ShortName> short_names() { return kShortNames; }

bool is_hex(const std::string& text, size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

bool is_revision(const std::string& text) {
  const auto good = [](char c) { return is_letter(c) || c == '_' || c == '.' || c == '/' || c == '-'; };
  return std::all_of(text.begin(), text.end(), good) && is_inner_path(text);
}

bool is_inner_path(const std::string& path) {
  constexpr size_t kMostBytes = 1024, kMostPart = 255;
  if (path.empty() || path.size() > kMostBytes) return false;
  const auto bad_character = [](char c) { return c == '\\' || (c >= 0 && c < ' ') || c == 0x7F; };
  if (std::any_of(path.begin(), path.end(), bad_character)) return false;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == ".." || part.size() > kMostPart) return false;
    begin = end + 1;
  }
  return true;
}

Result<std::optional<ModelName>> parse_name(const std::string& text) {
  ModelName name;
  const size_t colon = text.find(':');
  std::string rest = text.substr(0, colon);
  if (colon != std::string::npos) name.variant = text.substr(colon + 1);
  const size_t at = rest.find('@');
  if (at != std::string::npos) name.revision = rest.substr(at + 1);
  rest = rest.substr(0, at);
  const size_t slash = rest.find('/');
  if (slash == std::string::npos) {
    const auto known = std::find_if(std::begin(kShortNames), std::end(kShortNames),
                                    [&](const ShortName& each) { return rest == each.name; });
    if (known == std::end(kShortNames)) return std::optional<ModelName>();
    rest = known->repository;
  } else if (!is_part(rest.substr(0, slash)) || !is_part(rest.substr(slash + 1))) {
    return std::optional<ModelName>();
  }
  name.repository = rest;
  if (!is_revision(name.revision))
    return bad(text,
               "the revision '" + name.revision + "' is made of letters, digits, '.', '_', '-' and '/', without '..'");
  if (colon != std::string::npos && !is_inner_path(name.variant))
    return bad(text, "the variant '" + name.variant + "' is a precision (q4), a folder or a graph of the repository");
  return std::optional<ModelName>(name);
}

}  // namespace situ::hub
