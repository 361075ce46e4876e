// What a public function of the API does where memory runs out.
#pragma once

#include <new>

#include "base/status.h"

namespace situ {

// What `work` returns, a Status or a Result; an error where an allocation failed in it. The message is so short that a
// string has room for it in itself: it allocates nothing.
template <typename Work>
auto or_out_of_memory(const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kNoRoom, "out of memory");
  }
}

}  // namespace situ
