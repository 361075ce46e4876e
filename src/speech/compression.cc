#include "speech/compression.h"

#include <zlib.h>

#include <vector>

namespace situ {

double compression_ratio(std::string_view text) {
  if (text.empty()) return 0;
  uLongf size = compressBound(static_cast<uLong>(text.size()));
  std::vector<Bytef> out(size);
  if (compress(out.data(), &size, reinterpret_cast<const Bytef*>(text.data()), static_cast<uLong>(text.size())) != Z_OK)
    return 0;
  return static_cast<double>(text.size()) / static_cast<double>(size);
}

}  // namespace situ
