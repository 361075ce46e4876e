// The options of `situ transcribe`.
#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/options.h"

namespace situ::cli {
namespace {

// A threshold, or "none".
CLI::Option* add_threshold(CLI::App& command, const std::string& name, std::optional<double>& value,
                           const std::string& what) {
  return command
      .add_option_function<std::string>(
          name,
          [&value, name](const std::string& text) {
            if (text == "none") {
              value.reset();
              return;
            }
            double number = 0;
            if (!CLI::detail::lexical_cast(text, number) || number != number)
              throw CLI::ValidationError(name, "'" + text + "' is no number, nor none");
            value = number;
          },
          what)
      ->type_name("X");
}

}  // namespace

void add_transcribe_options(CLI::App& command, TranscribeArguments& a) {
  SpeechOptions& s = a.speech;
  add_model(command, a);
  many(command.add_option("audio", a.audio, "Recordings: wav, flac, mp3, ogg; - is standard input"));
  const std::string output = "Output", words = "Words", drawn = more("Decoding");
  choice<std::string>(
      command, "--format", {{"text", "text"}, {"json", "json"}, {"srt", "srt"}, {"vtt", "vtt"}, {"tsv", "tsv"}},
      [&a](const std::string& format) { a.format = format; }, "Form of the transcript")
      ->default_str(a.format)
      ->group(output);
  command.add_flag("--json", a.json, "Print one JSON object for each file")->group(output);
  command.add_option("-o", a.out_folder, "Write STEM.FORMAT into this folder")->type_name("DIR")->group(output);
  choice<Timestamps>(
      command, "--timestamps",
      {{"none", Timestamps::kNone}, {"segment", Timestamps::kSegment}, {"word", Timestamps::kWord}},
      [&s](const Timestamps& t) { s.timestamps = t; }, "Times to print: of segments, of words, or none")
      ->default_str("segment")
      ->group(output);
  command.add_option("--language", s.language, "Name or code of the spoken language, such as en; auto finds it")
      ->type_name("CODE")
      ->default_str("the model's files, else auto")
      ->group(words);
  choice<SpeechTask>(
      command, "--task", {{"transcribe", SpeechTask::kTranscribe}, {"translate", SpeechTask::kTranslate}},
      [&s](const SpeechTask& task) { s.task = task; }, "Write what is said, or its English translation")
      ->default_str("the model's files, else transcribe")
      ->group(words);
  command.add_option("--prompt", s.prompt, "Text that comes before the first window")->group(words);
  command.add_option("--hotwords", s.hotwords, "Words that come before the text of every window")->group(words);
  command.add_flag("--vad", s.vad, "Leave out what is no speech")->group(words);
  command
      .add_flag("--batched{8}", s.batched, "Cut speech into windows and compute N of them together (--batched is 8)")
      ->check(whole(1, 64))
      ->group(words);
  command.add_option("--beams", s.beams, "Beams of the search at temperature 0; 1 is greedy")
      ->check(whole(1, kMostBeams))
      ->default_str(std::to_string(s.beams))
      ->group(words);
  command.add_option("--temperature", a.temperatures, "Temperatures to try in turn where an answer is doubtful")
      ->type_name("LIST")
      ->default_str(a.temperatures)
      ->group(drawn);
  command.add_option("--best-of", s.best_of, "Answers to draw above temperature 0")
      ->check(whole(1, kMostBeams))
      ->default_str(std::to_string(s.best_of))
      ->group(drawn);
  command.add_option("--seed", s.seed, "Seed of the draws")
      ->check(whole_seed)
      ->type_name("N")
      ->default_str("0")
      ->group(drawn);
  command.add_option("--patience", s.patience, "End a beam search at beams x X answers")
      ->default_str("1")
      ->group(drawn);
  command.add_option("--length-penalty", s.length_penalty, "Score of a beam: log-probability / tokens^X")
      ->default_str("1")
      ->group(drawn);
  add_threshold(command, "--compression-ratio-threshold", s.compression_ratio_threshold,
                "Ratio above which an answer repeats itself; none is off")
      ->default_str("2.4")
      ->group(drawn);
  add_threshold(command, "--logprob-threshold", s.logprob_threshold,
                "Mean log-probability below which an answer is doubtful; none is off")
      ->default_str("-1")
      ->group(drawn);
  add_threshold(command, "--no-speech-threshold", s.no_speech_threshold,
                "Probability above which a window is silent; none is off")
      ->default_str("0.6")
      ->group(drawn);
  choice<bool>(
      command, "--condition-on-previous-text", {{"true", true}, {"false", false}},
      [&s](const bool& on) { s.condition_on_previous_text = on; }, "Give each window the text of the one before")
      ->default_str("true")
      ->group(drawn);
  repeated(command.add_option("--encoder-input", a.encoder_inputs,
                              "[GRAPH.]NAME=FILE.npy: an array for the encoder in place of recordings (repeatable)"),
           "NAME=FILE")
      ->group(drawn);
  add_load_options(command, a);
}

}  // namespace situ::cli
