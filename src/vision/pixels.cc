// What the rules of all image processors share.
#include <algorithm>
#include <utility>

#include "vision/rules.h"

namespace situ {

Result<RgbImage> resize_within(const RgbImage& image, int64_t width, int64_t height, const ImageSettings& settings,
                               const ImageLimits& limits) {
  const Status fits = check_pixels(width, height, limits);
  if (!fits.is_ok()) {
    return Status::error(Code::kInvalidArgument, "has " + std::to_string(image.width) + " x " +
                                                     std::to_string(image.height) +
                                                     " pixels; resized for the model it " + fits.message());
  }
  return resize(image, static_cast<int>(width), static_cast<int>(height), settings.resample);
}

RgbImage crop(const RgbImage& image, int left, int top, int width, int height) {
  RgbImage out(width, height);
  const int from_x = std::max(left, 0), to_x = std::min(left + width, image.width);
  for (int y = std::max(top, 0); y < std::min(top + height, image.height); ++y) {
    const uint8_t* in = image.pixels.data() + image.offset(from_x, y);
    uint8_t* target = out.pixels.data() + out.offset(from_x - left, y - top);
    for (int i = 0; i < (to_x - from_x) * 3; ++i) target[i] = in[i];
  }
  return out;
}

Levels make_levels(const ImageSettings& settings) {
  Levels levels;
  for (int c = 0; c < 3; ++c) {
    const float mean = static_cast<float>(settings.mean[static_cast<size_t>(c)]);
    const float std = static_cast<float>(settings.std[static_cast<size_t>(c)]);
    for (int value = 0; value < 256; ++value) {
      float level = static_cast<float>(value);
      if (settings.do_rescale) level = static_cast<float>(static_cast<double>(value) * settings.rescale_factor);
      if (settings.do_normalize) level = (level - mean) / std;
      levels.of[c][value] = level;
    }
  }
  return levels;
}

void write_planes(const RgbImage& image, const Levels& levels, int64_t plane_height, int64_t plane_width,
                  float* planes) {
  const int64_t plane = plane_height * plane_width;
  for (int y = 0; y < image.height; ++y) {
    const uint8_t* in = image.row(y);
    float* out = planes + y * plane_width;
    for (int x = 0; x < image.width; ++x, in += 3) {
      for (int c = 0; c < 3; ++c) out[c * plane + x] = levels.of[c][in[c]];
    }
  }
}

PixelTensor tiles_tensor(std::span<const PreparedImage> images, const ImageSettings& settings,
                         std::vector<int64_t> dims) {
  PixelTensor pixels{"pixel_values", Tensor::allocate(DType::kF32, dims)};
  const Levels levels = make_levels(settings);
  float* out = pixels.tensor.view().as<float>();
  for (const PreparedImage& image : images) {
    for (const RgbImage& tile : image.tiles) {
      write_planes(tile, levels, tile.height, tile.width, out);
      out += tile.pixels.size();
    }
  }
  return pixels;
}

}  // namespace situ
