// `situ transcribe`: recordings to text, subtitles or JSON.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/interrupts.h"
#include "cli/models.h"
#include "cli/subtitles.h"
#include "cli/terminal.h"
#include "pipelines/encoder_inputs.h"
#include "situ/speech.h"

namespace situ::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string stem_of(const std::string& audio) {
  return audio == "-" ? "stdin" : std::filesystem::path(audio).stem().string();
}

Result<std::vector<double>> parse_temperatures(const std::string& list) {
  std::vector<double> found;
  for (size_t from = 0; from <= list.size();) {
    const size_t to = std::min(list.find(',', from), list.size());
    double t = 0;
    const auto [end, error] = std::from_chars(list.data() + from, list.data() + to, t);
    if (error != std::errc() || end != list.data() + to || !(t >= 0) || !std::isfinite(t))
      return Status::error("--temperature: '" + list.substr(from, to - from) +
                           "' is no temperature of at least 0; give " + "one, or several such as 0,0.2,0.4");
    found.push_back(t);
    from = to + 1;
  }
  return found;
}

Status check_arguments(TranscribeArguments& a) {
  if (a.audio.empty() == a.encoder_inputs.empty())
    return Status::error(a.audio.empty() ? "no audio: give a recording, or --encoder-input"
                                         : "--encoder-input stands in place of recordings");
  const Result<std::vector<double>> temperatures = parse_temperatures(a.temperatures);
  if (!temperatures.is_ok()) return temperatures.status();
  a.speech.temperatures = *temperatures;
  if (a.naive && a.speech.timestamps == Timestamps::kWord)
    return Status::error("--timestamps word and --naive do not go together: word times come from placed programs");
  if (a.json && a.format != "text" && a.format != "json")
    return Status::error("--json and --format " + a.format + " do not go together");
  if (a.json) a.format = "json";
  for (const auto& [name, text] : {std::pair{"--prompt", &a.speech.prompt}, {"--hotwords", &a.speech.hotwords}})
    SITU_RETURN_IF_ERROR(check_utf8(*text, name));
  const bool subtitles = a.format == "srt" || a.format == "vtt" || a.format == "tsv";
  if (subtitles && a.audio.size() > 1 && a.out_folder.empty())
    return Status::error("--format " + a.format + " of several files needs -o DIR: a file for each");
  if (std::count(a.audio.begin(), a.audio.end(), "-") > 1) return Status::error("'-' is there twice: stdin ends once");
  if (a.out_folder.empty()) return Status::ok();
  std::map<std::string, std::string> stems;
  for (const std::string& audio : a.audio) {
    const auto [at, added] = stems.emplace(stem_of(audio), audio);
    if (!added)
      return Status::error("-o: " + at->second + " and " + audio + " would both be " + at->first + "." + a.format);
  }
  std::error_code error;
  std::filesystem::create_directories(a.out_folder, error);
  if (error || access(a.out_folder.c_str(), W_OK) != 0)
    return Status::error("-o " + a.out_folder + ": " + (error ? error.message() : "cannot be written"));
  return Status::ok();
}

// How far the file is, on a terminal.
class Progress {
 public:
  explicit Progress(bool wanted) : shown_(wanted && isatty(STDERR_FILENO)) {}
  void show(const SpeechStream& stream) {
    if (!shown_) return;
    const double all = stream.duration_s(), done = stream.position_s();
    if (all > 0) {
      const int share = static_cast<int>(std::clamp(done / all, 0.0, 1.0) * 40);
      std::fprintf(stderr, "\r[%s%s] %3.0f%% %.0f s", std::string(static_cast<size_t>(share), '#').c_str(),
                   std::string(static_cast<size_t>(40 - share), ' ').c_str(), std::min(100.0, 100 * done / all), done);
    } else {
      std::fprintf(stderr, "\r%.0f s", done);
    }
    std::fflush(stderr);
    drawn_ = true;
  }
  void clear() {
    if (drawn_) std::fprintf(stderr, "\r\x1b[K");
    drawn_ = false;
  }

 private:
  const bool shown_;
  bool drawn_ = false;
};

Json word_json(const SpeechWord& w) {
  return {{"start", w.start}, {"end", w.end}, {"word", w.word}, {"probability", w.probability}};
}

Json segment_json(const SpeechSegment& s, bool words) {
  Json j{{"start", s.start},
         {"end", s.end},
         {"text", s.text},
         {"tokens", s.tokens},
         {"avg_logprob", s.avg_logprob},
         {"compression_ratio", s.compression_ratio},
         {"no_speech_prob", s.no_speech_prob},
         {"temperature", s.temperature}};
  if (!words) return j;
  j["words"] = Json::array();
  for (const SpeechWord& w : s.words) j["words"].push_back(word_json(w));
  return j;
}

