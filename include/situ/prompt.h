// What a generation goes on from: token ids, and arrays for an encoder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace situ {

// An array of the caller, in C order and the machine's byte order.
struct NamedArray {
  enum class Type { kBool, kInt32, kInt64, kFloat16, kFloat32 };
  std::string name;  // of the graph's input
  Type type = Type::kFloat32;
  std::vector<int64_t> shape;
  const void* data = nullptr;  // must stay until the call that it is given to returns
};

// What a generation goes on from.
struct Prompt {
  std::vector<int64_t> ids;          // of an encoder-decoder: the encoder's, where that takes ids, else the decoder's
  std::vector<NamedArray> arrays;    // inputs of the encoder: a spectrogram, pixels
  std::vector<int64_t> decoder_ids;  // of an encoder-decoder; empty: its start token
};

}  // namespace situ
