// Protobuf fields read in place, with the checks that protozero leaves to its caller: wire types (only
// asserted there), lengths beyond 32 bits (truncated there), and errors that say where they happened.
//
// Inside src/onnx a malformed file is an exception, because protozero throws; import_onnx is the border
// that turns it into a Status.
#pragma once

#include <cstdint>
#include <cstring>
#include <exception>
#include <protozero/pbf_reader.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace situ::onnx {

class ImportError : public std::exception {
 public:
  explicit ImportError(std::string message, Code code = Code::kBadFile, Reasons reasons = {})
      : message_(std::move(message)), code_(code), reasons_(std::move(reasons)) {}
  const char* what() const noexcept override { return message_.c_str(); }
  const std::string& message() const { return message_; }
  Code code() const { return code_; }
  const Reasons& reasons() const { return reasons_; }  // none: the message says all

 private:
  std::string message_;
  Code code_;
  Reasons reasons_;
};

// "graph.node[17].attribute[0]": one link per message that is being read, on the stack.
struct WirePath {
  const char* field = "";
  int64_t index = -1;  // -1: not repeated
  const WirePath* parent = nullptr;

  std::string str() const;
};

// The fields of one message. Usage: while (r.next()) switch (r.tag()) { ... default: r.skip(); }
class WireReader {
 public:
  // Both must outlive the reader.
  WireReader(std::string_view bytes, const WirePath& path) : reader_(bytes.data(), bytes.size()), path_(path) {}

  bool next();
  uint32_t tag() const { return reader_.tag(); }
  void skip();

  // The value of the current field. Error when the field has another wire type or runs past the end.
  int64_t integer();
  int32_t integer32() { return static_cast<int32_t>(integer()); }
  float float32();
  std::string_view bytes();

  // Elements of a repeated field, packed (many per field) or not (one per field). `take` gets
  // the varint's 64 bits, or a float.
  template <typename Take>
  void integers(Take take);
  template <typename Take>
  void floats(Take take) {
    fixed<float>(protozero::pbf_wire_type::fixed32, take);
  }
  template <typename Take>
  void doubles(Take take) {
    fixed<double>(protozero::pbf_wire_type::fixed64, take);
  }
  // Whether the current field of a repeated number is a list of many.
  bool packed() const { return reader_.wire_type() == protozero::pbf_wire_type::length_delimited; }

  const WirePath& path() const { return path_; }
  [[noreturn]] void fail(const std::string& what) const;

 private:
  void expect(protozero::pbf_wire_type type) const;
  template <typename T, typename Take>
  void fixed(protozero::pbf_wire_type single, Take take);
  [[noreturn]] void fail(const protozero::exception& e) const;

  protozero::pbf_reader reader_;
  const WirePath& path_;
};

template <typename Take>
void WireReader::integers(Take take) {
  if (!packed()) return take(static_cast<uint64_t>(integer()));
  const std::string_view list = bytes();
  const char* p = list.data();
  const char* end = p + list.size();
  try {
    while (p != end) take(protozero::decode_varint(&p, end));
  } catch (const protozero::exception& e) {
    fail(e);
  }
}

template <typename T, typename Take>
void WireReader::fixed(protozero::pbf_wire_type single, Take take) {
  if (!packed()) {
    expect(single);
    try {
      if constexpr (sizeof(T) == 4)
        take(reader_.get_float());
      else
        take(reader_.get_double());
    } catch (const protozero::exception& e) {
      fail(e);
    }
    return;
  }
  const std::string_view list = bytes();
  if (list.size() % sizeof(T) != 0)
    fail("a packed list of " + std::to_string(list.size()) + " bytes is no multiple of " + std::to_string(sizeof(T)));
  for (size_t i = 0; i < list.size(); i += sizeof(T)) {
    T value;
    std::memcpy(&value, list.data() + i, sizeof(T));
    take(value);
  }
}

}  // namespace situ::onnx