Json to_json(const TranscribeArguments& a, const std::string& audio, const Transcript& t, double load_ms) {
  Json j{{"audio", audio},
         {"duration_s", t.duration_s},
         {"samples_16k", t.samples},
         {"language", t.language},
         {"language_probability", t.language_probability},
         {"text", t.text},
         {"segments", Json::array()},
         {"output_ids", t.output_ids},
         {"load_ms", load_ms},
         {"features_ms", t.features_ms},
         {"encode_ms", t.encode_ms},
         {"decode_ms_per_token", t.decode_ms_per_token},
         {"peak_rss_mib", peak_rss_mib()},
         {"bytes_copied_per_token", t.bytes_copied_per_token}};
  for (const SpeechSegment& s : t.segments)
    j["segments"].push_back(segment_json(s, a.speech.timestamps == Timestamps::kWord));
  return j;
}

std::string line(const Json& j) { return j.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

// What the format makes of a transcript.
std::string rendered(const TranscribeArguments& a, const std::string& audio, const Transcript& t, double load_ms,
                     const std::string& error) {
  if (a.format == "json") {
    Json j = to_json(a, audio, t, load_ms);
    if (t.cancelled) j["cancelled"] = true;
    if (!t.notes.empty()) j["notes"] = t.notes;
    if (!error.empty()) j["error"] = error;
    return line(j);
  }
  return a.format == "srt"   ? srt(t.segments)
         : a.format == "vtt" ? vtt(t.segments)
         : a.format == "tsv" ? tsv(t.segments)
                             : plain_text(t.segments);
}

class Transcriber {
 public:
  Transcriber(const TranscribeArguments& a, SpeechModel& model) : a_(a), model_(model) {}

  // Error: why the file failed, or ended too early.
  Status run(const std::string& audio) { return run(audio, model_.start(audio, a_.speech)); }
  Status run(const std::string& audio, Result<SpeechStream> stream) {
    if (!stream.is_ok()) return report_failure(audio, named(audio, stream.status()));
    const bool to_stdout = a_.format == "text" && a_.out_folder.empty();
    if (to_stdout && a_.audio.size() > 1) std::printf("%s:\n", one_line(audio).c_str());
    Progress progress(!a_.quiet);
    AnswerText out;
    Status failed = Status::ok();
    for (;;) {
      progress.show(*stream);
      const Result<std::optional<SpeechSegment>> segment = stream->next();
      progress.clear();
      if (!segment.is_ok()) failed = named(audio, segment.status());
      if (!segment.is_ok() || !*segment) break;
      const std::string shown = line_of(**segment, a_.speech.timestamps != Timestamps::kNone);
      if (to_stdout) {
        out.write(shown);
        if (!flush_output()) return no_output();
      } else if (a_.format == "json" && !a_.quiet) {
        std::fputs(one_line(shown.substr(0, shown.size() - 1)).c_str(), stderr);
        std::fputc('\n', stderr);
      }
    }
    out.finish();
    const Transcript& t = stream->transcript();
    cancelled_ = t.cancelled;
    for (const std::string& note : t.notes)
      std::fprintf(stderr, "situ: note: %s: %s\n", one_line(audio).c_str(), note.c_str());
    if (failed.is_ok() && !t.cut.empty()) failed = Status::error(audio + ": " + t.cut);
    if (!failed.is_ok() && t.segments.empty() && t.cut.empty()) return report_failure(audio, failed);
    if (!to_stdout) {
      const std::string text =
          rendered(a_, audio, t, model_.model().facts().load_ms, failed.is_ok() ? std::string() : failed.message());
      if (a_.out_folder.empty())
        std::fputs(text.c_str(), stdout);
      else if (cancelled_)  // what is there may be whole
        std::fprintf(stderr, "situ: interrupted: %s is not written\n", one_line(out_file(audio).string()).c_str());
      else if (const Status written = write_file(out_file(audio).string(), text); !written.is_ok())
        return written;
    }
    if (!flush_output()) return no_output();
    return failed;
  }
  bool cancelled() const { return cancelled_; }
  // Whether nobody reads what is printed.
  bool is_unread() const { return unread_; }

 private:
  std::filesystem::path out_file(const std::string& audio) const {
    return std::filesystem::path(a_.out_folder) / (stem_of(audio) + "." + a_.format);
  }
  // What the model says of its own numbers names no recording.
  static Status named(const std::string& audio, const Status& why) {
    const bool said = audio == "-" || why.message().starts_with(audio);
    return said ? why : why.with_context(audio);
  }
  Status no_output() {
    unread_ = true;
    return Status::error(kNoOutput);
  }
  Status report_failure(const std::string& audio, const Status& why) {
    if (a_.format != "json") return why;
    const std::string object = line({{"audio", audio}, {"error", why.message()}});
    if (!a_.out_folder.empty()) {
      const Status written = write_file(out_file(audio).string(), object);
      return written.is_ok() ? why : written;
    }
    std::fputs(object.c_str(), stdout);
    return flush_output() ? why : no_output();
  }

  const TranscribeArguments& a_;
  SpeechModel& model_;
  bool cancelled_ = false, unread_ = false;
};

// What a model of another kind says of what its encoder is given.
int transcribe_arrays(const TranscribeArguments& a, Model& model, std::span<const GivenTensor> tensors) {
  if (!model.has_encoder()) return fail(a.model + ": no encoder, and --encoder-input is for one");
  if (a.format != "text" && a.format != "json")
    return fail("--format " + a.format + ": the model is not of Whisper's kind, and tells no times");
  Prompt prompt;
  if (const Status given = add_encoder_inputs(model, tensors, &prompt); !given.is_ok()) return fail(given.message());
  GenerateOptions options;
  options.beams = a.speech.beams;
  options.max_new_tokens = std::max<int64_t>(1, model.facts().context_length / 2);
  model.interrupt_when(note_interrupts(true));
  const Result<Generation> g = model.generate(prompt, options, {});
  if (!g.is_ok()) return fail(g.status().message());
  Transcript t;
  t.text = g->text;
  t.output_ids = g->output_ids;
  t.encode_ms = g->encode_ms;
  t.decode_ms_per_token = g->decode_ms_per_token;
  t.bytes_copied_per_token = g->bytes_copied_per_token;
  if (a.format == "json")
    std::fputs(rendered(a, a.encoder_inputs[0], t, model.facts().load_ms, "").c_str(), stdout);
  else
    std::printf("%s\n", one_line(t.text).c_str());
  if (!flush_output()) return fail(kNoOutput);
  return g->finish_reason == FinishReason::kCancelled ? kInterrupted : kDone;
}

// --encoder-input: one window of a speech model, or whatever another model's encoder takes.
int transcribe_inputs(const TranscribeArguments& a, Model& model, std::span<const GivenTensor> tensors) {
  Result<SpeechModel> speech = SpeechModel::of(model);
  if (!speech.is_ok()) return transcribe_arrays(a, model, tensors);
  Prompt prompt;
  if (const Status given = add_encoder_inputs(model, tensors, &prompt); !given.is_ok()) return fail(given.message());
  const std::vector<double> numbers = tensors[0].tensor.to_f64();
  const std::vector<float> spectrogram(numbers.begin(), numbers.end());
  model.interrupt_when(note_interrupts(true));
  Transcriber transcriber(a, *speech);
  const std::string name = a.encoder_inputs[0].substr(a.encoder_inputs[0].find('=') + 1);
  const Status done = transcriber.run(name, speech->start_spectrogram(spectrogram, a.speech));
  return transcriber.cancelled() ? kInterrupted : done.is_ok() ? kDone : fail(done.message());
}

}  // namespace

