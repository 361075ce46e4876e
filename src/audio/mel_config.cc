#include "audio/mel_config.h"

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "base/lfs_pointer.h"

namespace situ {
namespace {

using Json = nlohmann::json;

Status read_int(const Json& json, const char* name, int* out) {
  const auto field = json.find(name);
  if (field == json.end() || field->is_null()) return Status::ok();
  // Some files have 30.0.
  const double value = field->is_number() ? field->get<double>() : -1;
  if (!(value >= 0 && value <= 1e9) || value != static_cast<double>(static_cast<int>(value))) {
    return Status::error(Code::kBadFile, std::string(name) + " is " + field->dump() + ", not a whole number");
  }
  *out = static_cast<int>(value);
  return Status::ok();
}

Status check_range(const char* name, int value, int least, int most) {
  if (value >= least && value <= most) return Status::ok();
  return Status::error(Code::kUnsupportedModel, std::string(name) + " is " + std::to_string(value) + "; " +
                                                    std::to_string(least) + " to " + std::to_string(most) +
                                                    " are supported");
}

}  // namespace

Result<MelConfig> MelConfig::from_json(std::string_view text) {
  const Json whole = Json::parse(text, nullptr, false);
  if (!whole.is_object()) return Status::error(Code::kBadFile, "no JSON object");
  const auto inner = whole.find("feature_extractor");
  const Json& json = inner != whole.end() && inner->is_object() ? *inner : whole;
  MelConfig config;
  SITU_RETURN_IF_ERROR(read_int(json, "feature_size", &config.mels));
  SITU_RETURN_IF_ERROR(read_int(json, "n_fft", &config.fft));
  SITU_RETURN_IF_ERROR(read_int(json, "hop_length", &config.hop));
  SITU_RETURN_IF_ERROR(read_int(json, "sampling_rate", &config.rate));
  SITU_RETURN_IF_ERROR(read_int(json, "chunk_length", &config.chunk_seconds));
  SITU_RETURN_IF_ERROR(config.check());
  return config;
}

Result<MelConfig> MelConfig::of_folder(const std::filesystem::path& folder) {
  std::error_code unknown;
  for (const char* name : {"preprocessor_config.json", "processor_config.json"}) {
    const std::filesystem::path file = folder / name;
    if (!std::filesystem::is_regular_file(file, unknown)) continue;
    if (std::filesystem::file_size(file, unknown) > (size_t{1} << 25))
      return Status::error(Code::kBadFile, file.string() + ": too large");
    if (holds_lfs_pointer(file)) return lfs_pointer_error(file);
    std::ifstream in(file, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    Result<MelConfig> config = from_json(text.str());
    if (!config.is_ok()) return config.status().with_context(file.string());
    return config;
  }
  return MelConfig{};
}

Status MelConfig::check() const {
  SITU_RETURN_IF_ERROR(check_range("feature_size", mels, 1, 512));
  SITU_RETURN_IF_ERROR(check_range("n_fft", fft, 16, 8192));
  SITU_RETURN_IF_ERROR(check_range("hop_length", hop, 1, fft));
  SITU_RETURN_IF_ERROR(check_range("sampling_rate", rate, 1000, 384000));
  SITU_RETURN_IF_ERROR(check_range("chunk_length", chunk_seconds, 1, 600));
  if (fft % 2 != 0) {
    return Status::error(Code::kUnsupportedModel, "n_fft is " + std::to_string(fft) + "; even sizes are supported");
  }
  if (window_samples() < static_cast<size_t>(fft)) {
    return Status::error(Code::kUnsupportedModel, "a window of " + std::to_string(window_samples()) +
                                                      " samples is shorter than n_fft, " + std::to_string(fft));
  }
  return Status::ok();
}

}  // namespace situ
