#include "text/dialog/literal_scanner.h"

#include <cctype>
#include <cstdio>
#include <regex>
#include <utility>

#include "text/dialog/marks.h"

namespace situ {
namespace {

constexpr size_t kMostNests = 100;
constexpr size_t kMostWord = 1000;  // digits of a number

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '+' || c == '.';
}

bool is_number(const std::string& word) {
  static const std::regex number("-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][-+]?[0-9]+)?");
  return std::regex_match(word, number);
}

void put_escape(unsigned code, std::string& out) {
  char escaped[16];
  std::snprintf(escaped, sizeof escaped, "\\u%04x", code);
  out += escaped;
}

}  // namespace

bool stands_in_bare_key(char c, bool python) {
  const auto byte = static_cast<unsigned char>(c);
  if (python) return is_word(c) || byte >= 0x80;
  return byte > 0x20 && byte != 0x7F && std::string_view(":,{}[]()\"'\\").find(c) == std::string_view::npos;
}

void LiteralScanner::put_char(char byte, std::string& out) {
  const unsigned char c = static_cast<unsigned char>(byte);
  if (byte == '"' || byte == '\\') {
    out += '\\', out += byte;
  } else if (c < 0x20) {
    char escaped[16];
    std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
    out += byte == '\n' ? "\\n" : byte == '\t' ? "\\t" : byte == '\r' ? "\\r" : escaped;
  } else {
    out += byte;
  }
}

LiteralScanner::State LiteralScanner::after_value() {
  want_ = Want::kComma;
  return nests_.empty() ? State::kDone : State::kMore;
}

LiteralScanner::State LiteralScanner::begin_nest(char byte, std::string& out) {
  if (nests_.size() == kMostNests) return State::kFault;
  const bool object = byte == '{' || (byte == '(' && nests_.empty());
  nests_ += byte == '{' ? '}' : byte == '[' ? ']' : ')';
  out += object ? '{' : '[';
  want_ = object ? Want::kKeyOrEnd : Want::kValueOrEnd;
  return State::kMore;
}

LiteralScanner::State LiteralScanner::end_nest(char byte, std::string& out) {
  if (nests_.empty() || byte != nests_.back()) return State::kFault;
  nests_.pop_back();
  out += byte == '}' || (byte == ')' && nests_.empty()) ? '}' : ']';
  return after_value();
}

LiteralScanner::State LiteralScanner::value(char byte, std::string& out) {
  if (!rules_.quote.empty() && byte == rules_.quote[0]) {
    want_ = Want::kMarkText, in_key_ = false, matched_ = 1;
    if (rules_.quote.size() > 1) return State::kMore;
    out += '"', matched_ = 0, code_ = 1;
    return State::kMore;
  }
  if (byte == '"' || (byte == '\'' && rules_.python)) {
    quote_ = byte, in_key_ = false, want_ = Want::kText;
    out += '"';
    return State::kMore;
  }
  if (byte == '{' || byte == '[' || (byte == '(' && rules_.python)) return begin_nest(byte, out);
  if (!is_word(byte)) return State::kFault;
  word_ = byte, want_ = Want::kWord;
  return State::kMore;
}

// code_: whether the opening mark is whole.
LiteralScanner::State LiteralScanner::mark_text(char byte, std::string& out) {
  if (byte == rules_.quote[matched_]) {
    if (++matched_ < rules_.quote.size()) return State::kMore;
    matched_ = 0;
    out += '"';
    code_ = code_ == 0 ? 1 : 0;
    return code_ == 1 ? State::kMore : after_value();
  }
  if (code_ == 0) return State::kFault;
  for (const char c : rules_.quote.substr(0, matched_)) put_char(c, out);
  matched_ = byte == rules_.quote[0] ? 1 : 0;
  if (matched_ == 0) put_char(byte, out);
  return State::kMore;
}

void LiteralScanner::end_half(std::string& out) {
  if (std::exchange(high_, 0) != 0) out += "\\ufffd";
}

LiteralScanner::State LiteralScanner::text(char byte, std::string& out) {
  if (byte != '\\') end_half(out);
  if (byte == '\\') {
    want_ = Want::kEscape;
  } else if (byte == quote_) {
    out += '"';
    if (!in_key_) return after_value();
    want_ = Want::kColon;
  } else {
    put_char(byte, out);
  }
  return State::kMore;
}

LiteralScanner::State LiteralScanner::escape(char byte, std::string& out) {
  want_ = Want::kText;
  if (byte != 'u') end_half(out);
  if (byte == 'u' || (byte == 'x' && rules_.python)) {
    want_ = Want::kHex, digits_ = byte == 'u' ? 4 : 2, code_ = 0;
    return State::kMore;
  }
  if (byte == '\'' && rules_.python) {
    out += byte;
  } else if (std::string_view("\"\\/bfnrt").find(byte) != std::string_view::npos) {
    out += '\\', out += byte;
  } else if (!rules_.python) {
    return State::kFault;
  } else if (byte != '\n') {  // Python keeps a backslash that escapes nothing
    out += "\\\\";
    put_char(byte, out);
  }
  return State::kMore;
}

