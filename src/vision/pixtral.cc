// Pixtral: an image keeps its shape; its longest edge is at most `size`, both edges are whole patches.
// Source: transformers 4.57.6, models/pixtral/image_processing_pixtral.py.
#include <algorithm>
#include <cmath>
#include <utility>

#include "vision/rules.h"

namespace situ {

Result<PreparedImage> prepare_pixtral(RgbImage image, const ImageSettings& settings, const ImageLimits& limits) {
  const SizeSetting& size = settings.size;
  const int64_t most_height = size.longest_edge > 0 ? size.longest_edge : size.height;
  const int64_t most_width = size.longest_edge > 0 ? size.longest_edge : size.width;
  const int64_t patch_height = settings.patch_size.height, patch_width = settings.patch_size.width;
  if (most_height < 1 || most_width < 1 || patch_height < 1 || patch_width < 1) {
    return Status::error(Code::kInvalidArgument, "preprocessor_config.json: size or patch_size is not complete");
  }
  PreparedImage prepared;
  prepared.width = image.width;
  prepared.height = image.height;
  if (settings.do_resize) {
    double height = image.height, width = image.width;
    const double ratio = std::max(height / static_cast<double>(most_height), width / static_cast<double>(most_width));
    if (ratio > 1) {
      height = std::floor(height / ratio);
      width = std::floor(width / ratio);
    }
    const auto whole = [](double edge, int64_t patch) {
      return ((static_cast<int64_t>(edge) - 1) / patch + 1) * patch;
    };
    // Of an edge that became 0, Python's (0 - 1) // patch + 1 is 0.
    if (height < 1 || width < 1) {
      return Status::error(Code::kInvalidArgument,
                           "has " + std::to_string(image.width) + " x " + std::to_string(image.height) +
                               " pixels: nothing is left of the shorter edge once it is resized");
    }
    Result<RgbImage> resized =
        resize_within(image, whole(width, patch_width), whole(height, patch_height), settings, limits);
    if (!resized.is_ok()) return resized.status();
    image = std::move(*resized);
  }
  prepared.rows = static_cast<int>(image.height / patch_height);
  prepared.columns = static_cast<int>(image.width / patch_width);
  if (prepared.rows < 1 || prepared.columns < 1) {
    return Status::error(Code::kInvalidArgument, "is smaller than one patch, and do_resize is false");
  }
  prepared.tiles.push_back(std::move(image));
  return prepared;
}

Result<std::vector<PixelTensor>> pixtral_tensors(std::span<const PreparedImage> images, const ImageSettings& settings) {
  const int64_t count = static_cast<int64_t>(images.size());
  int64_t height = 0, width = 0;
  for (const PreparedImage& image : images) {
    height = std::max<int64_t>(height, image.tiles.front().height);
    width = std::max<int64_t>(width, image.tiles.front().width);
  }
  std::vector<PixelTensor> tensors;
  tensors.push_back({"pixel_values", Tensor::allocate(DType::kF32, {count, 3, height, width})});
  tensors.push_back({"image_sizes", Tensor::allocate(DType::kI64, {count, 2})});
  const Levels levels = make_levels(settings);
  float* out = tensors[0].tensor.view().as<float>();
  int64_t* sizes = tensors[1].tensor.view().as<int64_t>();
  for (const PreparedImage& image : images) {
    const RgbImage& pixels = image.tiles.front();
    write_planes(pixels, levels, height, width, out);
    out += 3 * height * width;
    *sizes++ = pixels.height;
    *sizes++ = pixels.width;
  }
  return tensors;
}

}  // namespace situ
