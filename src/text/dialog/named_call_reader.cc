// N, a mark, arguments: JSON, Python's N(key=value), or a model's own N{key:value}.
#include "text/dialog/call_reader.h"
#include "text/dialog/literal_scanner.h"
#include "text/dialog/marks.h"

namespace situ {
namespace {

constexpr size_t kMostId = 256;

LiteralRules rules_of(const CallForm& form) {
  LiteralRules rules;
  rules.python = form.kind == CallForm::Kind::kPython;
  rules.bare_keys = form.kind == CallForm::Kind::kLiterals;
  if (rules.bare_keys) rules.quote = form.text_quote;
  return rules;
}

class NamedCallReader : public CallReader {
 public:
  NamedCallReader(const CallForm& form, std::span<const Tool> tools)
      : form_(form), tools_(tools), scanner_(rules_of(form)) {}

  State read(Rest rest, size_t& used, EventsOut& out) override {
    switch (want_) {
      case Want::kName:
        return read_name(rest, used);
      case Want::kId:
        return read_id(rest, used);
      case Want::kMark:
        return read_mark(rest, used, out);
      case Want::kArguments:
        break;
    }
    for (const char byte : rest.text) {
      std::string json;
      const LiteralScanner::State state = scanner_.feed(byte, json);
      // Only an object is arguments.
      if (!any_ && !json.empty() && json[0] != '{') return State::kFault;
      any_ = any_ || !json.empty();
      ++used;
      if (state == LiteralScanner::State::kFault || state == LiteralScanner::State::kBehind) return State::kFault;
      out.arguments(json);
      if (state != LiteralScanner::State::kDone) continue;
      out.end_call();
      return State::kDone;
    }
    return State::kMore;
  }

 private:
  enum class Want { kName, kId, kMark, kArguments };

  State read_name(Rest rest, size_t& used) {
    const size_t size = name_size(rest.text);
    if (size == rest.text.size()) return rest.last || size > kMostId ? State::kFault : State::kMore;
    if (size == 0) return State::kFault;
    name_ = rest.text.substr(0, size);
    if (form_.bare() && !has_tool(tools_, name_)) return State::kFault;
    used += size;
    want_ = form_.id_open.empty() ? Want::kMark : Want::kId;
    return State::kGoesOn;
  }

  // What stands before the mark behind it.
  State read_id(Rest rest, size_t& used) {
    const std::string_view mark = trimmed(form_.name_close);
    for (size_t at = 0; at < rest.text.size() && at <= kMostId; ++at) {
      const MarkMatch match = match_mark(rest.text.substr(at), mark);
      if (match.kind == MarkMatch::Kind::kNo) continue;
      if (match.kind == MarkMatch::Kind::kBegun && !rest.last) return State::kMore;
      used += at;
      want_ = Want::kMark;
      return State::kGoesOn;
    }
    return rest.text.size() > kMostId || rest.last ? State::kFault : State::kMore;
  }

  State read_mark(Rest rest, size_t& used, EventsOut& out) {
    if (!rest.text.empty() && is_space(rest.text[0])) {
      ++used;
      return State::kGoesOn;
    }
    const MarkMatch match = match_mark(rest.text, trimmed(form_.name_close));
    if (match.kind == MarkMatch::Kind::kBegun) return rest.last ? State::kFault : State::kMore;
    if (match.kind == MarkMatch::Kind::kNo) return State::kFault;
    used += match.size;
    want_ = Want::kArguments;
    begin(out, name_);
    return State::kGoesOn;
  }

  const CallForm& form_;
  std::span<const Tool> tools_;
  Want want_ = Want::kName;
  std::string name_;
  LiteralScanner scanner_;
  bool any_ = false;  // something of the arguments was read
};

}  // namespace

std::unique_ptr<CallReader> named_call_reader(const CallForm& form, std::span<const Tool> tools) {
  return std::make_unique<NamedCallReader>(form, tools);
}

}  // namespace situ
