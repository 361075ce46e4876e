#include "pipelines/start.h"

#include <algorithm>

#include "pipelines/sampling.h"

namespace situ {
namespace {

DType type_of(NamedArray::Type type) {
  switch (type) {
    case NamedArray::Type::kBool:
      return DType::kBool;
    case NamedArray::Type::kInt32:
      return DType::kI32;
    case NamedArray::Type::kInt64:
      return DType::kI64;
    case NamedArray::Type::kFloat16:
      return DType::kF16;
    case NamedArray::Type::kFloat32:
      break;
  }
  return DType::kF32;
}

Status add_array(const NamedArray& array, EncoderInput* source) {
  const auto wrong = [&](const std::string& why) {
    return Status::error(Code::kInvalidArgument, "array '" + array.name + "': " + why);
  };
  if (array.shape.size() > kMaxRank) return wrong("it has " + std::to_string(array.shape.size()) + " dims");
  int64_t count = 1;
  for (const int64_t d : array.shape)
    if (d < 0 || __builtin_mul_overflow(count, d, &count) || count > (int64_t{1} << 40))
      return wrong("it is too large, or has a negative extent");
  if (count > 0 && array.data == nullptr) return wrong("it has no data");
  const Tensor t = Tensor::borrow(type_of(array.type), array.shape, static_cast<const std::byte*>(array.data), nullptr);
  return source->tensors.emplace(array.name, t).second ? Status::ok() : wrong("it is given twice");
}

// Float arrays for inputs of halves, which a host rounds before it feeds them.
void round_to_declared(const ModelFiles& files, EncoderInput* source) {
  const auto round_for = [&](const Graph& graph) {
    for (auto& [name, tensor] : source->tensors)
      for (const ValueId v : graph.inputs) {
        const Value& input = graph.values[v];
        if (tensor.type() == DType::kF32 && input.info.type == DType::kF16 &&
            (name == input.name || name.ends_with("." + input.name)))
          tensor = rounded_to_half(tensor);
      }
  };
  if (files.encoder) round_for(files.encoder->graph);
  for (const MediaEncoder& media : files.media) round_for(media.model.graph);
}

Status add_arrays(const Model::Impl& model, const Prompt& prompt, EncoderInput* source) {
  for (const NamedArray& a : prompt.arrays)
    SITU_RETURN_IF_ERROR(add_array(a, source).with_context(model.folder.model_file.string()));
  round_to_declared(model.files, source);
  return Status::ok();
}

}  // namespace

Result<Start> start_of(const Model::Impl& model, const Prompt& prompt) {
  const std::string file = model.folder.model_file.string();
  Start start;
  if (!model.has_encoder()) {
    if (model.takes_media() && prompt.decoder_ids.empty()) {
      SITU_RETURN_IF_ERROR(add_arrays(model, prompt, &start.source));
      const Result<MediaPlaces> places = media_places(model.files, prompt.ids, start.source);
      if (!places.is_ok()) return places.status().with_context(model.folder.folder.string());
    } else if (const int64_t image = model.folder.media.image;
               !model.takes_media() && image >= 0 && std::count(prompt.ids.begin(), prompt.ids.end(), image) > 0)
      return Status::error(Code::kInvalidArgument, model.folder.folder.string() + ": the prompt has tokens with id " +
                                                       std::to_string(image) +
                                                       ", which stand for an image, and no vision encoder is there");
    else if (!prompt.arrays.empty() || !prompt.decoder_ids.empty())
      return Status::error(Code::kInvalidArgument,
                           file + ": the model has no encoder, and takes one prompt of token ids");
    start.decoder = prompt.ids;
  } else {
    SITU_RETURN_IF_ERROR(add_arrays(model, prompt, &start.source));
    const bool takes_ids = model.encoder_takes_ids();
    if (takes_ids) start.source_ids = prompt.ids;
    if (takes_ids && prompt.ids.empty())
      return Status::error(Code::kInvalidArgument, file + ": an empty source: the encoder takes at least one token");
    if (!takes_ids && !prompt.ids.empty() && !prompt.decoder_ids.empty())
      return Status::error(Code::kInvalidArgument,
                           file + ": the encoder takes arrays: two prompts of the decoder are given");
    start.decoder = takes_ids || !prompt.decoder_ids.empty() ? prompt.decoder_ids : prompt.ids;
    if (start.decoder.empty()) {
      const Result<int64_t> id = decoder_start_id(model.folder, model.vocabulary);
      if (!id.is_ok()) return id.status();
      start.decoder.push_back(*id);
    }
    if (takes_ids) SITU_RETURN_IF_ERROR(model.check_source(prompt.ids));
  }
  SITU_RETURN_IF_ERROR(model.check(start.decoder, 0));
  return start;
}

}  // namespace situ
