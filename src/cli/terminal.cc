#include "cli/terminal.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace situ::cli {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr int kNoCharacter = 0, kMoreWanted = -1;

// Bytes of the UTF-8 character that `text`, which is not empty, begins with (Unicode, table 3-7).
int character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return kNoCharacter;
  const int size = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  for (int i = 1; i < size; ++i) {
    if (static_cast<size_t>(i) == text.size()) return kMoreWanted;
    uint8_t low = 0x80, high = 0xBF;
    if (i == 1 && first == 0xE0) low = 0xA0;
    if (i == 1 && first == 0xED) high = 0x9F;
    if (i == 1 && first == 0xF0) low = 0x90;
    if (i == 1 && first == 0xF4) high = 0x8F;
    if (byte(static_cast<size_t>(i)) < low || byte(static_cast<size_t>(i)) > high) return kNoCharacter;
  }
  return size;
}

// C0, DEL, C1 (U+0080 to U+009F).
bool is_control(std::string_view one) {
  const uint8_t first = static_cast<uint8_t>(one[0]);
  return first < 0x20 || first == 0x7F || (first == 0xC2 && static_cast<uint8_t>(one[1]) < 0xA0);
}

// The number of a character that turns the direction of writing; 0: it does not.
int turning(std::string_view one) {
  if (one == "\xD8\x9C") return 0x61C;
  if (one.size() != 3 || one[0] != '\xE2') return 0;
  const int code = 0x2000 + ((static_cast<uint8_t>(one[1]) & 0x3F) << 6) + (static_cast<uint8_t>(one[2]) & 0x3F);
  const bool turns =
      code == 0x200E || code == 0x200F || (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
  return turns ? code : 0;
}

std::string spelled(const char* format, char byte) {
  char text[8];
  std::snprintf(text, sizeof(text), format, static_cast<unsigned>(static_cast<uint8_t>(byte)));
  return text;
}

}  // namespace

std::string one_line(std::string_view words) {
  std::string line;
  while (!words.empty()) {
    const int size = character(words);
    const std::string_view one = words.substr(0, size > 0 ? static_cast<size_t>(size) : 1);
    if (one == "\n")
      line += "\\n";
    else if (size <= 0 || (one.size() == 1 && is_control(one)))
      line += spelled("\\x%02x", one[0]);
    else if (is_control(one))
      line += spelled("\\u%04x", one[1]);
    else if (const int code = turning(one); code != 0)
      line += spelled("\\u%02x", static_cast<char>(code >> 8)) + spelled("%02x", static_cast<char>(code & 0xFF));
    else
      line += one;
    words.remove_prefix(one.size());
  }
  return line;
}

std::string one_line(std::string_view words, size_t most) {
  std::string line = one_line(words.substr(0, 2 * most));
  if (line.size() <= most && words.size() <= 2 * most) return line;
  // Back to where a character of UTF-8 begins.
  const auto character_start = [](std::string_view text, size_t at) {
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    return at;
  };
  const std::string_view last = words.substr(character_start(words, words.size() - std::min(words.size(), most / 6)));
  return line.substr(0, character_start(line, std::min(line.size() - 1, most - most / 5))) + "…" + one_line(last);
}

std::string shell_word(const std::string& text) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@=+,%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  const bool spell = one_line(text) != text;
  std::string quoted, escaped;
  for (const char c : text) {
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    escaped += c == '\'' || c == '\\' ? std::string{'\\', c} : std::string(1, c);
  }
  return spell ? "$'" + one_line(escaped) + "'" : "'" + quoted + "'";
}

AnswerText::AnswerText(std::FILE* to) : to_(to), terminal_(isatty(fileno(to))) {}

void AnswerText::write(std::string_view text) {
  if (!terminal_) {
    std::fwrite(text.data(), 1, text.size(), to_);
    return;
  }
  pending_ += text;
  std::string_view rest = pending_;
  std::string shown;
  while (!rest.empty()) {
    const int size = character(rest);
    if (size == kMoreWanted) break;
    const std::string_view one = rest.substr(0, size > 0 ? static_cast<size_t>(size) : 1);
    const bool plain = size > 0 && (one == "\n" || one == "\t" || !is_control(one));
    shown += plain ? one : kReplacement;
    rest.remove_prefix(one.size());
  }
  pending_ = std::string(rest);
  std::fwrite(shown.data(), 1, shown.size(), to_);
}

void AnswerText::finish() {
  if (!pending_.empty()) std::fwrite(kReplacement.data(), 1, kReplacement.size(), to_);
  pending_.clear();
}

ShownAnswer::ShownAnswer() : dim_(isatty(STDERR_FILENO) && !std::getenv("NO_COLOR")) {}

void ShownAnswer::write(const Event& event) {
  if (!event.reasoning.empty()) {
    if (!std::exchange(thinking_, true) && dim_) std::fputs("\033[2m", stderr);
    thought_.write(event.reasoning);
    std::fflush(stderr);
  }
  if (!event.text.empty() || !event.calls.empty()) end_thought();
  text_.write(event.text);
}

void ShownAnswer::end_thought() {
  if (!std::exchange(thinking_, false)) return;
  thought_.finish();
  std::fputs(dim_ ? "\033[0m\n\n" : "\n\n", stderr);
  std::fflush(stderr);
}

void ShownAnswer::finish() {
  end_thought();
  text_.finish();
}

void print_calls(const std::vector<ToolCall>& calls, AnswerText& out) {
  for (const ToolCall& call : calls) {
    out.write(call.name + "(" + call.arguments_json + ")\n");
    out.finish();
  }
}

}  // namespace situ::cli
