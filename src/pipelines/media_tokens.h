// Which token ids stand for rows of encoders: what no graph states.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/status.h"

namespace situ {

struct MediaTokens {
  int64_t image = -1, audio = -1;  // -1: config.json does not say
  int64_t vision_start = -1;       // vision_start_token_id
  int64_t spatial_merge = 0;       // vision_config.spatial_merge_size; 0: it does not say
};

// config.json, or `model` of genai_config.json: image_token_id or image_token_index, audio_token_id or
// audio_token_index. Errors name the field.
Status read_media_tokens(const std::string& where, const nlohmann::json& config, MediaTokens* tokens);

}  // namespace situ
