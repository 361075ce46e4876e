#include "pipelines/start.h"

#include <algorithm>

#include "base/assign.h"
#include "pipelines/encoder_inputs.h"
#include "pipelines/media.h"
#include "pipelines/sampling.h"

namespace situ {
namespace {

Status add_array(const Part& array, EncoderInput* source) {
  const auto named = [&](const Status& why) { return why.with_context("array '" + array.text + "'"); };
  SITU_RETURN_IF_ERROR(named(check_array(array)));
  const Tensor t =
      Tensor::borrow(dtype_of(array.type), array.shape, static_cast<const std::byte*>(array.data.get()), array.data);
  if (source->tensors.emplace(array.text, t).second) return Status::ok();
  return named(Status::error(Code::kInvalidArgument, "it is given twice"));
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
  for (const Part& p : prompt.parts)
    if (p.kind == Part::Kind::kArray)
      SITU_RETURN_IF_ERROR(add_array(p, source).with_context(model.folder.model_file.string()));
  round_to_declared(model.files, source);
  return Status::ok();
}

bool has_arrays(const Prompt& prompt) {
  return std::any_of(prompt.parts.begin(), prompt.parts.end(),
                     [](const Part& p) { return p.kind == Part::Kind::kArray; });
}

}  // namespace

Status check_array(const Part& array) {
  const auto wrong = [](const std::string& why) { return Status::error(Code::kInvalidArgument, why); };
  if (array.shape.size() > kMaxRank) return wrong("it has " + std::to_string(array.shape.size()) + " dims");
  int64_t count = 1;
  for (const int64_t d : array.shape)
    if (d < 0 || __builtin_mul_overflow(count, d, &count) || count > (int64_t{1} << 40))
      return wrong("it is too large, or has a negative extent");
  if (count > 0 && array.data == nullptr) return wrong("it has no data");
  const int64_t bytes = count * dtype_bits(dtype_of(array.type)) / 8;
  if (bytes == static_cast<int64_t>(array.size)) return Status::ok();
  return wrong("it has " + std::to_string(array.size) + " bytes, and its extents ask for " + std::to_string(bytes));
}

Result<Start> start_of(const Model::Impl& model, const Prompt& prompt) {
  const std::string file = model.folder.model_file.string();
  const std::vector<int64_t>& ids = prompt.ids();
  Start start;
  if (!model.has_encoder()) {
    if (model.takes_media() && prompt.decoder_ids.empty()) {
      SITU_RETURN_IF_ERROR(add_arrays(model, prompt, &start.source));
      const Result<MediaPlaces> places = media_places(model.files, ids, start.source);
      if (!places.is_ok()) return places.status().with_context(model.folder.folder.string());
    } else if (const int64_t image = model.folder.media.image;
               !model.takes_media() && image >= 0 && std::count(ids.begin(), ids.end(), image) > 0)
      return Status::error(Code::kInvalidArgument, model.folder.folder.string() + ": the prompt has tokens with id " +
                                                       std::to_string(image) +
                                                       ", which stand for an image, and no vision encoder is there");
    else if (has_arrays(prompt) || !prompt.decoder_ids.empty())
      return Status::error(Code::kInvalidArgument,
                           file + ": the model has no encoder, and takes one prompt of token ids");
    start.decoder = ids;
  } else {
    SITU_RETURN_IF_ERROR(add_arrays(model, prompt, &start.source));
    const bool takes_ids = model.encoder_takes_ids();
    if (takes_ids) start.source_ids = ids;
    if (takes_ids && ids.empty())
      return Status::error(Code::kInvalidArgument, file + ": an empty source: the encoder takes at least one token");
    if (!takes_ids && !ids.empty() && !prompt.decoder_ids.empty())
      return Status::error(Code::kInvalidArgument,
                           file + ": the encoder takes arrays: two prompts of the decoder are given");
    start.decoder = takes_ids || !prompt.decoder_ids.empty() ? prompt.decoder_ids : ids;
    if (start.decoder.empty()) {
      SITU_TAKE(id, decoder_start_id(model.folder, model.vocabulary));
      start.decoder.push_back(id);
    }
    if (takes_ids) SITU_RETURN_IF_ERROR(model.check_source(ids));
  }
  SITU_RETURN_IF_ERROR(model.check(start.decoder, 0));
  return start;
}

}  // namespace situ
