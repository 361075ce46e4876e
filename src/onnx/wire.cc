#include "onnx/wire.h"

namespace situ::onnx {
namespace {

const char* wire_type_name(protozero::pbf_wire_type type) {
  switch (type) {
    case protozero::pbf_wire_type::varint:
      return "varint";
    case protozero::pbf_wire_type::fixed64:
      return "64-bit";
    case protozero::pbf_wire_type::length_delimited:
      return "length-delimited";
    case protozero::pbf_wire_type::fixed32:
      return "32-bit";
    default:
      return "unknown";
  }
}

}  // namespace

std::string WirePath::str() const {
  std::string text = parent ? parent->str() + "." + field : field;
  if (index >= 0) text += "[" + std::to_string(index) + "]";
  return text;
}

bool WireReader::next() {
  try {
    return reader_.next();
  } catch (const protozero::exception& e) {
    fail(e);
  }
}

void WireReader::skip() {
  if (packed()) {
    bytes();
    return;
  }
  try {
    reader_.skip();
  } catch (const protozero::exception& e) {
    fail(e);
  }
}

int64_t WireReader::integer() {
  expect(protozero::pbf_wire_type::varint);
  try {
    return reader_.get_int64();
  } catch (const protozero::exception& e) {
    fail(e);
  }
}

float WireReader::float32() {
  expect(protozero::pbf_wire_type::fixed32);
  try {
    return reader_.get_float();
  } catch (const protozero::exception& e) {
    fail(e);
  }
}

std::string_view WireReader::bytes() {
  expect(protozero::pbf_wire_type::length_delimited);
  try {
    // protozero keeps 32 bits of a length: look at all of it first.
    const char* p = reader_.data().data();
    const char* end = p + reader_.length();
    const uint64_t length = protozero::decode_varint(&p, end);
    const uint64_t left = static_cast<uint64_t>(end - p);
    if (length > left)
      throw ImportError("truncated protobuf in " + path_.str() + ": field " + std::to_string(tag()) + " claims " +
                        std::to_string(length) + " bytes, " + std::to_string(left) + " are left");
    const protozero::data_view view = reader_.get_view();
    return {view.data(), view.size()};
  } catch (const protozero::exception& e) {
    fail(e);
  }
}

void WireReader::fail(const std::string& what) const {
  throw ImportError("malformed protobuf in " + path_.str() + ": " + what);
}

void WireReader::fail(const protozero::exception& e) const {
  if (dynamic_cast<const protozero::end_of_buffer_exception*>(&e))
    throw ImportError("truncated protobuf in " + path_.str());
  fail(std::string(e.what()));
}

void WireReader::expect(protozero::pbf_wire_type type) const {
  if (reader_.wire_type() == type) return;
  fail("field " + std::to_string(tag()) + " has wire type " + wire_type_name(reader_.wire_type()) + ", expected " +
       wire_type_name(type));
}

}  // namespace situ::onnx
