// Declared types and shapes of graph inputs and outputs, and what is known of constants.
#include <algorithm>
#include <charconv>

#include "onnx/graph_builder.h"
#include "onnx/limits.h"

namespace situ::onnx {
namespace {

struct DeclaredDim {
  std::optional<int64_t> value;
  std::string_view symbol;  // "": none
};

struct DeclaredType {
  int64_t element = 0;
  bool ranked = false;
  std::vector<DeclaredDim> dims;
  const char* other = nullptr;  // "a sequence", ...: not a tensor
};

DeclaredDim parse_dim(std::string_view bytes, int64_t axis, const WirePath& parent) {
  const WirePath path{"dim", axis, &parent};
  WireReader r(bytes, path);
  DeclaredDim dim;
  while (r.next()) switch (r.tag()) {
      case 1:
        dim = {r.integer(), {}};
        break;  // a oneof: the last one counts
      case 2:
        dim = {std::nullopt, r.bytes()};
        break;
      default:
        r.skip();
    }
  return dim;
}

void parse_tensor_type(std::string_view bytes, const WirePath& path, DeclaredType& type) {
  WireReader r(bytes, path);
  while (r.next()) {
    if (r.tag() == 1) {
      type.element = r.integer();
    } else if (r.tag() == 2) {
      if (type.ranked) r.fail("field 'shape' appears twice");
      type.ranked = true;
      WireReader shape(r.bytes(), path);
      while (shape.next()) {
        if (shape.tag() == 1)
          type.dims.push_back(parse_dim(shape.bytes(), static_cast<int64_t>(type.dims.size()), path));
        else
          shape.skip();
      }
    } else {
      r.skip();
    }
  }
}

DeclaredType parse_type(std::string_view bytes, const WirePath& parent) {
  const WirePath path{"type", -1, &parent};
  WireReader r(bytes, path);
  DeclaredType type;
  while (r.next()) switch (r.tag()) {
      case 1:
        type = {};
        parse_tensor_type(r.bytes(), path, type);
        break;
      case 4:
        type.other = "a sequence";
        r.skip();
        break;
      case 5:
        type.other = "a map";
        r.skip();
        break;
      case 7:
        type.other = "an opaque type";
        r.skip();
        break;
      case 8:
        type.other = "a sparse tensor";
        r.skip();
        break;
      case 9:
        type.other = "an optional";
        r.skip();
        break;
      default:
        r.skip();
    }
  return type;
}

// The value whose dims are being read.
struct Owner {
  std::string_view name;
  std::string what;  // "input 'x' (graph.input[0])"
  Graph* symbols;
  bool is_input;
};

// Nothing when the dim is symbolic and cannot be named.
std::optional<Dim> make_dim(const DeclaredDim& dim, const Owner& owner, size_t axis) {
  const std::string what = owner.what + ": dim " + std::to_string(axis);
  if (dim.value) {
    if (*dim.value < 0 || *dim.value > kMaxDim)
      throw ImportError(what + " is " + std::to_string(*dim.value) + ", expected 0 .. 2^40 or a name");
    return Dim(*dim.value);
  }
  std::string name(dim.symbol);
  if (!owner.symbols || (name.empty() && !owner.is_input)) return std::nullopt;
  // An exporter that only knew late that a dim is fixed names it by its number.
  int64_t number = -1;
  if (const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
      error == std::errc() && end == name.data() + name.size() && name[0] != '0' && number > 1 && number <= kMaxDim)
    return Dim(number);
  if (name.empty()) name = "unk_" + std::string(owner.name) + "_" + std::to_string(axis);
  const int id = owner.symbols->symbol(name);
  if (id >= 0) return Dim::symbol(id);
  if (!owner.is_input) return std::nullopt;
  throw ImportError(what + " '" + name + "' needs one more symbol than the " + std::to_string(kMostFileSymbols) +
                    " that a model may have");
}

bool is_whole_integer(DType type) {
  switch (type) {
    case DType::kU8:
    case DType::kI8:
    case DType::kU16:
    case DType::kI16:
    case DType::kU32:
    case DType::kI32:
    case DType::kU64:
    case DType::kI64:
    case DType::kBool:
      return true;
    default:
      return false;
  }
}

}  // namespace

DeclaredValue parse_value_info(std::string_view bytes, const WirePath& path, Graph* symbols, bool is_input) {
  WireReader r(bytes, path);
  DeclaredValue value;
  std::optional<std::string_view> type_bytes;
  while (r.next()) switch (r.tag()) {
      case 1:
        value.name = r.bytes();
        break;
      case 2:
        if (type_bytes) r.fail("field 'type' appears twice");
        type_bytes = r.bytes();
        break;
      default:
        r.skip();
    }
  const Owner owner{value.name,
                    (is_input ? "input '" : "output '") + std::string(value.name) + "' (" + path.str() + ")", symbols,
                    is_input};
  const std::string& what = owner.what;
  if (value.name.empty()) throw ImportError(path.str() + " has no name");
  const DeclaredType type = type_bytes ? parse_type(*type_bytes, path) : DeclaredType{};
  if (type.other) {
    const std::string wrong = what + " is " + type.other + "; only tensors are supported";
    const Reason::Kind kind = is_input ? Reason::Kind::kInput : Reason::Kind::kShape;
    throw ImportError(wrong, Code::kBadFile, {{.kind = kind, .op = "", .detail = wrong}});
  }
  value.info.type = dtype_from_onnx(type.element);
  if (value.info.type == DType::kNone && type.element != 0)
    throw ImportError(what + " has element type " + std::to_string(type.element) + ", which is not known");
  if (!type.ranked) return value;
  if (type.dims.size() > static_cast<size_t>(kMaxRank))
    throw ImportError(what + " has rank " + std::to_string(type.dims.size()) + ", the limit is " +
                      std::to_string(kMaxRank));
  value.info.ranked = true;
  for (size_t axis = 0; axis < type.dims.size(); ++axis) {
    const std::optional<Dim> dim = make_dim(type.dims[axis], owner, axis);
    if (!dim)
      value.info.ranked = false;
    else
      value.info.shape.push_back(*dim);
  }
  if (!value.info.ranked) value.info.shape.clear();
  return value;
}

ValueInfo constant_info(const NamedTensor& constant) {
  ValueInfo info;
  info.type = constant.type;
  info.ranked = true;
  for (int64_t d : constant.dims) info.shape.push_back(d);
  const Tensor& t = constant.tensor;
  if (!t.present() || t.rank() > 1 || t.count() > kMaxContent || !is_whole_integer(t.type())) return info;
  const std::vector<int64_t> elements = t.to_i64();
  const bool exact =
      t.type() != DType::kU64 || std::all_of(elements.begin(), elements.end(), [](int64_t v) { return v >= 0; });
  if (exact) info.content.emplace(elements.begin(), elements.end());
  return info;
}

}  // namespace situ::onnx
