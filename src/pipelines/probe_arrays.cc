#include "pipelines/probe_arrays.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "text/json_file.h"

namespace situ {
namespace {

using Json = nlohmann::json;

// A positive number under one of the names, in the object or in what it says of its encoder; 0: there is none.
int64_t told(const Json& config, std::initializer_list<const char*> names) {
  for (const char* part : {"", "encoder", "vision_config", "audio_config"}) {
    const auto found = *part ? config.find(part) : config.end();
    const Json& object = *part && found != config.end() && found->is_object() ? *found : config;
    for (const char* name : names)
      if (const auto it = object.find(name); it != object.end() && it->is_number_unsigned())
        return std::min<int64_t>(it->get<int64_t>(), 1 << 16);
  }
  return 0;
}

// The extents of an input: those of the file; for names in it what is usual for sound (mel bins by frames, frames by
// bins, or samples) and for pictures (channels, height, width). `known`: what names of other inputs stand for.
std::vector<int64_t> extents(const Shape& shape, const Json& config, std::map<int, int64_t>& known) {
  const int64_t mels = told(config, {"num_mel_bins"}), rows = told(config, {"max_source_positions"}),
                size = told(config, {"image_size"}), channels = told(config, {"num_channels"});
  constexpr int64_t kSamples = 8000, kFrames = 100, kChannels = 3;
  std::vector<int64_t> usual;
  if (shape.size() == 2) usual = {1, kSamples};
  if (shape.size() == 3) usual = {1, mels, 2 * rows};
  if (shape.size() == 3 && shape[2].is_const() && !shape[1].is_const()) usual[1] = kFrames;
  if (shape.size() == 4) usual = {1, channels > 0 ? channels : kChannels, size, size};
  for (size_t i = 0; i < usual.size(); ++i) {
    if (shape[i].is_const()) usual[i] = shape[i].value();
    if (const int name = shape[i].lone_symbol(); name >= 0) usual[i] = known.emplace(name, usual[i]).first->second;
  }
  return usual;
}

Tensor random_numbers(DType type, const std::vector<int64_t>& dims) {
  Tensor t = Tensor::allocate(DType::kF32, dims);
  uint32_t x = 7;
  for (int64_t i = 0; i < t.count(); ++i) {
    x = x * 1664525u + 1013904223u;
    t.view().as<float>()[i] = static_cast<float>(x >> 8) / 8388608.0f - 1.0f;
  }
  return type == DType::kF16 ? rounded_to_half(t) : t;
}

Tensor ones(DType type, const std::vector<int64_t>& dims) {
  Tensor t = Tensor::allocate(type, dims);
  for (int64_t i = 0; i < t.count(); ++i) {
    if (type == DType::kI64) t.view().as<int64_t>()[i] = 1;
    if (type == DType::kI32) t.view().as<int32_t>()[i] = 1;
    if (type == DType::kBool) t.view().as<uint8_t>()[i] = 1;
  }
  return t;
}

}  // namespace

Result<std::vector<GivenTensor>> probe_arrays(const ModelFolder& folder, const Graph& encoder) {
  Json config = Json::object();
  if (Result<Json> read = read_json_object(folder.folder / "config.json"); read.is_ok()) config = std::move(*read);
  std::vector<GivenTensor> arrays;
  std::map<int, int64_t> named;
  for (const ValueId v : encoder.inputs) {
    const Value& value = encoder.values[v];
    const DType type = value.info.type;
    const std::vector<int64_t> dims = extents(value.info.shape, config, named);
    const bool known = !dims.empty() && std::all_of(dims.begin(), dims.end(), [](int64_t d) { return d > 0; });
    const bool real = type == DType::kF32 || type == DType::kF16;
    if (!known || (!real && type != DType::kI64 && type != DType::kI32 && type != DType::kBool))
      return Status::error("no array is known for input " + encoder.describe(v) + " of the encoder");
    arrays.push_back({value.name, real ? random_numbers(type, dims) : ones(type, dims), ""});
  }
  return arrays;
}

}  // namespace situ
