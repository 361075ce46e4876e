// The options of `situ transcribe`.
#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/repeated.h"

namespace situ::cli {
namespace {

// A threshold, or "none".
void add_threshold(CLI::App& command, const std::string& name, std::optional<double>& value, const std::string& what) {
  command
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
      ->type_name("NUMBER");
}

}  // namespace

void add_transcribe_options(CLI::App& command, TranscribeArguments& a) {
  SpeechOptions& s = a.speech;
  command.add_option("model", a.model, "Model folder")->required();
  many(command.add_option("audio", a.audio, "Recordings: wav, flac, mp3, ogg; - for standard input"));
  repeated(command.add_option(
               "--encoder-input", a.encoder_inputs,
               "[GRAPH.]NAME=FILE.npy: an array for the encoder in place of recordings: a spectrogram; or, of models "
               "that are not of Whisper's kind, what their encoder takes (may be repeated)"),
           "NAME=FILE");
  command
      .add_option("--language", s.language,
                  "A name, or a code such as en (default: what generation_config.json says, else auto)")
      ->type_name("CODE");
  command
      .add_option_function<std::string>(
          "--task", [&s](const std::string& text) { s.task = *speech_task_of(text); },
          "translate: into English (default: what generation_config.json says, else transcribe)")
      ->check(CLI::IsMember({"transcribe", "translate"}));
  command
      .add_option_function<std::string>(
          "--timestamps", [&s](const std::string& text) { s.timestamps = *timestamps_of(text); },
          "Of what: none, segment (default) or word")
      ->check(CLI::IsMember({"none", "segment", "word"}));
  command.add_option("--beams", s.beams, "Beams at temperature 0 (1: greedy)")
      ->check(CLI::Range(int64_t{1}, kMostBeams));
  command.add_option("--temperature", a.temperatures,
                     "Tried in turn where an answer is doubtful (0,0.2,0.4,0.6,0.8,1)");
  command.add_option("--best-of", s.best_of, "Answers that are drawn above temperature 0 (5)")
      ->check(CLI::Range(int64_t{1}, kMostBeams));
  command.add_option("--patience", s.patience, "A beam search ends with beams x patience answers (1)");
  command.add_option("--length-penalty", s.length_penalty, "Beams: log-probability / tokens^X (1)");
  add_threshold(command, "--compression-ratio-threshold", s.compression_ratio_threshold,
                "Above it an answer repeats itself (2.4; none: not looked at)");
  add_threshold(command, "--logprob-threshold", s.logprob_threshold,
                "Below it an answer is improbable (-1; none: not looked at)");
  add_threshold(command, "--no-speech-threshold", s.no_speech_threshold,
                "Above it a window is silent (0.6; none: not looked at)");
  command
      .add_option_function<std::string>(
          "--condition-on-previous-text",
          [&s](const std::string& text) { s.condition_on_previous_text = text == "true"; },
          "Whether a window's text goes on from that before it (true)")
      ->check(CLI::IsMember({"true", "false"}));
  command.add_option("--prompt", s.prompt, "Text before the first window");
  command.add_option("--hotwords", s.hotwords, "Words before every window's text");
  command.add_flag("--vad", s.vad, "Leave out what is no speech");
  command.add_flag("--batched{8}", s.batched, "Windows of speech by themselves, so many in the same steps (8)")
      ->check(CLI::Range(int64_t{1}, int64_t{64}));
  command.add_option("--seed", s.seed, "Of what is drawn (0)")->check(whole_seed)->type_name("INT");
  command.add_option("--threads", a.threads, "Threads (default: one per usable CPU)")
      ->check(CLI::Range(1, int{Runtime::kMostThreads}));
  command.add_flag("--naive", a.naive, "Run the graphs literally");
  command.add_option("--format", a.format, "text (default), json, srt, vtt or tsv")
      ->check(CLI::IsMember({"text", "json", "srt", "vtt", "tsv"}));
  command.add_flag("--json", a.json, "One JSON object a file, on one line");
  command.add_option("-o", a.out_folder, "Write STEM.FORMAT into this folder")->type_name("DIR");
}

}  // namespace situ::cli
