// Errors as values. Load, compile and prepare return Status or Result<T>; nothing here throws,
// prints or exits. A message is one line that names the file, node, operand and both values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace situ {

// What an error is about, for programs that react to it.
enum class Code {
  kOk,
  kInvalidArgument,   // an option, an id, a text, an array: another call may succeed
  kNotFound,          // no such file or folder; no tokenizer or chat template in the folder
  kUnsupportedModel,  // the files are well formed and ask for something that is not supported
  kBadFile,           // a file cannot be read, or is not what its name says
  kContextExceeded,   // more tokens than the context, or the encoder's table, holds
  kNoRoom,            // state or memory are full
  kInterrupted,       // Model::interrupt_when
  kBusy,              // as many requests wait as may: later there is room
  kInternal,          // none of these
};
// "ok", "invalid_argument", "not_found", "unsupported_model", "bad_file", "context_exceeded", "no_room", "interrupted",
// "busy", "internal".
constexpr const char* code_name(Code code) {
  constexpr const char* kNames[] = {"ok",       "invalid_argument", "not_found", "unsupported_model",
                                    "bad_file", "context_exceeded", "no_room",   "interrupted",
                                    "busy",     "internal"};
  return kNames[static_cast<int>(code)];
}

// What a model asks for and does not get, as `situ check` lists it.
struct Reason {
  enum class Kind { kFile, kOperator, kAttribute, kOpset, kShape, kInput, kState, kSize };
  Kind kind = Kind::kFile;
  std::string op, domain = {};  // "MatMul" of "ai.onnx"; "": it is about no operator
  int64_t opset = 0;            // of the domain; 0: none
  int64_t count = 0;            // of nodes; 0: it is about none
  std::string first_node = {};  // the name of one
  std::string detail = {};
  std::string advice = {};  // what to do about it: an option, another export; "": nothing is known
};
// "file", "operator", "attribute", "opset", "shape", "input", "state", "size".
constexpr const char* kind_name(Reason::Kind kind) {
  constexpr const char* kNames[] = {"file", "operator", "attribute", "opset", "shape", "input", "state", "size"};
  return kNames[static_cast<int>(kind)];
}
using Reasons = std::vector<Reason>;

// Success, or a code and one message. Cheap when successful (no allocation).
class [[nodiscard]] Status {
 public:
  static Status ok() { return Status(); }
  // Its code is kInternal until who passes it on and knows more says or_code().
  static Status error(std::string message) { return error(Code::kInternal, std::move(message)); }
  static Status error(Code code, std::string message) {
    Status s;
    s.message_ = std::move(message);
    s.code_ = code;
    return s;
  }
  // An option that cannot have this value: kInvalidArgument. See option().
  static Status wrong_option(const std::string& name, std::string message) {
    return error(Code::kInvalidArgument, std::move(message)).or_option(name);
  }
  bool is_ok() const { return !message_.has_value(); }
  Code code() const { return code_; }

  // For functions between the library and the end of an error, a program's own too, which make it say more on its way
  // up. Success stays success. The same with this code, where nobody has given it another than kInternal.
  Status or_code(Code code) const {
    Status s = *this;
    if (code_ == Code::kInternal) s.code_ = code;
    return s;
  }
  // The same error with "context: " in front.
  Status with_context(const std::string& context) const {
    Status s = *this;
    if (message_) s.message_ = context + ": " + *message_;
    return s;
  }
  // The same error about this option, by its name in GenerateOptions and the like ("top_p"), where nobody has named
  // one.
  Status or_option(const std::string& name) const {
    Status s = *this;
    if (message_ && option_.empty()) s.option_ = name;
    return s;
  }
  // The same with the single things that the message is about; none: with those that it has.
  Status because(Reasons reasons) const {
    Status s = *this;
    if (message_ && !reasons.empty()) s.reasons_ = std::make_shared<const Reasons>(std::move(reasons));
    return s;
  }
  // The same with one reason, its message, where nobody has given any.
  Status or_reason(Reason::Kind kind) const {
    return !message_ || reasons_ ? *this : because({{.kind = kind, .op = "", .detail = *message_}});
  }

  // Of a model that is refused, at load, as far as they are known; else none.
  const Reasons& reasons() const {
    static const Reasons kNone;
    return reasons_ ? *reasons_ : kNone;
  }
  // The option whose value is refused, the second of two that do not go together; "": the error is about none.
  const std::string& option() const { return option_; }
  // Empty for success.
  std::string message() const { return message_.value_or(std::string()); }

 private:
  std::optional<std::string> message_;
  Code code_ = Code::kOk;
  std::string option_;
  std::shared_ptr<const Reasons> reasons_;
};

// A T, or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: implicit on purpose
  bool is_ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  // Precondition: is_ok().
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

// Returns the error of `expression` from the enclosing function, if it has one.
#define SITU_RETURN_IF_ERROR(expression)                          \
  do {                                                            \
    if (::situ::Status s_ = (expression); !s_.is_ok()) return s_; \
  } while (0)

}  // namespace situ
