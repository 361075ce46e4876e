// CLIP, SigLIP, Gemma 3: every image becomes one size.
// Source: transformers 4.57.6, models/{clip,siglip,gemma3}/image_processing_*.py, image_transforms.py.
#include <algorithm>
#include <cmath>
#include <utility>

#include "vision/rules.h"

namespace situ {
namespace {

// The first that is given: size's height and width, or its shortest edge, the other one in proportion.
Result<RgbImage> resize_to_size(const RgbImage& image, const ImageSettings& settings, const ImageLimits& limits) {
  const SizeSetting& size = settings.size;
  if (size.shortest_edge > 0) {
    const int64_t shorter = std::min(image.width, image.height), longer = std::max(image.width, image.height);
    // int(edge * longer / shorter)
    const int64_t other =
        static_cast<int64_t>(static_cast<double>(size.shortest_edge * longer) / static_cast<double>(shorter));
    const bool upright = image.width <= image.height;
    return resize_within(image, upright ? size.shortest_edge : other, upright ? other : size.shortest_edge, settings,
                         limits);
  }
  if (size.height > 0 && size.width > 0) return resize_within(image, size.width, size.height, settings, limits);
  return Status::error(Code::kInvalidArgument,
                       "preprocessor_config.json: size has neither shortest_edge nor height and width");
}

// Where the image is smaller than the crop, it stands in its middle on black: pad = ceil(missing / 2).
RgbImage center_crop(const RgbImage& image, int width, int height) {
  const auto place = [](int have, int wanted) {
    const int missing = wanted - have;
    return missing > 0 ? -((missing + 1) / 2) : (have - wanted) / 2;
  };
  return crop(image, place(image.width, width), place(image.height, height), width, height);
}

// Crops of an image that is much wider than high (or higher than wide), for a closer look; none for others.
std::vector<RgbImage> pan_and_scan(const RgbImage& image, const ImageSettings& settings) {
  const bool wide = image.width >= image.height;
  const int longer = std::max(image.width, image.height), shorter = std::min(image.width, image.height);
  const double ratio = static_cast<double>(longer) / shorter;
  if (ratio < settings.min_ratio || settings.min_crop_size < 1 || settings.max_crops < 1) return {};
  int64_t crops = static_cast<int64_t>(std::floor(ratio + 0.5));
  crops = std::min(longer / settings.min_crop_size, crops);
  crops = std::min(settings.max_crops, std::max<int64_t>(2, crops));
  const int length = static_cast<int>((longer + crops - 1) / crops);
  if (std::min(length, shorter) < settings.min_crop_size) return {};
  std::vector<RgbImage> parts;
  for (int at = 0; at < longer; at += length) {
    const int part = std::min(length, longer - at);
    parts.push_back(wide ? crop(image, at, 0, part, shorter) : crop(image, 0, at, shorter, part));
  }
  return parts;
}

}  // namespace

Result<PreparedImage> prepare_fixed(RgbImage image, const ImageSettings& settings, const ImageLimits& limits) {
  PreparedImage prepared;
  prepared.width = image.width;
  prepared.height = image.height;
  if (settings.do_resize) {
    Result<RgbImage> resized = resize_to_size(image, settings, limits);
    if (!resized.is_ok()) return resized.status();
    image = std::move(*resized);
  }
  if (settings.do_center_crop) {
    const SizeSetting& size = settings.crop_size;
    if (size.height < 1 || size.width < 1) {
      return Status::error(Code::kInvalidArgument, "preprocessor_config.json: crop_size has no height and width");
    }
    SITU_RETURN_IF_ERROR(check_pixels(size.width, size.height, limits).with_context("crop_size"));
    image = center_crop(image, static_cast<int>(size.width), static_cast<int>(size.height));
  }
  prepared.tiles.push_back(std::move(image));
  return prepared;
}

Result<PreparedImage> prepare_gemma3(RgbImage image, const ImageSettings& settings, const ImageLimits& limits) {
  PreparedImage prepared;
  std::vector<RgbImage> parts;
  if (settings.do_pan_and_scan) parts = pan_and_scan(image, settings);
  prepared.columns = static_cast<int>(parts.size());
  prepared.rows = parts.empty() ? 0 : 1;
  prepared.width = image.width;
  prepared.height = image.height;
  parts.insert(parts.begin(), std::move(image));
  for (RgbImage& part : parts) {
    Result<PreparedImage> one = prepare_fixed(std::move(part), settings, limits);
    if (!one.is_ok()) return one.status();
    prepared.tiles.push_back(std::move(one->tiles.front()));
  }
  return prepared;
}

Result<std::vector<PixelTensor>> fixed_tensors(std::span<const PreparedImage> images, const ImageSettings& settings) {
  const RgbImage& first = images.front().tiles.front();
  int64_t count = 0;
  for (const PreparedImage& image : images) {
    for (const RgbImage& tile : image.tiles) {
      ++count;
      if (tile.width == first.width && tile.height == first.height) continue;
      return Status::error(Code::kInvalidArgument,
                           "images differ in size once they are resized: " + std::to_string(first.width) + " x " +
                               std::to_string(first.height) + " and " + std::to_string(tile.width) + " x " +
                               std::to_string(tile.height) + " pixels");
    }
  }
  std::vector<PixelTensor> tensors;
  tensors.push_back(tiles_tensor(images, settings, {count, 3, first.height, first.width}));
  return tensors;
}

}  // namespace situ
