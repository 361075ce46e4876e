#include "python/speech.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <variant>

#include "python/attended.h"
#include "situ/speech.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace situ::python {
namespace {

using Samples = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::span<const float> span_of(const Samples& samples) { return {samples.data(), samples.shape(0)}; }

template <auto kField>
void set_field(SpeechOptions& options, nb::handle value) {
  using Type = std::remove_reference_t<decltype(options.*kField)>;
  options.*kField = nb::cast<Type>(value);
}

void set_timestamps(SpeechOptions& options, nb::handle value) {
  options.timestamps = value_or_raise(timestamps_of(nb::cast<std::string>(value)));
}

void set_task(SpeechOptions& options, nb::handle value) {
  options.task = value_or_raise(speech_task_of(nb::cast<std::string>(value)));
}

struct SpeechOption {
  std::string_view name;
  void (*set)(SpeechOptions& options, nb::handle value);  // throws nb::cast_error
  bool none_is_off = false;                               // else None is: not set
};

constexpr SpeechOption kSpeechOptions[] = {
    {"language", set_field<&SpeechOptions::language>},
    {"task", set_task},
    {"timestamps", set_timestamps},
    {"temperatures", set_field<&SpeechOptions::temperatures>},
    {"beams", set_field<&SpeechOptions::beams>},
    {"best_of", set_field<&SpeechOptions::best_of>},
    {"patience", set_field<&SpeechOptions::patience>},
    {"length_penalty", set_field<&SpeechOptions::length_penalty>},
    {"compression_ratio_threshold", set_field<&SpeechOptions::compression_ratio_threshold>, true},
    {"logprob_threshold", set_field<&SpeechOptions::logprob_threshold>, true},
    {"no_speech_threshold", set_field<&SpeechOptions::no_speech_threshold>, true},
    {"condition_on_previous_text", set_field<&SpeechOptions::condition_on_previous_text>},
    {"prompt", set_field<&SpeechOptions::prompt>},
    {"hotwords", set_field<&SpeechOptions::hotwords>},
    {"vad", set_field<&SpeechOptions::vad>},
    {"batched", set_field<&SpeechOptions::batched>},
    {"seed", set_field<&SpeechOptions::seed>},
};

SpeechOptions speech_options_of(const nb::dict& arguments) {
  SpeechOptions options;
  for (const auto& [key, value] : arguments) {
    const std::string name = nb::cast<std::string>(key);
    const SpeechOption* option = std::find_if(std::begin(kSpeechOptions), std::end(kSpeechOptions),
                                              [&](const SpeechOption& o) { return o.name == name; });
    if (option == std::end(kSpeechOptions))
      throw nb::type_error(("there is no option '" + name + "' of transcribe").c_str());
    if (value.is_none() && !option->none_is_off) continue;
    try {
      option->set(options, value);
    } catch (const nb::cast_error&) {
      throw nb::type_error(("option " + name + " cannot be " + nb::cast<std::string>(nb::repr(value))).c_str());
    }
  }
  return options;
}

nb::dict to_python(const SpeechSegment& s) {
  nb::list words;
  for (const SpeechWord& w : s.words) words.append(nb::make_tuple(w.start, w.end, w.word, w.probability));
  nb::dict d;
  d["start"] = s.start;
  d["end"] = s.end;
  d["text"] = s.text;
  d["tokens"] = s.tokens;
  d["avg_logprob"] = s.avg_logprob;
  d["compression_ratio"] = s.compression_ratio;
  d["no_speech_prob"] = s.no_speech_prob;
  d["words"] = words;
  d["temperature"] = s.temperature;
  return d;
}

nb::dict to_python(const Transcript& t) {
  nb::dict d;
  d["duration"] = t.duration_s;
  d["samples"] = t.samples;
  d["language"] = t.language;
  d["language_probability"] = t.language_probability;
  d["text"] = t.text;
  d["output_ids"] = t.output_ids;
  d["features_ms"] = t.features_ms;
  d["encode_ms"] = t.encode_ms;
  d["decode_ms_per_token"] = t.decode_ms_per_token;
  d["bytes_copied_per_token"] = t.bytes_copied_per_token;
  d["notes"] = t.notes;
  d["cut"] = t.cut;
  d["cancelled"] = t.cancelled;
  return d;
}

// A transcription with all that must live as long.
class Transcription {
 public:
  struct File {
    std::string bytes;
  };
  using Audio = std::variant<std::string, File, Samples>;  // a path, what a file holds, samples
  Transcription(std::shared_ptr<ModelHandle> handle, Audio audio, const SpeechOptions& options)
      : handle_(std::move(handle)), audio_(std::move(audio)) {
    value_or_raise(attended(*handle_, [&](Model& model) -> Result<bool> {
      Result<SpeechModel> speech = SpeechModel::of(model);
      if (!speech.is_ok()) return speech.status();
      speech_ = std::make_unique<SpeechModel>(std::move(*speech));
      const auto* const path = std::get_if<std::string>(&audio_);
      const auto* const file = std::get_if<File>(&audio_);
      Result<SpeechStream> stream = path   ? speech_->start(*path, options)
                                    : file ? speech_->start(std::as_bytes(std::span(file->bytes)), "the audio", options)
                                           : speech_->start(span_of(std::get<Samples>(audio_)), options);
      if (!stream.is_ok()) return stream.status();
      stream_ = std::make_unique<SpeechStream>(std::move(*stream));
      return true;
    }));
  }

