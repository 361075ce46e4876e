// Idefics3 and SmolVLM: an image is cut into tiles of the encoder's size; the whole, made as small, comes last.
// Source: transformers 4.57.6, models/idefics3/image_processing_idefics3.py.
#include <cmath>
#include <utility>

#include "vision/rules.h"

namespace situ {
namespace {

// Of a resized image's longer edge.
constexpr int64_t kMostEdge = 4096;

struct Extent {
  int64_t width, height;
};

// The longer edge becomes `edge`; the other one follows, rounded down and then up to an even number.
Extent by_longest_edge(int64_t width, int64_t height, int64_t edge) {
  const double aspect = static_cast<double>(width) / static_cast<double>(height);
  Extent out{edge, edge};
  if (width >= height) {
    out.height = static_cast<int64_t>(static_cast<double>(edge) / aspect);
    out.height = std::max<int64_t>(out.height + out.height % 2, 1);
  } else {
    out.width = static_cast<int64_t>(static_cast<double>(edge) * aspect);
    out.width = std::max<int64_t>(out.width + out.width % 2, 1);
  }
  return out;
}

Extent below_most_edge(Extent extent) {
  const double aspect = static_cast<double>(extent.width) / static_cast<double>(extent.height);
  if (extent.width >= extent.height && extent.width > kMostEdge) {
    extent = {kMostEdge, static_cast<int64_t>(static_cast<double>(kMostEdge) / aspect)};
  } else if (extent.height > extent.width && extent.height > kMostEdge) {
    extent = {static_cast<int64_t>(static_cast<double>(kMostEdge) * aspect), kMostEdge};
  }
  return {std::max<int64_t>(extent.width, 1), std::max<int64_t>(extent.height, 1)};
}

int64_t up_to_multiple(int64_t value, int64_t of) { return (value + of - 1) / of * of; }

// Both edges become multiples of a tile's.
Extent whole_tiles(int64_t width, int64_t height, int64_t tile) {
  const double aspect = static_cast<double>(width) / static_cast<double>(height);
  if (width >= height) {
    const int64_t wide = up_to_multiple(width, tile);
    return {wide, up_to_multiple(static_cast<int64_t>(static_cast<double>(wide) / aspect), tile)};
  }
  const int64_t high = up_to_multiple(height, tile);
  return {up_to_multiple(static_cast<int64_t>(static_cast<double>(high) * aspect), tile), high};
}

Result<RgbImage> resize_first(const RgbImage& image, const ImageSettings& settings, const ImageLimits& limits) {
  const SizeSetting& size = settings.size;
  if (size.longest_edge > 0) {
    const Extent to = below_most_edge(by_longest_edge(image.width, image.height, size.longest_edge));
    return resize_within(image, to.width, to.height, settings, limits);
  }
  if (size.height > 0 && size.width > 0) return resize_within(image, size.width, size.height, settings, limits);
  return Status::error(Code::kInvalidArgument,
                       "preprocessor_config.json: size has neither longest_edge nor height and width");
}

}  // namespace

Result<PreparedImage> prepare_idefics3(RgbImage image, const ImageSettings& settings, const ImageLimits& limits) {
  const int64_t edge = settings.max_image_size.longest_edge;
  if (edge < 1)
    return Status::error(Code::kInvalidArgument, "preprocessor_config.json: max_image_size has no longest_edge");
  PreparedImage prepared;
  prepared.width = image.width;
  prepared.height = image.height;
  if (settings.do_resize) {
    Result<RgbImage> resized = resize_first(image, settings, limits);
    if (!resized.is_ok()) return resized.status();
    image = std::move(*resized);
  }
  const auto resize_to = [&](int64_t width, int64_t height) {
    return resize_within(image, width, height, settings, limits);
  };
  if (settings.do_image_splitting) {
    const Extent to = whole_tiles(image.width, image.height, edge);
    Result<RgbImage> resized = resize_to(to.width, to.height);
    if (!resized.is_ok()) return resized.status();
    image = std::move(*resized);
    if (to.width > edge || to.height > edge) {
      prepared.rows = static_cast<int>(to.height / edge);
      prepared.columns = static_cast<int>(to.width / edge);
    }
  }
  const int side = static_cast<int>(edge);
  for (int row = 0; row < prepared.rows; ++row) {
    for (int column = 0; column < prepared.columns; ++column) {
      prepared.tiles.push_back(crop(image, column * side, row * side, side, side));
    }
  }
  Result<RgbImage> whole = resize_to(edge, edge);
  if (!whole.is_ok()) return whole.status();
  prepared.tiles.push_back(std::move(*whole));
  return prepared;
}

Result<std::vector<PixelTensor>> idefics3_tensors(std::span<const PreparedImage> images,
                                                  const ImageSettings& settings) {
  int64_t tiles = 0;
  for (const PreparedImage& image : images) tiles += static_cast<int64_t>(image.tiles.size());
  const int64_t edge = images.front().tiles.front().width;
  std::vector<PixelTensor> tensors;
  tensors.push_back(tiles_tensor(images, settings, {1, tiles, 3, edge, edge}));
  // Every tile is full.
  tensors.push_back({"pixel_attention_mask", Tensor::allocate(DType::kBool, {1, tiles, edge, edge})});
  uint8_t* mask = tensors.back().tensor.view().as<uint8_t>();
  for (int64_t i = 0; i < tiles * edge * edge; ++i) mask[i] = 1;
  return tensors;
}

}  // namespace situ
