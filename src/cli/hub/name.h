// Names of models: ORG/REPO[@REV][:VARIANT], or a short name in place of ORG/REPO.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "base/status.h"

namespace situ::hub {

struct ModelName {
  std::string repository;  // "ORG/REPO"
  std::string revision = "main";
  std::string variant;  // "": none
};

// A name of a model that people say, and where.
struct ShortName {
  const char *name, *repository, *source;
};
std::span<const ShortName> short_names();

// Nothing: the text has not the form of a name. Error: it has, and a part of it cannot be.
Result<std::optional<ModelName>> parse_name(const std::string& text);

// "[\w./-]+" without "..", as a revision may be called.
bool is_revision(const std::string& text);
// As many hexadecimal digits in small letters.
bool is_hex(const std::string& text, size_t digits);
// A relative path without "..", empty parts, NUL and backslash.
bool is_inner_path(const std::string& path);

}  // namespace situ::hub
