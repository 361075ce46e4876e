// The configuration files of a model folder: JSON that nobody has vouched for.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace situ {

// What parse_json refuses of a text before it reads it, and an object of more than `most_keys` keys (0: any number).
// `name` is for errors.
Status check_json(std::string_view text, const std::string& name, int64_t most_keys);

// `name` is for errors. NaN, Infinity and -Infinity, which Python writes, are read as null. Error: not JSON; nested
// more than 100 deep; more than 2^21 values, of which each may take 100 bytes. Reading a text takes at most 256 MiB
// beside a few copies of it.
Result<nlohmann::json> parse_json(const std::string& text, const std::string& name);

// A byte order mark at the beginning is left out. Error: as above; the file cannot be read, is no UTF-8 (UTF-16, gzip:
// the message names the encoding), has more than 32 MiB, or holds something else than an object.
Result<nlohmann::json> read_json_object(const std::filesystem::path& file);

// The same of a file that holds an array.
Result<nlohmann::json> read_json_array(const std::filesystem::path& file);

// As JSON on one line. Bytes that are no UTF-8 are replaced.
std::string json_text(const nlohmann::ordered_json& value);

// A value as JSON, for messages: its first 100 bytes.
std::string shown(const nlohmann::json& value);

}  // namespace situ
