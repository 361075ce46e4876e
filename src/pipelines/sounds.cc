// Sounds of a prompt: files to arrays of the audio encoder, and to tokens of the text around them.
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "audio/audio_reader.h"
#include "audio/families.h"
#include "audio/log_mel.h"
#include "base/out_of_memory.h"
#include "pipelines/conversation.h"
#include "pipelines/encoder_inputs.h"
#include "pipelines/llm.h"
#include "text/json_file.h"

namespace situ {
namespace {

// What Sounds::memory holds.
struct ReadSounds {
  const SoundFamily* family = nullptr;
  Tensor features;  // [windows, mels, frames]
};

// The audio encoder's one input: floats [windows, mels, frames].
Result<std::string> find_input(const MediaEncoder& encoder, const MelConfig& mel) {
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

Result<Sounds> read(const Model::Impl& m, std::span<const SoundSource> sources) {
  const std::string folder = m.folder.folder.string();
  const auto sound = std::find_if(m.files.media.begin(), m.files.media.end(), [](const auto& e) { return e.sound; });
  if (sound == m.files.media.end())
    return Status::error(Code::kInvalidArgument, folder + ": the model has no audio encoder for sounds of a prompt" +
                                                     (m.has_encoder() ? "; situ transcribe reads speech" : ""));
  const Result<nlohmann::json> config = read_json_object(m.folder.folder / "config.json");
  if (!config.is_ok()) return config.status();
  const Result<const SoundFamily*> family = find_sound_family(*config);
  if (!family.is_ok()) return family.status().with_context(folder);
  const Result<int64_t> rows = (*family)->rows(*config);
  if (!rows.is_ok()) return rows.status().with_context((m.folder.folder / "config.json").string());
  const Result<MelConfig> mel = MelConfig::of_folder(m.folder.folder);
  if (!mel.is_ok()) return mel.status();
  const Result<std::string> input = find_input(*sound, *mel);
  if (!input.is_ok()) return input.status();
  const Result<LogMel> log_mel = LogMel::create(*mel);
  if (!log_mel.is_ok()) return log_mel.status();
  const int64_t most = m.context_length / *rows;  // windows
  const size_t size = mel->window_samples();
  std::vector<std::vector<float>> samples;
  Sounds sounds;
  int64_t windows = 0;
  std::vector<std::string> files;
  for (const SoundSource& source : sources) {
    const bool memory = source.file.empty();
    const std::string& file = files.emplace_back(memory ? "sound " + std::to_string(files.size()) : source.file);
    Result<Audio> audio = read_audio(memory ? AudioReader::open_memory(std::as_bytes(source.bytes), file, mel->rate)
                                            : AudioReader::open(file, mel->rate),
                                     static_cast<size_t>(most + 1) * size);
    if (!audio.is_ok()) return audio.status();
    if (!audio->cut.empty()) return Status::error(Code::kBadFile, file + ": " + audio->cut);
    const int64_t own = static_cast<int64_t>((audio->samples.size() + size - 1) / size);
    windows += own;
    if (windows > most)
      return Status::error(Code::kContextExceeded, file + ": becomes " + std::to_string(*rows) + " tokens for each " +
                                                       std::to_string(mel->chunk_seconds) +
                                                       " s, which do not fit the context of " +
                                                       std::to_string(m.context_length));
    sounds.sounds.push_back({static_cast<double>(audio->samples.size()) / mel->rate, own * *rows});
    samples.push_back(std::move(audio->samples));
  }
  const auto held = std::make_shared<ReadSounds>();
  held->family = *family;
  const int64_t frames = static_cast<int64_t>(mel->frames()), each = mel->mels * frames;
  held->features = Tensor::allocate(DType::kF32, {windows, mel->mels, frames});
  float* out = held->features.view().as<float>();
  for (size_t i = 0; i < samples.size(); ++i) {
    const size_t count = static_cast<size_t>(sounds.sounds[i].tokens / *rows * each);
    SITU_RETURN_IF_ERROR(write_windows(*log_mel, samples[i], {out, count}).with_context(files[i]));
    out += count;
  }
  sounds.arrays.push_back(named_array(*input, held->features));
  sounds.memory = held;
  return sounds;
}

}  // namespace

Result<Sounds> read_sounds(const Model& model, std::span<const std::string> files) {
  std::vector<SoundSource> sources;
  for (const std::string& file : files) sources.push_back({file});
  return read_sounds(model, sources);
}

Result<Sounds> read_sounds(const Model& model, std::span<const SoundSource> sources) {
  return or_out_of_memory([&] { return read(impl_of(model), sources); });
}

std::string insertion_of(const Sounds& sounds) {
  const auto* read = static_cast<const ReadSounds*>(sounds.memory.get());
  return read ? read->family->inserted : "";
}

Result<std::string> expand_sounds(const std::string& text, const Sounds& sounds) {
  const auto* read = static_cast<const ReadSounds*>(sounds.memory.get());
  if (!read) return Status::error(Code::kInvalidArgument, "there is no sound");
  const std::string placeholder = read->family->placeholder;
  std::string words = text, expanded;
  if (words.find(placeholder) == std::string::npos)
    for (size_t i = 0; i < sounds.sounds.size(); ++i) words = read->family->inserted + words;
  size_t used = 0, at = 0, from = 0;
  for (; (at = words.find(placeholder, from)) != std::string::npos; from = at + placeholder.size(), ++used) {
    expanded.append(words, from, at - from);
    for (int64_t t = 0; used < sounds.sounds.size() && t < sounds.sounds[used].tokens; ++t) expanded += placeholder;
  }
  expanded.append(words, from);
  if (used == sounds.sounds.size()) return expanded;
  return Status::error(Code::kInvalidArgument, "the prompt has " + std::to_string(used) + " places for sounds (" +
                                                   placeholder + "), and there are " +
                                                   std::to_string(sounds.sounds.size()) + " sounds");
}

}  // namespace situ
