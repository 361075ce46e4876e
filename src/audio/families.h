// The one table of families of audio-language models: what no graph states about sounds in prompts.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/status.h"

namespace situ {

// Sounds are cut into windows of log-mel spectrograms (MelConfig), the last one filled with silence; the encoder makes
// as many rows of each window.
struct SoundFamily {
  const char* name;
  const char* model_type;   // of config.json
  const char* placeholder;  // in a prompt's text, one for each sound; repeated, the tokens that rows stand for
  const char* inserted;     // what stands for a sound in front of a text without placeholders
  // Rows of one window, as config.json says.
  Result<int64_t> (*rows)(const nlohmann::json& config);
};

// Error kUnsupportedModel: none.
Result<const SoundFamily*> find_sound_family(const nlohmann::json& config);

}  // namespace situ