  ~Transcription() {
    if (!handle_->in_this_process()) {
      static_cast<void>(stream_.release());
      static_cast<void>(speech_.release());
      return;
    }
    const NoGil no_gil;
    stream_.reset();
    speech_.reset();
  }
  Transcription(const Transcription&) = delete;
  Transcription& operator=(const Transcription&) = delete;

  nb::object next() {
    const auto segment = value_or_raise(attended(*handle_, [&](Model&) { return stream_->next(); }));
    return segment ? nb::object(to_python(*segment)) : nb::none();
  }
  nb::dict transcript() const { return to_python(stream_->transcript()); }

 private:
  const std::shared_ptr<ModelHandle> handle_;
  const Audio audio_;
  std::unique_ptr<SpeechModel> speech_;
  std::unique_ptr<SpeechStream> stream_;
};

nb::ndarray<nb::numpy, float, nb::ndim<2>> features(const std::shared_ptr<ModelHandle>& handle,
                                                    const Samples& samples) {
  auto made = value_or_raise(attended(*handle, [&](Model& model) -> Result<SpeechModel::Features> {
    const Result<SpeechModel> speech = SpeechModel::of(model);
    if (!speech.is_ok()) return speech.status();
    return speech->features(span_of(samples));
  }));
  auto* values = new std::vector<float>(std::move(made.values));
  const nb::capsule owner(values, [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
  return nb::ndarray<nb::numpy, float, nb::ndim<2>>(
      values->data(), {static_cast<size_t>(made.mels), static_cast<size_t>(made.frames)}, owner);
}

}  // namespace

void bind_speech(nb::module_& m) {
  nb::class_<Transcription>(m, "Transcription", "The C++ side of situ.Transcription.")
      .def("next", &Transcription::next, nb::sig("def next(self) -> dict[str, typing.Any] | None"))
      .def("transcript", &Transcription::transcript, nb::sig("def transcript(self) -> dict[str, typing.Any]"));
  m.def(
      "transcribe_path",
      [](const std::shared_ptr<ModelHandle>& model, const nb::bytes& path, const nb::dict& options) {
        return std::make_unique<Transcription>(model, std::string(path.c_str(), path.size()),
                                               speech_options_of(options));
      },
      "model"_a, "path"_a, "options"_a,
      nb::sig("def transcribe_path(model: Model, path: bytes, options: dict[str, object]) -> Transcription"));
  m.def(
      "transcribe_bytes",
      [](const std::shared_ptr<ModelHandle>& model, const nb::bytes& file, const nb::dict& options) {
        return std::make_unique<Transcription>(model, Transcription::File{std::string(file.c_str(), file.size())},
                                               speech_options_of(options));
      },
      "model"_a, "file"_a, "options"_a,
      nb::sig("def transcribe_bytes(model: Model, file: bytes, options: dict[str, object]) -> Transcription"));
  m.def(
      "transcribe_samples",
      [](const std::shared_ptr<ModelHandle>& model, const Samples& samples, const nb::dict& options) {
        return std::make_unique<Transcription>(model, samples, speech_options_of(options));
      },
      "model"_a, "samples"_a, "options"_a,
      nb::sig("def transcribe_samples(model: Model, samples: numpy.typing.NDArray[numpy.float32], options: dict[str, "
              "object]) -> Transcription"));
  m.def("features", &features, "model"_a, "samples"_a,
        nb::sig("def features(model: Model, samples: numpy.typing.NDArray[numpy.float32]) -> "
                "numpy.typing.NDArray[numpy.float32]"));
}

}  // namespace situ::python
