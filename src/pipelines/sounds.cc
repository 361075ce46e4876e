// Sounds of a prompt: files to arrays of the audio encoder, and to tokens of the text around them.
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "audio/audio_reader.h"
#include "audio/log_mel.h"
#include "base/assign.h"
#include "pipelines/encoder_inputs.h"
#include "pipelines/media.h"
#include "text/json_file.h"

namespace situ {
namespace {

// The audio encoder's one input: floats [windows, mels, frames].
Result<std::string> find_sound_input(const MediaEncoder& encoder, const MelConfig& mel) {
  const Graph& graph = encoder.model.graph;
  std::string inputs;
  for (const ValueId v : graph.inputs) inputs += (inputs.empty() ? "" : ", ") + graph.describe(v);
  if (graph.inputs.size() == 1) {
    const ValueInfo& info = graph.values[graph.inputs[0]].info;
    const auto fits = [&](size_t axis, int64_t extent) {
      return !info.shape[axis].is_const() || info.shape[axis] == Dim(extent);
    };
    if (info.type == DType::kF32 && info.shape.size() == 3 && fits(1, mel.mels) &&
        fits(2, static_cast<int64_t>(mel.frames())))
      return graph.values[graph.inputs[0]].name;
  }
  return Status::error(Code::kUnsupportedModel, encoder.name + ": its one input should be float32[windows, " +
                                                    std::to_string(mel.mels) + ", " + std::to_string(mel.frames()) +
                                                    "], as preprocessor_config.json has spectrograms; it has " +
                                                    inputs);
}

// All windows of a file [windows, mels, frames], whose peak is that of the whole file: a first pass finds it.
Status write_windows(const LogMel& mel, std::span<const float> samples, std::span<float> out) {
  const MelConfig& config = mel.config();
  const size_t size = config.window_samples(), half = static_cast<size_t>(config.fft) / 2;
  const size_t each = static_cast<size_t>(config.mels) * config.frames(), windows = out.size() / each;
  // The last window is filled with silence before anything is reflected at its end.
  std::vector<float> padded(samples.begin(), samples.end());
  padded.resize(windows * size);
  const std::span<const float> all(padded);
  float peak = -std::numeric_limits<float>::infinity();
  for (int pass = 0; pass < 2; ++pass)
    for (size_t w = 0; w < windows; ++w) {
      MelWindow window{all.subspan(w * size, size), {}, {}};
      if (w > 0) window.before = all.subspan(w * size - half, half);
      if (w + 1 < windows) window.after = all.subspan((w + 1) * size, half);
      SITU_RETURN_IF_ERROR(mel.window(window, out.subspan(w * each, each), nullptr, &peak));
    }
  return Status::ok();
}

// The samples of a part, at most `most`.
Result<std::vector<float>> samples_of(const Part& part, const std::string& name, int rate, size_t most) {
  const auto* const bytes = static_cast<const std::byte*>(part.data.get());
  if (part.path.empty() && !part.shape.empty()) {
    constexpr int kRate = 16000;  // of samples that are given
    if (part.type != Part::Type::kFloat32 || part.shape.size() != 1 || rate != kRate)
      return Status::error(Code::kInvalidArgument, name + ": samples are [samples] of float32 at 16 kHz" +
                                                       (rate == kRate ? "" : ", and the model's are at another rate"));
    SITU_RETURN_IF_ERROR(check_array(part).with_context(name));
    const auto* const samples = static_cast<const float*>(part.data.get());
    std::vector<float> all(samples, samples + std::min(static_cast<size_t>(part.shape[0]), most));
    if (all.empty() || !std::all_of(all.begin(), all.end(), [](float x) { return std::isfinite(x); }))
      return Status::error(Code::kInvalidArgument,
                           name + (all.empty() ? ": there are no samples" : ": a sample is not finite"));
    return all;
  }
  Result<Audio> audio = read_audio(
      part.path.empty() ? AudioReader::open_memory({bytes, part.size}, name, rate) : AudioReader::open(part.path, rate),
      most);
  if (!audio.is_ok()) return audio.status();
  if (!audio->cut.empty()) return Status::error(Code::kBadFile, name + ": " + audio->cut);
  return std::move(audio->samples);
}

}  // namespace

Result<ReadSounds> read_sounds(const Model::Impl& m, std::span<const Part* const> parts) {
  const std::string folder = m.folder.folder.string();
  const auto sound = std::find_if(m.files.media.begin(), m.files.media.end(), [](const auto& e) { return e.sound; });
  if (sound == m.files.media.end())
    return Status::error(Code::kInvalidArgument, folder + ": the model has no audio encoder for sounds of a prompt" +
                                                     (m.has_encoder() ? "; situ transcribe reads speech" : ""));
  SITU_TAKE(config, read_json_object(m.folder.folder / "config.json"));
  const Result<const SoundFamily*> family = find_sound_family(config);
  if (!family.is_ok()) return family.status().with_context(folder);
  const Result<int64_t> rows = (*family)->rows(config);
  if (!rows.is_ok()) return rows.status().with_context((m.folder.folder / "config.json").string());
  SITU_TAKE(mel, MelConfig::of_folder(m.folder.folder));
  SITU_TAKE(input, find_sound_input(*sound, mel));
  SITU_TAKE(log_mel, LogMel::create(mel));
  const int64_t most = m.context_length / *rows;  // windows
  const size_t size = mel.window_samples();
  std::vector<std::vector<float>> samples;
  ReadSounds sounds;
  sounds.family = *family;
  int64_t windows = 0;
  std::vector<std::string> files;
  for (const Part* part : parts) {
    const std::string& file =
        files.emplace_back(part->path.empty() ? "sound " + std::to_string(files.size()) : part->path);
    SITU_TAKE(read, samples_of(*part, file, mel.rate, static_cast<size_t>(most + 1) * size));
    const int64_t own = static_cast<int64_t>((read.size() + size - 1) / size);
    windows += own;
    if (windows > most)
      return Status::error(Code::kContextExceeded, file + ": becomes " + std::to_string(*rows) + " tokens for each " +
                                                       std::to_string(mel.chunk_seconds) +
                                                       " s, which do not fit the context of " +
                                                       std::to_string(m.context_length));
    sounds.facts.push_back({Part::Kind::kAudio, 0, 0, static_cast<double>(read.size()) / mel.rate, own * *rows});
    samples.push_back(std::move(read));
  }
  const int64_t frames = static_cast<int64_t>(mel.frames()), each = mel.mels * frames;
  const Tensor features = Tensor::allocate(DType::kF32, {windows, mel.mels, frames});
  float* out = features.view().as<float>();
  for (size_t i = 0; i < samples.size(); ++i) {
    const size_t count = static_cast<size_t>(sounds.facts[i].tokens / *rows * each);
    SITU_RETURN_IF_ERROR(write_windows(log_mel, samples[i], {out, count}).with_context(files[i]));
    out += count;
  }
  sounds.arrays.push_back(array_part(input, features));
  return sounds;
}

Result<std::string> ReadSounds::expand(const std::string& text) const {
  const std::string placeholder = family->placeholder;
  std::string expanded;
  size_t used = 0, at = 0, from = 0;
  for (; (at = text.find(placeholder, from)) != std::string::npos; from = at + placeholder.size(), ++used) {
    expanded.append(text, from, at - from);
    for (int64_t t = 0; used < facts.size() && t < facts[used].tokens; ++t) expanded += placeholder;
  }
  expanded.append(text, from);
  if (used == facts.size()) return expanded;
  return Status::error(Code::kInvalidArgument, "the prompt has " + std::to_string(used) + " places for sounds (" +
                                                   placeholder + "), and there are " + std::to_string(facts.size()) +
                                                   " sounds");
}

}  // namespace situ
