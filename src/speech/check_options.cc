// Which options of a transcription are refused.
#include <cmath>

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

}  // namespace

Status SpeechStream::Impl::check(const SpeechModel::Impl& model, const SpeechOptions& o) {
  SITU_RETURN_IF_ERROR(check_numbers(o));
  if (o.timestamps == Timestamps::kWord && !impl_of(model.model).in_place)
    return Status::error(Code::kInvalidArgument, "word times come from placed programs; the naive mode has none");
  const SpeechTokens& t = model.tokens;
  if (o.task != "transcribe" && o.task != "translate")
    return Status::error(Code::kInvalidArgument, "task should be transcribe or translate, is '" + o.task + "'");
  if (!t.multilingual()) {
    if (o.task == "translate" || (o.language != "auto" && o.language != "en"))
      return Status::error(
          Code::kInvalidArgument,
          "the model knows English only: it " +
              (o.task == "translate" ? std::string("translates nothing") : "has no language '" + o.language + "'"));
    return Status::ok();
  }
  if (o.task == "translate" ? !t.translate : !t.transcribe)
    return Status::error(Code::kInvalidArgument, "the model has no token for the task " + o.task);
  if (o.language != "auto" && !t.languages.count(o.language)) {
    std::string known;
    for (const auto& [code, id] : t.languages) known += (known.empty() ? "" : ", ") + code;
    return Status::error(Code::kInvalidArgument, "unknown language '" + o.language + "' (known: auto, " + known + ")");
  }
  return Status::ok();
}

}  // namespace situ
