#include "speech/speech_model.h"

#include "base/out_of_memory.h"
#include "speech/speech_stream.h"

namespace situ {
namespace {

// The encoder's one input of floats: [batch, mels, frames]. `given`: a file of the folder says the sizes; without one
// (onnxruntime-genai's folders) the encoder does.
Result<std::string> find_spectrogram(const Model::Impl& m, MelConfig* mel, bool given) {
  if (!m.has_encoder() || !m.files.encoder)
    return Status::error(Code::kUnsupportedModel,
                         m.folder.model_file.string() + ": no encoder, and speech is read by one");
  const Graph& graph = m.files.encoder->graph;
  const std::string file = m.folder.encoder_file.string();
  ValueId found = kNoValue;
  for (const ValueId v : graph.inputs)
    if (dtype_is_float(graph.values[v].info.type) && graph.values[v].info.shape.size() == 3) found = v;
  if (found == kNoValue || graph.inputs.size() != 1)
    return Status::error(Code::kUnsupportedModel,
                         file +
                             ": should take one spectrogram [batch, mels, frames]; other inputs of an encoder are "
                             "given to `situ run` with --encoder-input");
  const Value& value = graph.values[found];
  if (value.info.type != DType::kF32 && value.info.type != DType::kF16)
    return Status::error(Code::kUnsupportedModel,
                         file + ": input '" + value.name + "' is " + dtype_name(value.info.type));
  const Dim& mels = value.info.shape[1];
  if (mels.is_const() && mels.value() != mel->mels) {
    if (given || mels.value() <= 0 || mels.value() > 512)
      return Status::error(Code::kUnsupportedModel,
                           file + ": input '" + value.name + "' has " + std::to_string(mels.value()) +
                               " mels, and preprocessor_config.json says feature_size " + std::to_string(mel->mels));
    mel->mels = static_cast<int>(mels.value());
  }
  const Dim& frames = value.info.shape[2];
  const int64_t a_second = mel->rate / mel->hop;
  if (!given && frames.is_const() && frames.value() > 0 && frames.value() % a_second == 0 &&
      frames.value() / a_second <= 600)
    mel->chunk_seconds = static_cast<int>(frames.value() / a_second);
  if (frames.is_const() && frames.value() != static_cast<int64_t>(mel->frames()))
    return Status::error(Code::kUnsupportedModel, file + ": input '" + value.name + "' has " +
                                                      std::to_string(frames.value()) + " frames, and a window of " +
                                                      std::to_string(mel->chunk_seconds) + " s has " +
                                                      std::to_string(mel->frames()));
  return value.name;
}

}  // namespace

Result<Session> SpeechModel::Impl::encode(std::span<const float> spectrogram) {
  const int64_t mels = mel.config().mels;
  Prompt prompt;
  prompt.decoder_ids = {tokens.start};  // files may not say it, vocabularies do
  prompt.parts.push_back(Part::of_array(Part::Kind::kArray, input, Part::Type::kFloat32,
                                        {1, mels, static_cast<int64_t>(spectrogram.size()) / mels},
                                        Part::borrowed(spectrogram.data())));
  return model.new_session(prompt);
}

SpeechModel::SpeechModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SpeechModel::SpeechModel(SpeechModel&&) noexcept = default;
SpeechModel& SpeechModel::operator=(SpeechModel&&) noexcept = default;
SpeechModel::~SpeechModel() = default;
Model& SpeechModel::model() { return impl_->model; }
bool SpeechModel::is_multilingual() const { return impl_->tokens.multilingual(); }
Status SpeechModel::check(const SpeechOptions& options) const { return SpeechStream::Impl::check(*impl_, options); }

Result<SpeechModel> SpeechModel::load(const std::string& path, const LoadOptions& options) {
  return or_out_of_memory([&]() -> Result<SpeechModel> {
    Result<Model> model = Model::load(path, options);
    if (!model.is_ok()) return model.status();
    return of(*model);
  });
}

Result<SpeechModel> SpeechModel::of(const Model& model) {
  return or_out_of_memory([&]() -> Result<SpeechModel> {
    const Model::Impl& m = impl_of(model);
    Result<MelConfig> config = MelConfig::of_folder(m.folder.folder);
    if (!config.is_ok()) return config.status().or_code(Code::kBadFile);
    std::error_code unknown;
    const auto there = [&](const char* name) { return std::filesystem::exists(m.folder.folder / name, unknown); };
    const bool given = there("preprocessor_config.json") || there("processor_config.json");
    const Result<std::string> input = find_spectrogram(m, &*config, given);
    if (!input.is_ok()) return input.status();
    if (!m.tokenizer) return Status::error(Code::kNotFound, m.folder.no_tokenizer + "; a transcript is text");
    Result<SpeechTokens> tokens = read_speech_tokens(m.folder, *m.tokenizer, m.vocabulary);
    if (!tokens.is_ok()) return tokens.status();
    Result<LogMel> mel = LogMel::create(*config);
    if (!mel.is_ok()) return mel.status().with_context(m.folder.folder.string());
    return SpeechModel(std::unique_ptr<Impl>(new Impl{model, std::move(*tokens), std::move(*mel), *input}));
  });
}

Result<SpeechModel::Features> SpeechModel::features(std::span<const float> samples) const {
  return or_out_of_memory([&]() -> Result<Features> {
    const MelConfig& config = impl_->mel.config();
    Features f{config.mels, static_cast<int64_t>(config.frames()), {}};
    f.values.resize(static_cast<size_t>(f.mels * f.frames));
    SITU_RETURN_IF_ERROR(impl_->mel.window({samples, {}, {}}, f.values));
    return f;
  });
}

// `open`: with the rate of the model.
template <typename Open>
Result<SpeechStream> SpeechModel::start_reader(const Open& open, const SpeechOptions& options) {
  return or_out_of_memory([&]() -> Result<SpeechStream> {
    SITU_RETURN_IF_ERROR(SpeechStream::Impl::check(*impl_, options));
    Result<AudioReader> reader = open(impl_->mel.config().rate);
    if (!reader.is_ok()) return reader.status();
    auto stream = std::make_unique<SpeechStream::Impl>(*impl_, options);
    SITU_RETURN_IF_ERROR(stream->begin(std::move(*reader)));
    return SpeechStream(std::move(stream));
  });
}

Result<SpeechStream> SpeechModel::start(const std::string& path, const SpeechOptions& options) {
  return start_reader([&](int rate) { return AudioReader::open(path, rate); }, options);
}

Result<SpeechStream> SpeechModel::start(std::span<const std::byte> file, const std::string& name,
                                        const SpeechOptions& options) {
  return start_reader([&](int rate) { return AudioReader::open_memory(file, name, rate); }, options);
}

Result<SpeechStream> SpeechModel::start(std::span<const float> samples, const SpeechOptions& options) {
  return or_out_of_memory([&]() -> Result<SpeechStream> {
    SITU_RETURN_IF_ERROR(SpeechStream::Impl::check(*impl_, options));
    auto stream = std::make_unique<SpeechStream::Impl>(*impl_, options);
    SITU_RETURN_IF_ERROR(stream->begin(samples));
    return SpeechStream(std::move(stream));
  });
}

Result<SpeechStream> SpeechModel::start_spectrogram(std::span<const float> spectrogram, const SpeechOptions& options) {
  return or_out_of_memory([&]() -> Result<SpeechStream> {
    SITU_RETURN_IF_ERROR(SpeechStream::Impl::check(*impl_, options));
    auto stream = std::make_unique<SpeechStream::Impl>(*impl_, options);
    SITU_RETURN_IF_ERROR(stream->begin_spectrogram(spectrogram));
    return SpeechStream(std::move(stream));
  });
}

static Result<Transcript> drain(Result<SpeechStream> stream, const SegmentCallback& on_segment) {
  if (!stream.is_ok()) return stream.status();
  for (bool wanted = true; wanted;) {
    Result<std::optional<SpeechSegment>> segment = stream->next();
    if (!segment.is_ok()) return segment.status();
    if (!*segment) return stream->transcript();
    wanted = !on_segment || on_segment(**segment);
  }
  Transcript t = stream->transcript();
  t.cancelled = true;
  return t;
}

Result<Transcript> SpeechModel::transcribe(const std::string& path, const SpeechOptions& options,
                                           const SegmentCallback& on_segment) {
  return drain(start(path, options), on_segment);
}

Result<Transcript> SpeechModel::transcribe(std::span<const float> samples, const SpeechOptions& options,
                                           const SegmentCallback& on_segment) {
  return drain(start(samples, options), on_segment);
}

}  // namespace situ
