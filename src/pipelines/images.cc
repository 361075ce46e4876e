// Images of a prompt: files to arrays of the vision encoder.
#include "base/assign.h"
#include "pipelines/encoder_inputs.h"
#include "pipelines/media.h"

namespace situ {
namespace {

// The encoder of pictures, whose rows stand for tokens or are an encoder-decoder's source; null: there is none.
const Graph* vision_encoder(const Model::Impl& m) {
  for (const MediaEncoder& e : m.files.media)
    if (!e.sound) return &e.model.graph;
  return m.has_encoder() && !m.encoder_takes_ids() ? &m.files.encoder->graph : nullptr;
}

// The graph's name of a processor's tensor: the same, or the one that is the end of it ("image_grid_thw" for
// "grid_thw"). "": the graph has no such input.
std::string input_name(const Graph& graph, const std::string& tensor) {
  std::string found;
  for (const ValueId v : graph.inputs) {
    const std::string& name = graph.values[v].name;
    if (name == tensor) return name;
    if (tensor.size() > name.size() &&
        tensor.compare(tensor.size() - name.size() - 1, std::string::npos, "_" + name) == 0)
      found = name;
  }
  return found;
}

// The pixels of an image that is no file: an array, or the bytes of a file.
Result<RgbImage> pixels_of(const Part& part, const ImageLimits& limits, const std::string& name) {
  if (part.shape.empty()) return read_image({static_cast<const std::byte*>(part.data.get()), part.size}, name, limits);
  const std::vector<int64_t>& shape = part.shape;
  if (part.type != Part::Type::kUint8 || shape.size() != 3 || shape[2] != 3)
    return Status::error(Code::kInvalidArgument, name + ": pixels are [height, width, 3] of uint8");
  SITU_RETURN_IF_ERROR(check_pixels(shape[1], shape[0], limits).with_context(name));
  SITU_RETURN_IF_ERROR(check_array(part).with_context(name));
  RgbImage image;
  image.width = static_cast<int>(shape[1]);
  image.height = static_cast<int>(shape[0]);
  const auto* const rgb = static_cast<const uint8_t*>(part.data.get());
  image.pixels.assign(rgb, rgb + 3 * shape[0] * shape[1]);
  return image;
}

}  // namespace

Result<std::shared_ptr<ReadImages>> read_images(const Model::Impl& m, std::span<const Part* const> parts,
                                                const Prompt& prompt) {
  const std::string folder = m.folder.folder.string();
  const Graph* encoder = vision_encoder(m);
  if (!encoder) return Status::error(Code::kInvalidArgument, folder + ": the model has no vision encoder for images");
  SITU_TAKE(processor, ImageProcessor::open(m.folder.folder));
  ProcessorOptions settings;
  settings.limits.max_pixels = prompt.max_pixels;
  settings.most_tokens = m.context_length;
  settings.overrides = prompt.image_settings;
  std::vector<ImageInput> inputs;
  for (const Part* part : parts) {
    ImageInput& input = inputs.emplace_back();
    input.path = part->path;
    if (!part->path.empty()) continue;
    SITU_RETURN_IF_ERROR(
        assign(&input.pixels, pixels_of(*part, settings.limits, "image " + std::to_string(inputs.size() - 1))));
  }
  SITU_TAKE(processed, processor.process(std::move(inputs), settings));
  const auto held = std::make_shared<ReadImages>(ReadImages{std::move(processor), std::move(processed), {}, {}});
  for (const ProcessedImage& image : held->processed.images)
    held->facts.push_back({Part::Kind::kImage, image.width, image.height, 0, image.tokens});
  for (const PixelTensor& t : held->processed.tensors)
    if (const std::string name = input_name(*encoder, t.name); !name.empty())
      held->arrays.push_back(array_part(name, t.tensor));
  return held;
}

}  // namespace situ
