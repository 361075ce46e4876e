// Errors as values. Load, compile and prepare return Status or Result<T>; nothing here throws,
// prints or exits. A message is one line that names the file, node, operand and both values.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace situ {

// Success, or one message. Cheap when successful (no allocation).
class [[nodiscard]] Status {
 public:
  static Status ok() { return Status(); }
  static Status error(std::string message) {
    Status s;
    s.message_ = std::move(message);
    return s;
  }
  bool is_ok() const { return !message_.has_value(); }
  // Empty for success.
  std::string message() const { return message_.value_or(std::string()); }
  // The same error with "context: " in front; success stays success.
  Status with_context(const std::string& context) const { return is_ok() ? *this : error(context + ": " + *message_); }

 private:
  std::optional<std::string> message_;
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
