// The settings of an image processor: preprocessor_config.json over the defaults of its class, and overrides over both.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "vision/resize.h"

namespace situ {

// Of `size`: what the file gives; 0 where it gives nothing. Pixels, but of Qwen2-VL, where edges count all pixels.
struct SizeSetting {
  int64_t height = 0, width = 0, shortest_edge = 0, longest_edge = 0;
};

struct ImageSettings {
  bool do_resize = true, do_center_crop = false, do_rescale = true, do_normalize = true;
  bool do_image_splitting = false, do_pan_and_scan = false;
  SizeSetting size, crop_size, max_image_size, patch_size;
  Resample resample = Resample::kBicubic;
  double rescale_factor = 0;
  std::array<double, 3> mean{}, std{};
  int64_t min_pixels = 0, max_pixels = 0;  // over size's edges; 0: not given
  int64_t temporal_patch_size = 1, merge_size = 1;
  int64_t min_crop_size = 0, max_crops = 0;  // pan and scan
  double min_ratio = 0;
};

// defaults: what the class's constructor has, and so every setting that there is. file: preprocessor_config.json; what
// is null there is the default. Errors: an override's name is not in `defaults` (all names are listed); a value has
// another type, or is out of its range.
Result<ImageSettings> make_settings(const nlohmann::json& defaults, const nlohmann::json& file,
                                    const std::map<std::string, std::string>& overrides);

// The whole number at a path such as "vision_config.patch_size"; none where a part is missing, null, or no whole number
// of 0 to 2^31.
std::optional<int64_t> whole_number(const nlohmann::json& json, std::string_view path);

}  // namespace situ
