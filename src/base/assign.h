// What a Result holds, into a place that is there already, or a new one.
#pragma once

#include <utility>

#include "base/status.h"

namespace situ {

// Sets *to to it. Error: that of a result that holds nothing; *to is what it was.
template <typename To, typename T>
Status assign(To* to, Result<T> result) {
  if (result.is_ok()) *to = std::move(*result);
  return result.status();
}

// Declares `name` as what a Result holds. Of one that holds nothing, the error is returned from the enclosing function.
#define SITU_TAKE(name, ...)                                 \
  auto name##_result = (__VA_ARGS__);                        \
  if (!name##_result.is_ok()) return name##_result.status(); \
  auto& name = *name##_result

}  // namespace situ
