#include "pipelines/encoder_inputs.h"

#include <algorithm>

#include "base/assign.h"
#include "base/npy.h"
#include "pipelines/llm.h"

namespace situ {
namespace {

std::string full_name(const GraphInput& input) { return input.graph + "." + input.name; }

std::string shape_text(const std::vector<int64_t>& dims) {
  std::string text;
  for (const int64_t d : dims) text += (text.empty() ? "" : ", ") + (d < 0 ? std::string("?") : std::to_string(d));
  return "[" + text + "]";
}

// GRAPH.NAME is meant first: names have dots too.
Result<size_t> find_input(const std::string& name, std::span<const GraphInput> inputs) {
  std::vector<size_t> found;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (full_name(inputs[i]) == name) return i;
  std::string all, same;
  for (size_t i = 0; i < inputs.size(); ++i) {
    all += (all.empty() ? "" : ", ") + full_name(inputs[i]);
    if (inputs[i].name != name) continue;
    same += (same.empty() ? "" : " or ") + full_name(inputs[i]);
    found.push_back(i);
  }
  if (found.empty())
    return Status::error("there is no such input; " + (all.empty() ? "none can be given" : "there are " + all));
  if (found.size() > 1) return Status::error("inputs of several graphs have this name; say " + same);
  return found[0];
}

Status check(const Tensor& tensor, const GraphInput& input) {
  const std::vector<int64_t> dims = tensor.dims();
  const bool rounded = tensor.type() == DType::kF32 && input.type == DType::kF16;
  bool fits = (tensor.type() == input.type || rounded) && dims.size() == input.dims.size();
  for (size_t i = 0; fits && i < dims.size(); ++i) fits = input.dims[i] < 0 ? dims[i] >= 1 : dims[i] == input.dims[i];
  if (fits) return Status::ok();
  return Status::error("should be " + std::string(dtype_name(input.type)) + shape_text(input.dims) + ", is " +
                       dtype_name(tensor.type()) + shape_text(dims));
}

}  // namespace

Result<std::vector<GivenTensor>> read_encoder_inputs(std::span<const std::string> texts) {
  std::vector<GivenTensor> tensors;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
      return Status::error("--encoder-input: '" + text + "' should be NAME=FILE.npy or GRAPH.NAME=FILE.npy");
    GivenTensor named{text.substr(0, equals), {}, text.substr(equals + 1)};
    if (std::any_of(tensors.begin(), tensors.end(), [&](const GivenTensor& t) { return t.name == named.name; }))
      return Status::error("--encoder-input gives '" + named.name + "' twice");
    SITU_RETURN_IF_ERROR(
        assign(&named.tensor, read_npy(named.source)).with_context("--encoder-input '" + named.name + "'"));
    tensors.push_back(std::move(named));
  }
  return tensors;
}

Result<std::vector<size_t>> match_encoder_inputs(std::span<const GivenTensor> tensors,
                                                 std::span<const GraphInput> inputs) {
  std::vector<size_t> places;
  for (const GivenTensor& t : tensors) {
    const std::string where =
        "encoder input '" + t.name + "'" + (t.source.empty() ? std::string() : " (" + t.source + ")");
    const Result<size_t> place = find_input(t.name, inputs);
    if (!place.is_ok()) return place.status().with_context(where);
    const GraphInput& input = inputs[*place];
    if (std::find(places.begin(), places.end(), *place) != places.end())
      return Status::error(where + ": " + full_name(input) + " is given twice");
    SITU_RETURN_IF_ERROR(check(t.tensor, input).with_context(where));
    places.push_back(*place);
  }
  return places;
}

// In the order of Part::Type.
constexpr DType kPartTypes[] = {DType::kBool, DType::kU8, DType::kI32, DType::kI64, DType::kF16, DType::kF32};
DType dtype_of(Part::Type type) { return kPartTypes[static_cast<size_t>(type)]; }

Part array_part(const std::string& name, const Tensor& t) {
  const auto type = static_cast<Part::Type>(std::find(kPartTypes, std::end(kPartTypes) - 1, t.type()) - kPartTypes);
  const View& view = t.view();
  return Part::of_array(Part::Kind::kArray, name, type, t.dims(), {t.owner(), view.data});
}

Status add_encoder_inputs(Model& model, std::span<const GivenTensor> tensors, Prompt* prompt) {
  const ModelFiles& files = impl_of(model).files;
  std::vector<GraphInput> inputs;
  const auto add = [&](const Graph& graph, const std::string& name) {
    for (const ValueId v : graph.inputs) {
      const Value& value = graph.values[v];
      GraphInput input{std::filesystem::path(name).stem().string(), value.name, value.info.type, {}};
      for (const Dim& d : value.info.shape) input.dims.push_back(d.is_const() ? d.value() : -1);
      inputs.push_back(std::move(input));
    }
  };
  if (files.encoder) add(files.encoder->graph, files.encoder_name);
  for (const MediaEncoder& encoder : files.media) add(encoder.model.graph, encoder.name);
  SITU_TAKE(matched, match_encoder_inputs(tensors, inputs));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const GraphInput& input = inputs[matched[i]];
    const bool several = 1 < std::count_if(inputs.begin(), inputs.end(),
                                           [&](const GraphInput& other) { return other.name == input.name; });
    prompt->parts.push_back(array_part(several ? full_name(input) : input.name, tensors[i].tensor));
  }
  return Status::ok();
}

}  // namespace situ
