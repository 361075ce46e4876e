// The length of an encoder's input, in terms of the rows that it makes. Exported decoders take the mask of the input as
// it is, and choose the elements for their rows themselves: by strides, or by a number of rows that they compute.
#include <algorithm>
#include <optional>

#include "ops/op.h"
#include "passes/host/infer.h"
#include "passes/module/module.h"

namespace situ {
namespace {

// What is added to a value of known shape has that shape, where no more is known: a residual. Data that chooses rows
// (NonZero) hides it from inference.
void infer_residual(Graph& graph, const Node& n) {
  if (!n.is("Add") || n.in.size() != 2) return;
  const ValueInfo *a = &graph.values[n.in[0]].info, *b = &graph.values[n.in[1]].info;
  if (a->ranked == b->ranked) return;
  graph.values[n.out[0]].info = a->ranked ? *a : *b;
}

// Shapes of what can be told; nothing is folded.
void infer_all(Graph& graph, Evaluator& evaluator) {
  for (const Node& n : graph.nodes) {
    if (!n.def || n.def->placement == Placement::kControl) continue;
    std::vector<ValueInfo> infos(n.out.size());
    InferContext infer{n, {}, {}, infos};
    for (const ValueId v : n.in) {
      infer.in.push_back(v == kNoValue ? nullptr : &graph.values[v].info);
      infer.constants.push_back(v == kNoValue || !graph.values[v].constant.present() ? nullptr
                                                                                     : &graph.values[v].constant);
    }
    for (const ValueId v : n.out)
      if (v != kNoValue) graph.values[v].info = {};
    const bool known =
        std::all_of(n.in.begin(), n.in.end(), [&](ValueId v) { return v == kNoValue || graph.values[v].info.ranked; });
    if (!known) {
      infer_residual(graph, n);
      continue;
    }
    try {
      if (!n.def->infer(infer).is_ok()) continue;
      infer_content(graph, n, evaluator, infos);
    } catch (const DimTooLong&) {
      continue;
    }
    for (size_t i = 0; i < n.out.size(); ++i)
      if (n.has_output(i)) graph.values[n.out[i]].info = infos[i];
  }
}

// The fewest frames of which f makes `rows` rows; f does not fall.
int64_t fewest(const Dim& f, int frames, int64_t rows) {
  constexpr int64_t kMost = int64_t{1} << 40;
  int64_t low = 1, high = kMost;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    SymbolValues symbols;
    symbols[frames] = middle;
    if (f.eval(symbols) >= rows)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

}  // namespace

std::optional<Dim> masked_length(const Graph& encoder) {
  std::optional<Dim> length;
  bool arrays = false;
  for (const ValueId v : encoder.inputs) {
    const Value& value = encoder.values[v];
    if (dtype_is_float(value.info.type))
      arrays = true;
    else if (value.info.shape.size() == 2 && value.name.find("mask") != std::string::npos)
      length = value.info.shape[1];
  }
  return arrays ? length : std::nullopt;
}

std::vector<ValueInfo> shapes_of(const Graph& graph, const std::vector<std::string>& outputs, Evaluator& evaluator) {
  Graph inferred = graph;
  std::vector<ValueInfo> shapes(outputs.size());
  if (!resolve_ops(inferred).is_ok()) return shapes;
  for (const ValueId v : inferred.inputs)
    if (Shape& shape = inferred.values[v].info.shape; !shape.empty() && !shape[0].is_const()) shape[0] = Dim(1);
  infer_all(inferred, evaluator);
  for (size_t i = 0; i < outputs.size(); ++i)
    if (const ValueId out = inferred.find(outputs[i]); out != kNoValue) shapes[i] = inferred.values[out].info;
  return shapes;
}

Dim source_length(const Graph& encoder, const std::string& output, Evaluator& evaluator) {
  const Dim rows = Dim::symbol(kSymE);
  const std::optional<Dim> masked = masked_length(encoder);
  const int frames = masked ? masked->lone_symbol() : -1;
  if (frames < 0) return rows;
  const ValueInfo made = shapes_of(encoder, {output}, evaluator)[0];
  if (!made.ranked || made.shape.size() != 3) return rows;
  const Dim& f = made.shape[1];
  if (f.symbols() != std::set<int>{frames}) return rows;
  constexpr int64_t kMany = 1000;  // where paddings and divisions of what is below 0 do not show
  const int64_t many = fewest(f, frames, kMany), a = fewest(f, frames, kMany + 1) - many, b = many - a * kMany;
  const Dim length = Dim(a) * rows + Dim(b);
  if (length.lower_bound() < 1) return rows;
  return f.substitute(frames, length) == rows ? length : rows;
}

}  // namespace situ
