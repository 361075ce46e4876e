// A Lark grammar as it is written: rules, lexemes, marks that are text or special tokens.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "text/dialog/call_grammar.h"

namespace situ {

class Lark {
 public:
  explicit Lark(SpecialToken special) : special_(std::move(special)) {}

  // A text as a part of a rule.
  static std::string literal(std::string_view text);
  // A text as a part of an expression between slashes.
  static std::string escaped(std::string_view text);
  // The same, of which special tokens may be parts. "" for an empty mark.
  std::string mark(std::string_view text) const;
  // Any text up to the mark, and the mark. The text has none in it; `but`: an expression that the text may not match.
  std::string text_to(std::string_view mark, const std::string& but = "");
  // Any text, none of the marks in it.
  std::string text_without(std::string_view mark, const std::string& but = "");
  bool begins_special(std::string_view mark) const;
  // The mark, perhaps behind white space, where another text may stand in its place: what begins with it is the mark.
  std::string mark_first(std::string_view text);

  // Adds "name: body", and returns the name of a rule with this body.
  std::string rule(const std::string& body);
  std::string lexeme(const std::string& body, const std::string& attributes = "");
  // The name of a rule whose body comes later: one that is a part of itself.
  std::string name();
  void define(const std::string& name, const std::string& body) { rules_ += name + ": " + body + "\n"; }
  size_t size() const { return rules_.size(); }  // bytes
  void start(const std::string& body) { start_ = body; }
  std::string source() const { return "start: " + start_ + "\n" + rules_; }

 private:
  struct Part {
    std::string text;
    std::optional<int64_t> id;
  };
  std::vector<Part> parts_of(std::string_view mark) const;

  SpecialToken special_;
  std::string start_, rules_;
  std::map<std::string, std::string> names_;  // of bodies that stand already
};

}  // namespace situ
