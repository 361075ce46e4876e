// One value of JSON, of Python or of a model's own literals, byte by byte, to JSON text.
#pragma once

#include <string>
#include <string_view>

namespace situ {

// How values are spelled. Every spelling takes true and True, null and None, numbers, and texts between double quotes.
struct LiteralRules {
  bool python = false;          // texts between single quotes too, (tuples), N(key=1)
  bool bare_keys = false;       // {key: 1}
  std::string_view quote = {};  // a mark around texts, in which nothing is escaped; must outlive the scanner
};

// A byte of a key without quotes: of Python's call, or of braces of a model's own.
bool stands_in_bare_key(char c, bool python);

// What stands between round brackets is the arguments of a call, (key=1) -> {"key":1}, or, inside of another value, a
// list.
class LiteralScanner {
 public:
  enum class State {
    kMore,    // the value goes on
    kDone,    // with this byte it is whole
    kBehind,  // it was whole before this byte, which is not its part: a number ended
    kFault,   // it is none
  };
  explicit LiteralScanner(LiteralRules rules = {}) : rules_(rules) {}

  // Appends to `out` what the byte says in JSON. Control characters of texts are escaped, white space outside of texts
  // is left out; half of a character is U+FFFD. A fault leaves `out` a beginning of JSON.
  State feed(char byte, std::string& out);
  // The value ends here with its text: a number may be whole.
  bool finish(std::string& out);

  // A byte of a text, as it stands between quotes.
  static void put_char(char byte, std::string& out);

 private:
  enum class Want {
    kValue,
    kValueOrEnd,
    kKey,
    kKeyOrEnd,
    kColon,
    kComma,
    kText,
    kKeyText,
    kMarkText,
    kEscape,
    kHex,
    kWord,
    kBareKey
  };
  State value(char byte, std::string& out);
  State begin_nest(char byte, std::string& out);
  State end_nest(char byte, std::string& out);
  State text(char byte, std::string& out);
  State mark_text(char byte, std::string& out);
  State escape(char byte, std::string& out);
  State hex(char byte, std::string& out);
  State word(char byte, std::string& out);
  State key(char byte, std::string& out);
  void end_half(std::string& out);
  State after_value();
  bool end_word(std::string& out);

  LiteralRules rules_;
  Want want_ = Want::kValue;
  std::string nests_;  // the bracket that ends each
  std::string word_;
  char quote_ = '"';
  bool in_key_ = false;
  size_t matched_ = 0;  // bytes of the quote mark
  int digits_ = 0;      // that an escape still wants
  unsigned code_ = 0;
  unsigned high_ = 0;  // the first half of a character that two escapes name
};

// The JSON that a whole text is, in the spelling of Python or of JSON; "": it is none.
std::string json_of_literal(std::string_view text);

}  // namespace situ
