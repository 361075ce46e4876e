// What a Result holds, into a place that is there already.
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

}  // namespace situ