LiteralScanner::State LiteralScanner::hex(char byte, std::string& out) {
  const char small = static_cast<char>(std::tolower(static_cast<unsigned char>(byte)));
  if (!std::isxdigit(static_cast<unsigned char>(byte))) return State::kFault;
  code_ = code_ * 16 + static_cast<unsigned>(small <= '9' ? small - '0' : small - 'a' + 10);
  if (--digits_ > 0) return State::kMore;
  const unsigned code = std::exchange(code_, 0);
  want_ = Want::kText;
  const bool high = code >= 0xD800 && code < 0xDC00, low = code >= 0xDC00 && code < 0xE000;
  if (low && high_ != 0) {
    put_escape(std::exchange(high_, 0), out);
    put_escape(code, out);
    return State::kMore;
  }
  end_half(out);
  if (high)
    high_ = code;
  else
    put_escape(low ? 0xFFFD : code, out);
  return State::kMore;
}

bool LiteralScanner::end_word(std::string& out) {
  const std::string_view w = word_;
  const char* plain = w == "true" || w == "True"     ? "true"
                      : w == "false" || w == "False" ? "false"
                      : w == "null" || w == "None"   ? "null"
                                                     : nullptr;
  if (!plain && !is_number(word_)) return false;
  out += plain ? plain : word_;
  word_.clear();
  return true;
}

LiteralScanner::State LiteralScanner::word(char byte, std::string& out) {
  if (is_word(byte)) {
    word_ += byte;
    return word_.size() > kMostWord ? State::kFault : State::kMore;
  }
  if (!end_word(out)) return State::kFault;
  if (after_value() == State::kDone) return State::kBehind;
  return feed(byte, out);
}

LiteralScanner::State LiteralScanner::key(char byte, std::string& out) {
  if (byte == '"' || (byte == '\'' && rules_.python)) {
    quote_ = byte, in_key_ = true, want_ = Want::kText;
    out += '"';
    return State::kMore;
  }
  const bool bare = rules_.bare_keys || (nests_.back() == ')' && rules_.python);
  if (!bare || !stands_in_bare_key(byte, !rules_.bare_keys)) return State::kFault;
  out += '"', out += byte;
  want_ = Want::kBareKey;
  return State::kMore;
}

LiteralScanner::State LiteralScanner::feed(char byte, std::string& out) {
  switch (want_) {
    case Want::kText:
      return text(byte, out);
    case Want::kMarkText:
      return mark_text(byte, out);
    case Want::kEscape:
      return escape(byte, out);
    case Want::kHex:
      return hex(byte, out);
    case Want::kWord:
      return word(byte, out);
    case Want::kBareKey:
      if (stands_in_bare_key(byte, !rules_.bare_keys)) {
        out += byte;
        return State::kMore;
      }
      out += '"', want_ = Want::kColon;
      break;
    default:
      break;
  }
  if (is_space(byte)) return State::kMore;
  const bool end = !nests_.empty() && byte == nests_.back();
  switch (want_) {
    case Want::kValueOrEnd:
      if (end) return end_nest(byte, out);
      return value(byte, out);
    case Want::kValue:
      return value(byte, out);
    case Want::kKeyOrEnd:
      if (end) return end_nest(byte, out);
      return key(byte, out);
    case Want::kKey:
      return key(byte, out);
    case Want::kColon:
      if (byte != (nests_ == ")" ? '=' : ':')) return State::kFault;
      out += ':', want_ = Want::kValue;
      return State::kMore;
    default:
      break;
  }
  if (end) return end_nest(byte, out);
  if (byte != ',') return State::kFault;
  const bool keys = nests_.back() == '}' || nests_ == ")";
  out += ',', want_ = keys ? Want::kKey : Want::kValue;
  return State::kMore;
}

bool LiteralScanner::finish(std::string& out) { return want_ == Want::kWord && nests_.empty() && end_word(out); }

std::string json_of_literal(std::string_view text) {
  LiteralScanner scanner(LiteralRules{true});
  std::string json;
  LiteralScanner::State state = LiteralScanner::State::kMore;
  for (size_t i = 0; i < text.size(); ++i) {
    if (state != LiteralScanner::State::kMore) return "";
    state = scanner.feed(text[i], json);
  }
  const bool whole = state == LiteralScanner::State::kDone ||
                     (state == LiteralScanner::State::kMore && !text.empty() && scanner.finish(json));
  return whole ? json : "";
}

}  // namespace situ
