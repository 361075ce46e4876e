// Qwen2-VL: an image of any shape becomes whole patches, which merge into tokens by merge_size x merge_size.
// Source: transformers 4.57.6, models/qwen2_vl/image_processing_qwen2_vl.py.
#include <cmath>
#include <utility>

#include "vision/rules.h"

namespace situ {
namespace {

constexpr double kMostAspect = 200;

// Multiples of `factor` near the image's own size, with min_pixels to max_pixels in all.
Result<RgbImage> smart_resize(const RgbImage& image, int64_t factor, const ImageSettings& settings,
                              const ImageLimits& limits) {
  const double width = image.width, height = image.height;
  const double least = static_cast<double>(settings.min_pixels > 0 ? settings.min_pixels : settings.size.shortest_edge);
  const double most = static_cast<double>(settings.max_pixels > 0 ? settings.max_pixels : settings.size.longest_edge);
  if (least < 1 || most < 1) {
    return Status::error(Code::kInvalidArgument,
                         "preprocessor_config.json: size has no shortest_edge and longest_edge");
  }
  if (std::max(width, height) / std::min(width, height) > kMostAspect) {
    return Status::error(Code::kInvalidArgument, "has " + std::to_string(image.width) + " x " +
                                                     std::to_string(image.height) +
                                                     " pixels: one edge is more than 200 times the other");
  }
  const double unit = static_cast<double>(factor);
  // Halves go to the even number, as in Python.
  double high = std::nearbyint(height / unit) * unit, wide = std::nearbyint(width / unit) * unit;
  if (high * wide > most) {
    const double shrink = std::sqrt(height * width / most);
    high = std::max(unit, std::floor(height / shrink / unit) * unit);
    wide = std::max(unit, std::floor(width / shrink / unit) * unit);
  } else if (high * wide < least) {
    const double grow = std::sqrt(least / (height * width));
    high = std::ceil(height * grow / unit) * unit;
    wide = std::ceil(width * grow / unit) * unit;
  }
  // Of sizes up to 2^31.
  return resize_within(image, static_cast<int64_t>(std::min(wide, 1e9)), static_cast<int64_t>(std::min(high, 1e9)),
                       settings, limits);
}

// One image [height, width, 3] to patches [(height / m p) (width / m p) m m, 3 T p p]: the patches of a token follow
// one another; the T frames of a still image are equal. Returns where the next image's patches begin.
float* write_patches(const RgbImage& image, const Levels& levels, const ImageSettings& settings, float* out) {
  const int patch = static_cast<int>(settings.patch_size.height), merge = static_cast<int>(settings.merge_size);
  const int rows = image.height / patch, columns = image.width / patch;
  for (int block_row = 0; block_row < rows; block_row += merge) {
    for (int block_column = 0; block_column < columns; block_column += merge) {
      for (int inside = 0; inside < merge * merge; ++inside) {
        const int top = (block_row + inside / merge) * patch, left = (block_column + inside % merge) * patch;
        for (int c = 0; c < 3; ++c) {
          for (int64_t frame = 0; frame < settings.temporal_patch_size; ++frame) {
            for (int y = top; y < top + patch; ++y) {
              const uint8_t* in = image.pixels.data() + image.offset(left, y);
              for (int x = 0; x < patch; ++x) *out++ = levels.of[c][in[x * 3 + c]];
            }
          }
        }
      }
    }
  }
  return out;
}

}  // namespace

Result<PreparedImage> prepare_qwen2_vl(RgbImage image, const ImageSettings& settings, const ImageLimits& limits) {
  const int64_t patch = settings.patch_size.height, factor = patch * settings.merge_size;
  if (patch < 1) return Status::error(Code::kInvalidArgument, "preprocessor_config.json: there is no patch_size");
  PreparedImage prepared;
  prepared.width = image.width;
  prepared.height = image.height;
  if (settings.do_resize) {
    Result<RgbImage> resized = smart_resize(image, factor, settings, limits);
    if (!resized.is_ok()) return resized.status();
    image = std::move(*resized);
  }
  if (image.width % factor != 0 || image.height % factor != 0) {
    return Status::error(Code::kInvalidArgument, "has " + std::to_string(image.width) + " x " +
                                                     std::to_string(image.height) + " pixels, not multiples of " +
                                                     std::to_string(factor) + ", and do_resize is false");
  }
  prepared.rows = static_cast<int>(image.height / patch);
  prepared.columns = static_cast<int>(image.width / patch);
  prepared.tiles.push_back(std::move(image));
  return prepared;
}

Result<std::vector<PixelTensor>> qwen2_vl_tensors(std::span<const PreparedImage> images,
                                                  const ImageSettings& settings) {
  const int64_t patch = settings.patch_size.height;
  int64_t patches = 0;
  for (const PreparedImage& image : images) patches += static_cast<int64_t>(image.rows) * image.columns;
  std::vector<PixelTensor> tensors;
  tensors.push_back(
      {"pixel_values", Tensor::allocate(DType::kF32, {patches, 3 * settings.temporal_patch_size * patch * patch})});
  tensors.push_back({"image_grid_thw", Tensor::allocate(DType::kI64, {static_cast<int64_t>(images.size()), 3})});
  const Levels levels = make_levels(settings);
  float* out = tensors[0].tensor.view().as<float>();
  int64_t* grid = tensors[1].tensor.view().as<int64_t>();
  for (const PreparedImage& image : images) {
    out = write_patches(image.tiles.front(), levels, settings, out);
    grid[0] = 1, grid[1] = image.rows, grid[2] = image.columns;
    grid += 3;
  }
  return tensors;
}

}  // namespace situ
