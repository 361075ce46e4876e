// The special tokens of Whisper's vocabularies, from generation_config.json, else by their names in the tokenizer; and
// which language and task the files ask for.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "pipelines/model_folder.h"
#include "text/tokenizer.h"

namespace situ {

struct SpeechTokens {
  int64_t start = 0;            // <|startoftranscript|>
  int64_t end = 0;              // <|endoftext|>; all ids below are text
  int64_t no_timestamps = 0;    // <|notimestamps|>
  int64_t first_timestamp = 0;  // <|0.00|>; the others follow in steps of 0.02 s
  int64_t no_speech = 0;        // <|nospeech|>, or <|nocaptions|>
  std::optional<int64_t> transcribe, translate, previous;
  std::map<std::string, int64_t> languages;  // "en" -> id; empty: the model knows English alone
  std::vector<int64_t> suppressed, suppressed_first;
  int64_t max_initial_timestamp = 50;  // in steps; -1: any
  // (layer, head) of the decoder whose cross-attention follows the words; empty: nobody says which.
  std::vector<std::pair<int64_t, int64_t>> alignment_heads;

  // What is asked for where the caller says nothing, by generation_config.json, or config.json where there is none;
  // "": nothing. `settings`: that file.
  std::string asked_language, asked_task, settings;

  bool is_timestamp(int64_t id) const { return id >= first_timestamp; }
  bool multilingual() const { return !languages.empty(); }
};

// `vocabulary`: of the decoder's logits. Errors name the token that neither file has, or that is outside the
// vocabulary.
Result<SpeechTokens> read_speech_tokens(const ModelFolder& folder, const FolderTokenizer& tokenizer,
                                        int64_t vocabulary);

}  // namespace situ
