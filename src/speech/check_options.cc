// Which options of a transcription are refused.
#include <cmath>

#include "speech/languages.h"
#include "speech/speech_stream.h"

namespace situ {
namespace {

std::string number(double x) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", x);
  return text;
}

Status wrong(const std::string& name, const std::string& words, double is) {
  return Status::error(Code::kInvalidArgument, name + " should be " + words + ", is " + number(is));
}

Status check_numbers(const SpeechOptions& o) {
  for (const double t : o.temperatures)
    if (!(t >= 0) || !(t <= 100)) return wrong("temperature", "a number from 0 to 100", t);
  if (o.temperatures.empty()) return Status::error(Code::kInvalidArgument, "no temperature");
  if (o.beams < 1 || o.beams > kMostBeams)
    return wrong("beams", "an integer from 1 to " + std::to_string(kMostBeams), static_cast<double>(o.beams));
  if (o.best_of < 1 || o.best_of > kMostBeams)
    return wrong("best_of", "an integer from 1 to " + std::to_string(kMostBeams), static_cast<double>(o.best_of));
  if (!(o.patience > 0) || !(o.patience <= 100)) return wrong("patience", "a number above 0, at most 100", o.patience);
  if (!std::isfinite(o.length_penalty)) return wrong("length_penalty", "a finite number", o.length_penalty);
  const std::pair<const char*, std::optional<double>> thresholds[] = {
      {"compression_ratio_threshold", o.compression_ratio_threshold},
      {"logprob_threshold", o.logprob_threshold},
      {"no_speech_threshold", o.no_speech_threshold}};
  for (const auto& [name, value] : thresholds)
    if (value && std::isnan(*value)) return wrong(name, "a number", *value);
  if (o.batched < 0 || o.batched > 64)
    return wrong("batched", "an integer from 0 to 64", static_cast<double>(o.batched));
  return Status::ok();
}

Status no_language(const SpeechTokens& t, const std::string& language) {
  std::string known;
  for (const auto& [code, id] : t.languages) known += (known.empty() ? "" : ", ") + code;
  return Status::error(Code::kInvalidArgument, "unknown language '" + language + "' (known: auto, " + known + ")");
}

Status check_task(const SpeechTokens& t, const std::string& task) {
  if (task != "transcribe" && task != "translate")
    return Status::error(Code::kInvalidArgument, "task should be transcribe or translate, is '" + task + "'");
  if (!t.multilingual() && task == "translate")
    return Status::error(Code::kInvalidArgument, "the model knows English only: it translates nothing");
  if (t.multilingual() && !(task == "translate" ? t.translate : t.transcribe))
    return Status::error(Code::kInvalidArgument, "the model has no token for the task " + task);
  return Status::ok();
}

// The code; "": it is to be found.
Result<std::string> settle_language(const SpeechTokens& t, const std::string& language) {
  const std::string code = language_code(language);
  const bool found = code == "auto";
  if (!t.multilingual()) {
    if (found || code == "en") return std::string("en");
    return Status::error(Code::kInvalidArgument, "the model knows English only: it has no language '" + language + "'");
  }
  if (found) return std::string();
  if (!t.languages.count(code)) return no_language(t, language);
  return code;
}

}  // namespace

Result<Timestamps> timestamps_of(const std::string& name) {
  if (name == "none") return Timestamps::kNone;
  if (name == "segment") return Timestamps::kSegment;
  if (name == "word") return Timestamps::kWord;
  return Status::error(Code::kInvalidArgument, "timestamps should be none, segment or word, is '" + name + "'");
}

Result<SpeechTask> speech_task_of(const std::string& name) {
  if (name == "transcribe") return SpeechTask::kTranscribe;
  if (name == "translate") return SpeechTask::kTranslate;
  return Status::error(Code::kInvalidArgument, "task should be transcribe or translate, is '" + name + "'");
}

Result<SpeechStream::Impl::Settled> SpeechStream::Impl::settle(const SpeechTokens& t, const SpeechOptions& o) {
  const bool language_of_file = o.language.empty() && !t.asked_language.empty(),
             task_of_file = o.task == SpeechTask::kAsFiles && !t.asked_task.empty();
  Settled settled;
  settled.task = task_of_file ? t.asked_task : o.task == SpeechTask::kTranslate ? "translate" : "transcribe";
  if (const Status checked = check_task(t, settled.task); !checked.is_ok())
    return task_of_file ? checked.with_context(t.settings) : checked;
  const std::string& language = language_of_file ? t.asked_language : o.language;
  Result<std::string> code = settle_language(t, language.empty() ? "auto" : language);
  if (!code.is_ok()) return language_of_file ? code.status().with_context(t.settings) : code.status();
  settled.language = std::move(*code);
  return settled;
}

Status SpeechStream::Impl::check(const SpeechModel::Impl& model, const SpeechOptions& o) {
  SITU_RETURN_IF_ERROR(check_numbers(o));
  if (o.timestamps == Timestamps::kWord && !impl_of(model.model).in_place)
    return Status::error(Code::kInvalidArgument, "word times come from placed programs; the naive mode has none");
  return settle(model.tokens, o).status();
}

}  // namespace situ
