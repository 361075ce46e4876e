#include "audio/families.h"

#include <nlohmann/json.hpp>

namespace situ {
namespace {

using Json = nlohmann::json;

// Windows become max_source_positions frames of hidden_size; as many of them as intermediate_size holds are one row.
// Source: transformers 4.57.6, models/voxtral (get_audio_features).
Result<int64_t> voxtral_rows(const Json& config) {
  const auto audio = config.find("audio_config");
  const auto number = [&](const char* name) -> int64_t {
    if (audio == config.end() || !audio->is_object()) return 0;
    const auto found = audio->find(name);
    const bool whole = found != audio->end() && found->is_number_integer();
    const int64_t n = whole ? found->get<int64_t>() : 0;
    return n <= (int64_t{1} << 24) ? n : 0;
  };
  const int64_t frames = number("max_source_positions"), width = number("hidden_size"),
                joined = number("intermediate_size");
  if (frames < 1 || width < 1 || joined < 1 || frames * width % joined != 0)
    return Status::error(
        Code::kUnsupportedModel,
        "audio_config has no max_source_positions, hidden_size and intermediate_size that say how many "
        "rows a window becomes");
  return frames * width / joined;
}

constexpr SoundFamily kSoundFamilies[] = {
    {"voxtral", "voxtral", "[AUDIO]", "[BEGIN_AUDIO][AUDIO]", voxtral_rows},
};

}  // namespace

Result<const SoundFamily*> find_sound_family(const Json& config) {
  const auto type = config.find("model_type");
  const std::string name = type != config.end() && type->is_string() ? type->get<std::string>() : "";
  for (const SoundFamily& family : kSoundFamilies)
    if (name == family.model_type) return &family;
  return Status::error(Code::kUnsupportedModel, "sounds of this model family are not known (model_type '" + name +
                                                    "'); only --encoder-input works");
}

}  // namespace situ
