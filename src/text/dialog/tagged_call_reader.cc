// N, then a key and a value between tags, for each argument. Values of texts stand as they are, others as JSON: which
// is which the tool's schema says.
#include <nlohmann/json.hpp>

#include "text/dialog/argument_types.h"
#include "text/dialog/call_reader.h"
#include "text/dialog/literal_scanner.h"
#include "text/dialog/marks.h"

namespace situ {
namespace {

std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class TaggedCallReader : public CallReader {
 public:
  TaggedCallReader(const CallForm& form, std::span<const Tool> tools) : form_(form), tools_(tools) {}

  State read(Rest rest, size_t& used, EventsOut& out) override {
    switch (want_) {
      case Want::kName:
        return read_name(rest, used, out);
      case Want::kMark:
        return read_mark(rest, used, out);
      case Want::kKeyOrEnd:
        return read_key_or_end(rest, used, out);
      case Want::kKey:
        return read_key(rest, used, out);
      case Want::kValue:
        break;
    }
    return read_value(rest, used, out);
  }

 private:
  enum class Want { kName, kMark, kKeyOrEnd, kKey, kValue };

  State read_name(Rest rest, size_t& used, EventsOut& out);
  State read_mark(Rest rest, size_t& used, EventsOut& out);
  State read_key_or_end(Rest rest, size_t& used, EventsOut& out);
  State read_key(Rest rest, size_t& used, EventsOut& out);
  State read_value(Rest rest, size_t& used, EventsOut& out);
  void end_value(EventsOut& out);
  State scan(Rest rest, size_t& used);
  void put_text(std::string_view text, EventsOut& out);

  const CallForm& form_;
  std::span<const Tool> tools_;
  Want want_ = Want::kName;
  std::string name_, value_;
  ArgumentTypes types_;
  ValueForm value_form_;
  LiteralScanner scanner_{LiteralRules{true}};
  bool first_ = true;         // no argument yet
  bool value_begun_ = false;  // the line's end before a value was looked for
  bool scans_ = false;        // a value of JSON still comes: no mark in it ends it
};

TaggedCallReader::State TaggedCallReader::read_name(Rest rest, size_t& used, EventsOut& out) {
  const size_t size = name_size(rest.text);
  if (size == rest.text.size()) return rest.last || size > kMostKey ? State::kFault : State::kMore;
  if (size == 0) return State::kFault;
  name_ = rest.text.substr(0, size);
  used += size;
  types_ = ArgumentTypes(tools_, name_);
  want_ = Want::kMark;
  if (!trimmed(form_.name_close).empty()) return State::kGoesOn;
  begin(out, name_);
  out.arguments("{");
  want_ = Want::kKeyOrEnd;
  return State::kGoesOn;
}

TaggedCallReader::State TaggedCallReader::read_mark(Rest rest, size_t& used, EventsOut& out) {
  const MarkMatch match = match_mark(rest.text, trimmed(form_.name_close));
  if (match.kind == MarkMatch::Kind::kBegun) return rest.last ? State::kFault : State::kMore;
  if (match.kind == MarkMatch::Kind::kNo) return State::kFault;
  used += match.size;
  begin(out, name_);
  out.arguments("{");
  want_ = Want::kKeyOrEnd;
  return State::kGoesOn;
}

TaggedCallReader::State TaggedCallReader::read_key_or_end(Rest rest, size_t& used, EventsOut& out) {
  if (!rest.text.empty() && is_space(rest.text[0])) {
    ++used;
    return State::kGoesOn;
  }
  const MarkMatch key = match_mark(rest.text, trimmed(form_.key_open));
  const MarkMatch end = match_mark(rest.text, trimmed(form_.call_close));
  if (key.kind == MarkMatch::Kind::kWhole) {
    used += key.size;
    want_ = Want::kKey;
    return State::kGoesOn;
  }
  if (end.kind == MarkMatch::Kind::kWhole) {  // not read here: AnswerReader wants it
    out.arguments("}");
    out.end_call();
    return State::kDone;
  }
  const bool more = key.kind == MarkMatch::Kind::kBegun || end.kind == MarkMatch::Kind::kBegun;
  return more && !rest.last ? State::kMore : State::kFault;
}

TaggedCallReader::State TaggedCallReader::read_key(Rest rest, size_t& used, EventsOut& out) {
  const std::string_view mark = trimmed(form_.key_close);
  for (size_t at = 0; at < rest.text.size() && at <= kMostKey; ++at) {
    const MarkMatch match = match_mark(rest.text.substr(at), mark);
    if (match.kind == MarkMatch::Kind::kBegun && !rest.last) return State::kMore;
    if (match.kind != MarkMatch::Kind::kWhole) continue;
    const std::string key(trimmed(rest.text.substr(0, at)));
    out.arguments((first_ ? "" : ",") + json_string(key) + ":");
    value_form_ = types_.of(key);
    scans_ = value_form_.kind == ValueForm::Kind::kJson, scanner_ = LiteralScanner(LiteralRules{true});
    first_ = false, value_begun_ = false, want_ = Want::kValue;
    value_.clear();
    used += at + match.size;
    return State::kGoesOn;
  }
  return rest.text.size() > kMostKey || rest.last ? State::kFault : State::kMore;
}

void TaggedCallReader::put_text(std::string_view text, EventsOut& out) {
  if (value_form_.kind != ValueForm::Kind::kText) {
    value_ += text;
    return;
  }
  std::string json;
  for (const char byte : text) LiteralScanner::put_char(byte, json);
  out.arguments(json);
}

// Of JSON anything, of what may be a text too only what the schema allows.
void TaggedCallReader::end_value(EventsOut& out) {
  if (value_form_.kind == ValueForm::Kind::kText) return out.arguments("\"");
  const std::string json = json_of_literal(trimmed(value_));
  const bool means_json =
      value_form_.kind == ValueForm::Kind::kJson || ((value_form_.types | kStrings) & type_of_json(json)) != kNoType;
  out.arguments(!json.empty() && means_json ? json : json_string(value_));
}

// What of the text is JSON up to its end: a mark in a text of JSON ends nothing.
TaggedCallReader::State TaggedCallReader::scan(Rest rest, size_t& used) {
  std::string json;
  for (const char byte : rest.text) {
    const LiteralScanner::State state = scanner_.feed(byte, json);
    scans_ = state == LiteralScanner::State::kMore;
    if (scans_ || state == LiteralScanner::State::kDone) value_ += byte, ++used;
    if (!scans_) return State::kGoesOn;
  }
  return State::kMore;
}

// Everything up to value_close, without the line's ends that the template puts around a value.
TaggedCallReader::State TaggedCallReader::read_value(Rest rest, size_t& used, EventsOut& out) {
  if (!value_begun_) {
    if (rest.text.empty() && !rest.last) return State::kMore;
    value_begun_ = true;
    if (value_form_.kind == ValueForm::Kind::kText) out.arguments("\"");
    if (form_.key_close.ends_with('\n') && rest.text.starts_with('\n')) ++used;
    return State::kGoesOn;
  }
  if (scans_) return scan(rest, used);
  const std::string_view mark = trimmed(form_.value_close);
  const bool line = form_.value_close.starts_with('\n');
  for (size_t at = 0; at < rest.text.size(); ++at) {
    const size_t before = line && rest.text[at] == '\n' ? 1 : 0;
    if (before == 0 && rest.text[at] != mark[0]) continue;
    const MarkMatch match = match_mark(rest.text.substr(at + before), mark);
    if (match.kind == MarkMatch::Kind::kNo) continue;
    if (match.kind == MarkMatch::Kind::kBegun) {
      if (at == 0 || rest.last) return State::kMore;
      put_text(rest.text.substr(0, at), out);
      used += at;
      return State::kMore;
    }
    put_text(rest.text.substr(0, at), out);
    end_value(out);
    used += at + before + match.size;
    want_ = Want::kKeyOrEnd;
    return State::kGoesOn;
  }
  put_text(rest.text, out);
  used += rest.text.size();
  return State::kMore;
}

}  // namespace

std::unique_ptr<CallReader> tagged_call_reader(const CallForm& form, std::span<const Tool> tools) {
  return std::make_unique<TaggedCallReader>(form, tools);
}

}  // namespace situ
