// {"name": N, "arguments": A}: keys in any order, others are left out; arguments may be the JSON text of an object.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/dialog/call_reader.h"
#include "text/dialog/literal_scanner.h"
#include "text/dialog/marks.h"
#include "text/dialog/schemas.h"
#include "text/dialog/shape.h"

namespace situ {
namespace {

class ObjectCallReader : public CallReader {
 public:
  ObjectCallReader(const CallForm& form, std::span<const Tool> tools, bool at_end)
      : shape_(form.shape), bare_(form.bare()), at_end_(at_end), tools_(tools) {}

  State read(Rest rest, size_t& used, EventsOut& out) override {
    for (const char byte : rest.text) {
      ++used;
      const State state = take(byte, out);
      if (state != State::kGoesOn) return state;
    }
    return State::kMore;
  }

 private:
  enum class Want { kObject, kKeyOrEnd, kKey, kKeyText, kColon, kFirst, kValue, kComma, kEnd };
  enum class Role { kOther, kName, kArguments };

  State take(char byte, EventsOut& out);
  State take_value(char byte, EventsOut& out);
  State end_value(EventsOut& out);
  State end_arguments(EventsOut& out);
  State end_object(EventsOut& out);
  State first_of_value(char byte, EventsOut& out);
  Role role_of(const std::string& key) const;
  bool begin_named(EventsOut& out);
  bool is_call() const;

