// The words of a window, with their times.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "pipelines/llm.h"
#include "situ/speech.h"
#include "speech/speech_tokens.h"
#include "speech/window_decoder.h"

namespace situ {

// Consecutive tokens whose text is a word.
struct TokenWord {
  std::string text;
  size_t tokens = 0;
};

// Texts of ids [..] cut into words: before each space and punctuation mark; in languages that write no spaces (Chinese,
// Japanese, Thai, Lao, Burmese, Cantonese) into characters. Source: split_to_word_tokens of openai/whisper.
Result<std::vector<TokenWord>> split_words(const Tokenizer& tokenizer, std::span<const int64_t> ids,
                                           const std::string& language);

// Words of the text tokens `ids` (no timestamps) of a window of `duration` seconds; times from the window's start.
// `prompt`: start, language and task. Marks of punctuation join the word that they stand at.
Result<std::vector<SpeechWord>> find_words(Model::Impl& model, const SpeechTokens& tokens, const Session& source,
                                           std::span<const int64_t> prompt, std::span<const int64_t> ids,
                                           const std::string& language, double duration, std::vector<size_t>* counts);

// A segment begins with its first word and ends with its last. Where such a word reaches more than half a second beyond
// its segment, it is the word that is too long: then it lasts as long as the middle one of all words. Source:
// add_word_timestamps() of openai/whisper.
void fit_to_words(std::span<SpeechSegment> segments);

}  // namespace situ
