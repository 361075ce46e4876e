// Texts that others wrote, for a terminal: none of their bytes may be taken for a command.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "situ/generation.h"

namespace situ::cli {

// What a file or an argument says, as one line: control characters (C0, DEL, C1), those that turn the direction of
// writing, and bytes that are no UTF-8 are spelled out, as \n, \x1b, \u0085, \u202e.
std::string one_line(std::string_view words);
// The same; of more than `most` bytes the middle is left out.
std::string one_line(std::string_view words, size_t most);

// A word of a command to type, as a shell reads it: with quotes where a letter has a meaning of its own, and as $'...'
// where it has characters that one_line() spells out.
std::string shell_word(const std::string& text);

// A text on standard output or error, as it comes. On a terminal C0 but newline and tab, DEL, C1 and bytes that
// are no UTF-8 become U+FFFD; a character may be split over calls. Elsewhere every byte is written as it is.
class AnswerText {
 public:
  explicit AnswerText(std::FILE* to = stdout);
  void write(std::string_view text);
  // What is left of a character that never became whole.
  void finish();

 private:
  std::FILE* const to_;
  const bool terminal_;
  std::string pending_;  // the beginning of a character
};

// An answer as it comes: its text on standard output, and what the model thinks before it on standard error.
class ShownAnswer {
 public:
  ShownAnswer();
  void write(const Event& event);
  void finish();
  AnswerText& text() { return text_; }

 private:
  void end_thought();
  AnswerText text_, thought_{stderr};
  const bool dim_;
  bool thinking_ = false;
};

// weather({"city": "Oslo"}), a call a line.
void print_calls(const std::vector<ToolCall>& calls, AnswerText& out);

}  // namespace situ::cli
