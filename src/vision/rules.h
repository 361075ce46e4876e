// What each class of image processors does to images: resize, crop, tiles, and the tensors that come of it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "vision/image_file.h"
#include "vision/processor.h"
#include "vision/settings.h"

namespace situ {

// One image, as 8 bit pixels that the encoder will see.
struct PreparedImage {
  int width = 0, height = 0;    // of the image before any resize
  std::vector<RgbImage> tiles;  // one, or several for a split image, in the encoder's order
  int rows = 0, columns = 0;    // of the grid that it was split into; 0: not split
};

// Of an image processor's class: first each image, then all of them.
struct ImageRule {
  const char* name;      // image_processor_type, without "Fast"
  const char* defaults;  // JSON: every setting, as the class's constructor has it
  Result<PreparedImage> (*prepare)(RgbImage image, const ImageSettings& settings, const ImageLimits& limits);
  Result<std::vector<PixelTensor>> (*tensors)(std::span<const PreparedImage> images, const ImageSettings& settings);
};

// CLIP and SigLIP: one size for all. pixel_values [images, 3, height, width].
Result<PreparedImage> prepare_fixed(RgbImage image, const ImageSettings& settings, const ImageLimits& limits);
Result<std::vector<PixelTensor>> fixed_tensors(std::span<const PreparedImage> images, const ImageSettings& settings);

// Gemma 3: as SigLIP, and with pan and scan crops of a wide image behind it. pixel_values [tiles, 3, height, width].
Result<PreparedImage> prepare_gemma3(RgbImage image, const ImageSettings& settings, const ImageLimits& limits);

// Idefics3 and SmolVLM: tiles and the whole. pixel_values [1, tiles, 3, edge, edge], pixel_attention_mask [1, tiles,
// edge, edge] bool.
Result<PreparedImage> prepare_idefics3(RgbImage image, const ImageSettings& settings, const ImageLimits& limits);
Result<std::vector<PixelTensor>> idefics3_tensors(std::span<const PreparedImage> images, const ImageSettings& settings);

// Qwen2-VL: patches. pixel_values [patches, 3 * temporal * patch * patch], image_grid_thw [images, 3] int64.
Result<PreparedImage> prepare_qwen2_vl(RgbImage image, const ImageSettings& settings, const ImageLimits& limits);
Result<std::vector<PixelTensor>> qwen2_vl_tensors(std::span<const PreparedImage> images, const ImageSettings& settings);

// Pixtral: whole patches, padded with 0 to the largest. pixel_values [images, 3, height, width], image_sizes [images,
// 2].
Result<PreparedImage> prepare_pixtral(RgbImage image, const ImageSettings& settings, const ImageLimits& limits);
Result<std::vector<PixelTensor>> pixtral_tensors(std::span<const PreparedImage> images, const ImageSettings& settings);

// What the rules share.

// resize() to width x height, unless that has more pixels than the limit.
Result<RgbImage> resize_within(const RgbImage& image, int64_t width, int64_t height, const ImageSettings& settings,
                               const ImageLimits& limits);
// Pixels [top.., left..] of height x width; black outside of the image.
RgbImage crop(const RgbImage& image, int left, int top, int width, int height);

// value of 0..255 -> what the encoder reads, for each channel: (value * rescale_factor - mean) / std in float32, as
// NumPy computes it.
struct Levels {
  float of[3][256];
};
Levels make_levels(const ImageSettings& settings);
// image [height, width, 3] to planes [3, plane_height, plane_width], whose other elements stay as they are.
void write_planes(const RgbImage& image, const Levels& levels, int64_t plane_height, int64_t plane_width,
                  float* planes);
// "pixel_values" under `dims`: all tiles of equal size one after the other, each [3, height, width].
PixelTensor tiles_tensor(std::span<const PreparedImage> images, const ImageSettings& settings,
                         std::vector<int64_t> dims);

}  // namespace situ