  const CallShape shape_;
  const bool bare_, at_end_;  // at_end_: what it is, is told at its end
  std::span<const Tool> tools_;
  Want want_ = Want::kObject;
  Role role_ = Role::kOther;
  size_t depth_ = 0;
  LiteralScanner scanner_;
  std::string text_;         // what the scanner made of a key or a value
  std::string name_, held_;  // held_: arguments that came before the name
  bool has_name_ = false, has_arguments_ = false, text_arguments_ = false;
};

// Names that models give the arguments whatever the template does.
ObjectCallReader::Role ObjectCallReader::role_of(const std::string& key) const {
  if (key == shape_.name_key) return Role::kName;
  const bool arguments = key == shape_.arguments_key || key == "arguments" || key == "parameters";
  return arguments ? Role::kArguments : Role::kOther;
}

// Whether the tool that is named takes these arguments, as far as their keys say.
bool ObjectCallReader::is_call() const {
  const auto tool = std::find_if(tools_.begin(), tools_.end(), [&](const Tool& t) { return t.name == name_; });
  const nlohmann::json arguments = nlohmann::json::parse(held_, nullptr, false);
  if (tool == tools_.end() || !arguments.is_object()) return false;
  const nlohmann::ordered_json schema = schema_of(*tool);
  for (const nlohmann::ordered_json& key : schema.value("required", nlohmann::ordered_json::array()))
    if (key.is_string() && !arguments.contains(key.get<std::string>())) return false;
  if (schema.value("additionalProperties", nlohmann::ordered_json(true)) != false) return true;
  const nlohmann::ordered_json known = schema.value("properties", nlohmann::ordered_json::object());
  return std::all_of(arguments.items().begin(), arguments.items().end(),
                     [&](const auto& item) { return known.contains(item.key()); });
}

bool ObjectCallReader::begin_named(EventsOut& out) {
  if (has_name_ || name_.empty() || name_size(name_) != name_.size()) return false;
  if (bare_ && !has_tool(tools_, name_)) return false;
  if (at_end_ && want_ != Want::kEnd) return true;
  has_name_ = true;
  begin(out, name_);
  out.arguments(held_);
  held_.clear();
  return true;
}

ObjectCallReader::State ObjectCallReader::take(char byte, EventsOut& out) {
  if (want_ == Want::kValue) return take_value(byte, out);
  if (want_ == Want::kKeyText) {
    const LiteralScanner::State state = scanner_.feed(byte, text_);
    if (state == LiteralScanner::State::kDone) want_ = Want::kColon;
    return state == LiteralScanner::State::kFault ? State::kFault : State::kGoesOn;
  }
  if (is_space(byte)) return State::kGoesOn;
  if (want_ == Want::kFirst) return first_of_value(byte, out);
  if (want_ == Want::kObject && byte == '{') {
    ++depth_, want_ = Want::kKeyOrEnd;
  } else if (byte == '}' && (want_ == Want::kKeyOrEnd || want_ == Want::kComma)) {
    return end_object(out);
  } else if (byte == '"' && (want_ == Want::kKeyOrEnd || want_ == Want::kKey)) {
    text_.clear(), scanner_ = LiteralScanner(), want_ = Want::kKeyText;
    scanner_.feed(byte, text_);
  } else if (byte == ':' && want_ == Want::kColon) {
    want_ = Want::kFirst;
  } else if (byte == ',' && want_ == Want::kComma) {
    want_ = Want::kKey;
  } else {
    return State::kFault;
  }
  return State::kGoesOn;
}

// A key is whole, and its value begins with this byte.
ObjectCallReader::State ObjectCallReader::first_of_value(char byte, EventsOut& out) {
  const nlohmann::json parsed = nlohmann::json::parse(text_, nullptr, false);
  if (!parsed.is_string()) return State::kFault;
  const std::string key = parsed.get<std::string>();
  text_.clear(), scanner_ = LiteralScanner(), want_ = Want::kValue;
  if (shape_.name_is_key) {
    role_ = has_name_ ? Role::kOther : Role::kArguments;
    name_ = key;
    if (!has_name_ && !begin_named(out)) return State::kFault;
  } else {
    role_ = role_of(key);
    if (role_ == Role::kOther && byte == '{' && (key == shape_.wrap_key || key == "function") && depth_ == 1) {
      ++depth_, want_ = Want::kKeyOrEnd;
      return State::kGoesOn;
    }
    // Other JSON is not held up to its end.
    const bool other = role_ == Role::kOther && key != "type" && key != "id";
    if (bare_ && other && (at_end_ || !has_name_)) return State::kFault;
  }
  if (role_ == Role::kArguments) {
    if (has_arguments_) return State::kFault;
    has_arguments_ = true, text_arguments_ = byte != '{';
  }
  return take_value(byte, out);
}

ObjectCallReader::State ObjectCallReader::take_value(char byte, EventsOut& out) {
  const LiteralScanner::State state = scanner_.feed(byte, text_);
  if (state == LiteralScanner::State::kFault) return State::kFault;
  if (role_ == Role::kArguments && !text_arguments_) {
    if (has_name_)
      out.arguments(text_);
    else
      held_ += text_;
    text_.clear();
  }
  if (state == LiteralScanner::State::kMore) return State::kGoesOn;
  const State ended = end_value(out);
  return ended == State::kGoesOn && state == LiteralScanner::State::kBehind ? take(byte, out) : ended;
}

ObjectCallReader::State ObjectCallReader::end_value(EventsOut& out) {
  want_ = Want::kComma;
  if (role_ == Role::kArguments && text_arguments_) return end_arguments(out);
  if (role_ != Role::kName) return State::kGoesOn;
  const nlohmann::json name = nlohmann::json::parse(text_, nullptr, false);
  if (!name.is_string()) return State::kFault;
  name_ = name.get<std::string>();
  return begin_named(out) ? State::kGoesOn : State::kFault;
}

// The JSON text of an object, or null.
ObjectCallReader::State ObjectCallReader::end_arguments(EventsOut& out) {
  const nlohmann::json value = nlohmann::json::parse(text_, nullptr, false);
  std::string object = value.is_null() || value == "" ? "{}" : "";
  if (value.is_string() && object.empty()) {
    LiteralScanner inner;
    LiteralScanner::State state = LiteralScanner::State::kMore;
    const std::string inside(trimmed(value.get_ref<const std::string&>()));
    for (const char byte : inside)
      if (state = state == LiteralScanner::State::kMore ? inner.feed(byte, object) : LiteralScanner::State::kFault;
          state == LiteralScanner::State::kFault)
        return State::kFault;
    if (state != LiteralScanner::State::kDone || !object.starts_with('{')) return State::kFault;
  }
  if (object.empty()) return State::kFault;
  if (has_name_)
    out.arguments(object);
  else
    held_ = object;
  return State::kGoesOn;
}

ObjectCallReader::State ObjectCallReader::end_object(EventsOut& out) {
  if (--depth_ > 0) {
    want_ = Want::kComma;
    return State::kGoesOn;
  }
  if (at_end_) {
    want_ = Want::kEnd;
    if (!has_arguments_) held_ = "{}", has_arguments_ = true;
    if (!is_call() || !begin_named(out)) return State::kFault;
  }
  if (!has_name_) return State::kFault;
  if (!has_arguments_) out.arguments("{}");
  out.end_call();
  return State::kDone;
}

}  // namespace

std::unique_ptr<CallReader> object_call_reader(const CallForm& form, std::span<const Tool> tools, bool at_end) {
  return std::make_unique<ObjectCallReader>(form, tools, at_end);
}

}  // namespace situ
