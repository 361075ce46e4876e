// vocab.json: {"token": id}.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace situ {

using TokenIds = std::vector<std::pair<std::string, int64_t>>;

// Errors name the file and the token: an id that is no integer from 0 to 2^31 - 1.
Result<TokenIds> read_token_ids(const std::filesystem::path& file);

}  // namespace situ
