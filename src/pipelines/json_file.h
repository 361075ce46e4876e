// A model folder's configuration files: small JSON objects, as Python writes them.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"

namespace situ {

// Whether there is such a file. One that cannot be looked at (a link that leads nowhere, a folder without permission)
// is there: whoever opens it says so.
bool there(const std::filesystem::path& path);

// The object that the file holds; Infinity and NaN are null. Errors name the file: it cannot be read, is larger than
// 64 MiB, nested more than 100 deep, not JSON, no object.
Result<nlohmann::json> read_json(const std::filesystem::path& file);

// A value as JSON, for messages: its first 100 bytes.
std::string shown(const nlohmann::json& value);

}  // namespace situ
