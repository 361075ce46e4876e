#include "text/vocabulary_file.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "text/json_file.h"

namespace situ {

Result<TokenIds> read_token_ids(const std::filesystem::path& file) {
  const Result<nlohmann::json> values = read_json_object(file);
  if (!values.is_ok()) return values.status();
  TokenIds tokens;
  tokens.reserve(values->size());
  for (const auto& [token, id] : values->items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > std::numeric_limits<int32_t>::max())
      return Status::error(file.string() + ": the id of '" + token.substr(0, 60) +
                           "' should be an integer from 0 to 2147483647, is " + shown(id));
    tokens.emplace_back(token, id.get<int64_t>());
  }
  return tokens;
}

}  // namespace situ
