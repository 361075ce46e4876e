#include "ops/state_encoding.h"

namespace situ {
namespace {

constexpr const char* kOperands[] = {"", "key_", "value_"};
constexpr const char* kScales[] = {"", ", scale per row", ", scale per head", ", scale per channel", ", one scale"};

}  // namespace

RowEncoding StateEncoding::rows() const {
  if (plain()) return RowEncoding::kPlain;
  if (scale == ScaleOf::kRow) return RowEncoding::kRowScale;
  return bits == 4 ? RowEncoding::kDigits : RowEncoding::kBytes;
}

Dim StateEncoding::stored_size(const Dim& numbers) const {
  switch (rows()) {
    case RowEncoding::kRowScale:
      return numbers + Dim(kRowScaleBytes);
    case RowEncoding::kDigits:
      return dim_div(numbers + Dim(1), Dim(2));
    default:
      return numbers;
  }
}

DType StateEncoding::type() const { return plain() ? DType::kNone : bits == 4 ? DType::kU8 : DType::kI8; }

std::string StateEncoding::str() const {
  return plain() ? "floats" : std::to_string(bits) + " bits" + kScales[static_cast<size_t>(scale)];
}

StateEncoding state_encoding(const Node& node, size_t operand) {
  const std::string of = kOperands[operand];
  return {node.attr_int(of + "size", 0), static_cast<int32_t>(node.attr_int(of + "bits", 0)),
          static_cast<ScaleOf>(node.attr_int(of + "scale", 0))};
}

void set_state_encoding(Node* node, size_t operand, const StateEncoding& encoding) {
  if (encoding.plain()) return;
  const std::string of = kOperands[operand];
  if (encoding.size > 0) node->set_int(of + "size", encoding.size);
  node->set_int(of + "bits", encoding.bits);
  node->set_int(of + "scale", static_cast<int64_t>(encoding.scale));
}

}  // namespace situ