int transcribe(TranscribeArguments a) {
  if (const Status checked = check_arguments(a); !checked.is_ok()) return fail(checked.message());
  const Result<std::vector<GivenTensor>> tensors = read_encoder_inputs(a.encoder_inputs);
  if (!tensors.is_ok()) return fail(tensors.status().message());
  LoadOptions load;
  if (const Status made = load_options(a, &load); !made.is_ok()) return fail(made.message());
  if (const int code = find_model(a.model, load, "transcribe"); code != kDone) return code;
  Result<Model> loaded = Model::load(a.model, load);
  if (!loaded.is_ok()) return fail(loaded.status().message());
  if (!tensors->empty()) return transcribe_inputs(a, *loaded, *tensors);
  Result<SpeechModel> model = SpeechModel::of(*loaded);
  if (!model.is_ok()) return fail(model.status().message());
  // Once, not for every recording.
  if (const Status checked = model->check(a.speech); !checked.is_ok()) return fail(checked.message());
  loaded->interrupt_when(note_interrupts(true));
  Transcriber transcriber(a, *model);
  int code = kDone;
  for (const std::string& audio : a.audio) {
    if (const Status done = transcriber.run(audio); !done.is_ok()) code = fail(done.message());
    if (transcriber.cancelled() || is_interrupted()) return kInterrupted;
    if (transcriber.is_unread()) break;
  }
  return code;
}

}  // namespace situ::cli
