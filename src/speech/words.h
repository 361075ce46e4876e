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
Result<std::vector<TokenWord>> split_words(const FolderTokenizer& tokenizer, std::span<const int64_t> ids,
                                           const std::string& language);

struct FoundWords {
  std::vector<SpeechWord> words;
  std::vector<size_t> counts;  // tokens of each
  double middle = 0;           // seconds that the middle one of them lasts, at most 0.7
};

// Words of the text tokens `ids` (no timestamps) of a window of which `duration` seconds are audio, of `longest` that
// the source stands for; times from the window's start. `prompt`: start, language and task. Marks of punctuation join
// the word that they stand at, and words beside the end of a sentence last twice the middle one at most.
Result<FoundWords> find_words(Model::Impl& model, const SpeechTokens& tokens, const Session& source,
                              std::span<const int64_t> prompt, std::span<const int64_t> ids,
                              const std::string& language, double duration, double longest);

// The median of lengths above 0, at most 0.7 s; 0: there are none.
double middle_length(std::span<const SpeechWord> words);

// The rules that follow are those of add_word_timestamps() of openai/whisper.

// A word that ends a sentence, or begins behind the end of one, lasts twice the middle one at most. `words`: before
// marks are joined.
void shorten_at_sentences(std::span<SpeechWord> words, double middle);

// A segment begins with its first word and ends with its last, but for words that are too long: the first ones behind a
// pause last twice the middle one, those that reach half a second beyond their segment end with it. `spoken`: where
// the words before these ended.
void fit_to_words(std::span<SpeechSegment> segments, double middle, double spoken);

// Times that subtitles can have: a segment holds its words and has a length, and no word or segment begins before the
// one in front of it ends. `spoken`: where the segments before these ended. Returns where these end.
double put_in_order(std::span<SpeechSegment> segments, double spoken);

}  // namespace situ
