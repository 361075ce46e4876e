#include "runtime/encoder_input.h"

#include <algorithm>
#include <cmath>

#include "passes/module/input_names.h"

namespace situ {
namespace {

std::string dims_text(const std::vector<int64_t>& dims) {
  std::string text;
  for (const int64_t d : dims) text += (text.empty() ? "" : ", ") + std::to_string(d);
  return "[" + text + "]";
}

// An input that tells which of the others are padding; ones where it is not given.
bool is_mask(const Value& v) { return v.name.find("mask") != std::string::npos && v.info.shape.size() == 2; }

// Whether an element has all of these bits, which only infinity and NaN have. Without a branch for each: pixels are
// millions.
template <typename Bits>
bool any_with(const Tensor& tensor, Bits exponent) {
  const Bits* bits = tensor.view().as<const Bits>();
  Bits found = 0;
  for (int64_t i = 0; i < tensor.count(); ++i) found |= static_cast<Bits>((bits[i] & exponent) == exponent);
  return found != 0;
}

bool all_finite(const Tensor& tensor) {
  switch (tensor.type()) {
    case DType::kF32:
      return !any_with<uint32_t>(tensor, 0x7f800000u);
    case DType::kF16:
      return !any_with<uint16_t>(tensor, 0x7c00u);
    case DType::kBF16:
      return !any_with<uint16_t>(tensor, 0x7f80u);
    default:
      return !any_with<uint64_t>(tensor, 0x7ff0000000000000u);
  }
}

// A number that nothing can be made of, or a mask that hides all. `tensor` is contiguous.
std::string useless(const Tensor& tensor) {
  if (tensor.count() == 0) return "";
  if (!dtype_is_float(tensor.type())) {
    const std::byte* bytes = tensor.view().data;
    const bool zero = std::all_of(bytes, bytes + tensor.bytes(), [](std::byte b) { return b == std::byte{0}; });
    return zero ? "the array is all zero" : "";
  }
  if (all_finite(tensor)) return "";
  const std::vector<double> numbers = tensor.to_f64();
  const auto bad = std::find_if(numbers.begin(), numbers.end(), [](double n) { return !std::isfinite(n); });
  return "element " + std::to_string(bad - numbers.begin()) + " of the array is " + std::to_string(*bad);
}

std::string input_text(const Graph& graph, const Value& v) {
  return "encoder input '" + v.name + "' " + dtype_name(v.info.type) + shape_str(v.info.shape, &graph.symbol_names());
}

}  // namespace

Status check_encoder_array(const Graph& graph, const Value& v, const Tensor& tensor, bool one_source) {
  const std::vector<int64_t> dims = tensor.dims();
  if (v.info.type != tensor.type())
    return Status::error(Code::kInvalidArgument,
                         input_text(graph, v) + ": the array is " + dtype_name(tensor.type()) + dims_text(dims));
  bool fits = dims.size() == v.info.shape.size();
  for (size_t i = 0; fits && i < dims.size(); ++i)
    fits = (i == 0 && one_source ? dims[i] == 1 : dims[i] > 0) &&
           (!v.info.shape[i].is_const() || v.info.shape[i] == Dim(dims[i]));
  if (fits) {
    const std::string problem = names_token_types(v.name) ? "" : useless(tensor);
    if (problem.empty()) return Status::ok();
    return Status::error(Code::kInvalidArgument, input_text(graph, v) + ": " + problem);
  }
  return Status::error(Code::kInvalidArgument, input_text(graph, v) + ": the array is " + dims_text(dims) +
                                                   (one_source ? "; one source is wanted, a batch of 1" : ""));
}

std::map<std::string, std::vector<int64_t>> EncoderInput::extents() const {
  std::map<std::string, std::vector<int64_t>> all;
  for (const auto& [name, tensor] : tensors) all[name] = tensor.dims();
  return all;
}

bool encoder_takes_ids(const Graph& encoder) {
  return std::none_of(encoder.inputs.begin(), encoder.inputs.end(),
                      [&](ValueId v) { return dtype_is_float(encoder.values[v].info.type); });
}

bool takes_open_arrays(const Graph& encoder) {
  return std::any_of(encoder.inputs.begin(), encoder.inputs.end(), [&](ValueId v) {
    const ValueInfo& info = encoder.values[v].info;
    return dtype_is_float(info.type) && (info.shape.empty() || std::any_of(info.shape.begin() + 1, info.shape.end(),
                                                                           [](const Dim& d) { return !d.is_const(); }));
  });
}

Status check_encoder_input(const Graph& graph, const EncoderInput& input, int64_t most_rows) {
  const bool takes_ids = encoder_takes_ids(graph);
  for (const auto& [name, tensor] : input.tensors) {
    const auto at = std::find_if(graph.inputs.begin(), graph.inputs.end(),
                                 [&, &n = name](ValueId v) { return graph.values[v].name == n; });
    if (at == graph.inputs.end()) {
      std::string names;
      for (const ValueId v : graph.inputs) names += (names.empty() ? "" : ", ") + graph.values[v].name;
      return Status::error(Code::kInvalidArgument, "the encoder has no input '" + name + "'; it has: " + names);
    }
    SITU_RETURN_IF_ERROR(check_encoder_array(graph, graph.values[*at], tensor, true));
    if (takes_ids && tensor.rank() == 2 && tensor.dims()[1] != static_cast<int64_t>(input.ids.size()))
      return Status::error(Code::kInvalidArgument, input_text(graph, graph.values[*at]) + ": the array is " +
                                                       dims_text(tensor.dims()) + ", and there are " +
                                                       std::to_string(input.ids.size()) + " tokens");
  }
  for (const ValueId v : graph.inputs) {
    const Value& value = graph.values[v];
    if (!input.tensors.count(value.name) && !is_mask(value) && !(takes_ids && !dtype_is_float(value.info.type)))
      return Status::error(Code::kInvalidArgument, input_text(graph, value) + " is not given");
  }
  if (!takes_ids && !input.ids.empty())
    return Status::error(Code::kInvalidArgument, "the encoder takes arrays, not the ids of a prompt");
  if (takes_ids && input.ids.empty())
    return Status::error(Code::kInvalidArgument, "an empty source: the encoder takes at least one token");
  if (static_cast<int64_t>(input.ids.size()) > most_rows)
    return Status::error(Code::kContextExceeded, "a source of " + std::to_string(input.ids.size()) +
                                                     " tokens; the encoder takes at most " + std::to_string(most_rows));
  return Status::ok();
}

}  // namespace situ
