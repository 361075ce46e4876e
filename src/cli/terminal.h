// Texts that others wrote, for a terminal: none of their bytes may be taken for a command.
#pragma once

#include <string>
#include <string_view>

namespace situ::cli {

// What a file or an argument says, as one line: control characters (C0, DEL, C1), those that turn the direction of
// writing, and bytes that are no UTF-8 are spelled out, as \n, \x1b, \u0085, \u202e.
std::string one_line(std::string_view words);
// The same; of more than `most` bytes the middle is left out.
std::string one_line(std::string_view words, size_t most);

// A word of a command to type, as a shell reads it: with quotes where a letter has a meaning of its own, and as $'...'
// where it has characters that one_line() spells out.
std::string shell_word(const std::string& text);

// The text of an answer on standard output, as it comes. On a terminal C0 but newline and tab, DEL, C1 and bytes that
// are no UTF-8 become U+FFFD; a character may be split over calls. Elsewhere every byte is written as it is.
class AnswerText {
 public:
  AnswerText();
  void write(std::string_view text);
  // What is left of a character that never became whole.
  void finish();

 private:
  const bool terminal_;
  std::string pending_;  // the beginning of a character
};

}  // namespace situ::cli
