#include "pipelines/media_tokens.h"

#include "text/json_file.h"

#include <nlohmann/json.hpp>

namespace situ {

using Json = nlohmann::json;

Status read_media_tokens(const std::string& where, const Json& config, MediaTokens* tokens) {
  const auto read = [&](const Json& from, const char* key, int64_t* to) {
    const auto it = from.find(key);
    if (it == from.end() || it->is_null() || *to > 0) return Status::ok();
    const bool fits = it->is_number_integer() &&
                      !(it->is_number_unsigned() && it->get<uint64_t>() > uint64_t{INT32_MAX}) &&
                      it->get<int64_t>() >= 0 && it->get<int64_t>() <= INT32_MAX;
    if (!fits) return Status::error(where + ": " + key + " should be a small integer of at least 0, is " + shown(*it));
    *to = it->get<int64_t>();
    return Status::ok();
  };
  for (const char* key : {"image_token_id", "image_token_index"})
    SITU_RETURN_IF_ERROR(read(config, key, &tokens->image));
  for (const char* key : {"audio_token_id", "audio_token_index"})
    SITU_RETURN_IF_ERROR(read(config, key, &tokens->audio));
  SITU_RETURN_IF_ERROR(read(config, "vision_start_token_id", &tokens->vision_start));
  const auto vision = config.find("vision_config");
  if (vision == config.end() || !vision->is_object()) return Status::ok();
  return read(*vision, "spatial_merge_size", &tokens->spatial_merge);
}

}  // namespace situ
