// Errors as values. Load, compile and prepare return Status or Result<T>; nothing here throws,
// prints or exits. A message is one line that names the file, node, operand and both values.
#pragma once

#include <optional>
#include <string>
#include <utility>

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

// Success, or a code and one message. Cheap when successful (no allocation).
class [[nodiscard]] Status {
 public:
  static Status ok() { return Status(); }
  // Its code is kInternal until a caller that knows more says or_code().
  static Status error(std::string message) { return error(Code::kInternal, std::move(message)); }
  static Status error(Code code, std::string message) {
    Status s;
    s.message_ = std::move(message);
    s.code_ = code;
    return s;
  }
  bool is_ok() const { return !message_.has_value(); }
  Code code() const { return code_; }
  // The same with this code, where nobody has given it another than kInternal.
  Status or_code(Code code) const {
    Status s = *this;
    if (code_ == Code::kInternal) s.code_ = code;
    return s;
  }
  // Empty for success.
  std::string message() const { return message_.value_or(std::string()); }
  // The same error with "context: " in front; success stays success.
  Status with_context(const std::string& context) const {
    return is_ok() ? *this : error(code_, context + ": " + *message_);
  }

 private:
  std::optional<std::string> message_;
  Code code_ = Code::kOk;
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
